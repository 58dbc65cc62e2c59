package session

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/dialogue"
	"blockd/internal/testkit/nameserver"
	"blockd/internal/testkit/script"
	"blockd/mail/msgauth"
	"blockd/mail/spool"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
	"blockd/records/history"
)

// postKey signs for x.example. It is no secret.
var postKey = ed25519.NewKeyFromSeed([]byte("blockd test key, no secret at al"))

// post is what a test about proof decides by: "bad" blocks, and "exempt" allows with proof.
type post struct {
	*nameserver.Server
	checker *policy.Checker
}

// newPost serves a zone in which x.example signs by s1, and passes SPF for testClient.
func newPost(t testing.TB, blocks, exempt, require string) post {
	t.Helper()
	server := nameserver.Serve(t, nameserver.Zone{
		"TXT x.example":                  {"v=spf1 ip4:192.0.2.0/24 -all"},
		"TXT other.example":              {"v=spf1 ip4:198.51.100.0/24 -all"},
		"TXT s1._domainkey.x.example":    {keyRecord()},
		"TXT s1._domainkey.evil.example": {keyRecord()},
	})
	return post{server, checkerBy(t, server, 5*time.Second, blocks, exempt, require)}
}

func keyRecord() string {
	return "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(postKey.Public().(ed25519.PublicKey))
}

// checkerBy blocks blocks, and allows exempt, a line of SpamAssassin's or a plain entry;
// require is words, "-" for none.
func checkerBy(t testing.TB, server *nameserver.Server, patience time.Duration, blocks, exempt, require string) *policy.Checker {
	t.Helper()
	d := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{{Name: "bad", Entries: []string{blocks}}}}
	s := policy.Settings{RecipientsExempt: []string{"postmaster"}, Lists: map[string]rule.List{}}
	if exempt != "" {
		l := dialogue.List{Name: "exempt", Kind: "allow", Entries: []string{exempt}}
		if strings.Contains(exempt, " ") {
			l.Kind = "spamassassin"
		}
		d.Lists = append(d.Lists, l)
	}
	var err error
	s.Auth.Ignore = require == "ignore"
	if require != "" && !s.Auth.Ignore {
		rule := rule.List{}
		if rule.Require, err = verdict.ParseProofs(strings.Fields(require)); err != nil {
			t.Fatal(err)
		}
		s.Lists["exempt"] = rule
	}
	s.Auth.Resolver = resolverOf(t, server, patience)
	ix := d.Index(t)
	return policy.New(func() *index.Index { return ix }, s, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

func resolverOf(t testing.TB, server *nameserver.Server, patience time.Duration) *msgauth.Resolver {
	t.Helper()
	return testkit.Value(msgauth.NewResolver(msgauth.Settings{Server: server.Address, Timeout: patience}))(t)
}

// letter is a message of about size octets, signed by a domain; "" = not signed.
func letter(t testing.TB, from, signedBy string, size int) string {
	t.Helper()
	text := "From: " + from + "\r\nSubject: hello\r\n\r\n" + strings.Repeat(strings.Repeat("x", 70)+"\r\n", 1+size/72)
	if signedBy == "" {
		return text
	}
	var out bytes.Buffer
	testkit.Must(t, dkim.Sign(&out, strings.NewReader(text), &dkim.SignOptions{Domain: signedBy, Selector: "s1", Signer: postKey}))
	return out.String()
}

// TestWhatIsAskedOfDNS: nothing for ordinary mail, and of a message no more than its answer
// takes. What the answers are is policy's, and testdata/dialogues/proof-*.txt.
func TestWhatIsAskedOfDNS(t *testing.T) {
	tests := []struct {
		name            string
		require, sender string
		signedBy        string
		want            string
		queries         int
	}{
		{"ordinary mail asks nothing", "spf dkim", "b@clear.example", "x.example", "250", 0},
		{"bounces ask nothing", "spf dkim", "", "x.example", "250", 0},
		{"an exception that is believed", "", "b@x.example", "x.example", "250", 0},
		{"nobody has logged in", "auth", "b@x.example", "x.example", "550 5.7.1 <", 0},
		{"dkim asked for and only spf there", "dkim", "b@x.example", "", "554 5.7.1 <", 0},
		{"dkim asked for and found", "dkim", "b@x.example", "x.example", "250", 1},
		{"signed by another domain", "dkim", "b@x.example", "evil.example", "554 5.7.1 <", 1},
		{"either, and SPF is there: the message is not looked at", "spf dkim", "b@x.example", "x.example", "250", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPost(t, "x.example", "x.example", tt.require)
			r, c := begin(t, &script.Server{}, p.checker, Settings{})
			text := letter(t, "b@x.example", tt.signedBy, 100)
			testkit.Begins(t, "answer", c.transactionOf(tt.sender, text+"."), tt.want)
			if n := p.Count(); n != tt.queries {
				t.Errorf("%d queries, want %d: %v", n, tt.queries, p.Asked())
			}
			c.quit()
			r.server.Wait()
			all := r.server.Messages()
			if delivered := len(all) == 1 && string(all[0].Data) == text+".\r\n"; delivered != (tt.want == "250") || len(all) > 1 {
				t.Errorf("delivered %v", all)
			}
		})
	}
}

