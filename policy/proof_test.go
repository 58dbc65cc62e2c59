package policy_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
	"blockd/mail/msgauth"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// requiring are settings in which the list "exempt" requires proof.
func requiring(require verdict.Proof, a rule.Auth) policy.Settings {
	return policy.Settings{Auth: a, Lists: map[string]rule.List{"exempt": {Require: require}}}
}

// TestPrecedence is the table of docs/auth.md, row by row, and what follows from it.
func TestPrecedence(t *testing.T) {
	const (
		spf, dkim, client, auth = verdict.SPFProof, verdict.DKIMProof, verdict.ClientProof, verdict.AuthProof
		aligned                 = verdict.AlignmentProof
	)
	ignore := rule.Auth{Ignore: true}
	tests := []struct {
		name           string
		block, allowed string
		require        verdict.Proof
		auth           rule.Auth
		sender         string
		found          verdict.Proof
		want           verdict.Kind
		wants          verdict.Proof // before anything was tried
	}{
		{"nothing allows", "x.example", "", 0, rule.Auth{}, "a@x.example", spf | dkim | client | auth, verdict.Blocked, 0},
		{"spf asked for and found", "x.example", "a@x.example", spf, rule.Auth{}, "a@x.example", spf, verdict.Allowed, spf},
		{"spf asked for and not found", "x.example", "a@x.example", spf, rule.Auth{}, "a@x.example", 0, verdict.Blocked, spf},
		{"proof lets a general exception beat a special block", "a@x.example", "x.example", spf, rule.Auth{}, "a@x.example", spf, verdict.Allowed, spf},
		{"dkim asked for and found", "x.example", "x.example", dkim, rule.Auth{}, "b@x.example", dkim, verdict.Allowed, dkim},
		{"dkim asked for and only spf found", "x.example", "x.example", dkim, rule.Auth{}, "b@x.example", spf, verdict.Blocked, dkim},
		{"an entry that does not match is not helped by proof", "x.example", "news.x.example", spf, rule.Auth{}, "b@x.example", spf, verdict.Blocked, 0},
		{"no proof asked for: believed", "x.example", "x.example", 0, rule.Auth{}, "b@x.example", 0, verdict.Allowed, 0},
		{"no proof asked for: ignored", "x.example", "x.example", 0, ignore, "b@x.example", 0, verdict.Blocked, 0},
		{"allow-if-auth without alignment", "x.example", "welcomelist_auth *@x.example", 0, rule.Auth{}, "b@x.example", spf, verdict.Blocked, aligned},

		{"allow-if-auth with alignment", "x.example", "welcomelist_auth *@x.example", 0, rule.Auth{}, "b@x.example", aligned, verdict.Allowed, aligned},
		{"allow-if-auth is not for what its list requires", "x.example", "welcomelist_auth *@x.example", spf, rule.Auth{}, "b@x.example", spf, verdict.Blocked, aligned},
		{"what requires proof is not ignored", "x.example", "x.example", spf, ignore, "b@x.example", spf, verdict.Allowed, spf},
		{"any of several kinds", "x.example", "x.example", client | auth | spf | dkim, rule.Auth{}, "b@x.example", auth, verdict.Allowed, auth | spf | dkim},
		{"a parent's entry", "x.example", "x.example", spf, rule.Auth{}, "b@mx.x.example", spf, verdict.Allowed, spf},
		{"a local-part is at no one's domain", "x.example", "ceo@", spf | dkim, rule.Auth{}, "ceo@x.example", spf | dkim, verdict.Blocked, 0},
		{"a pattern is of no one's domain", "x.example", "news*@x.example", spf | dkim, rule.Auth{}, "news1@x.example", spf | dkim, verdict.Blocked, 0},
		{"a local-part with login", "x.example", "ceo@", auth | spf, rule.Auth{}, "ceo@x.example", auth, verdict.Allowed, auth},
		{"not blocked: no proof is looked for", "y.example", "x.example", spf, rule.Auth{}, "b@x.example", 0, verdict.Clear, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all := []list{block("bad", tt.block)}
			if tt.allowed != "" {
				all = append(all, allow("exempt", tt.allowed))
			}
			c, _ := checker(t, build(t, all...), requiring(tt.require, tt.auth))
			v := askSender(c, tt.sender)
			testkit.Equal(t, "Wants", v.Wants, tt.wants)
			const all5 = spf | dkim | client | auth | aligned
			v = v.Prove(verdict.Evidence{Tried: all5, Found: tt.found})
			if v.Kind != tt.want || v.Wants != 0 {
				t.Errorf("with %q: %s, wants %q; want %s", tt.found, v.Kind, v.Wants, tt.want)
			}
			if v.Kind == verdict.Blocked {
				if v := v.Prove(verdict.Evidence{Tried: all5, Unknown: all5}); v.Kind != verdict.Blocked || v.Unsure != tt.wants {
					t.Errorf("with nothing known: %s, unsure about %q", v.Kind, v.Unsure)
				}
			}
		})
	}
}

