package session

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/dialogue"
	"blockd/internal/testkit/script"
	"blockd/mail/addr"
	"blockd/mail/header"
	"blockd/policy"
	"blockd/records/history"
	"blockd/smtpfilter/parse"
)

// TestOneLineADecision: a refusal and a finished message have one line each, with
// everything that an operator is asked for later.
func TestOneLineADecision(t *testing.T) {
	d := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{
		{Name: "bad", Entries: []string{"other.example", "bad.example"}},
		{Name: "trial", Kind: "shadow", Entries: []string{"trial.example"}},
		{Name: "good", Kind: "allow", Entries: []string{"friend@bad.example"}},
	}}
	checker := d.Checker(t)
	synctest.Test(t, func(t *testing.T) {
		server := &script.Server{}
		server.On("RCPT", "250 fine")
		server.On("RCPT", "550 5.1.1 no such user")
		r := newRig(server, checker, Settings{})
		r.logTo(slog.New(slog.NewJSONHandler(r.log, nil)))
		c := connect(t, r, t.Context())
		c.hello()
		c.want("MAIL FROM:<a@mx.bad.example>", "250")
		c.send("RCPT TO:<bob@here.example>\r\n")
		refusal := strings.TrimSuffix(c.reply(), "\r\n")
		c.want("RCPT TO:<abuse@here.example>", "250")
		c.want("RSET", "250")
		c.want("MAIL FROM:<a@trial.example>", "250")
		c.want("RCPT TO:<bob@here.example>", "550 5.1.1")
		c.want("RSET", "250")
		c.mail("friend@bad.example")
		c.want("DATA", "354")
		c.want("hello\r\n.", "250")
		c.quit()
		server.Wait()

		generation := checker.Ask(policy.Question{}).Generation
		want := []map[string]any{
			{"msg": "sender blocked", "door": "smtp", "client": "192.0.2.7", "port": 40000.0, "helo": "client.example", "sender": "a@mx.bad.example",
				"recipient": "bob@here.example", "list": "bad", "line": 2.0, "entry": "bad.example",
				"verdict": "blocked", "reply": refusal, "generation": generation},
			{"msg": "recipient exempt", "recipient": "abuse@here.example", "list": "bad", "entry": "bad.example"},
			{"msg": "sender would be blocked", "list": "trial", "line": 1.0},
			{"msg": "recipient refused upstream", "recipient": "bob@here.example", "upstream_reply": "550 5.1.1 no such user"},
			{"msg": "sender allowed", "list": "good", "entry": "friend@bad.example"},
			{"msg": "mail accepted", "client": "192.0.2.7", "port": 40000.0, "sender": "friend@bad.example", "recipients": 1.0, "octets": 10.0, "verdict": "allowed",
				"upstream_reply": "250 2.0.0 Ok: queued as SCRIPT", "generation": generation},
		}
		lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
		if len(lines) != len(want) {
			t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), r.log)
		}
		for i, line := range lines {
			var got map[string]any
			testkit.Must(t, json.Unmarshal([]byte(line), &got))
			for key, value := range want[i] {
				testkit.Equal(t, fmt.Sprintf("line %d: %s", i+1, key), got[key], value)
			}
			if got["id"] != nil {
				continue // about the message, which has no reference
			}
			if ref, _ := got["ref"].(string); ref == "" || i == 0 && !strings.Contains(refusal, "(ref "+ref+")") {
				t.Errorf("line %d: ref = %q, reply %q", i+1, ref, refusal)
			}
		}
		for label, want := range map[string]float64{"refused": 1, "exempt": 1, "upstream-refused": 1, "accepted": 1} {
			testkit.Equal(t, fmt.Sprintf("recipients{%s}", label), r.count(t, "blockd_smtp_recipients_total", label), want)
		}
		testkit.Equal(t, "messages{accepted}", r.count(t, "blockd_smtp_messages_total", "accepted"), 1)
	})
}

