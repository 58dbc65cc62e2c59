package reload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"blockd/index"
	"blockd/internal/testkit"
)

// TestFollow has two Reloaders at one index file, as two processes at an upgrade. The one that follows must come to serve
// what the other one builds, also a change that its own gate would refuse, and must not build.
func TestFollow(t *testing.T) {
	var many strings.Builder
	for i := range 200 {
		fmt.Fprintf(&many, "s%d@many.example\n", i)
	}
	old := newDaemon(t, map[string]string{"a.txt": "one@a.example\n", "b.txt": many.String()})
	next := newDaemon(t, nil)
	next.dir, next.settings = old.dir, old.settings
	next.settings.Lists = append([]List(nil), old.settings.Lists...)
	next.settings.Lists[1].MaxShrink, old.settings.Lists[1].MaxShrink = 0, 0.9
	old.open()
	builds := 0
	old.Reloader.settings.Build = func(context.Context, string, []index.Source, index.Options, bool) (*index.Draft, error) {
		builds++
		return nil, errors.New("it builds")
	}
	old.start()
	old.Follow(true)
	next.open().start()
	for n := range 3 {
		entry := fmt.Sprintf("new%d@a.example", n)
		old.write("a.txt", "one@a.example\n"+entry+"\n")
		next.waitListed(entry)
		next.wait("built", func() bool { return next.Live().Generation() == generationOf(t, next) })
		old.wait("the same generation", func() bool {
			old.Replaced()
			return old.Live().Generation() == next.Live().Generation()
		})
		old.waitListed(entry)
	}
	old.write("b.txt", "s1@many.example\n") // the old one's gate refuses it
	next.waitUnlisted("s2@many.example")
	old.wait("the same generation", func() bool {
		old.Replaced()
		return old.Live().Generation() == next.Live().Generation()
	})
	old.waitUnlisted("s2@many.example")
	if builds > 0 || old.count("it builds") > 0 {
		t.Errorf("the one that follows has built %d times:\n%s", builds, old.log)
	}
	old.Follow(false)
	old.write("a.txt", "last@a.example\n")
	old.wait("a build of its own", func() bool { return old.count("it builds") > 0 })
}

// generationOf is the generation of the index file.
func generationOf(t *testing.T, d *daemon) string {
	t.Helper()
	ix := testkit.Value(index.Open(d.settings.Path))(t)
	return ix.Generation()
}
