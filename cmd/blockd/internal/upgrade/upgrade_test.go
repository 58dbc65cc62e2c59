package upgrade

import (
	"os"
	"slices"
	"testing"

	"blockd/internal/testkit"
)

// A predecessor decides on while it is asked for what it has: its decisions come among its answers, and none is lost.
func TestDecisionsAmongTheAnswers(t *testing.T) {
	a, b, err := pair()
	testkit.Must(t, err)
	ours := testkit.Value(newConn(a))(t)
	theirs := testkit.Value(newConn(b))(t)
	p := &Predecessor{conn: ours}
	defer p.Close()
	for _, said := range []struct {
		w    word
		text string
	}{{wordLines, "one"}, {wordGiven, ""}, {wordLines, "two"}, {wordLines, "three"}, {wordCounters, "counted"}, {wordLines, "four"}, {wordCounters, "more"}} {
		testkit.Must(t, theirs.say(said.w, []byte(said.text)))
	}
	testkit.Should(t, p.Want(Writes))
	if counters, err := p.Ready(""); err != nil || string(counters) != "counted" {
		t.Errorf("%q %v", counters, err)
	}
	theirs.Close()
	var lines, counters []string
	err = p.Follow(Follower{
		Lines:    func(text []byte) { lines = append(lines, string(text)) },
		Counters: func(text []byte) { counters = append(counters, string(text)) },
		Conn:     func(string, *os.File) { t.Error("a connection") },
	})
	if err != nil || !slices.Equal(lines, []string{"one", "two", "three", "four"}) || !slices.Equal(counters, []string{"more"}) {
		t.Error(lines, counters, err)
	}
}
