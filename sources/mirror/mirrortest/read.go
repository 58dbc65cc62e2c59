package mirrortest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"blockd/sources/mirror"
)

// Rows reads a source as a whole.
func Rows(t testing.TB, s mirror.Source) (rows []mirror.Row, mark mirror.Mark) {
	t.Helper()
	mark, err := s.All(t.Context(), func(r mirror.Row) error {
		rows = append(rows, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows, mark
}

// WantRows reads a source as a whole, and checks its rows.
func WantRows(t testing.TB, s mirror.Source, want ...mirror.Row) mirror.Mark {
	t.Helper()
	got, mark := Rows(t, s)
	if !slices.Equal(got, want) {
		t.Errorf("%.1000s, want %.1000s", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
	}
	return mark
}

// Changes reads what has changed, as "ENTRY ACTION ACTION" with an action for each row, sorted.
func Changes(t testing.TB, s mirror.Source, since mirror.Mark) (lines []string, mark mirror.Mark) {
	t.Helper()
	mark, err := s.Changes(t.Context(), since, func(c mirror.Change) error {
		line := c.Entry
		for _, r := range c.Rows {
			line += " " + r.Action
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines, mark
}

// WantChanges reads what has changed, and checks it.
func WantChanges(t testing.TB, s mirror.Source, since mirror.Mark, want ...string) mirror.Mark {
	t.Helper()
	got, mark := Changes(t, s, since)
	if !slices.Equal(got, want) {
		t.Errorf("%.1000q, want %.1000q", got, want)
	}
	return mark
}

// WantTooOld checks that a source cannot tell what has changed since a mark.
func WantTooOld(t testing.TB, what string, s mirror.Source, since mirror.Mark) {
	t.Helper()
	if _, err := s.Changes(t.Context(), since, Ignore); err != mirror.ErrTooOld { //nolint:errorlint // as it is, without a reason
		t.Errorf("%s: %v, want ErrTooOld without a reason", what, err)
	}
}

// WantLost checks that a source has lost what changed since a mark, and says why in words that hold why.
func WantLost(t testing.TB, what string, s mirror.Source, since mirror.Mark, why string) {
	t.Helper()
	_, err := s.Changes(t.Context(), since, Ignore)
	if said := fmt.Sprint(err); !errors.Is(err, mirror.ErrTooOld) || !strings.HasPrefix(said, mirror.ErrTooOld.Error()+": ") || !strings.Contains(said, why) {
		t.Errorf("%s: %v, want ErrTooOld with a reason: %s", what, err, why)
	}
}

// Ignore takes a change and does nothing.
func Ignore(mirror.Change) error { return nil }

// Skip takes a row and does nothing.
func Skip(mirror.Row) error { return nil }

// Class is that of an error; "" if it has none.
func Class(err error) mirror.Class {
	if e, ok := errors.AsType[*mirror.Error](err); ok {
		return e.Class
	}
	return ""
}

// WantFault checks an error: its class, that its text holds want and no secret, and that it is a line. Without a class there
// must be no error.
func WantFault(t testing.TB, err error, class mirror.Class, want string, secrets ...string) {
	t.Helper()
	if (err == nil) != (class == "") || Class(err) != class || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s: … %s", err, class, want)
	}
	if err == nil {
		return
	}
	text := err.Error()
	if len(text) > mirror.MaxSaid+50 || strings.ContainsAny(text, "\n\r\x00") ||
		slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(text, s) }) {
		t.Errorf("an error that shows too much: %q", text)
	}
}

// WantFaultOf reads a source as a whole, which fails.
func WantFaultOf(t testing.TB, s mirror.Source, class mirror.Class, want string, secrets ...string) {
	t.Helper()
	_, err := s.All(t.Context(), Skip)
	WantFault(t, err, class, want, secrets...)
}

// WantRefused checks an error of options: it begins with the key and what is wrong, and shows no secret.
func WantRefused(t testing.TB, what any, err error, want, secret string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && (!strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), secret)) {
		t.Errorf("%+v: %v, want %q", what, err, want)
	}
}