// TestWhySessionsEndByAnEntry: the metric names the list, at RCPT as at the end of a
// message, whose own reply ends a session.
func TestWhySessionsEndByAnEntry(t *testing.T) {
	d := dialogue.Dialogue{Name: t.Name(), Match: map[string][]string{"bad": {"envelope", "from"}},
		Lists: []dialogue.List{{Name: "bad", Kind: "postfix", Entries: []string{"bulk.example 521 5.7.1 go away"}}}}
	for sender, dialogue := range map[string][]string{
		"a@bulk.example": {"RCPT TO:<bob@here.example>", "521"},
		"a@good.example": {"RCPT TO:<bob@here.example>", "250", "DATA", "354", "From: a@bulk.example\r\n\r\nhello\r\n.", "521"},
	} {
		r, c := begin(t, &script.Server{}, d.Checker(t), Settings{})
		c.want("MAIL FROM:<"+sender+">", "250")
		for i := 0; i < len(dialogue); i += 2 {
			c.want(dialogue[i], dialogue[i+1])
		}
		<-c.ended
		testkit.Equal(t, fmt.Sprintf("%s: sessions ended{list}", sender), r.count(t, "blockd_smtp_sessions_ended_total", "list"), 1)
	}
}

// TestLogHasTheReplyThatTheClientHeard: also where one answer is for several recipients,
// and where the greeting is what refuses.
func TestLogHasTheReplyThatTheClientHeard(t *testing.T) {
	replies := func(r *rig) (all []string) {
		for line := range strings.Lines(r.log.String()) {
			var got struct{ Msg, Reply string }
			testkit.Must(t, json.Unmarshal([]byte(line), &got))
			if got.Msg == "sender blocked" {
				all = append(all, got.Reply)
			}
		}
		return all
	}
	d := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{{Name: "bad", Entries: []string{"[192.0.2.7]"}}}}
	r := newRig(&script.Server{}, d.Checker(t), Settings{ClientRejectAt: "connect"})
	r.logTo(slog.New(slog.NewJSONHandler(r.log, nil)))
	c := connect(t, r, t.Context())
	heard := strings.TrimSpace(c.reply())
	c.close()
	if got := replies(r); len(got) != 1 || got[0] != heard {
		t.Errorf("greeting %q, in the log %q", heard, got)
	}

	r = newRig(&script.Server{}, newPost(t, "x.example", "x.example", "dkim").checker, Settings{})
	r.logTo(slog.New(slog.NewJSONHandler(r.log, nil)))
	c = connect(t, r, t.Context())
	c.hello()
	c.mail("a@x.example")
	c.want("RCPT TO:<carol@here.example>", "250")
	heard = strings.TrimSpace(c.data(letter(t, "a@x.example", "", 10)))
	c.close()
	if got := replies(r); len(got) != 2 || got[0] != heard || got[1] != heard {
		t.Errorf("answer %q, in the log %q", heard, got)
	}
}

// TestLogHasWhatARecipientIsAnsweredForOtherReasons than a list's: it has that one line.
func TestLogHasWhatARecipientIsAnsweredForOtherReasons(t *testing.T) {
	d := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{{Name: "watch", Kind: "tag", Entries: []string{"watch.example"}}}}
	r, c := begin(t, &script.Server{}, d.Checker(t), Settings{Helo: "valid"})
	c.mail("a@watch.example")
	c.want("RCPT TO:<postmaster@here.example>", "452 4.5.3")
	c.want("EHLO -", "250")
	c.want("MAIL FROM:<a@good.example>", "250")
	c.want("RCPT TO:<carol@here.example>", "550 5.7.1 Helo")
	c.close()
	for recipient, want := range map[string]string{
		"postmaster": `msg="recipient put off" door=smtp .* recipient=postmaster@here.example .* reply="452 4.5.3 `,
		"carol":      `msg="recipient not taken" door=smtp .* recipient=carol@here.example reply="550 5.7.1 Helo `,
	} {
		if lines := regexp.MustCompile(`.* recipient=`+recipient+`@.*`).FindAllString(r.log.String(), -1); len(lines) != 1 || !regexp.MustCompile(want).MatchString(lines[0]) {
			t.Errorf("lines about %s: %q, want one like %s", recipient, lines, want)
		}
	}
}

