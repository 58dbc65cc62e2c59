package session

import (
	"bytes"
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/dialogue"
	"blockd/internal/testkit/nameserver"
	"blockd/internal/testkit/script"
	"blockd/mail/mailbox"
	"blockd/policy"
)

// TestRandomSessions lets a random client talk through the filter to an upstream
// that misbehaves at random, while the filter may be told to stop, and holds what must be true whatever they do:
//
//   - a message that upstream has accepted, or that is in quarantine, is one whose
//     end the client has sent, octet for octet, once;
//   - a 250 that the client got for a message means that upstream accepted it for
//     its recipients, and that the quarantine has it for those set aside;
//   - what the client was refused is not in quarantine;
//   - no line of a listed sender went upstream but for an exempt recipient, or with
//     a tag;
//   - there is one reply a command, until the connection ends;
//   - no password is in the log.
func TestRandomSessions(t *testing.T) {
	seeds := uint64(400)
	switch {
	case *soak:
		seeds = 10_000
	case testing.Short():
		seeds = 60
	}
	total := &tally{}
	d := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{
		{Name: "bad", Entries: []string{"bad.example"}},
		{Name: "junk", Kind: "quarantine", Entries: []string{"junk.example", "mixed.example"}},
		{Name: "watch", Kind: "tag", Entries: []string{"watch.example", "mixed.example"}},
		{Name: "fine", Kind: "allow", Entries: []string{"mixed.example"}},
		{Name: "grey", Kind: "tempfail", Entries: []string{"grey.example"}},
	}, Policies: []dialogue.Policy{{Recipients: []string{"sales@"}},
		{Recipients: []string{"dave@"}, Lists: []string{"junk"}}, {Recipients: []string{"erin@"}, Lists: []string{"watch"}}}}
	checkers := []*policy.Checker{d.Checker(t)}
	// Every second session has senders whose message decides about them, and lists that
	// are asked about headers.
	d.Lists = append(d.Lists, dialogue.List{Name: "late", Entries: []string{"late.example"}},
		dialogue.List{Name: "proved", Kind: "spamassassin", Entries: []string{"welcomelist_auth *@late.example"}},
		dialogue.List{Name: "phish", Entries: []string{"phish.example"}}, dialogue.List{Name: "vain", Entries: []string{"vain.example"}})
	d.Policies = append([]dialogue.Policy{{Recipients: []string{"frank@"}, Lists: []string{"phish"}},
		{Recipients: []string{"gina@"}, Lists: []string{"phish", "vain"}}}, d.Policies...)
	d.Match, d.Zone = map[string][]string{"phish": {"from"}, "vain": {"from"}}, nameserver.Zone{"TXT late.example": {"v=spf1 ip4:192.0.2.0/24 -all"}}
	checkers = append(checkers, d.Checker(t))
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { newRandomSession(t, seed, checkers[seed%2], total).run() })
		if t.Failed() {
			t.Fatalf("seed %d; %s", seed, total)
		}
	}
	t.Logf("%d sessions: %s", seeds, total)
}

var soak = flag.Bool("soak", false, "run the random sessions at full length")

// tally sums up what the random sessions have gone through.
type tally struct {
	messages  int // whose end a client has sent
	delivered int // accepted upstream or in quarantine
	faults    int // scripted answers, connections cut, stops, clients that dropped out
	// What must be 0: told 250 and not there, there twice, there but not as sent.
	lost, twice, altered int
}

func (a *tally) String() string {
	return fmt.Sprintf("%d messages, %d delivered, %d faults injected; lost %d, duplicated %d, truncated or altered %d",
		a.messages, a.delivered, a.faults, a.lost, a.twice, a.altered)
}