func TestSPFIsAskedOncePerTransaction(t *testing.T) {
	p := newPost(t, "other.example", "other.example", "spf")
	_, c := begin(t, &script.Server{}, p.checker, Settings{})
	c.want("MAIL FROM:<a@other.example>", "250")
	c.want("RCPT TO:<postmaster@here.example>", "250")
	testkit.Equal(t, "an exempt recipient costs a query", p.Count(), 0)
	for range 3 {
		c.want("RCPT TO:<bob@here.example>", "550 ")
	}
	testkit.Equal(t, "queries", p.Count(), 1)
	c.close()
}

// TestManyMessagesOfOneNetworkAtOnce: what one network asks beyond its share of look-ups waits, and
// where it waits in vain the message is put off, whatever on_dns_error says.
func TestManyMessagesOfOneNetworkAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		answers  bool
		patience time.Duration
		want     []string
	}{
		"DNS answers":      {true, time.Minute, []string{"250"}},
		"DNS says nothing": {false, 300 * time.Millisecond, []string{"451 4.4.3 ", "554 5.7.1 "}}, // those who could ask know what DNS does
	} {
		t.Run(name, func(t *testing.T) {
			var asked sync.WaitGroup
			asked.Add(10)
			var count atomic.Int32
			server := nameserver.ServeFunc(t, func(m *dns.Msg) *dns.Msg {
				if !tt.answers {
					return nil
				}
				if count.Add(1) <= 10 {
					asked.Done()
				}
				asked.Wait() // all places are taken before the first answer
				reply := new(dns.Msg).SetReply(m)
				reply.Answer = append(reply.Answer, nameserver.Record(strings.TrimSuffix(m.Question[0].Name, "."), "TXT", keyRecord()))
				return reply
			})
			checker := checkerBy(t, server, tt.patience, "x.example", "x.example", "dkim")
			const messages = 24
			clients := make([]*client, messages)
			for i := range clients {
				_, clients[i] = begin(t, &script.Server{}, checker, Settings{})
				sender := fmt.Sprintf("a@d%d.x.example", i)
				clients[i].mail(sender)
				clients[i].want("DATA", "354")
				clients[i].send(letter(t, sender, sender[2:], 100))
			}
			for _, c := range clients {
				c.send(".\r\n")
			}
			seen := map[string]int{}
			for _, c := range clients {
				got := c.reply()
				for _, want := range tt.want {
					if strings.HasPrefix(got, want) {
						seen[want]++
					}
				}
				c.quit()
			}
			if tt.answers && seen["250"] != messages || !tt.answers && (seen["451 4.4.3 "] == 0 || seen["451 4.4.3 "]+seen["554 5.7.1 "] != messages) {
				t.Errorf("answers: %v", seen)
			}
		})
	}
}