func TestClientNetworkIsProofByItself(t *testing.T) {
	c, _ := checker(t, build(t, block("bad", "x.example"), allow("exempt", "x.example")),
		requiring(verdict.ClientProof, rule.Auth{Clients: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}))
	for client, want := range map[string]verdict.Kind{"192.0.2.7": verdict.Allowed, "::ffff:192.0.2.7": verdict.Allowed, "198.51.100.7": verdict.Blocked} {
		if v := askEnvelope(c, netip.MustParseAddr(client), "a@x.example"); v.Kind != want || v.Wants != 0 {
			t.Errorf("from %s: %s, wants %q; want %s", client, v.Kind, v.Wants, want)
		}
	}
	var b policy.Batch
	questions := []policy.Question{{Text: "a@x.example", Client: netip.MustParseAddr("192.0.2.7")}, {Text: "a@x.example"}}
	if all := c.AskAll(&b, questions); all[0].Kind != verdict.Allowed || all[1].Kind != verdict.Blocked {
		t.Errorf("Ask: %s and %s", all[0].Kind, all[1].Kind)
	}
}

// An entry for a client's address is no claim: the connection comes from there.
func TestClientEntryNeedsNoProof(t *testing.T) {
	ix := build(t, block("bad", "x.example"), allow("exempt", "192.0.2.7"))
	for name, s := range map[string]policy.Settings{"ignored": {Auth: rule.Auth{Ignore: true}}, "required": requiring(verdict.SPFProof, rule.Auth{})} {
		c, _ := checker(t, ix, s)
		if v := askEnvelope(c, netip.MustParseAddr("192.0.2.7"), "a@x.example"); v.Kind != verdict.Allowed || v.Unverified {
			t.Errorf("%s: %s, unverified %v", name, v.Kind, v.Unverified)
		}
	}
}

func TestUnverifiedAllowIsCountedAndLogged(t *testing.T) {
	c, reg := checker(t, build(t, block("bad", "x.example"), allow("exempt", "x.example\ny.example")), policy.Settings{})
	v := askSender(c, "a@x.example")
	if !v.Unverified || !strings.Contains(slog.GroupValue(v.AppendLog(nil)...).String(), "proof=none") {
		t.Errorf("%+v", slog.GroupValue(v.AppendLog(nil)...))
	}
	if v := askSender(c, "a@y.example"); v.Kind != verdict.Allowed || v.Unverified {
		t.Errorf("an exception from nothing: %s, unverified %v", v.Kind, v.Unverified)
	}
	wantMetric(t, reg, "blockd_unverified_allows_total", `blockd_unverified_allows_total{list="exempt"} 1`)
}