// faults are what a random upstream may answer at each point.
var faults = map[string][]string{
	script.Connect:  {script.Close, script.Hang},
	script.Greeting: {script.Close, script.Hang, "421 busy", "554 no", "hello", "220-a\r\n220 b"},
	"EHLO":          {script.Close, script.Hang, "421 busy", "500 what", "250 upstream.example"},
	"MAIL":          {script.Close, script.Hang, "421 4.3.2 bye", "451 4.1.8 no", "550-5.1.8 a\r\n550 5.1.8 b", "354 what", "2x0", "250 a\r\n250 b"},
	"RCPT":          {script.Close, script.Hang, "421 4.3.2 bye", "450 4.2.0 grey", "550 5.1.1 no", "550 5.1.1 no", "250-a\r\n250 b", "250 a\r\n250 b", "354 go"},
	"DATA":          {script.Close, script.Hang, "421 4.3.2 bye", "451 4.3.0 no", "250 ok", "\r\n"},
	"BDAT":          {script.Close, script.Hang, "421 4.3.2 bye", "452 4.3.1 full", "554 5.7.1 no", "354 more", "250 a\r\n250 b"},
	script.Body:     {script.Close, script.Hang, script.Stall, "552 5.3.4 too big", "250 ok already"},
	script.Dot:      {script.Close, script.Accept, script.Hang, "421 4.3.2 bye", "451 4.3.0 no", "554 5.7.1 spam", "354 more", "250-a\r\n251 b"},
	"RSET":          {script.Close, script.Hang, "421 4.3.2 bye", "500 what"},
	"NOOP":          {script.Close, "421 4.3.2 bye", "250 a\r\n250 b"},
	"AUTH":          {script.Close, script.Hang, "421 4.3.2 bye", "334 ", "334 ", "535 5.7.8 no", "454 4.7.0 no", "250 what"},
	script.SASL:     {script.Close, "334 again", "535 5.7.8 no", "421 4.3.2 bye"},
}

// points are the keys of faults in an order that a seed can repeat.
var points = []string{script.Connect, script.Greeting, "EHLO", "MAIL", "RCPT", "RCPT", "DATA", "BDAT", "BDAT", script.Body, script.Body,
	script.Dot, script.Dot, "RSET", "NOOP", "AUTH", script.SASL}

const fullCaps = "PIPELINING, SIZE 10240000, 8BITMIME, SMTPUTF8, DSN, ENHANCEDSTATUSCODES, CHUNKING, BINARYMIME, AUTH PLAIN LOGIN"

// usualAt is what the server says at a point that has no fault.
func usualAt(point string) string {
	switch point {
	case script.Greeting:
		return "220 ready"
	case "EHLO":
		return "250-upstream.example\r\n250-" + strings.ReplaceAll(fullCaps, ", ", "\r\n250-") + "\r\n250 HELP"
	case "DATA":
		return "354 go"
	case script.Body:
		return script.Silent
	case "AUTH", script.SASL:
		return "235 2.7.0 in"
	}
	return "250 ok"
}

// secret is what the random client logs in with.
var secret = base64.StdEncoding.EncodeToString([]byte("\x00user\x00top-secret-password"))

// sentMessage is a message whose end the client has sent.
type sentMessage struct {
	text     string // as its reader gets it
	upstream bool   // it has recipients there
	aside    bool   // it has recipients in quarantine
	reply    string // to its end; "" none was heard
}

// randomSession is one client of TestRandomSessions with its filter and upstream.
type randomSession struct {
	*testing.T
	rng    *rand.Rand
	server *script.Server
	rig    *rig
	c      *client
	aside  string // the quarantine
	sent   []*sentMessage
	now    *sentMessage // of the transaction that is open
	total  *tally
	proves bool // messages decide
}

func newRandomSession(t *testing.T, seed uint64, checker *policy.Checker, total *tally) *randomSession {
	r := &randomSession{T: t, total: total, rng: rand.New(rand.NewPCG(seed, 0)), aside: t.TempDir(), now: &sentMessage{}, proves: seed%2 == 1}
	r.server = &script.Server{LMTP: r.rng.IntN(8) == 0, Caps: strings.Split(fullCaps, ", ")}
	if r.rng.IntN(4) == 0 {
		r.server.Caps = []string{"8BITMIME", "SIZE 5000", "CHUNKING"}
	}
	for range r.rng.IntN(6) {
		point := r.pick(points...)
		for range r.rng.IntN(3) { // let some pass before the fault
			r.server.On(point, usualAt(point))
		}
		r.server.On(point, r.pick(faults[point]...))
		total.faults++
	}
	most := int64(1 << 20)
	if r.rng.IntN(6) == 0 {
		most = int64(r.rng.IntN(20_000))
	}
	held := testkit.Value(mailbox.OpenQuarantine(r.aside, hostname, mailbox.Use{Octets: most, Messages: 1 << 20}, discardLog()))(t)
	if r.rng.IntN(20) == 0 { // no message can be committed
		os.Remove(filepath.Join(r.aside, "new"))
		total.faults++
	}
	r.rig = newRig(r.server, checker, Settings{Mail: r.pick("lazy", "strict"), RejectAt: r.pick("rcpt", "rcpt", "mail"), Chunking: r.rng.IntN(4) > 0,
		Auth: "forward", SkipAuthenticated: true, Quarantine: held, Limits: Limits{MessageSize: 200_000}, MaxCopy: 1 + r.rng.Int64N(20_000),
		StartTLS: func(_ context.Context, conn net.Conn) (net.Conn, error) { return conn, nil }})
	return r
}

