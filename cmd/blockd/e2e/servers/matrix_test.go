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

// matrixCase is something that a filter and the server behind it may read in two
// ways. play says it to either.
type matrixCase struct {
	name string
	play func(x *e2e.Exchange)
}

// endings are the octets that one server or another has taken for the end of a
// message. The last one is it.
var endings = []struct{ name, octets string }{
	{"LF . LF", "\n.\n"},
	{"LF . CRLF", "\n.\r\n"},
	{"CRLF . LF", "\r\n.\n"},
	{"CR . CR", "\r.\r"},
	{"CR . CRLF", "\r.\r\n"},
	{"CRLF . CR", "\r\n.\r"},
	{"CR . LF", "\r.\n"},
	{"LF . CR", "\n.\r"},
	{"CRLF . CR CRLF", "\r\n.\r\r\n"},
	{"CR CRLF . CR CRLF", "\r\r\n.\r\r\n"},
	{"LF LF . CRLF", "\n\n.\r\n"},
	{"CRLF NUL . CRLF", "\r\n\x00.\r\n"},
	{"CRLF . NUL CRLF", "\r\n.\x00\r\n"},
}

// hidden sends a message that has octets in its midst behind which a second
// transaction waits.
func hidden(before int, octets string) func(x *e2e.Exchange) {
	return func(x *e2e.Exchange) {
		if !x.Envelope() {
			return
		}
		head := x.Header()
		if pad := before - len(head); pad > 0 {
			head += strings.Repeat("x", pad)
		} else {
			head += "hello"
		}
		x.Write(head + octets + x.Smuggled())
	}
}

// whole sends a message that must arrive as it is, cut where cuts say.
func whole(text string, cuts ...string) func(x *e2e.Exchange) {
	return func(x *e2e.Exchange) {
		if !x.Envelope() {
			return
		}
		text := x.Header() + text
		x.Meant = append(x.Meant, strings.TrimSuffix(text, "\r\n")+"\r\n")
		x.Write(string(e2e.Stuffed([]byte(text))))
		if cuts == nil {
			cuts = []string{".\r\n"}
		}
		for _, cut := range cuts {
			x.Write(cut)
		}
		x.Hear()
		x.Write("QUIT\r\n")
	}
}

// commands sends one line, and what it hides if it is read as two; behind it a
// message for whoever may have come to be the sender.
func commands(lines ...string) func(x *e2e.Exchange) {
	return func(x *e2e.Exchange) {
		for _, line := range lines {
			x.Write(strings.ReplaceAll(line, "ID", x.Id) + "\r\n")
			x.Hear()
		}
		x.Say("RCPT TO:<you@here.example>")
		reply := x.Say("DATA")
		for strings.HasPrefix(reply, "2") { // of RCPT, as a line was read as two
			reply = x.Hear()
		}
		if strings.HasPrefix(reply, "354") {
			x.Write(x.Header() + "hello\r\n.\r\n")
			x.Hear()
		}
		x.Write("QUIT\r\n")
	}
}

// chunks sends BDAT commands and what is in them.
func chunks(wire ...string) func(x *e2e.Exchange) {
	return func(x *e2e.Exchange) {
		if !strings.HasPrefix(x.Say("MAIL FROM:<"+x.Id+"@friend.example>"), "250") || !strings.HasPrefix(x.Say("RCPT TO:<you@here.example>"), "250") {
			return
		}
		for _, piece := range wire {
			x.Write(strings.ReplaceAll(strings.ReplaceAll(piece, "SMUGGLED", x.Smuggled()), "HEADER", x.Header()))
		}
		x.Write("QUIT\r\n")
	}
}

// chunk is BDAT with a message in it, in one command.
func chunk(body string) func(x *e2e.Exchange) {
	return func(x *e2e.Exchange) {
		text := x.Header() + strings.ReplaceAll(body, "SMUGGLED", x.Smuggled())
		chunks(fmt.Sprintf("BDAT %d LAST\r\n%s", len(text), text))(x)
	}
}