// A door that knows the sender only says why an exception does not count.
func TestConditionalAllowIsReported(t *testing.T) {
	for _, tt := range []struct {
		allowed string
		s       policy.Settings
		want    string
	}{
		{"x.example", requiring(verdict.SPFProof|verdict.DKIMProof, rule.Auth{}), "allow needs proof: spf, dkim"},
		{"welcomelist_auth *@x.example", policy.Settings{}, "allow needs proof: alignment"},
		{"a@", requiring(verdict.SPFProof, rule.Auth{}), "allow needs proof: spf, which is about a domain, and this entry is not"},
		{"x.example", policy.Settings{Auth: rule.Auth{Ignore: true}}, `allow without proof does not count: unverified_allow = "ignore"`},
	} {
		c, _ := checker(t, build(t, block("bad", "x.example"), allow("exempt", tt.allowed)), tt.s)
		v := askSender(c, "a@x.example")
		found := false
		for i, m := range v.Answer("a@x.example").Matches {
			if m.List == "exempt" {
				found = true
				if m.Reason != tt.want || v.Objection(i) != tt.want {
					t.Errorf("reason %q, objection %q, want %q", m.Reason, v.Objection(i), tt.want)
				}
			}
		}
		var a verdict.Answer
		if err := json.Unmarshal(v.AppendJSON(nil, "a@x.example"), &a); err != nil || !found || v.Kind != verdict.Blocked {
			t.Errorf("%s: %s, %v", tt.allowed, v.Kind, err)
		}
		if want := v.Answer("a@x.example"); a.Matches[0] != want.Matches[0] || a.Matches[1] != want.Matches[1] {
			t.Errorf("AppendJSON has %+v, Answer %+v", a.Matches, want.Matches)
		}
	}
}

func TestUnknownProofIsTheBlockOrATempfail(t *testing.T) {
	ix := build(t, block("bad", "x.example"), allow("exempt", "x.example"))
	for _, tt := range []struct {
		tempfail bool
		rcpt     string
		unknown  verdict.Proof
		short    bool // because of us
		outcome  policy.Outcome
		reply    string
	}{
		{false, "bob@here.example", verdict.SPFProof, true, policy.Defer, "451 4.4.3 "},
		{true, "bob@here.example", verdict.SPFProof, true, policy.Defer, "451 4.4.3 "},
		{false, "bob@here.example", verdict.DKIMProof, true, policy.Refuse, "550 5.7.1 "},
		{false, "abuse@here.example", verdict.SPFProof, true, policy.Accept, ""},
		{false, "bob@here.example", verdict.SPFProof, false, policy.Refuse, "550 5.7.1 "},
		{true, "bob@here.example", verdict.SPFProof, false, policy.Defer, "451 4.4.3 <a@x.example>: Sender address not verified: try again later (ref "},
		{true, "bob@here.example", verdict.DKIMProof, false, policy.Refuse, "550 5.7.1 "}, // which would not have helped
		{true, "abuse@here.example", verdict.SPFProof, false, policy.Accept, ""},
	} {
		s := requiring(verdict.SPFProof, rule.Auth{Tempfail: tt.tempfail})
		s.RecipientsExempt = []string{"abuse"}
		c, _ := checker(t, ix, s)
		v := askSender(c, "a@x.example").Prove(verdict.Evidence{Tried: tt.unknown, Unknown: tt.unknown})
		if tt.short {
			e := verdict.Evidence{}
			e.Note(tt.unknown, msgauth.Short)
			v = v.Prove(e)
		}
		if d := c.Recipient(v, tt.rcpt); d.Outcome != tt.outcome || !strings.HasPrefix(d.Reply.String(), tt.reply) {
			t.Errorf("tempfail %v, %s unknown: %+v", tt.tempfail, tt.unknown, d)
		}
	}
	c, _ := checker(t, ix, policy.Settings{Lists: map[string]rule.List{"exempt": {Require: verdict.DKIMProof}}})
	if d := c.EndOfMessage(askSender(c, "a@x.example"), "bob@here.example"); !strings.HasPrefix(d.Reply.String(), "554 5.7.1 <a@x.example>: Sender address rejected: listed in bad (ref ") {
		t.Errorf("at the end of a message: %+v", d)
	}
}

