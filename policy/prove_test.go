package policy_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/emersion/go-msgauth/dkim"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
	"blockd/mail/msgauth"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

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
	for client, sender := range map[string]string{"192.0.2.7": "a@x.example", "198.51.100.7": "b@x.example", "192.0.2.8": "c@broken.x.example"} {
		o := policy.Origin{Client: netip.MustParseAddr(client)}
		v := c.ProveOrigin(t.Context(), askEnvelope(c, o.Client, sender), "", o)
		testkit.Value(c.ProveMessage(t.Context(), v, "", o, strings.NewReader(p.letter(t, sender, "x.example"))))(t)
	}
	wantMetric(t, reg, "blockd_proofs_total", `
		blockd_proofs_total{kind="auth",result="no"} 3
		blockd_proofs_total{kind="dkim",result="pass"} 2
		blockd_proofs_total{kind="spf",result="no"} 1
		blockd_proofs_total{kind="spf",result="pass"} 1
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