// TestWaitForDNSEnds: a client that goes away, and a session whose time is up, wait no
// longer for a name server that says nothing.
func TestWaitForDNSEnds(t *testing.T) {
	for _, phase := range []string{"RCPT", "dot"} {
		for _, end := range []string{"client", "session", "upstream"} {
			t.Run(phase+" "+end, func(t *testing.T) {
				asked := make(chan struct{}, 100)
				server := nameserver.ServeFunc(t, func(*dns.Msg) *dns.Msg { asked <- struct{}{}; return nil })
				require, budget := "dkim", time.Hour
				if phase == "RCPT" {
					require = "spf"
				}
				if end == "upstream" {
					budget = 100 * time.Millisecond
				}
				s := Settings{}
				if end == "session" {
					s.Limits.Session = 2 * time.Second // time to come as far
				}
				r, c := begin(t, &script.Server{}, checkerBy(t, server, budget, "x.example", "x.example", require), s)
				c.want("MAIL FROM:<a@x.example>", "250")
				if phase == "RCPT" {
					c.send("RCPT TO:<bob@here.example>\r\n")
				} else {
					c.want("RCPT TO:<bob@here.example>", "250")
					c.want("DATA", "354")
					c.send(letter(t, "a@x.example", "x.example", 100) + ".\r\n")
				}
				<-asked
				switch {
				case end == "client":
					c.conn.Close()
				case end == "upstream":
					r.server.HangUp()
					if got := c.reply(); !strings.HasPrefix(got, "55") { // unknown is no proof
						t.Errorf("answer %q", got)
					}
					c.conn.Close()
				case phase == "RCPT":
					c.want("", "421 4.4.2")
				default:
					c.want("", "451 4.3.0")
					c.want("", "421 4.4.2")
				}
				select {
				case <-c.ended:
				case <-time.After(3 * time.Second): // two tries, which is where the resolver gives up, take four
					select {
					case <-c.ended: // both had come while this process had to wait
					default:
						t.Fatal("the session goes on")
					}
				}
				r.server.Wait()
				if all := r.server.Messages(); len(all) > 0 {
					t.Errorf("delivered %v", all)
				}
			})
		}
	}
}

// TestUpstreamLostWhileTheMessageIsExamined: proof does not bring it back.
func TestUpstreamLostWhileTheMessageIsExamined(t *testing.T) {
	release, asked := make(chan struct{}), make(chan struct{}, 100)
	server := nameserver.ServeFunc(t, func(m *dns.Msg) *dns.Msg {
		asked <- struct{}{}
		<-release
		reply := new(dns.Msg).SetReply(m)
		reply.Answer = append(reply.Answer, nameserver.Record(strings.TrimSuffix(m.Question[0].Name, "."), "TXT", keyRecord()))
		return reply
	})
	r, c := begin(t, &script.Server{}, checkerBy(t, server, 5*time.Second, "x.example", "x.example", "dkim"), Settings{})
	c.mail("a@x.example")
	c.want("DATA", "354")
	c.send(letter(t, "a@x.example", "x.example", 100) + ".\r\n")
	<-asked
	r.server.HangUp()
	r.server.Wait()
	close(release)
	c.want("", "451 4.4.2")
	c.close()
}

// TestCopyAtItsBounds: one octet more than may be copied proves nothing, and where the
// copy lies makes no difference.
func TestCopyAtItsBounds(t *testing.T) {
	p := newPost(t, "x.example", "x.example", "dkim")
	text := letter(t, "a@x.example", "x.example", 100_000)
	stuffed := strings.ReplaceAll(text, "\r\n.", "\r\n..")
	size := int64(len(text))
	tests := []struct {
		name     string
		most     int64
		memory   int64
		delivers bool
	}{
		{"as large as may be", size, 0, true},
		{"an octet larger", size - 1, 0, false},
		{"in memory to the last octet", size, size, true},
		{"a file", size, 1, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store := spool.New(spool.Settings{Dir: t.TempDir(), PerCopy: tt.memory})
			r, c := begin(t, &script.Server{}, p.checker, Settings{MaxCopy: tt.most, Copies: store})
			c.mail("a@x.example")
			if got := c.data(stuffed); strings.HasPrefix(got, "250") != tt.delivers {
				t.Errorf("answer %q", got)
			}
			c.close()
			r.server.Wait()
			testkit.Equal(t, "delivered: messages", len(r.server.Messages()), bit(tt.delivers))
			testkit.Equal(t, "octets of copies left", store.Used(), 0)
		})
	}
}