// TestReferenceOfARuleIsFound: the contact after a refusal by helo has a reference, which
// history and log have too.
func TestReferenceOfARuleIsFound(t *testing.T) {
	past := testkit.Value(history.Open(history.Settings{Folder: t.TempDir(), Max: history.MinMax, Keep: time.Hour}))(t)
	defer past.Close()
	d := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{{Name: "bad", Entries: []string{"bad.example"}}}}
	ix := d.Index(t)
	r := newRig(&script.Server{}, nil, Settings{Helo: "valid"})
	r.relay.checker = policy.New(func() *index.Index { return ix }, policy.Settings{History: past, Contact: "https://here.example/r/%ref"}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	c := connect(t, r, t.Context())
	c.want("", "220")
	c.want("EHLO -", "250")
	c.want("MAIL FROM:<a@good.example>", "250")
	c.send("RCPT TO:<carol@here.example>\r\n")
	reply := c.reply()
	c.close()
	told := regexp.MustCompile(`^550 5\.7\.1 Helo .* https://here\.example/r/([0-9a-z]+)\r\n$`).FindStringSubmatch(reply)
	if told == nil {
		t.Fatalf("reply %q", reply)
	}
	found := testkit.Value(past.Search(t.Context(), history.Query{Ref: told[1]}))(t)
	if len(found.Records) != 1 || found.Records[0].Outcome != "refuse" || found.Records[0].Recipient != "carol@here.example" {
		t.Errorf("of reference %s the history has %+v", told[1], found.Records)
	}
	testkit.Has(t, r.log.String(), " ref="+told[1]+" ")
}

// TestOnlyAcceptedMessagesCount: a sender has written when upstream has said 250 to the
// end of its message, and not before, whatever it does.
func TestOnlyAcceptedMessagesCount(t *testing.T) {
	lists := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{
		{Name: "bad", Entries: []string{"bad.example"}}, {Name: "trial", Kind: "shadow", Entries: []string{"trial.example"}},
		{Name: "good", Kind: "allow", Entries: []string{"good.example"}},
	}}
	ix := lists.Index(t)
	const opening = "MAIL FROM:<a@there.example>|250 RCPT TO:<bob@here.example>|250 "
	tests := []struct {
		rule   string
		server func(*script.Server)
		say    string // command|answer, "_" for a blank, "#" for a line's end
		want   string
	}{
		{"20 times MAIL, RCPT and RSET", nil, strings.Repeat(opening+"RSET|250 ", 20), ""},
		{"a client that goes away", nil, opening, ""},
		{"a client that goes away in DATA", nil, opening + "DATA|354", ""},
		{"a message that upstream refuses", func(s *script.Server) { s.On(script.Dot, "554 spam") }, opening + "DATA|354 hello\r\n.|554", ""},
		{"a message that upstream puts off", func(s *script.Server) { s.On(script.Dot, "451 later") }, opening + "DATA|354 hello\r\n.|451", ""},
		{"a message", nil, opening + "DATA|354 hello\r\n.|250", "a@there.example from 192.0.2.7"},
		{"a message in chunks", nil, opening + "BDAT_7_LAST#hello|250", "a@there.example from 192.0.2.7"},
		{"half a message in chunks", nil, opening + "BDAT_7#hello|250 RSET|250", ""},
		{"two messages", nil, opening + "DATA|354 hello\r\n.|250 MAIL FROM:<b@other.example>|250 RCPT TO:<bob@here.example>|250 DATA|354 hello\r\n.|250",
			"a@there.example from 192.0.2.7 b@other.example from 192.0.2.7"},
		{"a listed sender, to postmaster", nil, "MAIL FROM:<a@bad.example>|250 RCPT TO:<postmaster@here.example>|250 DATA|354 hello\r\n.|250", ""},
		{"a sender of a shadow list", nil, "MAIL FROM:<a@trial.example>|250 RCPT TO:<bob@here.example>|250 DATA|354 hello\r\n.|250", ""},
		{"an allowed sender", nil, "MAIL FROM:<a@good.example>|250 RCPT TO:<bob@here.example>|250 DATA|354 hello\r\n.|250", ""},
		{"a bounce", nil, "MAIL FROM:<>|250 RCPT TO:<bob@here.example>|250 DATA|354 hello\r\n.|250", ""},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []string
				checker := policy.New(func() *index.Index { return ix }, policy.Settings{RecipientsExempt: []string{"postmaster"},
					Completed: func(a addr.Addr, client netip.Addr) { told = append(told, a.String()+" from "+client.String()) },
				}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
				server := &script.Server{Caps: []string{"PIPELINING", "CHUNKING"}}
				if tt.server != nil {
					tt.server(server)
				}
				_, c := begin(t, server, checker, Settings{Chunking: true})
				say := strings.NewReplacer("MAIL FROM", "MAIL_FROM", "RCPT TO", "RCPT_TO").Replace(tt.say)
				for _, step := range strings.Split(strings.TrimSpace(say), " ") {
					command, answer, _ := strings.Cut(step, "|")
					c.want(strings.NewReplacer("_", " ", "#", "\r\n").Replace(command), answer)
				}
				c.close()
				server.Wait()
				testkit.Equal(t, "told of", strings.Join(told, " "), tt.want)
			})
		})
	}
}

