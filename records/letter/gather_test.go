package letter

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/internal/term"
	"blockd/internal/testkit"
	"blockd/records/history"
)

var update = flag.Bool("update", false, "write the letters of testdata anew")

// The time of all letters here.
var (
	until = time.Date(2026, 11, 24, 16, 0, 0, 0, time.UTC)
	since = until.Add(-7 * 24 * time.Hour)
)

// keep writes decisions into a history of their own.
func keep(t *testing.T, all ...history.Record) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "history")
	l := testkit.Value(history.Open(history.Settings{Folder: folder, Max: history.MinMax, Keep: 100 * 365 * 24 * time.Hour}))(t)
	for _, r := range all {
		l.Add(r)
		testkit.Must(t, l.Flush())
	}
	l.Close()
	return folder
}

// decision is one, some hours before the letter.
func decision(hours int, outcome, list, sender string) history.Record {
	r := history.Record{Time: until.Add(-time.Duration(hours) * time.Hour), Door: "smtp", Outcome: outcome, Verdict: "blocked", Client: netip.MustParseAddr("192.0.2.7"),
		Helo: "mx.example", Sender: sender, Recipient: "bob@here.example", Generation: "1", List: list, Sole: true}
	if list != "" {
		r.Entry, r.Ref = "entry", fmt.Sprintf("ref%05d", hours)
	}
	if outcome == "accept" && list == "" {
		r.Verdict, r.Sole = "clear", false
	}
	return r
}

func repeated(r history.Record, n int) history.Record { r.Repeated = n; return r }
func both(r history.Record) history.Record            { r.Sole = false; return r }
func shadow(r history.Record) history.Record          { r.Shadow = true; return r }

func known(r history.Record) history.Record { r.Correspondent = true; return r }

// week is a history with everything in it.
func week() []history.Record {
	return []history.Record{
		decision(24*8, "refuse", "ads", "old@before.example"), // before the letter
		repeated(decision(100, "refuse", "ads", "bulk@ads.example"), 1200),
		both(decision(90, "refuse", "ads", "Bulk@ads.example")),
		decision(80, "refuse", "ads", "other@ads.example"),
		decision(70, "defer", "grey", "slow@grey.example"),
		decision(60, "quarantine", "ads", "odd@ads.example"),
		decision(50, "tag", "grey", "tagged@grey.example"),
		repeated(decision(40, "refuse", "ads", "invoice@bank.example"), 3),
		decision(30, "refuse", "ads", "news@club.example"),
		decision(29, "refuse", "ads", "asks@shop.example"),
		known(decision(31, "refuse", "ads", "partner@office.example")),
		decision(28, "refuse", "", "x@rule.example"),
		decision(27, "refuse", "ads", ""),
		shadow(decision(26, "accept", "trial", "a@trial.example")),
		shadow(decision(25, "accept", "trial", "b@trial.example")),
		shadow(decision(24, "accept", "trial", "b@trial.example")),
		decision(23, history.Listed, "ads", "q@ads.example"),
		decision(22, "accept", "", "friend@good.example"),
		decision(21, "accept", "", "friend@good.example"),
		decision(-1, "refuse", "ads", "late@ads.example"), // after it
	}
}

func whole(folder string) Sources {
	return Sources{
		Host: "mx1.here.example", Version: "1.2.3", History: folder,
		Exceptions: func(time.Time) []string { return []string{"club.example", "elsewhere.example"} },
		Allowed:    func(sender string) bool { return strings.HasSuffix(sender, "@club.example") },
		Aligned: func(_ context.Context, client netip.Addr, helo, sender string) bool {
			return sender == "invoice@bank.example" && client == netip.MustParseAddr("192.0.2.7") && helo == "mx.example"
		},
		Proposals: func() ([]Unwanted, error) {
			return []Unwanted{{Entry: "promo@bulk.example", Users: 7, Domains: 2, Complaints: 1, Last: until.Add(-time.Hour)}}, nil
		},
		Pending: func() ([]Pending, error) {
			return []Pending{{"vendor", until.Add(-50 * time.Hour), "+12 -3 entries", []string{
				"held back when it is adopted, for they would refuse senders who wrote lately, or correspondents: club.example (4 senders)"}}}, nil
		},
		Requests: func() ([]OpenRequest, error) {
			return []OpenRequest{
				{Ref: "7m3k9q2vxtb81dc0", Sender: "asks@shop.example", List: "ads", Time: until.Add(-20 * time.Hour), Note: "We only send invoices that were asked for, and nobody here knows why that is refused. Please have a look at it."},
				{Ref: "1aaaaaaaaaaaaaaa", Sender: "first@shop.example", List: "grey", Time: until.Add(-60 * time.Hour)},
			}, nil
		},
		Changes: func(context.Context, time.Time, time.Time) ([]Change, error) {
			return []Change{{"entry.add", 12, []string{"anna", "ben (helpdesk)"}}, {"list.pause", 1, []string{"anna"}}}, nil
		},
		Loads: func() []Load {
			return []Load{
				{List: "ads", Loads: 7, Before: 4000, Entries: 4120, Refused: 2, Why: "list ads: /var/lib/blockd/lists/ads.txt: shrunk: has 12 entries, 4,120 were there before"},
				{List: "grey", Entries: 18, Stale: true},
				{List: "trial", Loads: 1, Entries: 1006826, New: true, Held: 3},
			}
		},
		Problems: func() []string {
			return []string{"list ads: /var/lib/blockd/lists/ads.txt: shrunk: has 12 entries, 4,120 were there before"}
		},
	}
}