// A recipient's policy may leave out the list that believes, and then proof counts.
func TestProofIsWantedByTheRecipientsLists(t *testing.T) {
	ix := build(t, block("bad", "x.example"), allow("believed", "x.example"), allow("exempt", "x.example"))
	s := requiring(verdict.AuthProof, rule.Auth{})
	s.Policies = []rule.Recipients{{Recipients: []string{"strict.example"}, Lists: []string{"bad", "exempt"}}}
	c, _ := checker(t, ix, s)
	v := askSender(c, "a@x.example")
	if v.Kind != verdict.Allowed || v.Wants != 0 {
		t.Fatalf("the envelope: %s, wants %q", v.Kind, v.Wants)
	}
	strict := c.For(v, "bob@strict.example")
	if strict.Kind != verdict.Blocked || strict.Wants != verdict.AuthProof {
		t.Errorf("for the strict: %s, wants %q", strict.Kind, strict.Wants)
	}
	for _, login := range []bool{false, true} {
		proved := c.ProveOrigin(t.Context(), v, "bob@strict.example", policy.Origin{Authenticated: login})
		if got := c.For(proved, "bob@strict.example").Kind == verdict.Allowed; got != login {
			t.Errorf("login %v: allowed %v", login, got)
		}
		testkit.Equal(t, fmt.Sprintf("login %v: the envelope", login), proved.Kind, verdict.Allowed)
	}
}

// A shadow list's own conditional exception excuses its block only with its proof.
func TestShadowListWithConditionalAllow(t *testing.T) {
	c, _ := checker(t, build(t, block("watched", "x.example\n!a@x.example").shadow()),
		policy.Settings{Lists: map[string]rule.List{"watched": {Require: verdict.SPFProof}}})
	v := askSender(c, "a@x.example")
	if v.Kind != verdict.Clear || v.Shadow < 0 || v.Wants != 0 {
		t.Errorf("%s, shadow %d, wants %q", v.Kind, v.Shadow, v.Wants)
	}
	if v = v.Prove(verdict.Evidence{Tried: verdict.SPFProof, Found: verdict.SPFProof}); v.Shadow >= 0 {
		t.Error("it would refuse in spite of the proof")
	}
}

// Without a resolver nothing is found, and nothing waits for it.
func TestWithoutAResolverNothingIsFound(t *testing.T) {
	c, _ := checker(t, build(t, block("bad", "x.example"), allow("exempt", "x.example")), requiring(verdict.SPFProof|verdict.DKIMProof, rule.Auth{}))
	v := c.ProveOrigin(t.Context(), askSender(c, "a@x.example"), "bob@here.example", policy.Origin{Client: netip.MustParseAddr("192.0.2.7")})
	if v.Kind != verdict.Blocked || !tentative(v) {
		t.Errorf("%s, wants %q", v.Kind, v.Wants)
	}
	v, err := c.ProveMessage(t.Context(), v, "bob@here.example", policy.Origin{}, strings.NewReader("From: a@x.example\r\n\r\n"))
	if err != nil || v.Kind != verdict.Blocked || v.Wants != 0 {
		t.Errorf("%s, wants %q, %v", v.Kind, v.Wants, err)
	}
}

