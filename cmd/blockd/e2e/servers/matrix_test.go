package servers

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// result is what came of one exchange.
type result struct {
	*e2e.Exchange
	arrived []arrival
}

// matrixRun is a server of the matrix with the blockd in front of it.
type matrixRun struct {
	t      *testing.T
	server *mailServer
	filter *e2e.Daemon
	n      int // exchanges so far
}

// play says each case to an address, some at a time: where a server waits for
// octets that never come, the others go on.
func (m *matrixRun) play(address string, cases []matrixCase) []*result {
	results := make([]*result, len(cases))
	next := make(chan int)
	var players sync.WaitGroup
	for range 8 {
		players.Go(func() {
			for i := range next {
				x := results[i].Exchange
				if err := x.Open(address); err != nil {
					m.t.Error(err)
					continue
				}
				cases[i].play(x)
				x.End()
			}
		})
	}
	for i := range cases {
		m.n++
		results[i] = &result{Exchange: &e2e.Exchange{Id: fmt.Sprintf("case%05d", m.n)}}
		next <- i
	}
	close(next)
	players.Wait()
	return results
}

// caseID finds what play puts into each envelope and message.
var caseID = regexp.MustCompile(`case[0-9]{5}`)

// collect hands each result what has arrived of it. What belongs to none is a
// fault.
func (m *matrixRun) collect(results []*result) {
	m.server.settle(m.t)
	byID := map[string]*result{}
	for _, r := range results {
		byID[r.Id] = r
		r.arrived = nil
	}
	for _, a := range m.server.inbox.all() {
		id := caseID.FindString(a.from + a.text)
		if r := byID[id]; r != nil {
			r.arrived = append(r.arrived, a)
		} else if id == "" {
			m.t.Errorf("%s has handed on what nobody sent: %+.500q", m.server.name, a)
		}
	}
	for _, r := range results { // servers deliver several at a time
		slices.SortFunc(r.arrived, func(a, b arrival) int { return strings.Compare(body(a.text), body(b.text)) })
	}
}

// verdict is what the table says of a result: how many messages came of it, bold
// if the hidden sender's was among them, or the first refusal.
func (r *result) verdict() string {
	smuggled, changed := 0, 0
	for i, a := range r.arrived {
		if strings.Contains(a.from, "-smuggled") {
			smuggled++
		}
		if i < len(r.Meant) && !strings.HasSuffix(a.text, r.Meant[i]) {
			changed++
		}
	}
	n := len(r.arrived)
	switch {
	case smuggled > 0:
		return fmt.Sprintf("**%d**", n)
	case changed > 0:
		return fmt.Sprintf("%d, changed", n)
	case n == 0 && r.Refusal() != "":
		return r.Refusal()
	}
	return fmt.Sprint(n)
}

// hold checks what must be true of mail that came through blockd, whatever the
// client did and whatever the server takes.
func (m *matrixRun) hold(name string, r, alone *result) {
	for _, a := range r.arrived {
		if domain := strings.ToLower(a.from[strings.LastIndexByte(a.from, '@')+1:]); strings.Contains(domain, "bulk.example") {
			m.t.Errorf("%s: %s has taken mail of the listed sender <%s>", name, m.server.name, a.from)
		}
	}
	if len(r.arrived) != r.Dots {
		m.t.Errorf("%s: %d messages have arrived, the client was told 250 for %d\nheard: %q", name, len(r.arrived), r.Dots, r.Replies)
	}
	for i, a := range r.arrived {
		if len(r.arrived) != len(alone.arrived) {
			break
		}
		if have, want := body(a.text), strings.ReplaceAll(body(alone.arrived[i].text), alone.Id, r.Id); have != want {
			m.t.Errorf("%s: through blockd another message arrives:\n%.1000q\nalone:\n%.1000q", name, have, want)
		}
	}
	if r.Meant != nil && r.Dots == 0 && r.Refusal() == "" {
		m.t.Errorf("%s: neither taken nor refused: %q", name, r.Replies)
	}
}

