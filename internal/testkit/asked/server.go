package asked

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/mail/addr"
	"blockd/policy/ask"
	"blockd/policy/verdict"
)

// Say gives answers as text: a line for each, with all of its rows.
func Say(answers []ask.Answer) string {
	var b strings.Builder
	for _, a := range answers {
		fmt.Fprintf(&b, "%s:", a.Text)
		for _, r := range a.Rows {
			fmt.Fprintf(&b, " %s|%s|%d|%s|%s", r.Entry, r.Action, r.Expires, r.ID, r.Reason)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// WantAnswer asks a store, and checks what it says. An empty answer wants an error, of one line and without the secret.
func WantAnswer(t testing.TB, what string, s ask.Store, texts []string, want, secret string) {
	t.Helper()
	got, err := s.Ask(t.Context(), texts)
	if (err == nil) != (want != "") || err == nil && Say(got) != want {
		t.Errorf("%s: %v\n%swant\n%s", what, err, Say(got), want)
	}
	if err != nil && (strings.Contains(err.Error(), "\n") || secret != "" && strings.Contains(err.Error(), secret)) {
		t.Errorf("%s: the error %q", what, err)
	}
}

// Server is a real server whose list has a@b.example, and not c@b.example.
type Server struct {
	Store            ask.Store
	Stop, GoOn, Kill func() // by SIGSTOP, SIGCONT and SIGKILL
	Start            func() // again; nil: it stays away
}

// DiesAndHangs asks a server that is stopped, goes on, is killed, and is started again: no answer is wrong, and few wait long.
func DiesAndHangs(t *testing.T, s Server) {
	all := sets(t, ask.Options{Store: s.Store, Pause: 100 * time.Millisecond, Timeout: 200 * time.Millisecond, Positive: time.Nanosecond, Negative: time.Nanosecond, Actions: true},
		[]string{"a@b.example", "c@b.example"}, nil)
	// question is whether a sender is listed, and false if that is not known.
	question := func(text string) (listed, known bool) {
		a, err := addr.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		matches, _, unasked := all.Begin(a, addr.Key{}, verdict.EnvelopeSource).Amend(t.Context(), nil, nil, time.Now())
		return len(matches) > 0, len(unasked) == 0
	}
	counts := map[string]int{}
	var waits []time.Duration
	phase := func(name string, n int) {
		for range n {
			start := time.Now()
			yes, known := question("a@b.example")
			no, knownToo := question("c@b.example")
			waits = append(waits, time.Since(start)/2)
			if no || yes != known {
				t.Fatalf("%s: listed %v (known %v), unlisted %v (known %v)", name, yes, known, no, knownToo)
			}
			if known {
				counts[name]++
			}
		}
	}
	until := func(name string) {
		for end := time.Now().Add(30 * time.Second); counts[name] == 0; phase(name, 1) {
			if time.Now().After(end) {
				t.Fatalf("%s: no answer", name)
			}
		}
	}
	until("alive")
	phase("alive", 100)
	s.Stop()
	phase("stopped", 1000)
	s.GoOn()
	until("goes on")
	s.Kill()
	phase("dead", 1000)
	if counts["stopped"]+counts["dead"] > 0 {
		t.Errorf("answers of a server that gives none: %v", counts)
	}
	if s.Start != nil {
		s.Start()
		until("started again")
	}
	slices.Sort(waits)
	t.Logf("%v; p50 %s, p99 %s, most %s", counts, waits[len(waits)/2], waits[len(waits)*99/100], waits[len(waits)-1])
	if waits[len(waits)/2] > 100*time.Millisecond {
		t.Errorf("half of all wait for %s", waits[len(waits)/2])
	}
}

// BenchmarkConfirm asks for the six texts of a sender with four keys, of a list of u0 to u999 at b0.example to b99.example.
func BenchmarkConfirm(b *testing.B, s ask.Store) {
	var waits []time.Duration
	i := 0
	for b.Loop() {
		d := fmt.Sprintf("b%d.example", i%100)
		texts := []string{fmt.Sprintf("u%d@%s", i%2000, d), fmt.Sprintf("u%d@", i), d, "=" + d, "example", ".example"}
		start := time.Now()
		if _, err := s.Ask(b.Context(), texts); err != nil {
			b.Fatal(err)
		}
		waits = append(waits, time.Since(start))
		i++
	}
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds()), "p99-us")
}
