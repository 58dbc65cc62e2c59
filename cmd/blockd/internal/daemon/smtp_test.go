package daemon

import (
	"testing"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/testkit"
	"blockd/smtpfilter/session"
)

// Every limit of a session that has a key is set by it, and those that follow from one do.
func TestLimitsReachTheSession(t *testing.T) {
	got := sessionLimits(config.SMTP{DrainTimeout: 1, GreetWait: 2, MaxMessageSize: 3, MaxCommandRate: 4, MaxRecipients: 5, HardErrors: 6, MaxConnections: 160})
	want := session.Limits{Drain: 1, GreetWait: 2, MessageSize: 3, CommandRate: 4, Recipients: 5, HardErrors: 6, SoftErrors: 3, JunkCommands: 30, Tarpits: 10}
	testkit.Equal(t, "sessionLimits", got, want)
	d := sessionLimits(config.Default().SMTP)
	testkit.Got(d.SoftErrors, d.JunkCommands, d.Tarpits)(t, "the defaults that follow from others", 10, 100, 256)
}

// A session that is given its time to end well is not cut by the server.
func TestStopTimeoutCoversADrain(t *testing.T) {
	s := config.Default().SMTP
	if got, least := stopTimeout(s), time.Duration(s.DrainTimeout)+session.FinalReply; got <= least {
		t.Errorf("stopTimeout() = %s, want more than %s", got, least)
	}
}