// TestProofThatFreesFromOneList: an exception of a list's own lifts what that list blocks, so
// the others are still asked about the header; one that reaches all lists frees from them.
func TestProofThatFreesFromOneList(t *testing.T) {
	for _, tt := range []struct {
		name, signedBy string
		most           int64
		lists          []dialogue.List
		want           string
		pass, no       float64
	}{
		{"its own", "x.example", 0, []dialogue.List{{Name: "bad", Entries: []string{"x.example", "!a@x.example"}}}, "554 5.7.1 <a@evil.example>: Reply-To", 1, 0},
		{"its own, and the header would have a mark", "x.example", 0, []dialogue.List{{Name: "bad", Entries: []string{"x.example", "!a@x.example"}}, {Name: "mark", Entries: []string{"mark.example"}}}, "250", 1, 0},
		{"all", "x.example", 0, []dialogue.List{{Name: "other", Entries: []string{"x.example"}}, {Name: "bad", Kind: "allow", Entries: []string{"a@x.example"}}}, "250", 1, 0},
		{"none, without proof", "", 0, []dialogue.List{{Name: "bad", Entries: []string{"x.example", "!a@x.example"}}}, "554 5.7.1 <a@x.example>: Sender", 0, 1},
		{"none, too large to be looked at", "x.example", 50, []dialogue.List{{Name: "bad", Entries: []string{"x.example", "!a@x.example"}}}, "554 5.7.1 <a@x.example>: Sender", 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPost(t, "x.example", "", "")
			resolver := testkit.Value(msgauth.NewResolver(msgauth.Settings{Server: p.Address}))(t)
			ix := (&dialogue.Dialogue{Name: t.Name(), Lists: append(tt.lists, dialogue.List{Name: "phish", Entries: []string{"evil.example"}})}).Index(t)
			replyTo, _ := verdict.ParseSources([]string{"reply-to"})
			registry := prometheus.NewRegistry()
			var decided []string
			checker := policy.New(func() *index.Index { return ix }, policy.Settings{Auth: rule.Auth{Resolver: resolver},
				Lists:   map[string]rule.List{"bad": {Require: verdict.DKIMProof}, "phish": {Match: replyTo}, "mark": {Match: replyTo, OnMatch: rule.Tag}},
				Decided: func(r history.Record) { decided = append(decided, r.Outcome) }}, discardLog(), registry)
			r, c := begin(t, &script.Server{}, checker, Settings{MaxCopy: tt.most})
			c.mail("a@x.example")
			replies := "evil.example"
			if len(tt.lists) == 2 && tt.lists[1].Name == "mark" {
				replies = "mark.example"
			}
			testkit.Begins(t, "answer", c.data(letter(t, "a@x.example\r\nReply-To: a@"+replies, tt.signedBy, 100)), tt.want)
			c.close()
			if slices.Contains(decided, "tag") { // the message has gone on without one
				t.Errorf("decisions: %q", decided)
			}
			r.metrics = registry
			for result, want := range map[string]float64{"pass": tt.pass, "no": tt.no} {
				testkit.Equal(t, fmt.Sprintf("proofs{%s}", result), r.count(t, "blockd_proofs_total", result), want)
			}
		})
	}
}

// TestCopyThatCannotBeWritten is no refusal, nor does it let a listed sender pass.
func TestCopyThatCannotBeWritten(t *testing.T) {
	for _, proved := range []bool{true, false} {
		p := newPost(t, "x.example", "x.example", "dkim")
		store := spool.New(spool.Settings{Dir: filepath.Join(t.TempDir(), "none"), PerCopy: 1})
		r, c := begin(t, &script.Server{}, p.checker, Settings{Copies: store})
		c.mail("a@x.example")
		testkit.Begins(t, "answer", c.data(letter(t, "a@x.example", strings.Repeat("x.example", bit(proved)), 100_000)), "451 4.3.0")
		testkit.Equal(t, "counted: times", r.count(t, "blockd_smtp_copy_errors_total", ""), 1)
		c.mail("a@good.example")
		testkit.Begins(t, "the next message", c.data("x\r\n"), "250")
		c.close()
	}
}