// Letters are golden files: as people read them. go test ./records/letter -update writes them.
func TestLetters(t *testing.T) {
	var hostile []history.Record
	for i := range 30 {
		hostile = append(hostile, decision(i+1, "refuse", "ads", fmt.Sprintf("%s\u202e\x1b[31m%d@%s.example", strings.Repeat("é", 60), i, strings.Repeat("x", 80))))
	}
	for name, s := range map[string]Sources{
		"whole": whole(keep(t, week()...)),
		"quiet": {Host: "mx1.here.example", Version: "1.2.3", History: keep(t, decision(5, "accept", "", "a@b.example"))},
		"none":  {Host: "mx1.here.example", Version: "1.2.3"},
		"hostile": {Host: "mx1.here.example", Version: "1.2.3", History: keep(t, hostile...),
			Exceptions: func(time.Time) []string { return []string{strings.Repeat("x", 80) + ".example"} },
			Requests: func() ([]OpenRequest, error) {
				return []OpenRequest{{Ref: "r\r\nBcc: x", Sender: "a\r\nBcc: everybody@here.example", Note: strings.Repeat("ß\u202e", 1000), Time: until}}, errors.New("a\nb")
			},
			Problems: func() []string { return slices.Repeat([]string{"list\x1b[2J " + strings.Repeat("y", 1000)}, 50) }},
	} {
		l := testkit.Value(Gather(t.Context(), s, since, until))(t)
		text := "Subject: " + l.Subject() + "\n\n" + l.Text(time.UTC)
		path := filepath.Join("testdata", name+".txt")
		if *update {
			testkit.Write(t, path, text)
		}
		testkit.Equal(t, name, text, string(testkit.Read(t, path)))
		testkit.Equal(t, fmt.Sprintf("%s: Empty", name), l.Empty(), name == "quiet" || name == "none")
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if term.Columns(line) > columns && !strings.HasPrefix(line, "Subject: ") || strings.ContainsAny(line, "\r\x1b\u202e") {
				t.Errorf("%s: %d columns: %q", name, term.Columns(line), line)
			}
		}
	}
}

// Counts are exact whatever does not fit into memory: compared with a slow count in a map.
func TestCountsAreExact(t *testing.T) {
	draw := rand.New(rand.NewPCG(7, 7))
	var all []history.Record
	for i := range 5000 {
		outcome := []string{"refuse", "defer", "quarantine", "tag", "discard", "accept", history.Listed}[draw.IntN(7)]
		r := decision(1+draw.IntN(200), outcome, []string{"", "a", "b", "c"}[draw.IntN(4)], fmt.Sprintf("s%d@x%d.example", draw.IntN(900), draw.IntN(3)))
		r.Sole = draw.IntN(2) == 0
		r.Shadow = outcome == "accept" && r.List == "c"
		if outcome == "refuse" && i%3 == 0 {
			r.Repeated = 1 + draw.IntN(50)
		}
		all = append(all, r)
	}
	want, senders := map[string]*List{}, map[string]map[string]bool{}
	var mail Mail
	for _, r := range all {
		if r.Time.Before(since) {
			continue
		}
		n := r.Times()
		l := want[r.List]
		if l == nil {
			l = &List{Name: r.List}
			want[r.List], senders["-"+r.List], senders["+"+r.List] = l, map[string]bool{}, map[string]bool{}
		}
		if r.Outcome == history.Listed {
			l.Answers += n
			continue
		}
		mail.Decisions += n
		if r.Outcome == "accept" {
			if r.Shadow {
				l.Shadow, mail.Shadow = l.Shadow+n, mail.Shadow+n
				senders["+"+r.List][r.Sender] = true
			}
			continue
		}
		both := map[string][2]*uint64{"refuse": {&l.Refused, &mail.Refused}, "defer": {&l.Deferred, &mail.Deferred}, "quarantine": {&l.Quarantined, &mail.Quarantined},
			"tag": {&l.Tagged, &mail.Tagged}, "discard": {&l.Discarded, &mail.Discarded}}[r.Outcome]
		*both[0] += n
		*both[1] += n
		if r.List == "" {
			mail.Rules += n
		}
		if r.Sole {
			l.Sole += n
		}
		senders["-"+r.List][r.Sender] = true
	}
	l := testkit.Value(Gather(t.Context(), Sources{History: keep(t, all...), Memory: 4 << 10}, since, until))(t)
	testkit.Equal(t, "mail", l.Mail, mail)
	testkit.Equal(t, "lists", len(l.Lists), 3)
	for _, got := range l.Lists {
		w := want[got.Name]
		w.Senders, w.ShadowSenders = uint64(len(senders["-"+got.Name])), uint64(len(senders["+"+got.Name]))
		testkit.Equal(t, "list", got, *w)
	}
}

