package command

import (
	"context"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/adapters/client"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
)

func (p *program) sessionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Open, keep alive, close and list sessions",
		Args:  cobra.NoArgs,
		RunE:  help,
	}
	cmd.AddCommand(p.sessionOpenCommand(), p.sessionHeartbeatCommand(), p.sessionCloseCommand(), p.sessionListCommand())
	return cmd
}

func (p *program) sessionOpenCommand() *cobra.Command {
	req := &v1.OpenSessionRequest{}
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "open",
		Short: "Open a session and print its secret id",
		Long: `Open a session and print its secret id. It dies, with all its locks, when it
gets no heartbeat for its time to live.`,
		Args: cobra.NoArgs,
	}
	p.ownerFlag(cmd, &req.Owner)
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "time to live, 2s to 10m; without it the server's default")
	cmd.Flags().StringToStringVar(&req.Metadata, "metadata", nil, "name=value pairs, for people")
	cmd.RunE = p.unary(func(ctx context.Context, c *client.Client) error {
		req.Ttl = given(cmd, "ttl", ttl)
		resp, err := c.Sessions().OpenSession(ctx, connect.NewRequest(req))
		if err != nil {
			return err
		}
		s := resp.Msg.GetSession()
		return p.print(resp.Msg, func() []field {
			return []field{
				{"id", s.GetId()},
				{"owner", s.GetOwner()},
				{"ttl", long(s.GetTtl())},
				{"created", when(s.GetCreatedAt())},
				{"metadata", pairs(s.GetMetadata())},
			}
		})
	})
	return cmd
}

func (p *program) sessionHeartbeatCommand() *cobra.Command {
	req := &v1.HeartbeatRequest{}
	cmd := &cobra.Command{
		Use:   "heartbeat",
		Short: "Keep a session alive for another time to live",
		Args:  cobra.NoArgs,
		RunE: p.unary(func(ctx context.Context, c *client.Client) error {
			resp, err := c.Sessions().Heartbeat(ctx, connect.NewRequest(req))
			if err != nil {
				return err
			}
			return p.print(resp.Msg, func() []field {
				return []field{{"remaining", long(resp.Msg.GetRemaining())}}
			})
		}),
	}
	p.sessionFlag(cmd, &req.SessionId)
	return cmd
}

func (p *program) sessionCloseCommand() *cobra.Command {
	req := &v1.CloseSessionRequest{}
	cmd := &cobra.Command{
		Use:   "close",
		Short: "Close a session and free all its locks",
		Args:  cobra.NoArgs,
		RunE: p.unary(func(ctx context.Context, c *client.Client) error {
			resp, err := c.Sessions().CloseSession(ctx, connect.NewRequest(req))
			if err != nil {
				return err
			}
			return p.print(resp.Msg, func() []field {
				return []field{{"released", strconv.Itoa(int(resp.Msg.GetReleased()))}}
			})
		}),
	}
	p.sessionFlag(cmd, &req.SessionId)
	return cmd
}

func (p *program) sessionListCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List live sessions, without their secret ids",
		Args:  cobra.NoArgs,
		RunE: p.reading(p.calling(func(ctx context.Context, c *client.Client) error {
			return pages(ctx, p, limit, listing(p, "SESSION OWNER TTL CREATED METADATA", summaryRow),
				func(ctx context.Context, size int32, token string) ([]*v1.SessionSummary, string, error) {
					resp, err := c.Admin().ListSessions(ctx, connect.NewRequest(&v1.ListSessionsRequest{
						PageSize: size, PageToken: token,
					}))
					if err != nil {
						return nil, "", err
					}
					return resp.Msg.GetSessions(), resp.Msg.GetNextPageToken(), nil
				})
		})),
	}
	limitFlag(cmd, &limit)
	return cmd
}

func summaryRow(s *v1.SessionSummary) []string {
	return []string{s.GetHash(), s.GetOwner(), long(s.GetTtl()), when(s.GetCreatedAt()), pairs(s.GetMetadata())}
}