// TestReloadBeforeTheDotChangesNothing: the sender's generation decides.
func TestReloadBeforeTheDotChangesNothing(t *testing.T) {
	p := newPost(t, "x.example", "", "")
	build := func(lists ...dialogue.List) *index.Index {
		return (&dialogue.Dialogue{Name: t.Name(), Lists: lists}).Index(t)
	}
	now := build(dialogue.List{Name: "bad", Entries: []string{"x.example"}}, dialogue.List{Name: "exempt", Kind: "allow", Entries: []string{"x.example"}},
		dialogue.List{Name: "phish", Entries: []string{"y.example"}})
	resolver := testkit.Value(msgauth.NewResolver(msgauth.Settings{Server: p.Address}))(t)
	from, _ := verdict.ParseSources([]string{"from"})
	checker := policy.New(func() *index.Index { return now }, policy.Settings{Auth: rule.Auth{Resolver: resolver},
		Lists: map[string]rule.List{"exempt": {Require: verdict.DKIMProof}, "phish": {Match: from}}}, discardLog(), prometheus.NewRegistry())
	_, c := begin(t, &script.Server{}, checker, Settings{})
	old := now
	for _, tt := range []struct{ sender, text, want string }{
		{"a@x.example", letter(t, "a@x.example", "", 10), "554 "},
		{"a@x.example", letter(t, "a@x.example", "x.example", 10), "250 "},
		{"a@good.example", letter(t, "a@y.example", "", 10), "554 "},
	} {
		now = old
		c.mail(tt.sender)
		now = build(dialogue.List{Name: "bad", Entries: []string{"z.example"}}, dialogue.List{Name: "exempt", Kind: "allow", Entries: []string{"z.example"}},
			dialogue.List{Name: "phish", Entries: []string{"z.example"}})
		testkit.Begins(t, tt.sender, c.data(tt.text), tt.want)
	}
	c.close()
}

// TestAbortedMessagesLeaveNothing has clients drop out anywhere in a message that
// decides about itself.
func TestAbortedMessagesLeaveNothing(t *testing.T) {
	clients, atOnce := 400, 20
	switch {
	case *soak:
		clients, atOnce = 10_000, 100
	case testing.Short():
		clients = 60
	}
	p := newPost(t, "x.example", "x.example", "dkim")
	store := spool.New(spool.Settings{Dir: t.TempDir(), PerCopy: 64 << 10})
	r := newRig(&script.Server{Caps: []string{"PIPELINING", "CHUNKING"}}, p.checker, Settings{Copies: store, Chunking: true})
	r.logTo(discardLog())
	text := letter(t, "a@x.example", "x.example", 200_000)
	abort := func(i int) {
		c := connect(t, r, context.Background())
		c.hello()
		c.mail("a@x.example")
		part := text[:i*7919%len(text)]
		switch i % 4 {
		case 0, 1:
			c.want("DATA", "354")
			c.send(part)
		case 2: // between the chunks, or within one
			c.send(fmt.Sprintf("BDAT %d\r\n%s", len(part)+i%8, part))
		case 3: // with everything sent but the last octet of the dot line
			c.want("DATA", "354")
			c.send(text + ".\r")
		}
		c.close()
	}
	abort(0)
	r.server.Wait()
	goroutines, files := steady(), testkit.OpenFiles(t)
	var all sync.WaitGroup
	for from := range atOnce {
		all.Go(func() {
			for i := from; i < clients; i += atOnce {
				abort(i)
			}
		})
	}
	all.Wait()
	r.server.Wait() // every connection of upstream's has ended
	if all := r.server.Messages(); len(all) > 0 {
		t.Errorf("%d messages were delivered", len(all))
	}
	testkit.Equal(t, "octets of copies are left", store.Used(), 0)
	testkit.Eventually(t, "goroutines and files are those of before", func() bool {
		return runtime.NumGoroutine() <= goroutines && testkit.OpenFiles(t) <= files
	})
}

// steady is the number of goroutines when those that are about to end have.
func steady() int {
	n := runtime.NumGoroutine()
	for range 1000 {
		runtime.Gosched()
		n = min(n, runtime.NumGoroutine())
	}
	return n
}

