package reload

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"blockd/internal/durable"
	"blockd/lists"
)

// Difference is why a list of a new generation does not take the place of the one in force.
type Difference struct {
	List       string
	Err        error
	Acceptable bool      // an operator may override it, because the change may be meant
	Rests      time.Time // when it ends by itself, if the file does not change any more; zero: it does not
	command    string
}

// Told is the difference, with the command that lets the list in all the same.
func (d Difference) Told() string { return told(d.Err.Error(), d.command) }

// told is why a list is refused, with the command that lets it in; "": nothing does.
func told(why, command string) string {
	if command == "" {
		return why
	}
	return why + "; " + command + " takes it all the same"
}

func differences(odd []problem) (all []Difference) {
	for _, p := range odd {
		all = append(all, Difference{p.list, p.err, acceptable(p.class), p.rests(), p.command()})
	}
	return all
}

// acceptable reports whether a rule may be overridden. A file that is bad by itself is not
// acceptable.
func acceptable(c lists.Class) bool {
	return slices.Contains([]lists.Class{lists.Empty, lists.Shrunk, lists.Grown, lists.Stale, lists.Recent, lists.Correspondents, lists.Frees}, c)
}

// Accept notes beside the index at path that an operator wants that generation to serve,
// whatever a daemon's gate says against the lists named; against any list, if none is named.
// It is for a process that compiles, before it publishes the index. It also settles what only
// a daemon can judge, the senders accepted lately. The note is of one generation and may stay.
func Accept(path, generation string, lists ...string) error {
	return durable.WriteFile(acceptedPath(path), []byte(strings.Join(append([]string{generation}, lists...), " ")+"\n"), 0o600)
}

// acceptance is the content of such a note.
type acceptance struct {
	generation string
	lists      []string // none: all of them
}

// readAcceptance reads the note beside the index at path. Without one nothing is accepted.
func readAcceptance(path string) (a acceptance) {
	text, err := os.ReadFile(acceptedPath(path))
	if words := strings.Fields(string(text)); err == nil && len(words) > 0 {
		a.generation, a.lists = words[0], words[1:]
	}
	return a
}

// covers reports whether a list of a generation was accepted.
func (a acceptance) covers(generation, list string) bool {
	return a.generation == generation && (len(a.lists) == 0 || slices.Contains(a.lists, list))
}

// adopt swaps in an index that another process has published at Settings.Path and that holds
// the lists as they are now. What `blockd compile` has made need not be made again, and what it
// made with --accept need not pass the gate. Compile does not know the past mail of the daemon,
// so lists that were not accepted are compared with it here.
func (r *Reloader) adopt(v view) bool {
	if r.live.Load() == nil || len(r.problems) == 0 && r.decidedOn != nil && !r.noteMoved() {
		return false // nothing was refused or held back that an operator could have accepted
	}
	r.noted = r.noteStamps()
	note := readAcceptance(r.settings.Path)
	g := r.onDisk()
	if g == nil || g.ix.Generation() == r.live.Load().Generation() || len(g.lacks) > 0 || !g.holds(r.settings.Lists, r.pins) || g.ix.Hashes() != r.settings.Hashes ||
		!slices.Equal(v.contents, contents(g.ix.Lists(), nil, nil)) {
		return false
	}
	accepted := func(list string) bool { return note.covers(g.ix.Generation(), list) }
	freed := slices.DeleteFunc(r.freed(r.live.Load(), g.ix), func(p problem) bool { return accepted(p.list) })
	var odd []problem
	if g.withheld, odd = r.holdEntries(g.ix, r.held.without(accepted), accepted); len(odd)+len(freed) > 0 {
		return false
	}
	for _, p := range r.problems {
		if acceptable(p.class) {
			r.log.LogAttrs(context.Background(), slog.LevelWarn, "lists accepted", slog.String("list", p.list),
				slog.String("class", string(p.class)), slog.String("error", p.err.Error()),
				slog.Time("built", g.ix.Built()), slog.Time("previous_built", r.live.Load().Built()))
		}
	}
	r.serve(g, adopted)
	r.forgetHeld()
	r.decidedOn = v.contents
	return true
}

// noteMoved reports whether the note or the index is another one than when adopt last looked,
// while entries are held that the note could accept.
func (r *Reloader) noteMoved() bool {
	now := r.noteStamps()
	return len(r.held) > 0 && now[0] != nil && !(sameStamp(now[0], r.noted[0]) && sameStamp(now[1], r.noted[1]))
}

// noteStamps returns the stamps of the note and of the index.
func (r *Reloader) noteStamps() (now [2]os.FileInfo) {
	for i, path := range []string{acceptedPath(r.settings.Path), r.settings.Path} {
		now[i], _ = os.Stat(path)
	}
	return now
}

func acceptedPath(path string) string { return path + ".accepted" }