// DNS is asked about a bounded number of senders, those with the most refusals, a few at a time.
func TestDNSIsBounded(t *testing.T) {
	var all []history.Record
	for i := range 100 {
		all = append(all, repeated(decision(i+1, "refuse", "ads", fmt.Sprintf("s%d@x.example", i)), i+1))
	}
	var mu sync.Mutex
	var senders []string
	now, most := 0, 0
	l, err := Gather(t.Context(), Sources{History: keep(t, all...), Aligned: func(_ context.Context, _ netip.Addr, _, sender string) bool {
		mu.Lock()
		senders = append(senders, sender)
		now++
		most = max(most, now)
		mu.Unlock()
		defer func() { mu.Lock(); now--; mu.Unlock() }()
		return false
	}}, since, until)
	testkit.Must(t, err)
	if len(senders) != MostLooked || l.Suspects.Looked != MostLooked || most > lookAt || len(l.Suspects.Rows) > 0 {
		t.Errorf("%d asked, %d at a time, rows %v", len(senders), most, l.Suspects.Rows)
	}
	for i := range MostLooked {
		if sender := fmt.Sprintf("s%d@x.example", 99-i); !slices.Contains(senders, sender) {
			t.Errorf("%s was not asked about", sender)
		}
	}
}

// A history that is not there yet is one without decisions, and the end of ctx is an error.
func TestNoHistoryYet(t *testing.T) {
	l := testkit.Value(Gather(t.Context(), Sources{History: filepath.Join(t.TempDir(), "none")}, since, until))(t)
	testkit.Equal(t, "Empty of no history", l.Empty(), true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	testkit.Fails(Gather(ctx, Sources{History: keep(t, week()...)}, since, until))(t, "after the end of ctx", context.Canceled)
}

// Whatever is in a letter, it is mail that a strict reader takes, with the fields that keep robots from answering.
func TestMessage(t *testing.T) {
	l := Letter{Host: "mx1.here.example", Version: "1.2.3", Since: since, Until: until, Mail: Mail{Decisions: 5, Refused: 2},
		Notes:    []string{"é\r\nBcc: everybody@here.example", strings.Repeat("long ", 400)},
		Requests: []OpenRequest{{Sender: "a@b.example\r\n.\r\nMAIL FROM:<x>"}}, Open: 1}
	h := Header{From: "blockd@mx1.here.example", To: []string{"postmaster@here.example", "anna@here.example"}, ID: ID(l.Host, since), Date: until}
	text := string(l.Message(h, time.UTC))
	m := testkit.Value(mail.ReadMessage(strings.NewReader(text)))(t)
	to := testkit.Value(m.Header.AddressList("To"))(t)
	testkit.MustEqual(t, fmt.Sprintf("To %v", to), len(to), 2)
	testkit.Equal(t, fmt.Sprintf("To %v", to), to[1].Address, "anna@here.example")
	if date, err := m.Header.Date(); err != nil || !date.Equal(until) {
		t.Errorf("Date %v, %v", date, err)
	}
	for field, want := range map[string]string{
		"From": "blockd <blockd@mx1.here.example>", "Auto-Submitted": "auto-generated", "Precedence": "bulk", "Bcc": "",
		"X-Blockd-Report": "2026-11-17T16:00:00Z 2026-11-24T16:00:00Z", "Message-Id": "<blockd.report." + h.ID + "@mx1.here.example>",
		"Content-Type": "text/plain; charset=utf-8", "Mime-Version": "1.0",
	} {
		testkit.Equal(t, field, m.Header.Get(field), want)
	}
	subject := testkit.Value(new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject")))(t)
	testkit.Equal(t, "Subject", subject, "blockd on mx1.here.example: 2 refused, 1 open request")
	body := testkit.Value(io.ReadAll(quotedprintable.NewReader(m.Body)))(t)
	testkit.Equal(t, "body", strings.ReplaceAll(string(body), "\r\n", "\n"), l.Text(time.UTC))
	if again := ID(l.Host, since); again != h.ID || ID(l.Host, until) == h.ID || ID("mx2.here.example", since) == h.ID {
		t.Errorf("id %s, then %s", h.ID, again)
	}
	odd := string(l.Message(Header{From: "a@b\r\nX: y", To: []string{"c@d\r\nZ: w"}, ID: "1", Date: until}, time.UTC))
	testkit.Lacks(t, odd, "\r\nX: y", "\r\nZ: w")
}

// FuzzMessage puts a stranger's text wherever a letter may have one: it is mail that a strict reader takes, with the fields
// that it should have and no others, and its lines are of 72 columns.
func FuzzMessage(f *testing.F) {
	for _, text := range []string{"", "a@b.example\r\n.\r\nMAIL FROM:<x>", "\u202e\x1b[31m\x00\xff", strings.Repeat("ü", 500), "=?utf-8?q?=0D=0ABcc:_x?=", "-- ", ".\n..", "From x"} {
		f.Add(text, int64(7))
	}
	f.Fuzz(func(t *testing.T, text string, n int64) {
		n = max(n, 0)
		l := Letter{Host: "mx1.here.example", Version: "1.2.3", Since: since, Until: until, Open: 1, Waiting: 1, Notes: []string{text}, Problems: []string{text},
			Mail:     Mail{Decisions: uint64(n), Refused: uint64(n)},
			Lists:    []List{{Name: text, Refused: uint64(n), Sole: 1, Senders: 1}, {Name: text, Shadow: uint64(n)}, {Name: text, Answers: 1}},
			Suspects: Suspects{Rows: []Suspect{{Sender: text, Signs: []string{Asked}, List: text, Entry: text, Ref: text}}},
			Loads:    []Load{{List: text, Loads: 1, Refused: 1, Why: text, Stale: true, Held: 1}},
			Requests: []OpenRequest{{Ref: text, Sender: text, List: text, Note: text}},
			Proposed: []Unwanted{{Entry: text, Users: 7}},
			Pending:  []Pending{{List: text, Changes: text, Against: []string{text}}},
			Changes:  []Change{{Action: text, Count: 1, By: []string{text}}}}
		whole := string(l.Message(Header{From: "blockd@mx1.here.example", To: []string{"postmaster@here.example"}, ID: ID(l.Host, since), Date: until}, time.UTC))
		for line := range strings.SplitAfterSeq(whole, "\r\n") {
			if len(line) > 998 || strings.ContainsFunc(strings.TrimSuffix(line, "\r\n"), func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }) {
				t.Fatalf("line %.80q", line)
			}
		}
		m := testkit.Value(mail.ReadMessage(strings.NewReader(whole)))(t)
		testkit.MustEqual(t, fmt.Sprintf("fields: %v", m.Header), len(m.Header), 12)
		testkit.Value(new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject")))(t)
		body := testkit.Value(io.ReadAll(quotedprintable.NewReader(m.Body)))(t)
		for line := range strings.SplitSeq(string(body), "\r\n") {
			if term.Columns(line) > columns || strings.ContainsAny(line, "\r\n\x00\x1b\u202e") {
				t.Fatalf("%d columns: %q", term.Columns(line), line)
			}
		}
	})
}

// FuzzState reads whatever is in the file of a Courier: an error, or a state that a diary goes on from and that is written and read again as it is.
func FuzzState(f *testing.F) {
	for _, text := range []string{`{"report_version":1,"since":"2026-11-24T00:00:00Z","sent":"2026-11-24T00:00:00Z","loads":{"ads":{"list":"ads","loads":2,"refused":1,"why":"shrunk"}}}`,
		`{"report_version":1,"loads":{"":{}}}`, "{", "null", `{"report_version":1,"loads":null,"trying":"2026-11-24T00:00:00Z"}`} {
		f.Add([]byte(text))
	}
	path := f.TempDir() + "/report"
	f.Fuzz(func(t *testing.T, text []byte) {
		testkit.Must(t, os.WriteFile(path, text, 0o600))
		s, err := readState(path)
		if err != nil {
			return
		}
		d := NewDiary()
		d.Restore(s.Loads)
		d.Loads([]string{"ads"}, map[string]int{"ads": 1})
		d.Told(d.State())
		if err := s.write(path); err != nil {
			return // a year that RFC 3339 has no digits for
		}
		again, err := readState(path)
		if err != nil || !again.Since.Equal(s.Since) || len(again.Loads) != len(s.Loads) {
			t.Fatalf("%q: %+v, then %+v, %v", text, s, again, err)
		}
	})
}
