package command

import (
	"context"
	"errors"
	"strconv"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/adapters/client"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// auditFlags adds who does what only operators do, and why.
func (p *program) auditFlags(cmd *cobra.Command, operator, reason *string) {
	cmd.Flags().StringVar(operator, "operator", p.env("USER"), "who does this, for the audit log (USER)")
	cmd.Flags().StringVar(reason, "reason", "", "why, at least 8 characters, for the audit log")
	mustRequire(cmd, "reason")
	if *operator == "" {
		mustRequire(cmd, "operator")
	}
}

func (p *program) revokeCommand() *cobra.Command {
	req := &v1.RevokeRequest{}
	cmd := &cobra.Command{
		Use:   "revoke --key KEY --reason TEXT",
		Short: "End a grant against its holder's will",
		Long: `End a grant against its holder's will. The holder is told, but may act on for
a moment, or for long if it is frozen: what protects the resource is that it
refuses the old token once it has seen a newer one.`,
		Args: cobra.NoArgs,
		RunE: p.unary(func(ctx context.Context, c *client.Client) error {
			req.Namespace = p.namespace
			resp, err := c.Admin().Revoke(ctx, connect.NewRequest(req))
			if err = translate(err); errors.Is(err, lock.ErrLost) {
				return &lock.Error{
					Code:    lock.CodeLost,
					Message: "nothing revoked: " + p.fullName(req.GetKey()) + " is free, or held under another token",
				}
			}
			if err != nil {
				return err
			}
			return p.print(resp.Msg, func() []field { return revocationFields(resp.Msg.GetRevocation()) })
		}),
	}
	keyFlag(cmd, &req.Key)
	p.auditFlags(cmd, &req.Operator, &req.Reason)
	cmd.Flags().Int64Var(&req.ExpectedToken, "expected-token", 0, "revoke only the grant with this token; 0 means whichever is there")
	return cmd
}

func revocationFields(r *v1.Revocation) []field {
	return []field{
		{"id", r.GetId()},
		{"key", r.GetNamespace() + "/" + r.GetKey()},
		{"operator", r.GetOperator()},
		{"reason", r.GetReason()},
		{"at", when(r.GetAt())},
		{"previous owner", r.GetPreviousOwner()},
		{"previous session", r.GetPreviousSessionHash()},
		{"previous token", strconv.FormatInt(r.GetPreviousToken(), 10)},
		{"floor", strconv.FormatInt(r.GetFloor(), 10)},
	}
}

func (p *program) revocationsCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "revocations",
		Short: "List revocations of a namespace, newest first",
		Args:  cobra.NoArgs,
		RunE: p.reading(p.calling(func(ctx context.Context, c *client.Client) error {
			return pages(ctx, p, limit, listing(p, "AT KEY TOKEN FLOOR OWNER OPERATOR REASON", revocationRow),
				func(ctx context.Context, size int32, token string) ([]*v1.Revocation, string, error) {
					resp, err := c.Admin().ListRevocations(ctx, connect.NewRequest(&v1.ListRevocationsRequest{
						Namespace: p.namespace, PageSize: size, PageToken: token,
					}))
					if err != nil {
						return nil, "", err
					}
					return resp.Msg.GetRevocations(), resp.Msg.GetNextPageToken(), nil
				})
		})),
	}
	limitFlag(cmd, &limit)
	return cmd
}

func revocationRow(r *v1.Revocation) []string {
	return []string{
		when(r.GetAt()), r.GetKey(), strconv.FormatInt(r.GetPreviousToken(), 10), strconv.FormatInt(r.GetFloor(), 10),
		r.GetPreviousOwner(), r.GetOperator(), r.GetReason(),
	}
}

func (p *program) floorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "floor",
		Short: "Raise the floor of all tokens",
		Args:  cobra.NoArgs,
		RunE:  help,
	}
	cmd.AddCommand(p.floorRaiseCommand())
	return cmd
}

func (p *program) floorRaiseCommand() *cobra.Command {
	req := &v1.RaiseTokenFloorRequest{}
	cmd := &cobra.Command{
		Use:   "raise --above TOKEN --reason TEXT",
		Short: "Lift all future tokens above a number, and end all grants",
		Long: `Lift all future tokens of all keys above a number, and end all grants. For use
after the store was restored from an older copy: the number is the highest token
that any protected resource has seen.`,
		Args: cobra.NoArgs,
		RunE: p.unary(func(ctx context.Context, c *client.Client) error {
			resp, err := c.Admin().RaiseTokenFloor(ctx, connect.NewRequest(req))
			if err != nil {
				return err
			}
			return p.print(resp.Msg, func() []field {
				return []field{
					{"floor", strconv.FormatInt(resp.Msg.GetFloor(), 10)},
					{"ended grants", strconv.Itoa(int(resp.Msg.GetEndedGrants()))},
					{"at", when(resp.Msg.GetAt())},
				}
			})
		}),
	}
	cmd.Flags().Int64Var(&req.Above, "above", 0, "at least the highest fence in use anywhere")
	mustRequire(cmd, "above")
	p.auditFlags(cmd, &req.Operator, &req.Reason)
	return cmd
}