func (r *randomSession) pick(words ...string) string { return words[r.rng.IntN(len(words))] }

func (r *randomSession) run() {
	ctx, drain := context.WithCancel(r.Context())
	defer drain()
	r.c = connect(r.T, r.rig, ctx)
	r.c.want("", "220 ")
	open := r.hello()
	if open && r.rng.IntN(3) == 0 {
		r.c.want("STARTTLS", "220")
		open = r.hello()
	}
	if r.rng.IntN(2) == 0 {
		r.total.faults++
		defer time.AfterFunc(time.Duration(r.rng.IntN(100))*time.Second, drain).Stop()
	}
	for open {
		r.pause(4)
		open = r.batch()
		if r.rng.IntN(15) == 0 {
			r.total.faults++
			r.server.HangUp()
		}
	}
	r.c.close()
	r.server.HangUp()
	r.server.Wait()
	r.check()
}

// pause lets up to a minute pass, one time in so many.
func (r *randomSession) pause(times int) {
	if r.rng.IntN(times) == 0 {
		<-time.After(time.Duration(r.rng.IntN(60)) * time.Second)
	}
}

// hello says EHLO. 421: upstream could not be reached for what it offers.
func (r *randomSession) hello() bool {
	r.c.send("EHLO client.example\r\n")
	return strings.HasPrefix(r.c.reply(), "250")
}

// batch sends some commands at once, and what they ask for. It reports whether the
// session goes on.
func (r *randomSession) batch() bool {
	var batch []string
	switch r.rng.IntN(8) {
	case 0:
		batch = append(batch, r.pick("RSET", "NOOP", "VRFY bob", "EHLO again.example", "EHLO client.example", "HELP", "GARBAGE",
			"MAIL FROM:<", "AUTH PLAIN", "AUTH PLAIN "+secret, "AUTH LOGIN"))
	default:
		batch = append(batch, fmt.Sprintf("MAIL FROM:<a%d@%s>", r.rng.IntN(1000),
			r.pick("good.example", "bad.example", "sub.bad.example", "junk.example", "junk.example", "watch.example", "grey.example", "late.example", "late.example", "mixed.example", "mixed.example", "mixed.example")))
		for range r.rng.IntN(5) {
			batch = append(batch, fmt.Sprintf("RCPT TO:<%s@here.example>", r.pick("bob", "carol", "sales", "postmaster", "abuse", "dave", "dave", "erin", "frank", "gina")))
		}
		if r.rng.IntN(3) > 0 {
			batch = append(batch, r.pick("DATA", "DATA", "chunks"))
		}
	}
	if last := batch[len(batch)-1]; last != "DATA" && last != "chunks" && r.rng.IntN(20) == 0 {
		batch = append(batch, "QUIT")
	}
	chunks := batch[len(batch)-1] == "chunks"
	if chunks {
		batch = batch[:len(batch)-1]
	}
	r.c.send(strings.Join(batch, "\r\n") + "\r\n")
	for _, line := range batch {
		reply := r.c.reply()
		if strings.HasPrefix(reply, "250") && (strings.HasPrefix(line, "MAIL") || strings.HasPrefix(line, "RSET") || strings.HasPrefix(line, "EHLO")) {
			r.now = &sentMessage{}
		}
		m := r.now
		switch {
		case strings.HasPrefix(reply, "421") || strings.HasPrefix(reply, "221"):
			r.wantEnd(reply)
			return false
		case reply == "":
			return false
		case strings.HasPrefix(line, "RCPT") && strings.HasPrefix(reply, "250"):
			// Our own 250 is the quarantine's.
			m.aside = m.aside || reply == replyRcptOK
			m.upstream = m.upstream || reply != replyRcptOK
		case line == "DATA" && strings.HasPrefix(reply, "354"):
			return r.data(m)
		case strings.HasPrefix(line, "AUTH") && strings.HasPrefix(reply, "334"):
			return r.respond()
		}
	}
	if chunks {
		return r.chunks(r.now)
	}
	return true
}