func TestTraceHeader(t *testing.T) {
	tests := []struct {
		name, helo, client string
		esmtp, utf8        bool
		want               string // of the first line and the words after "with"
	}{
		{"ESMTP", "mail.client.example", "192.0.2.7:25", true, false, "from mail.client.example ([192.0.2.7]) ESMTP"},
		{"HELO", "client", "192.0.2.7:25", false, false, "from client ([192.0.2.7]) SMTP"},
		{"IPv6", "[IPv6:2001:db8::1]", "[2001:db8::1]:25", true, true, "from [IPv6:2001:db8::1] ([IPv6:2001:db8::1]) UTF8SMTP"},
		{"IPv4 in IPv6", "a", "[::ffff:192.0.2.7]:25", true, false, "from a ([192.0.2.7]) ESMTP"},
		{"name that would be a comment", "a (b) by c", "192.0.2.7:25", true, false, "from unknown ([192.0.2.7]) ESMTP"},
		{"name in UTF-8", "bücher.example", "192.0.2.7:25", true, false, "from unknown ([192.0.2.7]) ESMTP"},
		{"endless name", strings.Repeat("a", 256), "192.0.2.7:25", true, false, "from unknown ([192.0.2.7]) ESMTP"},
		{"no name", "", "192.0.2.7:25", true, false, "from unknown ([192.0.2.7]) ESMTP"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &session{
				Relay: &Relay{settings: Settings{Hostname: hostname}}, esmtp: tt.esmtp,
				client: netip.MustParseAddrPort(tt.client), tx: transaction{id: "ref-1"},
			}
			s.rules.Client.Helo = tt.helo
			if tt.utf8 {
				s.tx.params = parse.ParamSMTPUTF8
			}
			head := string(s.traceHeader(time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))))
			from, with, _ := strings.Cut(tt.want, ") ")
			want := "Received: " + from + ")\r\n\tby filter.example (blockd) with " + with + " id ref-1;\r\n\tFri, 02 Jan 2026 03:04:05 +0100\r\n"
			testkit.Equal(t, "traceHeader", head, want)
			h := newHops("FILTER.example")
			h.tooMany([]byte(strings.Repeat(head, 3) + "\r\n" + head))
			if h.all != 3 || h.ours != 3 {
				t.Errorf("own header counted as %d fields, %d of ours; want 3, 3", h.all, h.ours)
			}
		})
	}
}

func TestHops(t *testing.T) {
	ours := "Received: from a ([192.0.2.1])\r\n\tby filter.example (blockd) with ESMTP id x;\r\n\tdate\r\n"
	theirs := "Received: from b\r\n by other.example\r\n"
	tests := []struct {
		name, message string
		want          bool
	}{
		{"five of ours", strings.Repeat(ours, 5) + "\r\n.\r\n", false},
		{"six of ours", strings.Repeat(ours, 6) + "\r\n.\r\n", true},
		{"fifty of others", strings.Repeat(theirs, 50) + "\r\n.\r\n", false},
		{"fifty-one of others", strings.Repeat(theirs, 51) + "\r\n.\r\n", true},
		{"in the body", "Subject: x\r\n\r\n" + strings.Repeat(ours, 60) + ".\r\n", false},
		{"in an endless field", "Subject: x\r\n" + strings.Repeat(" by filter.example (blockd)\r\n", 100) + "\r\n", false},
		{"our name in another field", strings.Repeat("X-Received: by filter.example (blockd)\r\n", 60) + "\r\n", false},
		{"in capitals", strings.ToUpper(strings.Repeat(ours, 6)) + "\r\n", true},
		{"behind endless lines", strings.Repeat("X: "+strings.Repeat("x", 5000)+"\r\n", 3) + strings.Repeat(ours, 6) + "\r\n", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(20) {
				rng := rand.New(rand.NewPCG(seed, 0))
				h, got := newHops(hostname), false
				for rest := tt.message; rest != ""; {
					n := 1 + rng.IntN(min(len(rest), 1+rng.IntN(500)))
					got = h.tooMany([]byte(rest[:n]))
					rest = rest[n:]
				}
				if got != tt.want {
					t.Fatalf("seed %d: %v, want %v (%d fields, %d ours)", seed, got, tt.want, h.all, h.ours)
				}
				if len(h.line) > maxField || len(h.field) > maxField {
					t.Fatalf("keeps %d and %d octets", len(h.line), len(h.field))
				}
			}
		})
	}
}