// TestReverse is the rule on PTR records: which clients it refuses and spares, and what it asks.
func TestReverse(t *testing.T) {
	const name = "PTR 7.2.0.192.in-addr.arpa"
	good := nameserver.Zone{name: {"mx.test"}, "A mx.test": {"192.0.2.7"}}
	astray := nameserver.Zone{name: {"mx.test"}, "A mx.test": {"192.0.2.99"}}
	for _, c := range []struct {
		name     string
		settings Settings
		zone     nameserver.Zone
		sender   string
		rcpt     string
		want     string
		queries  int
	}{
		{"off asks nothing", Settings{}, nil, "a@good.example", "bob", "250", 0},
		{"off by its word too", Settings{PTR: "off"}, nil, "a@good.example", "bob", "250", 0},
		{"no name", Settings{PTR: "exists"}, nil, "a@good.example", "bob", "550 5.7.25 Client host rejected: ", 1},
		{"a name", Settings{PTR: "exists"}, astray, "a@good.example", "bob", "250", 1},
		{"a name that leads astray", Settings{PTR: "confirmed"}, astray, "a@good.example", "bob", "550 5.7.25 ", 2},
		{"a name that leads back", Settings{PTR: "confirmed"}, good, "a@good.example", "bob", "250", 2},
		{"its EHLO is refused", Settings{PTR: "exists", Helo: "valid"}, nil, "a@good.example", "bob", "550 5.7.1 Helo", 0},
		{"DNS is broken", Settings{PTR: "confirmed"}, nameserver.Zone{name: {"!SERVFAIL"}}, "a@good.example", "bob", "250", 2},
		{"null sender", Settings{PTR: "exists"}, nil, "", "bob", "550 5.7.25 ", 1},
		{"exempt recipient", Settings{PTR: "exists"}, nil, "a@good.example", "postmaster", "250", 0},
		{"listed sender", Settings{PTR: "exists"}, nil, "a@bad.example", "bob", "550 5.7.1 ", 0},
		{"trusted client", Settings{PTR: "exists", Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, nil, "a@good.example", "bob", "250", 0},
		{"this program", Settings{PTR: "exists", Own: func(at netip.AddrPort) bool { return at == testClient }}, nil, "a@bad.example", "bob", "250", 0},
		{"another one", Settings{Own: func(netip.AddrPort) bool { return false }}, nil, "a@bad.example", "bob", "550 5.7.1 ", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := nameserver.Serve(t, c.zone)
			c.settings.Resolver = resolverOf(t, server, 5*time.Second)
			r, client := begin(t, &script.Server{}, checkerBy(t, server, 5*time.Second, "bad.example", "", ""), c.settings)
			if c.settings.Helo != "" {
				client.want("EHLO -", "250")
			}
			for range 2 { // a session asks once
				client.want("MAIL FROM:<"+c.sender+">", "250")
				client.want("RCPT TO:<"+c.rcpt+"@here.example>", c.want)
				client.want("RSET", "250")
			}
			client.close()
			r.server.Wait()
			if got := server.Count(); got != c.queries {
				t.Errorf("%d queries, want %d: %v", got, c.queries, server.Asked())
			}
			refused := strings.HasPrefix(c.want, "550 5.7.25") || c.settings.Helo != ""
			testkit.Equal(t, fmt.Sprintf("log: %s", r.log), strings.Contains(r.log.String(), `msg="recipient not taken"`), refused)
			for _, line := range r.server.Log() {
				if refused && strings.HasPrefix(line, "RCPT") {
					t.Errorf("upstream has read %q", line)
				}
			}
		})
	}
}

// TestReverseAmongOthers: the refusal stands in its place among the answers of a
// pipeline, and takes nothing from the recipients before it.
func TestReverseAmongOthers(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode string // [smtp] mail
		mail string // upstream's answer to MAIL
		want []string
		sent int // recipients that upstream has read
	}{
		{"an exempt one before and behind", "lazy", "250 ok", []string{"250", "250", "550 5.7.25", "550 5.7.25", "250", "354"}, 2},
		{"MAIL with the first is refused", "lazy", "550 5.1.8 no", []string{"250", "550 5.1.8", "550 5.7.25", "550 5.7.25", "550 5.1.8", "554"}, 1},
		{"MAIL with the first costs the session", "lazy", "421 4.3.2 bye", []string{"250", "421 4.3.2", ""}, 0},
		{"MAIL in flight is refused", "strict", "550 5.1.8 no", []string{"550 5.1.8", "503", "503", "503", "503", "503"}, 1},
		{"MAIL in flight costs the session", "strict", "421 4.3.2 bye", []string{"421 4.3.2", ""}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server, names := &script.Server{}, nameserver.Serve(t, nil)
			r, c := begin(t, server, checkerBy(t, names, 5*time.Second, "bad.example", "", ""), Settings{Mail: tt.mode, PTR: "confirmed", Resolver: resolverOf(t, names, 5*time.Second)})
			server.On("MAIL", tt.mail)
			var text strings.Builder
			text.WriteString("MAIL FROM:<a@good.example>\r\n")
			for _, name := range []string{"postmaster", "bob", "carol", "postmaster"} {
				text.WriteString("RCPT TO:<" + name + "@here.example>\r\n")
			}
			go c.send(text.String() + "DATA\r\n")
			for i, want := range tt.want {
				if got := c.reply(); !strings.HasPrefix(got, want) || want == "" && got != "" {
					t.Errorf("reply %d is %q, want %q", i, got, want)
				}
			}
			if tt.want[len(tt.want)-1] == "354" {
				c.want("hello\r\n.", "250")
			}
			c.close()
			r.server.Wait()
			if n := strings.Count(strings.Join(r.server.Log(), "\n"), "RCPT TO:"); n != tt.sent {
				t.Errorf("upstream has read %d recipients, want %d: %q", n, tt.sent, r.server.Log())
			}
		})
	}
}

