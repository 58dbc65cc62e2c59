package reload

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"blockd/index"
	"blockd/index/kept"
	"blockd/internal/durable"
	"blockd/internal/stamp"
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

// readNote takes up what an operator has accepted since the last look: the lists that the note names, with the content
// that they have in the index on disk. It reports whether that is news. It ends when another generation is published,
// and when that one serves: a list that is emptied once more is to be accepted once more.
func (r *Reloader) readNote() (news bool) {
	if !r.noteMoved() {
		return false
	}
	r.noted, r.accepted = noteStamps(r.settings.Path), nil
	note, serving := readAcceptance(r.settings.Path), r.live.Load()
	if note.generation == "" || serving == nil || serving.Generation() == note.generation {
		return false
	}
	g, err := openGeneration(r.settings.Path)
	if err != nil || g.ix.Generation() != note.generation {
		return false
	}
	meant := contents(g.ix.Lists(), nil, nil)
	r.accepted = func(list string, table []index.ListInfo) bool {
		other := func(c content) bool { return c.list != list }
		return note.covers(note.generation, list) &&
			slices.Equal(slices.DeleteFunc(contents(table, nil, nil), other), slices.DeleteFunc(slices.Clone(meant), other))
	}
	return true
}

// acceptedIn returns the function that says which lists of a table an operator has accepted as they are.
func acceptedIn(table []index.ListInfo, accepted func(string, []index.ListInfo) bool) func(list string) bool {
	return func(list string) bool { return accepted != nil && accepted(list, table) }
}

// tellAccepted logs what speaks against lists that serve because an operator has accepted them.
func tellAccepted(log *slog.Logger, all []problem, g, before *index.Index) {
	for _, p := range all {
		log.LogAttrs(context.Background(), slog.LevelWarn, "lists accepted", slog.String("list", p.list),
			slog.String("class", string(p.class)), slog.String("error", p.err.Error()),
			slog.Time("built", g.Built()), slog.Time("previous_built", before.Built()))
	}
}

// AcceptedDraft makes a draft of the lists that accepted names as they are, in a process that is no daemon. Another
// list that is refused, by itself or compared with the index at s.Path, has what it has there; left says why. taken is
// what speaks against those accepted. Without a draft nothing may serve, for what is left. refused are the lists that
// a daemon's gate refuses, with the reason: it knows past mail that this process does not, and what is built here must
// not become what it calls their last good.
func AcceptedDraft(ctx context.Context, s Settings, pins []kept.Pin, past Past, refused map[string]error, accepted func(list string) bool) (draft *index.Draft, taken, left []Difference, err error) {
	g, err := openGeneration(s.Path)
	if err != nil {
		return nil, nil, nil, err
	}
	held, err := readHeld(s.Path)
	if err != nil {
		return nil, nil, nil, err
	}
	s.Build = s.build()
	r := &Reloader{settings: s, log: slog.New(slog.DiscardHandler), pins: map[string]kept.Pin{}, lacks: g.lacks, urged: true, held: held.in(g.ix), refused: refused}
	r.live.Store(g.ix)
	r.refusals = func() Past { return past }
	r.accepted = func(list string, _ []index.ListInfo) bool { return accepted(list) }
	for _, p := range pins {
		r.pins[p.List] = p
	}
	sources, faults := pinnedSources(s.Lists, pins, s.Kept)
	for _, f := range faults {
		if !slices.ContainsFunc(g.ix.Lists(), func(row index.ListInfo) bool { return row.Source.List == f.list }) {
			r.lacks[f.file()] = listsByName(s.Lists)[f.list].Optional // it had nothing, and may have nothing again
		}
	}
	draft, next, why, err := r.draft(ctx, sources, faults)
	if draft == nil {
		return nil, nil, differences(why), err
	}
	return draft, differences(next.accepted), differences(next.problems()), nil
}

// adopt swaps in an index that another process has published at Settings.Path and that holds
// the lists as they are now. What `blockd compile` has made need not be made again, and what it
// made with --accept need not pass the gate. Compile does not know the past mail of the daemon,
// so lists that were not accepted are compared with it here.
func (r *Reloader) adopt(v view, noted bool) bool {
	if r.live.Load() == nil || len(r.problems) == 0 && r.decidedOn != nil && !noted {
		return false // nothing was refused or held back that an operator could have accepted
	}
	g := r.onDisk()
	if g == nil || g.ix.Generation() == r.live.Load().Generation() || len(g.lacks) > 0 || !g.holds(r.settings.Lists, r.pins) || g.ix.Hashes() != r.settings.Hashes ||
		!slices.Equal(v.contents, contents(g.ix.Lists(), nil, nil)) {
		return false
	}
	accepted := acceptedIn(g.ix.Lists(), r.accepted)
	freed := slices.DeleteFunc(r.freed(r.live.Load(), g.ix), func(p problem) bool { return accepted(p.list) })
	var odd []problem
	if g.withheld, odd = r.holdEntries(g.ix, r.held.without(accepted), accepted); len(odd)+len(freed) > 0 {
		return false
	}
	tellAccepted(r.log, slices.DeleteFunc(slices.Clone(r.problems), func(p problem) bool { return !acceptable(p.class) }), g.ix, r.live.Load())
	r.serve(g, adopted)
	r.forgetHeld()
	r.decidedOn = v.contents
	return true
}

// noteMoved reports whether the note or the index is another one than when readNote last looked.
func (r *Reloader) noteMoved() bool {
	now := noteStamps(r.settings.Path)
	return !stamp.Same(now[0], r.noted[0]) || !stamp.Same(now[1], r.noted[1])
}

// noteStamps returns the stamps of the note and of the index.
func noteStamps(path string) (now [2]os.FileInfo) {
	for i, path := range []string{acceptedPath(path), path} {
		now[i], _ = os.Stat(path)
	}
	return now
}

func acceptedPath(path string) string { return path + ".accepted" }