// FuzzFields compares with a reader that has the whole message before it and takes it
// apart in the plainest way, whatever pieces the message comes in.
func FuzzFields(f *testing.F) {
	for _, text := range []string{
		"From: a@x.example\r\n\r\nFrom: b@x.example\r\n", "FROM : a@x.example\r\n folded\r\n\tmore\r\nSubject: x\r\n y\r\nreply-to:b@x.example\r\n",
		".From: a@x.example\r\n..From: b@x.example\r\n.\r\nFrom: c@x.example\r\n", " From: a@x.example\r\n", "From\r\n: a@x.example\r\n", "no field\r\nFrom: a@x.example",
		"From: a@x.example\n\nFrom: b@x.example\n", "", "\r\n", "From:", ":\r\nFrom:\r\n\r\n",
	} {
		f.Add(text, uint8(7), true)
		f.Add(text, uint8(1), false)
	}
	wants := func(name []byte) bool {
		n := strings.ToLower(strings.TrimRight(string(name), " \t"))
		return n == "from" || n == "reply-to"
	}
	f.Fuzz(func(t *testing.T, text string, piece uint8, stuffed bool) {
		if len(text) > maxKept {
			return
		}
		r := fields{asked: wants, stuffed: stuffed}
		for rest := []byte(text); ; {
			n := min(len(rest), 1+int(piece))
			ended := r.read(rest[:n], n == len(rest))
			if rest = rest[n:]; len(rest) == 0 {
				if !ended {
					t.Error("the header has not ended with the message")
				}
				break
			}
		}
		if r.over {
			t.Fatal("over the bound")
		}
		got, _ := r.senders.Addresses()
		if want, _ := plainSenders(text, stuffed).Addresses(); !slices.Equal(got, want) {
			t.Errorf("in pieces of %d of %q: %q, want %q", int(piece)+1, text, got, want)
		}
	})
}

// plainSenders is what fields finds, slowly.
func plainSenders(text string, stuffed bool) *header.Senders {
	var unfolded []string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if stuffed {
			line = strings.TrimPrefix(line, ".")
		}
		if line == "" {
			break
		}
		if (line[0] == ' ' || line[0] == '\t') && len(unfolded) > 0 {
			unfolded[len(unfolded)-1] += " " + line
		} else {
			unfolded = append(unfolded, line)
		}
	}
	var s header.Senders
	for _, line := range unfolded {
		name, value, ok := strings.Cut(line, ":")
		switch name = strings.ToLower(strings.TrimRight(name, " \t")); {
		case ok && (name == "from" || name == "reply-to"):
			s.Add(name, value)
		}
	}
	return &s
}

// An address that stands twice in a field of one name counts once, however the name is written.
func TestOneFieldHasOneName(t *testing.T) {
	f := fields{asked: func([]byte) bool { return true }}
	f.read([]byte("From: a@x.example\r\nFROM : a@x.example\r\n\r\n"), true)
	if got, _ := f.senders.Addresses(); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

// A header without end is refused, and takes no more memory than may be.
func TestEndlessHeader(t *testing.T) {
	for name, line := range map[string]string{
		"one line": strings.Repeat("x", 4096), "lines": "Subject: x\r\n", "one field": " a@x.example,\r\n", "fields": "From: a@x.example\r\n",
	} {
		r := fields{asked: func(name []byte) bool { return string(name) == "From" }}
		r.read([]byte("From: a@x.example\r\n"), false)
		read, most := 0, 0
		for ; read <= maxHeader && !r.read([]byte(line), false); read += len(line) {
			most = max(most, cap(r.line)+cap(r.text))
		}
		if !r.over || read > maxHeader || most > 2*maxKept {
			t.Errorf("%s: over %v behind %d octets, %d of them kept", name, r.over, read, most)
		}
	}
}