func (r *randomSession) wantEnd(behind string) {
	r.Helper()
	if extra := r.c.reply(); extra != "" {
		r.Errorf("behind %q: %q", behind, extra)
	}
}

// respond goes on with an AUTH exchange.
func (r *randomSession) respond() bool {
	for range 20 {
		r.c.send(r.pick(secret, "*", "", "no base64 "+secret) + "\r\n")
		reply := r.c.reply()
		if !strings.HasPrefix(reply, "334") {
			return reply != "" && !strings.HasPrefix(reply, "421")
		}
	}
	r.Error("an exchange without end")
	return false
}

// Authors of messages: one proves its sender, another is listed.
const (
	lateAuthor  = "From: a@late.example\r\n"
	phishAuthor = "From: b@phish.example\r\n"
)

// text makes the lines of a message, each with a number of its own.
func (r *randomSession) text() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Subject: message %d\r\n", len(r.sent))
	b.WriteString(r.pick("", lateAuthor, lateAuthor, phishAuthor) + "\r\n")
	for range r.rng.IntN(1 + r.rng.IntN(300)) {
		b.WriteString(strings.Repeat("x", r.rng.IntN(1+r.rng.IntN(400))))
		b.WriteString([]string{"\r\n", "\r\n.\r\n", "\r\n.x", "\r\n. \r\n"}[r.rng.IntN(4)])
	}
	b.WriteString("\r\n")
	return b.String()
}

// data sends a message, or half of one.
func (r *randomSession) data(m *sentMessage) bool {
	text := r.text()
	body := strings.TrimPrefix(strings.ReplaceAll("\r\n"+text, "\r\n.", "\r\n.."), "\r\n")
	if r.rng.IntN(12) == 0 {
		body += r.pick("\n.\n", "\r.\r", "\x00", "a\nb", "\r\n.\r\r\n") + "smuggled\r\n"
	}
	if r.rng.IntN(12) == 0 {
		r.dropOut(body)
		return false
	}
	r.pieces(body + ".\r\n")
	return r.sentAll(m, text)
}

// chunks sends a message by BDAT, or half of one; some chunks have what lines may
// not have.
func (r *randomSession) chunks(m *sentMessage) bool {
	text := r.text()
	if r.rng.IntN(2) == 0 {
		text += r.pick("\n.\n", "\r\n.\r\n", "\x00", "RSET\r\n")
	}
	var wires []string
	for rest := text; ; {
		n := r.rng.IntN(len(rest) + 1)
		if r.rng.IntN(3) == 0 {
			n = len(rest)
		}
		if len(wires) > 20 || n == len(rest) {
			wires = append(wires, fmt.Sprintf("BDAT %d LAST\r\n%s", len(rest), rest))
			break
		}
		wires = append(wires, fmt.Sprintf("BDAT %d\r\n%s", n, rest[:n]))
		rest = rest[n:]
	}
	if r.rng.IntN(12) == 0 {
		whole := strings.Join(wires, "")
		r.dropOut(whole[:r.rng.IntN(len(whole))])
		return false
	}
	pipelined := r.rng.IntN(2) == 0
	if pipelined {
		r.pieces(strings.Join(wires, ""))
	}
	for i, wire := range wires {
		if !pipelined {
			r.pieces(wire)
		}
		if i == len(wires)-1 {
			return r.sentAll(m, text)
		}
		reply := r.c.reply()
		if reply == "" {
			return false
		}
		if strings.HasPrefix(reply, "421") || strings.HasPrefix(reply, "50") && !strings.HasPrefix(reply, "503") {
			r.wantEnd(reply)
			return false
		}
	}
	return true
}