func TestProvedAllowIsLogged(t *testing.T) {
	var log bytes.Buffer
	ix := build(t, block("bad", "x.example"), allow("exempt", "x.example"))
	c := policy.New(func() *index.Index { return ix }, requiring(verdict.SPFProof, rule.Auth{}), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	v := askSender(c, "a@x.example").Prove(verdict.Evidence{Tried: verdict.SPFProof, Found: verdict.SPFProof, SPF: msgauth.SPF{Proof: msgauth.Pass}})
	slog.New(slog.NewTextHandler(&log, nil)).Info("accepted", slog.GroupAttrs("", v.AppendLog(nil)...))
	testkit.Has(t, log.String(), "proof=spf")
}

// post is mail of x.example, with the name server that vouches for it.
type post struct {
	*nameserver.Server
	resolver *msgauth.Resolver
	key      ed25519.PrivateKey
}

func newPost(t *testing.T) post {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	testkit.Must(t, err)
	s := nameserver.Serve(t, nameserver.Zone{
		"TXT x.example":                  {"v=spf1 ip4:192.0.2.0/24 -all"},
		"TXT broken.x.example":           {"!SERVFAIL"},
		"TXT crowd.x.example":            strings.Fields(strings.Repeat("text ", 501)),
		"TXT s1._domainkey.x.example":    {"v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(public)},
		"TXT s1._domainkey.evil.example": {"v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(public)},
	})
	r := testkit.Value(msgauth.NewResolver(msgauth.Settings{Server: s.Address}))(t)
	return post{s, r, private}
}

func (p post) letter(t *testing.T, from, signedBy string) string {
	t.Helper()
	text := "From: " + from + "\r\nSubject: hello\r\n\r\nText.\r\n"
	if signedBy == "" {
		return text
	}
	var out bytes.Buffer
	testkit.Must(t, dkim.Sign(&out, strings.NewReader(text), &dkim.SignOptions{Domain: signedBy, Selector: "s1", Signer: p.key}))
	return out.String()
}

// TestProofsAreFound runs a transaction through both phases, as a front door does.
func TestProofsAreFound(t *testing.T) {
	const ours, other = "192.0.2.7", "198.51.100.7"
	everything := verdict.SPFProof | verdict.DKIMProof
	tests := []struct {
		name, allowed        string
		require              verdict.Proof
		client, sender, from string
		signedBy             string
		early, late          verdict.Kind
		queries              int
	}{
		{"SPF", "x.example", verdict.SPFProof, ours, "a@x.example", "a@x.example", "", verdict.Allowed, verdict.Allowed, 1},
		{"SPF of another client", "x.example", verdict.SPFProof, other, "a@x.example", "a@x.example", "x.example", verdict.Blocked, verdict.Blocked, 1},
		{"a signature", "x.example", verdict.DKIMProof, other, "a@x.example", "a@x.example", "x.example", verdict.Blocked, verdict.Allowed, 1},
		{"a signature where SPF would do", "x.example", everything, other, "a@x.example", "a@x.example", "x.example", verdict.Blocked, verdict.Allowed, 2},
		{"SPF, and the message is not looked at", "x.example", everything, ours, "a@x.example", "a@x.example", "x.example", verdict.Allowed, verdict.Allowed, 1},
		{"no signature", "x.example", verdict.DKIMProof, ours, "a@x.example", "a@x.example", "", verdict.Blocked, verdict.Blocked, 0},
		{"the envelope of one, From and signature of another", "x.example", verdict.DKIMProof, other, "a@x.example", "a@evil.example", "evil.example", verdict.Blocked, verdict.Blocked, 1},
		{"From of one, signature of another", "x.example", verdict.DKIMProof, other, "a@x.example", "a@x.example", "evil.example", verdict.Blocked, verdict.Blocked, 1},
		{"allow-if-auth by signature", "welcomelist_auth *@x.example", 0, other, "a@x.example", "a@x.example", "x.example", verdict.Blocked, verdict.Allowed, 1},
		{"allow-if-auth by SPF", "welcomelist_auth *@x.example", 0, ours, "a@x.example", "a@x.example", "", verdict.Blocked, verdict.Allowed, 1},
		{"allow-if-auth by SPF, From of another domain", "welcomelist_auth *@x.example", 0, ours, "a@x.example", "a@evil.example", "", verdict.Blocked, verdict.Blocked, 0},
		{"allow-if-auth by a signature of another", "welcomelist_auth *@x.example", 0, other, "a@x.example", "a@evil.example", "evil.example", verdict.Blocked, verdict.Blocked, 1},
		{"a server that fails", "x.example", verdict.SPFProof, ours, "a@broken.x.example", "a@broken.x.example", "", verdict.Blocked, verdict.Blocked, 2},
		{"ordinary mail asks nothing", "y.example", everything, ours, "a@clear.example", "a@x.example", "x.example", verdict.Clear, verdict.Clear, 0},
		{"a block that nothing could lift asks nothing", "y.example", everything, ours, "a@x.example", "a@x.example", "x.example", verdict.Blocked, verdict.Blocked, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := newPost(t)
			c, _ := checker(t, build(t, block("bad", "x.example"), allow("exempt", tt.allowed)), requiring(tt.require, rule.Auth{Resolver: p.resolver}))
			o := policy.Origin{Client: netip.MustParseAddr(tt.client), Helo: "mx.x.example"}
			v := askEnvelope(c, o.Client, tt.sender)
			for range 3 { // recipients
				v = c.ProveOrigin(t.Context(), v, "bob@here.example", o)
			}
			if v.Kind != tt.early {
				t.Errorf("before the message: %s, want %s: %+v", v.Kind, tt.early, v.Evidence)
			}
			v, err := c.ProveMessage(t.Context(), v, "bob@here.example", o, strings.NewReader(p.letter(t, tt.from, tt.signedBy)))
			if err != nil || v.Kind != tt.late || tentative(v) {
				t.Errorf("behind the message: %s, tentative %v, want %s: %+v, %v", v.Kind, tentative(v), tt.late, v.Evidence, err)
			}
			if p.Count() != tt.queries {
				t.Errorf("%d queries, want %d: %v", p.Count(), tt.queries, p.Asked())
			}
		})
	}
}

func TestProofsAreCounted(t *testing.T) {
	p := newPost(t)
	c, reg := checker(t, build(t, block("bad", "x.example"), allow("exempt", "x.example")),
		requiring(verdict.AuthProof|verdict.SPFProof|verdict.DKIMProof, rule.Auth{Resolver: p.resolver}))
	for client, sender := range map[string]string{"192.0.2.7": "a@x.example", "198.51.100.7": "b@x.example", "192.0.2.8": "c@broken.x.example", "192.0.2.9": "d@crowd.x.example"} {
		o := policy.Origin{Client: netip.MustParseAddr(client)}
		v := c.ProveOrigin(t.Context(), askEnvelope(c, o.Client, sender), "", o)
		testkit.Value(c.ProveMessage(t.Context(), v, "", o, strings.NewReader(p.letter(t, sender, "x.example"))))(t)
	}
	wantMetric(t, reg, "blockd_proofs_total", `
		blockd_proofs_total{kind="auth",result="no"} 4
		blockd_proofs_total{kind="dkim",result="pass"} 3
		blockd_proofs_total{kind="spf",result="no"} 1
		blockd_proofs_total{kind="spf",result="pass"} 1
		blockd_proofs_total{kind="spf",result="shortage"} 1
		blockd_proofs_total{kind="spf",result="unknown"} 1`)
}

func TestMessageThatCannotBeReadProvesNothing(t *testing.T) {
	p := newPost(t)
	c, _ := checker(t, build(t, block("bad", "x.example"), allow("exempt", "x.example")), requiring(verdict.DKIMProof, rule.Auth{Resolver: p.resolver}))
	letter, broken := p.letter(t, "a@x.example", "x.example"), errors.New("broken disk")
	for n := range len(letter) {
		r := iotest.DataErrReader(strings.NewReader(letter[:n]))
		v, err := c.ProveMessage(t.Context(), askSender(c, "a@x.example"), "", policy.Origin{}, &breaks{r, broken})
		if !errors.Is(err, broken) || v.Kind != verdict.Blocked || !tentative(v) {
			t.Fatalf("broken behind %d octets: %s, %v", n, v.Kind, err)
		}
	}
}

// breaks ends with an error in place of the end.
type breaks struct {
	r interface{ Read([]byte) (int, error) }
	e error
}

func (b *breaks) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil {
		err = b.e
	}
	return n, err
}

// The client's network proves an address of a header field like that of the envelope.
func TestClientProofOfAHeader(t *testing.T) {
	c, _ := checker(t, build(t, block("bad", "x.example\n"), allow("good", "x.example\n")), policy.Settings{
		Lists: map[string]rule.List{"bad": {Match: sources(t, "from")}, "good": {Match: sources(t, "from"), Require: verdict.ClientProof}},
		Auth:  rule.Auth{Clients: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}},
	})
	for client, want := range map[string]verdict.Kind{"192.0.2.7": verdict.Allowed, "::ffff:192.0.2.7": verdict.Allowed, "198.51.100.7": verdict.Blocked} {
		v := c.Header(verdict.FromSource, "a@x.example")
		v = c.ProveOrigin(t.Context(), v, "bob@here.example", policy.Origin{Client: netip.MustParseAddr(client)})
		if v.Kind != want || v.Wants != 0 {
			t.Errorf("from %s: %s, wants %q; want %s", client, v.Kind, v.Wants, want)
		}
	}
}
