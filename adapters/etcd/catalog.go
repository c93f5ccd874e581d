package etcd

import (
	"context"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// Grants implements port.Catalog.
func (s *Store) Grants(
	ctx context.Context, namespace, prefix string, page port.Page,
) (grants []lock.Grant, next string, err error) {
	listing := "g\x00" + namespace + "\x00" + prefix
	last, size, err := page.Open(listing, func(last string) bool {
		_, err := lock.NewKey(namespace, last)
		return err == nil && strings.HasPrefix(last, prefix)
	})
	if err != nil {
		return nil, "", err
	}
	folder := s.keys.folder(grantFolder) + namespace + "/"
	from, end := folder+prefix, clientv3.GetPrefixRangeEnd(folder+prefix)
	if last != "" {
		from = folder + last + "\x00"
	}
	for {
		found, more, err := s.grantsFrom(ctx, from, end, size+1-len(grants))
		if err != nil {
			return nil, "", err
		}
		live := slices.DeleteFunc(slices.Clone(found), func(v *view) bool { return !v.live() })
		batch, err := s.grantsOf(ctx, live)
		if err != nil {
			return nil, "", err
		}
		grants = append(grants, batch...)
		if len(grants) > size {
			grants = grants[:size]
			return grants, port.PageToken(listing, grants[size-1].Key.Name()), nil
		}
		if !more {
			return grants, "", nil
		}
		from = s.keys.grant(found[len(found)-1].key) + "\x00"
	}
}

// grantsFrom reads up to n grants of a range, live or lapsed, with their leases, at one revision.
func (s *Store) grantsFrom(ctx context.Context, from, end string, n int) (views []*view, more bool, err error) {
	resp, err := s.fetch(ctx, clientv3.OpGet(s.keys.meta()),
		clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(int64(n)), clientv3.WithKeysOnly()))
	if err != nil {
		return nil, false, err
	}
	e, err := decodeEpoch(resp.Responses[0].GetResponseRange().GetKvs())
	if err != nil {
		return nil, false, err
	}
	var keys []lock.Key
	for _, kv := range resp.Responses[1].GetResponseRange().GetKvs() {
		if key, ok := s.keys.lockKey(grantFolder, kv.GetKey()); ok {
			keys = append(keys, key)
		}
	}
	views, err = s.viewsAt(ctx, keys, e, resp.Header.GetRevision())
	return views, resp.Responses[1].GetResponseRange().GetMore() && len(views) > 0, err
}

// Sessions implements port.Catalog. The order is that of the keys, which are hashes of the ids.
func (s *Store) Sessions(ctx context.Context, page port.Page) (sessions []lock.Session, next string, err error) {
	const listing = "s"
	last, size, err := page.Open(listing, func(last string) bool { return isHex(last, sessionDigits) })
	if err != nil {
		return nil, "", err
	}
	folder := s.keys.folder(sessionFolder)
	from := folder
	if last != "" {
		from = folder + last + "\x00"
	}
	resp, err := s.fetch(ctx, clientv3.OpGet(from,
		clientv3.WithRange(clientv3.GetPrefixRangeEnd(folder)), clientv3.WithLimit(int64(size)+1)))
	if err != nil {
		return nil, "", err
	}
	kvs := resp.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) > size {
		kvs = kvs[:size]
		_, last := s.keys.split(kvs[size-1].GetKey())
		next = port.PageToken(listing, last)
	}
	for _, kv := range kvs {
		session, err := decodeSession(kv)
		if err != nil {
			return nil, "", err
		}
		sessions = append(sessions, session)
	}
	return sessions, next, nil
}

// Revocations implements port.Catalog. The records of the namespace and those of all namespaces are two
// ranges, the newest first in each; a page reads no more of either than it could need.
func (s *Store) Revocations(
	ctx context.Context, namespace string, page port.Page,
) (revocations []lock.Revocation, next string, err error) {
	listing := "a\x00" + namespace
	last, size, err := page.Open(listing, isAuditID)
	if err != nil {
		return nil, "", err
	}
	var ops []clientv3.Op
	for _, in := range []string{namespace, ""} {
		from := s.keys.audits(in)
		end := clientv3.GetPrefixRangeEnd(from)
		if id, more := parseAuditID(last); more {
			from = s.keys.audit(in, id) + "\x00"
		}
		ops = append(ops, clientv3.OpGet(from, clientv3.WithRange(end), clientv3.WithLimit(int64(size)+1)))
	}
	resp, err := s.fetch(ctx, ops...)
	if err != nil {
		return nil, "", err
	}
	for _, answer := range resp.Responses {
		for _, kv := range answer.GetResponseRange().GetKvs() {
			revocation, err := s.decodeAudit(kv)
			if err != nil {
				return nil, "", err
			}
			revocations = append(revocations, revocation)
		}
	}
	slices.SortFunc(revocations, func(a, b lock.Revocation) int { return strings.Compare(b.ID, a.ID) })
	if len(revocations) > size {
		revocations = revocations[:size]
		next = port.PageToken(listing, revocations[size-1].ID)
	}
	return revocations, next, nil
}

// Counts implements port.Catalog. A lapsed grant counts until its key or its session is used again.
func (s *Store) Counts(ctx context.Context) (port.Counts, error) {
	count := func(folder string) clientv3.Op {
		return clientv3.OpGet(s.keys.folder(folder), clientv3.WithPrefix(), clientv3.WithCountOnly())
	}
	resp, err := s.fetch(ctx, count(grantFolder), count(sessionFolder))
	if err != nil {
		return port.Counts{}, err
	}
	return port.Counts{
		Grants:   int(resp.Responses[0].GetResponseRange().GetCount()),
		Sessions: int(resp.Responses[1].GetResponseRange().GetCount()),
	}, nil
}

// Read implements port.LockStore.
func (s *Store) Read(ctx context.Context, key lock.Key) (lock.Info, error) {
	resp, err := s.fetch(ctx, append(s.viewOps(key, lock.SessionID{}), clientv3.OpGet(s.keys.floor(key)))...)
	if err != nil {
		return lock.Info{}, err
	}
	v, err := s.decodeView(key, resp.Header.GetRevision(), resp.Responses)
	if err != nil {
		return lock.Info{}, err
	}
	info := lock.Info{Key: key}
	if kvs := resp.Responses[len(resp.Responses)-1].GetResponseRange().GetKvs(); len(kvs) > 0 {
		r, err := decode[floorRecord](kvs[0])
		if err != nil {
			return lock.Info{}, err
		}
		info.Floor = lock.Token(r.Base + kvs[0].GetModRevision())
	}
	if !v.live() {
		return info, nil
	}
	g, live, err := s.withRemaining(ctx, v)
	if err != nil {
		return lock.Info{}, err
	}
	if live {
		info.Held, info.Grant = true, g
	}
	return info, nil
}

// ReapExpired implements port.LockStore. etcd ends leases by itself, so there is nothing to do.
func (s *Store) ReapExpired(context.Context) (int, error) { return 0, nil }