// dropOut sends half a message, waits, and is gone.
func (r *randomSession) dropOut(half string) {
	r.total.faults++
	r.c.send(half)
	if r.rng.IntN(2) == 0 {
		<-time.After(time.Duration(r.rng.IntN(400)) * time.Second)
	}
	r.c.conn.Close()
}

// pieces sends text cut anywhere.
func (r *randomSession) pieces(text string) {
	for text != "" {
		n := 1 + r.rng.IntN(len(text))
		r.pause(8)
		r.c.send(text[:n])
		text = text[n:]
	}
}

// sentAll notes a message whose end was sent, and reads the answer. A server may
// give up before the end; else the message is whole.
func (r *randomSession) sentAll(m *sentMessage, text string) bool {
	r.now = &sentMessage{}
	m.text = text
	r.sent = append(r.sent, m)
	m.reply = r.c.reply()
	if strings.HasPrefix(m.reply, "421") || strings.HasPrefix(m.reply, "50") && !strings.HasPrefix(m.reply, "503") || strings.HasPrefix(m.reply, "550 5.5.2") {
		r.wantEnd(m.reply)
		return false
	}
	return m.reply != ""
}

// check holds the invariants.
func (r *randomSession) check() {
	delivered, held := map[string]int{}, map[string]int{}
	for _, m := range r.server.Messages() {
		text := string(m.Data)
		if !m.BDAT {
			text = strings.TrimSuffix("\r\n"+text, ".\r\n")
			text = strings.ReplaceAll(text, "\r\n.", "\r\n")[2:]
			if plain := strings.ReplaceAll(text, "\r\n", ""); strings.ContainsAny(plain, "\r\n\x00") {
				r.Errorf("upstream accepted bare octets: %.200q", text)
			}
		}
		tagged := strings.HasPrefix(text, "X-Blockd: list=watch ")
		if tagged {
			text = strings.Join(strings.SplitAfter(text, "\r\n")[4:], "") // with our Received field
		}
		r.checkSender(m, tagged)
		r.checkProof(m)
		delivered[text]++
	}
	for _, text := range r.held() {
		_, text, _ = strings.Cut(text, "\tSat, 01 Jan 2000") // what the filter puts on top
		_, text, _ = strings.Cut(text, "\r\n")
		held[text]++
	}
	for _, m := range r.sent {
		n, kept := delivered[m.text], held[m.text]
		delete(delivered, m.text)
		delete(held, m.text)
		accepted := strings.HasPrefix(m.reply, "250")
		r.total.messages++
		r.total.delivered += min(n+kept, 1)
		switch {
		case n > 1 || kept > 1:
			r.total.twice++
			r.Errorf("delivered %d times, in quarantine %d times: %.200q", n, kept, m.text)
		case accepted && m.upstream && n == 0:
			r.total.lost++
			r.Errorf("client was told 250 for what upstream has not accepted: %.200q", m.text)
		case accepted && m.aside && kept == 0:
			r.total.lost++
			r.Errorf("client was told 250 for what is not in quarantine: %.200q", m.text)
		case accepted && !m.upstream && !m.aside:
			r.Errorf("client was told 250 for a message of no recipients: %.200q", m.text)
		case !accepted && m.reply != "" && kept > 0:
			r.Errorf("in quarantine is what the client was refused with %q: %.200q", m.reply, m.text)
		}
	}
	r.total.altered += len(delivered) + len(held)
	for text := range delivered {
		r.Errorf("upstream accepted what the client did not send: %.200q", text)
	}
	for text := range held {
		r.Errorf("in quarantine is what the client did not send: %.200q", text)
	}
	checkNoListedSender(r.T, r.server.Recipients())
	for _, fault := range r.server.Faults() {
		// A connection cut in mid-body may cut a line; and what follows an early
		// reply of the server's own making is its own affair.
		if !strings.HasPrefix(fault, "unfinished line") {
			r.Errorf("upstream's view: %s", fault)
		}
	}
	if log := r.rig.log.String(); strings.Contains(log, "panicked") || strings.Contains(log, secret) {
		r.Errorf("log:\n%s", log)
	}
	if r.Failed() {
		r.Logf("upstream read: %.3000q\nlog:\n%.3000s", r.server.Log(), r.rig.log)
	}
}