func matrixCases() []matrixCase {
	var cases []matrixCase
	for _, e := range endings {
		cases = append(cases, matrixCase{e.name + " in a message", hidden(0, e.octets)})
	}
	cases = append(cases, []matrixCase{
		{"CRLF . CRLF in three segments", whole("hello\r\n", ".", "\r", "\n")},
		{"CRLF . CRLF, and a segment for each octet", whole("hello", "\r", "\n", ".", "\r", "\n")},
		{"lines of dots", whole(".\r\n..\r\n...\r\n.x\r\n. \r\n")},
		{"8-bit octets", whole("Gr\xc3\xbc\xc3\x9fe, Gr\xfc\xdfe\r\n")},
		{"a line of 3,000 octets", whole(strings.Repeat("0123456789", 300) + "\r\n")},
		{"a line of 100,000 octets", whole(strings.Repeat("0123456789", 10_000) + "\r\n")},
		{"a second message pipelined behind the dot", func(x *e2e.Exchange) {
			if !x.Envelope() {
				return
			}
			first, second := x.Header()+"first\r\n", x.Header()+"second\r\n"
			x.Meant = []string{first, second}
			x.Write(first + ".\r\nMAIL FROM:<" + x.Id + "@friend.example>\r\nRCPT TO:<you@here.example>\r\nDATA\r\n")
			for range 3 {
				x.Hear()
			}
			if strings.HasPrefix(x.Hear(), "354") {
				x.Write(second + ".\r\n")
				x.Hear()
			}
			x.Write("QUIT\r\n")
		}},
		{"a listed sender pipelined behind the dot", func(x *e2e.Exchange) {
			if !x.Envelope() {
				return
			}
			x.Meant = []string{x.Header() + "hello\r\n"}
			x.Write(x.Meant[0] + ".\r\n" + x.Smuggled())
		}},

		{"MAIL behind NOOP and LF", commands("NOOP x\nMAIL FROM:<ID-smuggled@bulk.example>")},
		{"MAIL behind NOOP and CR", commands("NOOP x\rMAIL FROM:<ID-smuggled@bulk.example>")},
		{"MAIL behind NOOP and NUL", commands("NOOP x\x00MAIL FROM:<ID-smuggled@bulk.example>")},
		{"MAIL behind RSET and LF", commands("MAIL FROM:<ID@friend.example>", "RSET\nMAIL FROM:<ID-smuggled@bulk.example>")},
		{"MAIL behind VRFY and LF", commands("VRFY x\nMAIL FROM:<ID-smuggled@bulk.example>")},
		{"MAIL in MAIL behind LF", commands("MAIL FROM:<ID@friend.example>\nRSET\nMAIL FROM:<ID-smuggled@bulk.example>")},
		{"a listed sender behind NUL", commands("MAIL FROM:<ID-smuggled@bulk.example\x00@friend.example>")},
		{"MAIL behind a NOOP of 512 octets", commands(cutNOOPs(512)...)},
		{"MAIL behind a NOOP of 1,000 octets", commands(cutNOOPs(1000)...)},
		{"MAIL behind a NOOP of 1,024 octets", commands(cutNOOPs(1024)...)},
		{"MAIL behind a NOOP of 2,048 octets", commands(cutNOOPs(2048)...)},
		{"MAIL behind a NOOP of 4,096 octets", commands(cutNOOPs(4096)...)},
		{"MAIL with 1,900 octets of ENVID", commands("MAIL FROM:<ID@friend.example> RET=HDRS ENVID=" + strings.Repeat("x", 1900))},
		{"MAIL with 3,900 octets of ENVID", commands("MAIL FROM:<ID@friend.example> RET=HDRS ENVID=" + strings.Repeat("x", 3900))},
		{"a blank behind MAIL", commands("MAIL FROM:<ID@friend.example> ")},
		{"a blank behind RCPT", commands("MAIL FROM:<ID@friend.example>", "RCPT TO:<you@here.example> ")},
		{"a blank behind DATA", func(x *e2e.Exchange) {
			x.Say("MAIL FROM:<" + x.Id + "@friend.example>")
			x.Say("RCPT TO:<you@here.example>")
			if strings.HasPrefix(x.Say("DATA "), "354") {
				x.Write(x.Header() + "hello\r\n.\r\n")
				x.Hear()
			}
			x.Write("QUIT\r\n")
		}},
		{"a second MAIL, of a listed sender", commands("MAIL FROM:<ID@friend.example>", "MAIL FROM:<ID-smuggled@bulk.example>")},
		{"Latin-1 in the sender", commands("MAIL FROM:<ID\xe4@friend.example>")},
		{"UTF-8 in the sender, no SMTPUTF8", commands("MAIL FROM:<ID\xc3\xa4@friend.example>")},
		{"UTF-8 in the sender, with SMTPUTF8", commands("MAIL FROM:<ID\xc3\xa4@friend.example> SMTPUTF8")},
		{"a listed IDN as A-label", commands("MAIL FROM:<ID@xn--bckerei-5wa.example>")},
		{"a listed IDN in UTF-8, with SMTPUTF8", commands("MAIL FROM:<ID@b\xc3\xa4ckerei.example> SMTPUTF8")},
		{"a control octet in the sender", commands("MAIL FROM:<ID\x01@friend.example>")},
		{"an unknown parameter", commands("MAIL FROM:<ID@friend.example> X=MAIL")},

		{"a message by BDAT", chunk("hello\r\n")},
		{"LF . LF in a chunk", chunk("hello\n.\nSMUGGLED")},
		{"CRLF . CRLF in a chunk", chunk("hello\r\n.\r\nSMUGGLED")},
		{"BDAT of 2^32 octets", chunks("BDAT 4294967296 LAST\r\n", "SMUGGLED")},
		{"BDAT of 2^64 octets", chunks("BDAT 18446744073709551616 LAST\r\n", "SMUGGLED")},
		{"BDAT of -1 octets", chunks("BDAT -1 LAST\r\n", "SMUGGLED")},
		{"BDAT of 0x5 octets", chunks("BDAT 0x5 LAST\r\n", "helloSMUGGLED")},
		{"BDAT of +5 octets", chunks("BDAT +5 LAST\r\n", "helloSMUGGLED")},
		{"BDAT of 5.0 octets", chunks("BDAT 5.0 LAST\r\n", "helloSMUGGLED")},
		{"BDAT of 5 octets, something behind", chunks("BDAT 5 LAST 9\r\n", "helloSMUGGLED")},
		{"DATA behind BDAT", chunks("BDAT 5\r\nhello", "DATA\r\n", "HEADERhello\r\n.\r\n")},
		{"a chunk behind DATA's refusal", chunks("DATA x\r\n", "BDAT 157 LAST\r\nHEADER", "SMUGGLED")},
		{"a chunk without a recipient", func(x *e2e.Exchange) {
			x.Say("MAIL FROM:<" + x.Id + "@friend.example>")
			text := x.Smuggled()
			x.Write(fmt.Sprintf("BDAT %d LAST\r\n%sQUIT\r\n", len(text), text))
		}},
	}...)
	for _, s := range spellings {
		name := "sender `" + strings.ReplaceAll(s, "\t", "TAB") + "`"
		cases = append(cases, matrixCase{name, commands("MAIL FROM:" + s)})
	}
	return cases
}

