package daemon

import (
	"reflect"
	"testing"
	"time"

	"blockd/internal/config"
)

// Every limit of a session has a key that sets it: none is left at its default
// because nobody has passed it on.
func TestEveryLimitReachesTheSession(t *testing.T) {
	var s config.SMTP
	for _, field := range reflect.ValueOf(&s).Elem().Fields() {
		if field.CanInt() {
			field.SetInt(7)
		}
	}
	for field, value := range reflect.ValueOf(sessionLimits(s)).Fields() {
		if !value.CanInt() || value.Int() != 7 {
			t.Errorf("session.Limits.%s = %v, want the 7 of its key", field.Name, value)
		}
	}
}

// A session that is given its time to end well is not cut by the server.
func TestStopTimeoutCoversADrain(t *testing.T) {
	s := config.Default().SMTP
	if got, least := stopTimeout(s), time.Duration(s.DrainTimeout+s.UpstreamFinalTimeout); got <= least {
		t.Errorf("stopTimeout() = %s, want more than %s", got, least)
	}
}
