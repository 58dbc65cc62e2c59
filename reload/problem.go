package reload

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"blockd/index"
	"blockd/internal/term"
	"blockd/lists"
)

// problem is one reason why the lists as they are now do not serve, or not all of them.
type problem struct {
	list, path string // "" where the fault is no single file's
	class      lists.Class
	err        error
	gate       bool // the whole list was refused, compared with what serves
}

func (p problem) file() file { return file{p.list, p.path} }

func errorsOf(problems []problem) (errs []error) {
	for _, p := range problems {
		errs = append(errs, p.err)
	}
	return errs
}

// fileProblem is the fault of one source. err need not wrap a *lists.FileError.
func fileProblem(list, path string, err error) problem {
	p := sourceProblem(&index.SourceError{List: list, Err: err})
	p.path = path
	return p
}

// sourceProblem is the fault of a source in the words of a build.
func sourceProblem(err error) problem {
	p := problem{err: err}
	if se, ok := errors.AsType[*index.SourceError](err); ok {
		p.list = se.List
	}
	if fe, ok := errors.AsType[*lists.FileError](err); ok {
		p.path, p.class = fe.Path, fe.Class
	}
	return p
}

// buildProblems returns a problem for each source in the error of a build.
func buildProblems(err error) []problem {
	refused, ok := errors.AsType[*index.SourcesError](err)
	if !ok {
		return []problem{{err: err}}
	}
	var all []problem
	for _, err := range refused.Errs {
		all = append(all, sourceProblem(err))
	}
	return all
}

// passes reports whether p will pass by itself, and soon.
func (p problem) passes() bool {
	return errors.Is(p.err, lists.ErrChanged) || !p.rests().IsZero() || errors.Is(p.err, index.ErrLocked)
}

// rests is when p will pass because its file has not changed any more; zero: it will not.
func (p problem) rests() time.Time {
	young, _ := errors.AsType[youngError](p.err)
	return young.rests
}

// command lets the list in all the same; "" where nothing does.
func (p problem) command() string {
	if p.passes() || !acceptable(p.class) {
		return ""
	}
	return p.accept()
}

// accept is the command that lets the list in.
func (p problem) accept() string { return "blockd compile --accept " + term.Word(p.list) }

// hint says what an operator can do about p; "" if the error says it all.
func (p problem) hint() string {
	switch {
	case !p.rests().IsZero():
		return "" // it says so itself
	case errors.Is(p.err, index.ErrLocked):
		return "wait for the other build, or end it: blockd compile writes the same file"
	case p.class == "":
		return "" // a full disk, a missing folder: the system's words are plain
	}
	switch p.class {
	case lists.Missing:
		return "put the file back, or take the list out of the configuration"
	case lists.Directory, lists.NotAFile, lists.Symlink:
		return "let the path lead to a regular file; for all files of a folder it is a glob, FOLDER/*.txt"
	case lists.Permission:
		return "let the daemon's user read the file and enter its folders"
	case lists.Changed, lists.Truncated, lists.Gzip:
		return "write the file under another name in the same folder, then rename it"
	case lists.Empty:
		return "if it is meant, run " + p.accept() + " once, or set allow_empty = true"
	case lists.Shrunk:
		return "if it is meant, run " + p.accept() + " once, or lower max_shrink of the list"
	case lists.Grown:
		return "if it is meant, run " + p.accept() + " once, or raise max_grow of the list"
	case lists.Stale:
		return "see where the file came from: an old backup? If it is meant, run " + p.accept() + " once, or raise max_age of the list"
	case lists.Recent:
		return "see who changed the list; if these senders are to be refused, run " + p.accept() + " once, or raise max_recent_blocked of the list"
	case lists.Frees:
		return "see who changed the list; if this mail is to pass, run " + p.accept() + " once, or raise max_freed of the list"
	case lists.Kept:
		return "what was kept of the list is missing or damaged: blockd adopt lets in what its file has now"
	case lists.BadRatio:
		return "run blockd lint on the file; if so many bad lines are usual in it, raise max_bad_ratio of the list"
	case lists.Protected:
		return "see who changed the list; to block such domains all the same, name them in its force, or raise its max_protected"
	case lists.SelfTest:
		return "see what changed: the list's own test of itself fails; correct the list, or the test"
	case lists.OnlyErrors, lists.Ambiguous, lists.BadFormat, lists.JSON, lists.NoColumn:
		return "run blockd lint on the file; perhaps its format must be named"
	case lists.HTML, lists.Binary, lists.Encoding:
		return "see what was downloaded: this is no list"
	}
	return lists.Hint(p.class)
}

// report makes problems those that Status shows, and reports whether they have changed. Each is
// logged when it appears, and at every look that an operator has asked for. The end of all is
// logged too.
func (r *Reloader) report(problems []problem, asked bool) (news bool) {
	before, texts := textsOf(r.problems), textsOf(problems)
	r.mu.Lock()
	r.status.showProblems(problems)
	r.mu.Unlock()
	r.problems = problems
	for i, p := range problems {
		if r.settings.Refused != nil && p.list != "" && !slices.Contains(before, texts[i]) {
			r.settings.Refused(Refusal{p.list, p.path, p.class, texts[i], p.command()})
		}
		if asked || !slices.Contains(before, texts[i]) {
			r.log.LogAttrs(context.Background(), slog.LevelError, "lists refused", r.attrs(p)...)
		}
	}
	if len(before) > 0 && len(problems) == 0 {
		r.log.LogAttrs(context.Background(), slog.LevelInfo, "lists are in order again")
	}
	return !slices.Equal(before, texts)
}

// showProblems makes problems those of the status.
func (s *Status) showProblems(problems []problem) {
	s.Problems, s.Refusals = textsOf(problems), nil
	for i, p := range problems {
		if p.list != "" {
			s.Refusals = append(s.Refusals, Refusal{p.list, p.path, p.class, s.Problems[i], p.command()})
		}
	}
}

func textsOf(problems []problem) []string {
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.err.Error()
	}
	return texts
}

// remaining returns the problems that are still among those of now: of the same file, or in the
// same words.
func remaining(problems, now []problem) []problem {
	return slices.DeleteFunc(slices.Clone(problems), func(p problem) bool {
		return !slices.ContainsFunc(now, func(q problem) bool { return p.file() == q.file() || p.err.Error() == q.err.Error() })
	})
}

// attrs returns the fields of a problem's log line that are not empty.
func (r *Reloader) attrs(p problem) (attrs []slog.Attr) {
	serves := "what was there before"
	if r.lacks.has(p.file()) {
		serves = "the other lists"
	}
	for _, a := range [][2]string{{"list", p.list}, {"file", p.path}, {"class", string(p.class)}, {"error", p.err.Error()},
		{"hint", p.hint()}, {"serves", serves}} {
		if a[1] != "" {
			attrs = append(attrs, slog.String(a[0], a[1]))
		}
	}
	return attrs
}
