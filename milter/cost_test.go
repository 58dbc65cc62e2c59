package milter

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/d--j/go-milter"
	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit/indexes"
	"blockd/policy"
)

// bare is a Modifier that has macros and does nothing else.
type bare struct {
	milter.Modifier
	macros map[string]string
}

func (b bare) Get(name milter.MacroName) string { return b.macros[name] }

// TestClearSenderAllocatesNothing makes every call that a clear sender's message makes to this package.
func TestClearSenderAllocatesNothing(t *testing.T) {
	ix, reg, log := indexes.Build(t, indexes.Source(t, "bad", "bad.example\n")), prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	server := New(Settings{SkipAuthenticated: true, Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		policy.New(func() *index.Index { return ix }, policy.Settings{}, log, reg), reg, log)
	s := &recoverer{next: newSession(server, 0, 0), server: server}
	var m milter.Modifier = bare{macros: map[string]string{milter.MacroMailAddr: "friend@there.example"}}
	s.Connect("client.there.example", "tcp4", 25, "192.0.2.1", m)
	if n := testing.AllocsPerRun(1000, func() {
		if r, err := s.MailFrom("friend@there.example", "SIZE=1000", m); r != milter.RespAccept || err != nil {
			t.Fatalf("MAIL: %v, %v", r, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a clear sender, want none", n)
	}
}
