package embedded_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/fencelock/fencelock/apps/lockserver/embedded"
	"github.com/fencelock/fencelock/core/lock"
)

// TestNoRequestReachesTheLog: etcd logs requests that took long, and answers, as text: keys, owners, whatever they hold.
func TestNoRequestReachesTheLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	secret := lock.NewSessionID().Reveal()
	logger := embedded.ZapTo(slog.New(slog.NewJSONHandler(&out, nil)))
	for _, l := range []*zap.Logger{logger, logger.With(zap.String("request", secret), zap.String("member", "one"))} {
		l.Warn("apply request took too long", zap.String("took", "2s"),
			zap.String("request", `txn:<key:"fencelock/s/`+secret+`">`), zap.String("response", secret), zap.Error(nil))
	}
	if strings.Contains(out.String(), secret) {
		t.Errorf("the log shows a request: %s", out.String())
	}
	if strings.Count(out.String(), `"took":"2s"`) != 2 || !strings.Contains(out.String(), `"member":"one"`) {
		t.Errorf("the log has lost what is no request: %s", out.String())
	}
}