// TestP1WhatComesWhileDNSIsAskedDoesNotChangeTheLine: the octets that were checked are
// forwarded, and not those that the client has sent since.
func TestP1WhatComesWhileDNSIsAskedDoesNotChangeTheLine(t *testing.T) {
	for _, at := range []string{"rcpt", "mail"} {
		release, asked := make(chan struct{}), make(chan struct{}, 100)
		server := nameserver.ServeFunc(t, func(m *dns.Msg) *dns.Msg {
			asked <- struct{}{}
			<-release
			reply := new(dns.Msg).SetReply(m)
			reply.Answer = append(reply.Answer, nameserver.Record(strings.TrimSuffix(m.Question[0].Name, "."), "TXT", "v=spf1 ip4:192.0.2.0/24 -all"))
			return reply
		})
		r, c := begin(t, &script.Server{}, checkerBy(t, server, 5*time.Second, "x.example", "x.example", "spf"), Settings{RejectAt: at})
		lines := []string{"MAIL FROM:<a@x.example>", "RCPT TO:<bob@here.example>"}
		later := "NOOP\r\nRCPT TO:<eve@elsewhere.example>\r\n"
		if at == "rcpt" {
			c.want(lines[0], "250")
			c.send(lines[1] + "\r\n")
		} else {
			c.send(lines[0] + "\r\n")
			lines[1], later = "RCPT TO:<eve@elsewhere.example>", "RCPT TO:<eve@elsewhere.example>\r\n"
		}
		<-asked
		c.send(later)
		close(release)
		for range strings.Count(later, "\r\n") + 1 {
			c.reply()
		}
		c.close()
		r.server.Wait()
		if log := r.server.Log(); len(log) < 2 || !slices.Equal(log[:2], lines) {
			t.Errorf("reject_at %s: upstream read %q, want %q first", at, log, lines)
		}
	}
}

// TestSessionGoesOnBehindDNS: to end the watch over the client costs it nothing of the
// time for its next command, whatever the limits are.
func TestSessionGoesOnBehindDNS(t *testing.T) {
	p := newPost(t, "x.example", "x.example", "spf")
	_, c := begin(t, &script.Server{}, p.checker, Settings{Limits: Limits{Session: time.Minute, CommandIdle: time.Minute, DataStart: time.Minute, DataBlock: time.Minute}})
	c.mail("a@x.example")
	if p.Count() == 0 {
		t.Fatal("nothing was asked")
	}
	testkit.Begins(t, "answer", c.data("hello\r\n"), "250")
	c.close()
}

// TestReverseAsksWhileTheClientTalks: a client that has sent its commands ahead gets the same replies, in
// order, and upstream has the lines that were checked.
func TestReverseAsksWhileTheClientTalks(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	server := nameserver.ServeFunc(t, func(m *dns.Msg) *dns.Msg {
		asked <- struct{}{}
		<-release
		reply := new(dns.Msg).SetReply(m)
		reply.Answer = append(reply.Answer, nameserver.Record(strings.TrimSuffix(m.Question[0].Name, "."), "PTR", "mx.test"))
		return reply
	})
	r := newRig(&script.Server{}, checkerBy(t, server, time.Minute, "bad.example", "", ""), Settings{PTR: "exists", Resolver: resolverOf(t, server, time.Minute)})
	c := connect(t, r, t.Context())
	c.hello()
	c.want("MAIL FROM:<a@good.example>", "250")
	c.send("RCPT TO:<bob@here.example>\r\n")
	<-asked
	c.send("RCPT TO:<carol@here.example>\r\n")
	close(release)
	for _, want := range []string{"250", "250"} {
		if got := c.reply(); !strings.HasPrefix(got, want) {
			t.Errorf("reply %q", got)
		}
	}
	c.close()
	r.server.Wait()
	if got := strings.Join(r.server.Log(), "\n"); !strings.Contains(got, "RCPT TO:<bob@here.example>\nRCPT TO:<carol@here.example>") {
		t.Errorf("upstream has read %s", got)
	}
}
