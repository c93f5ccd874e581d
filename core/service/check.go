package service

import (
	"time"

	"github.com/fencelock/fencelock/core/lock"
	"github.com/fencelock/fencelock/core/port"
)

// Checks of form. They come before any store is asked (clause LOCK-11).

func checkKey(key lock.Key) error {
	if key.IsZero() {
		return lock.Invalid("key", "must not be empty")
	}
	return nil
}

func checkSession(session lock.SessionID) error {
	if session.IsZero() {
		return lock.Invalid("session_id", "must not be empty")
	}
	return nil
}

func checkRequest(key lock.Key, session lock.SessionID, id lock.RequestID) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := checkSession(session); err != nil {
		return err
	}
	_, err := lock.NewRequestID(string(id))
	return err
}

func checkGrantRef(key lock.Key, session lock.SessionID, token lock.Token) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := checkSession(session); err != nil {
		return err
	}
	return lock.CheckToken(token)
}

// checkLease rounds a lease to whole seconds; 0 stays 0.
func checkLease(lease time.Duration) (time.Duration, error) {
	if lease == 0 {
		return 0, nil
	}
	return lock.RoundTTL("lease", lease)
}

func (s *Service) checkAcquire(req AcquireRequest) (AcquireRequest, error) {
	if err := checkRequest(req.Key, req.Session, req.RequestID); err != nil {
		return req, err
	}
	if req.Wait < 0 || req.Wait > s.cfg.MaxWait {
		return req, lock.Invalid("wait", "must be 0s to "+s.cfg.MaxWait.String())
	}
	var err error
	if req.Lease, err = checkLease(req.Lease); err != nil {
		return req, err
	}
	return req, lock.CheckMetadata(req.Metadata)
}

func (s *Service) checkOpen(req port.OpenRequest) (port.OpenRequest, error) {
	if _, err := lock.NewOwner(string(req.Owner)); err != nil {
		return req, err
	}
	if req.TTL == 0 {
		req.TTL = s.cfg.SessionTTL
	}
	var err error
	if req.TTL, err = lock.RoundTTL("ttl", req.TTL); err != nil {
		return req, err
	}
	return req, lock.CheckMetadata(req.Metadata)
}

func checkRevoke(req port.RevokeRequest) error {
	if err := checkKey(req.Key); err != nil {
		return err
	}
	if req.Expected < 0 {
		return lock.Invalid("expected_token", "must not be negative")
	}
	if err := lock.CheckOperator(req.Operator); err != nil {
		return err
	}
	return lock.CheckReason(req.Reason)
}

func checkFloor(req port.FloorRequest) error {
	if req.Above <= 0 {
		return lock.Invalid("above", "must be positive")
	}
	if err := lock.CheckOperator(req.Operator); err != nil {
		return err
	}
	return lock.CheckReason(req.Reason)
}

// checkPage fills in the default size.
func checkPage(page port.Page) (port.Page, error) {
	if page.Size == 0 {
		page.Size = port.DefaultPageSize
	}
	if page.Size < 0 || page.Size > port.MaxPageSize {
		return page, lock.Invalid("page_size", "must be 1 to 1000")
	}
	return page, nil
}