// TestSmugglingMatrix says whatever two programs may read in two ways to each
// server directly and through blockd. Behind blockd, whatever the server would
// take by itself: as many messages arrive as were answered 250 and counted, none
// has a sender that is listed, and each arrives as the server alone hands it on.
func TestSmugglingMatrix(t *testing.T) {
	cases := matrixCases()
	columns := make([]*column, len(servers))
	t.Run("servers", func(t *testing.T) { // ends when all of them have
		for i, server := range servers {
			t.Run(server.name, func(t *testing.T) {
				t.Parallel() // they wait more than they work
				columns[i] = fill(t, server.start(t), cases)
			})
		}
	})
	if slices.Contains(columns, nil) || t.Failed() {
		return // a server is missing, and said so
	}
	compareTable(t, tableOf(cases, columns))
}

// column is one server's part of the table: a cell for each case.
type column struct {
	server        *mailServer
	alone, behind []string
}

// fill plays all cases to one server, alone and behind blockd.
func fill(t *testing.T, s *mailServer, cases []matrixCase) *column {
	setup := s.filtered("chunking = true\nmax_connections_per_ip = 1000\n")
	setup.Lists, setup.Files = e2e.BadList, map[string]string{"bad.txt": "bulk.example\nb\u00e4ckerei.example\n"}
	m := &matrixRun{t: t, server: s, filter: e2e.Serve(t, setup)}
	alone := m.play(s.smtp, cases)
	m.collect(alone)
	behind := m.play(m.filter.SMTP, cases)
	borders := m.play(m.filter.SMTP, borderCases())
	m.collect(slices.Concat(behind, borders))

	c, arrived := &column{server: s}, 0
	for i := range cases {
		m.hold(cases[i].name, behind[i], alone[i])
		c.alone, c.behind = append(c.alone, alone[i].verdict()), append(c.behind, behind[i].verdict())
		arrived += len(behind[i].arrived)
	}
	for i, r := range borders {
		if len(r.arrived) != 0 || r.Refusal() != "550" {
			t.Errorf("%s: %d messages, heard %q", borderCases()[i].name, len(r.arrived), r.Replies)
		}
	}
	m.filter.Counted(t, `blockd_smtp_messages_total{outcome="accepted"}`, fmt.Sprint(arrived))
	testkit.Equal(t, "panics", m.filter.Metric("blockd_smtp_panics_total"), "0")
	t.Logf("%s %s: %d cases alone and through blockd, %d more at the borders of buffers", s.name, s.version, len(cases), len(borders))
	return c
}

// body is a message from its first field that the client has sent.
func body(text string) string {
	if i := strings.Index(text, "From: <a@friend.example>"); i >= 0 {
		return text[i:]
	}
	return text
}

// tableOf is the matrix as docs/servers.md shows it.
func tableOf(cases []matrixCase, columns []*column) string {
	var b strings.Builder
	b.WriteString("| what the client sends |")
	for _, c := range columns {
		fmt.Fprintf(&b, " %s %s | behind blockd |", c.server.name, c.server.version)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- | --- |", len(columns)) + "\n")
	for i := range cases {
		fmt.Fprintf(&b, "| %s |", cases[i].name)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s | %s |", c.alone[i], c.behind[i])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// behind is what a table says of blockd. What the servers do alone is not held:
// Sendmail takes a chunk behind a refused DATA, or answers 554, as the segments arrive.
func behind(table string) string {
	var b strings.Builder
	for line := range strings.Lines(table) {
		for i, cell := range strings.Split(line, "|") {
			if i == 1 || i > 2 && i%2 == 1 {
				b.WriteString(cell + "|")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// compareTable holds the page to the table, as long as both are of the same
// versions; -update writes it.
func compareTable(t *testing.T, now string) {
	const begin, end = "<!-- matrix -->\n", "<!-- end of matrix -->\n"
	path := filepath.Join(e2e.Root, "docs", "servers.md")
	page := testkit.Read(t, path)
	head, rest, ok := strings.Cut(string(page), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the matrix", path)
	}
	t.Logf("\n%s", now)
	title := func(table string) string { return strings.SplitN(table, "\n", 2)[0] }
	switch {
	case *e2e.Update:
		testkit.Write(t, path, head+begin+now+end+tail)
	case title(old) == title(now) && behind(old) != behind(now):
		t.Errorf("docs/servers.md shows another table (go test ./e2e -run Matrix -update writes it)")
	}
}