// borderCases put every false end where buffers of blockd end, and behind a long
// line.
func borderCases() (cases []matrixCase) {
	for _, e := range endings {
		for _, before := range []int{2500, 4095, 4096, 4097, 32767, 32768, 32769} {
			cases = append(cases, matrixCase{fmt.Sprintf("%s behind %d octets", e.name, before), hidden(before, e.octets)})
		}
	}
	return cases
}

// cutNOOPs are NOOPs that hide a MAIL where a server that cuts lines at n octets
// would begin the next.
func cutNOOPs(n int) (lines []string) {
	for at := n - 3; at <= n; at++ {
		lines = append(lines, "NOOP "+strings.Repeat("x", at-len("NOOP "))+"MAIL FROM:<ID-smuggled@bulk.example>")
	}
	return lines
}

// spellings are ways to write a sender. bulk.example is listed, and no server may
// come to believe that it sends.
var spellings = []string{
	`<ID@friend.example>`,
	`<ID@bulk.example>`,
	`<ID@Bulk.EXAMPLE>`,
	`<ID@mx.bulk.example>`,
	`<"ID"@bulk.example>`,
	` <ID@bulk.example>`,
	`<"ID@bulk.example> ENVID=a"@friend.example>`,
	`<"ID@bulk.example>"@friend.example>`,
	`<"ID\"@bulk.example"@friend.example>`,
	`<ID\@bulk.example@friend.example>`,
	`<"ID @bulk.example"@friend.example>`,
	`<""@bulk.example>`,
	`<@bulk.example:ID@friend.example>`,
	`<@friend.example:ID@bulk.example>`,
	`<@a.example,@friend.example:ID@bulk.example>`,
	`<@[v@bulk.example> X]:ID@friend.example>`,
	`<ID%bulk.example@friend.example>`,
	`<bulk.example!ID@friend.example>`,
	`<ID@bulk.example@friend.example>`,
	`<ID@friend.example@bulk.example>`,
	`<ID@bulk.example.>`,
	`<ID@bulk.example(friend.example)>`,
	`<ID@(friend.example)bulk.example>`,
	`<ID @ bulk.example>`,
	`ID@bulk.example`,
	`<<ID@bulk.example>>`,
	`"<ID@friend.example>" <ID@bulk.example>`,
	`<ID@friend.example>bulk.example`,
	`<ID@friend.example>,<ID@bulk.example>`,
	`<friend.example:ID@bulk.example>`,
	`<ID@[127.0.0.1]>`,
	"\t<ID@bulk.example>",
	`<x:ID@bulk.example;>`,
	`<=?utf-8?q?ID=40bulk.example=3e?=@friend.example>`,
}
