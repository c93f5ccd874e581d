package command

import (
	"cmp"
	"context"
	"strconv"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock/adapters/client"
	v1 "github.com/fencelock/fencelock/contracts/api/fencelock/v1"
	"github.com/fencelock/fencelock/core/lock"
)

// floorHelp says which floor a picture shows.
const floorHelp = `The floor is that of the key, from revocations; that of "lockctl floor raise",
which is above all keys, is not shown.`

func (p *program) inspectCommand() *cobra.Command {
	req := &v1.InspectRequest{}
	cmd := &cobra.Command{
		Use:   "inspect --key KEY",
		Short: "Show who holds a lock",
		Long:  "Show who holds a lock. A picture for people: it may be old when it arrives, so decide nothing by it.\n\n" + floorHelp,
		Args:  cobra.NoArgs,
		RunE: p.reading(p.unary(func(ctx context.Context, c *client.Client) error {
			req.Namespace = p.namespace
			resp, err := c.Locks().Inspect(ctx, connect.NewRequest(req))
			if err != nil {
				return err
			}
			return p.print(resp.Msg, func() []field { return p.inspectFields(req.GetKey(), resp.Msg) })
		})),
	}
	keyFlag(cmd, &req.Key)
	return cmd
}

func (p *program) inspectFields(key string, m *v1.InspectResponse) []field {
	fields := []field{{"held", strconv.FormatBool(m.GetHeld())}}
	if m.GetHeld() {
		fields = append(fields, grantFields(m.GetGrant())...)
	} else {
		fields = append(fields, field{"key", p.fullName(key)})
	}
	return append(fields,
		field{"waiters", strconv.Itoa(int(m.GetWaiters()))},
		field{"floor", strconv.FormatInt(m.GetFloor(), 10)})
}

// fullName is a key with its namespace, as the service writes it.
func (p *program) fullName(key string) string {
	return cmp.Or(p.namespace, string(lock.DefaultNamespace)) + "/" + key
}

func (p *program) listCommand() *cobra.Command {
	var prefix string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the locks of a namespace that are held",
		Args:  cobra.NoArgs,
		RunE: p.reading(p.calling(func(ctx context.Context, c *client.Client) error {
			return pages(ctx, p, limit, listing(p, "KEY TOKEN OWNER SESSION ACQUIRED LEASE-LEFT", grantRow),
				func(ctx context.Context, size int32, token string) ([]*v1.Grant, string, error) {
					resp, err := c.Locks().ListLocks(ctx, connect.NewRequest(&v1.ListLocksRequest{
						Namespace: p.namespace, Prefix: prefix, PageSize: size, PageToken: token,
					}))
					if err != nil {
						return nil, "", err
					}
					return resp.Msg.GetGrants(), resp.Msg.GetNextPageToken(), nil
				})
		})),
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only keys that start with this")
	limitFlag(cmd, &limit)
	return cmd
}

func grantRow(g *v1.Grant) []string {
	return []string{
		g.GetKey(), strconv.FormatInt(g.GetToken(), 10), g.GetOwner(), g.GetSessionHash(),
		when(g.GetAcquiredAt()), long(g.GetLeaseRemaining()),
	}
}

// pageSize is how many items one call asks for at most.
const pageSize = 500

func limitFlag(cmd *cobra.Command, limit *int) {
	cmd.Flags().IntVar(limit, "limit", 0, "print at most this many; 0 means all")
}

// pages fetches page after page, each within the timeout, until there are no more or limit is reached.
func pages[M any](
	ctx context.Context, p *program, limit int,
	show func(first bool, items []M) error,
	fetch func(ctx context.Context, size int32, token string) ([]M, string, error),
) error {
	if limit < 0 {
		return lock.Invalid("limit", "must not be negative")
	}
	token := ""
	for shown := 0; ; {
		size := pageSize
		if limit > 0 {
			size = min(size, limit-shown)
		}
		call, cancel := context.WithTimeout(ctx, p.timeout)
		items, next, err := fetch(call, int32(size), token)
		cancel()
		if err != nil {
			return err
		}
		if err := show(token == "", items); err != nil {
			return err
		}
		shown += len(items)
		if next == "" || limit > 0 && shown >= limit {
			return nil
		}
		token = next
	}
}