// checkSender holds that a message of a listed sender has gone to no recipients but those that it may reach.
func (r *randomSession) checkSender(m script.Message, tagged bool) {
	if strings.Contains(m.Mail, "@mixed.example") && !r.authenticated() {
		for _, rcpt := range m.Rcpt {
			if strings.Contains(rcpt, "<dave@") || strings.Contains(rcpt, "<erin@") != tagged {
				r.Errorf("%s of mixed: tagged %v", rcpt, tagged)
			}
		}
	}
	if strings.Contains(m.Mail, "@watch.example") {
		for _, rcpt := range m.Rcpt {
			if excused := strings.Contains(rcpt, "<dave@") || strings.Contains(rcpt, "<sales@") || strings.Contains(rcpt, "<postmaster@") || strings.Contains(rcpt, "<abuse@") || r.proves && strict(rcpt); excused == tagged && !r.authenticated() {
				r.Errorf("%s of a sender to be tagged: tagged %v", rcpt, tagged)
			}
		}
	}
}

// checkProof holds that a message which had to prove its sender has, and that no
// author is listed, unless it is for those who have such mail all the same.
func (r *randomSession) checkProof(m script.Message) {
	header, _, _ := strings.Cut(string(m.Data), "\r\n\r\n")
	header += "\r\n"
	late := strings.Contains(m.Mail, "@late.example") && !strings.Contains(header, lateAuthor)
	if !r.proves || r.authenticated() || !late && !strings.Contains(header, phishAuthor) {
		return
	}
	for _, rcpt := range m.Rcpt {
		if strict(rcpt) && strings.Contains(header, phishAuthor) {
			r.Errorf("%s has had mail of %s with %q", rcpt, m.Mail, header)
		}
		if strings.Contains(m.Mail, "@mixed.example") { // a list allows that one
			continue
		}
		if strings.Contains(rcpt, "<bob@") || strings.Contains(rcpt, "<carol@") {
			r.Errorf("%s has had mail of %s with %q", rcpt, m.Mail, header)
		}
	}
}

// strict reports whether only the lists of authors count for a recipient where messages
// decide.
func strict(rcpt string) bool {
	return strings.Contains(rcpt, "<frank@") || strings.Contains(rcpt, "<gina@")
}

// authenticated reports whether the client may have been excused from all lists.
func (r *randomSession) authenticated() bool {
	return strings.Contains(r.rig.log.String(), "client authenticated")
}

// held are the files in quarantine; none may be left in tmp.
func (r *randomSession) held() (texts []string) {
	if left, err := os.ReadDir(filepath.Join(r.aside, "tmp")); err != nil || len(left) > 0 {
		r.Errorf("left in tmp: %v, %v", left, err)
	}
	entries, _ := os.ReadDir(filepath.Join(r.aside, "new")) // it may have been taken away
	for _, e := range entries {
		text := testkit.Read(r, filepath.Join(r.aside, "new", e.Name()))
		texts = append(texts, string(text))
	}
	return texts
}

// checkNoListedSender holds of every recipient that upstream has read, accepted or
// not, that its sender was none of a list that refuses or sets aside. Who that sender
// is, is said by the MAIL on the same connection alone: what a connection had in its
// buffer when the filter gave it up is read later, amid the next one's transaction.
// Behind a successful AUTH the lists are not asked.
func checkNoListedSender(t *testing.T, recipients []script.Recipient) {
	t.Helper()
	for _, r := range recipients {
		mail, rcpt := strings.ToUpper(r.Mail), strings.ToUpper(r.Rcpt)
		if r.Authenticated || !strings.Contains(mail, "BAD.EXAMPLE>") && !strings.Contains(mail, "@JUNK.EXAMPLE>") && !strings.Contains(mail, "@GREY.EXAMPLE>") {
			continue
		}
		if !strings.Contains(rcpt, "<POSTMASTER@") && !strings.Contains(rcpt, "<ABUSE@") && !strings.Contains(rcpt, "<SALES@") && !strings.Contains(rcpt, "<ERIN@") && !strings.Contains(rcpt, "<DAVE@") && !strict(r.Rcpt) {
			t.Errorf("a listed sender reached %s behind %s", r.Rcpt, r.Mail)
		}
	}
}
