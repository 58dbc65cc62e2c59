package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"blockd/cmd/blockd/internal/upgrade"
	"blockd/internal/testkit"
)

// TestParts has two stores and one that cannot be opened: parts are opened, and take what was yielded, in their order; they
// yield and close in the reverse, and what could not be opened is left out.
func TestParts(t *testing.T) {
	var did []string
	failure := errors.New("no disk")
	store := func(name string) *part {
		does := func(what string) error {
			did = append(did, what+" "+name)
			return nil
		}
		return &part{open: func(_ context.Context, _ *daemon, p *part) error {
			p.share = func(context.Context) error { return does("share") }
			p.yield = func(*upgrade.Successor) error { return does("yield") }
			p.resume = func(_ context.Context, back bool) error { return does(fmt.Sprint("resume ", back)) }
			p.renew, p.lock = func() { does("renew") }, func() { does("lock") }
			p.close = func() { does("close") }
			return does("open")
		}}
	}
	broken := &part{open: func(context.Context, *daemon, *part) error { return failure }}
	d := &daemon{parts: []*part{store("a"), store("b"), broken, store("c")}}
	said := func(want ...string) {
		t.Helper()
		if !slices.Equal(did, want) {
			t.Errorf("have %q, want %q", did, want)
		}
		did = nil
	}
	testkit.Equal(t, "opened", d.openParts(t.Context()), failure)
	said("open a", "open b")
	testkit.Must(t, d.giveUp(t.Context(), upgrade.Lists, nil))
	said("share b", "share a")
	testkit.Must(t, d.giveUp(t.Context(), upgrade.Writes, nil))
	said("yield b", "yield a")
	testkit.Must(t, d.resume(t.Context(), true))
	said("resume true a", "resume true b")
	d.passLocks()
	said("lock a", "lock b")
	d.close()
	said("close b", "close a")

	d.parts[0].resume = func(context.Context, bool) error { return failure }
	testkit.Equal(t, "a part that cannot be taken ends the taking", errors.Is(d.resume(t.Context(), false), failure), true)
	said()
	testkit.Equal(t, "of a part that cannot be taken back", errors.Is(d.resume(t.Context(), true), failure), true)
	said("resume true b")
}
