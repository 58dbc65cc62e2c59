package msgauth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/miekg/dns"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
	"blockd/internal/testkit/race"
)

// TestBrokenMessagesLeaveNothing breaks messages of several signatures off at every
// place.
func TestBrokenMessagesLeaveNothing(t *testing.T) {
	bank := newSigner(t)
	r := resolverOf(t, nameserver.Serve(t, zone{"TXT s1._domainkey.bank.test": {bank.record}}))
	message := letter + strings.Repeat("A line of the body.\r\n", 2000)
	for range 5 {
		message = bank.sign(t, message, "bank.test")
	}
	before := runtime.NumGoroutine()
	broken := errors.New("broken disk")
	points := 1000
	if race.Enabled {
		points = 100
	}
	for i := range points {
		n := i * len(message) / points
		_, err := r.Message(t.Context(), netip.Addr{}, io.MultiReader(strings.NewReader(message[:n]), failing{broken}))
		if !errors.Is(err, broken) {
			t.Fatalf("broken off behind %d octets: %v", n, err)
		}
	}
	testkit.Eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestOwnVectors has messages that were signed once, with folded and oversigned fields
// and an odd body: what held then holds on.
func TestOwnVectors(t *testing.T) {
	zoneText := testkit.Read(t, "testdata/signed/zone")
	r := resolverOf(t, nameserver.Serve(t, vectorZone(string(zoneText))))
	files, _ := filepath.Glob("testdata/signed/*.eml")
	testkit.MustEqual(t, "messages", len(files), 5)
	for _, file := range files {
		text := testkit.Read(t, file)
		message := strings.ReplaceAll(string(text), "\n", "\r\n")
		for name, m := range map[string]string{"as it is": message, "changed": strings.Replace(message, "hello", "Hello", 1)} {
			got, err := r.Message(t.Context(), netip.Addr{}, strings.NewReader(m))
			if want := map[bool]State{true: Pass, false: No}[m == message]; err != nil || got.DKIM("x.example") != want {
				t.Errorf("%s %s: %+v, %v; want %s", file, name, got, err, want)
			}
		}
	}
}

// FuzzMessage gives the verifier any message and any key record.
func FuzzMessage(f *testing.F) {
	bank := newSigner(f)
	good := bank.sign(f, letter, "bank.test")
	f.Add(good, bank.record)
	f.Add(strings.Replace(good, "relaxed/relaxed", "simple/simple", 1), bank.record+"; t=y:s; h=sha256; s=email")
	f.Add("From: a@x.example\r\nDKIM-Signature: v=1; a=rsa-sha256; d=x.example; s=s; h=from; bh=AA==; b=AA==\r\n\r\n", "p=MIG")
	var record atomic.Value // string: what the server says now
	s := nameserver.ServeFunc(f, func(m *dns.Msg) *dns.Msg {
		reply := new(dns.Msg).SetReply(m)
		reply.Answer = []dns.RR{nameserver.Record(m.Question[0].Name, "TXT", record.Load().(string))}
		return reply
	})
	f.Fuzz(func(t *testing.T, message, key string) {
		record.Store(key)
		m := testkit.Value(resolverOf(t, s).Message(t.Context(), netip.Addr{}, strings.NewReader(message)))(t)
		if len(m.Signatures) > maxSignatures || m.Author == "" && m.Fault == "" {
			t.Fatalf("%+v", m)
		}
		for _, sig := range m.Signatures {
			if (sig.Proof == Pass) != (sig.Reason == "") || sig.Proof == Pass && Organisation(sig.Domain) == "" {
				t.Fatalf("%+v", sig)
			}
		}
		if m.DKIM("bank.test") == Pass && !strings.Contains(strings.ToLower(message), "bank.test") {
			t.Fatalf("a proof of what is not in the message: %+v", m)
		}
	})
}

// BenchmarkMessage is what a tentative message costs without DNS.
func BenchmarkMessage(b *testing.B) {
	signer := newRSASigner(b, 2048)
	r := resolverOf(b, nameserver.Serve(b, zone{"TXT s1._domainkey.bank.test": {signer.record}}))
	for _, size := range []int{10 << 10, 100 << 10} {
		body := strings.Repeat("The quick brown fox jumps over the lazy dog, again and again and again.\r\n", size/73)
		for _, c := range []dkim.Canonicalization{dkim.CanonicalizationRelaxed, dkim.CanonicalizationSimple} {
			message := signer.sign(b, letter+body, "bank.test", func(o *dkim.SignOptions) { o.BodyCanonicalization = c })
			b.Run(fmt.Sprintf("%dKB/%s", size>>10, c), func(b *testing.B) {
				b.SetBytes(int64(len(message)))
				b.ReportAllocs()
				for b.Loop() {
					m, err := r.Message(b.Context(), netip.Addr{}, strings.NewReader(message))
					if err != nil || m.DKIM("bank.test") != Pass {
						b.Fatal(m, err)
					}
				}
			})
		}
	}
}

// Blank lines at the end are no part of what is signed, however many there are.
func TestBlankLinesCostNothing(t *testing.T) {
	bank := newSigner(t)
	r := resolverOf(t, nameserver.Serve(t, zone{"TXT s1._domainkey.bank.test": {bank.record}}))
	simple := func(o *dkim.SignOptions) { o.BodyCanonicalization = dkim.CanonicalizationSimple }
	head := signatureOf(bank.sign(t, letter, "bank.test", simple))
	began := time.Now()
	m, err := r.Message(t.Context(), netip.Addr{}, strings.NewReader(strings.Repeat(head, 5)+letter+strings.Repeat("\r\n", 5<<20)))
	if err != nil || m.DKIM("bank.test") != Pass {
		t.Errorf("%+v, %v", m, err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("10 MiB of blank lines took %s", took)
	}
	some := bank.sign(t, letter+strings.Repeat("\r\n", 1000)+"x\r\n", "bank.test", simple)
	if m, err := r.Message(t.Context(), netip.Addr{}, strings.NewReader(some)); err != nil || m.DKIM("bank.test") != Pass {
		t.Errorf("a run within bounds: %+v, %v", m, err)
	}
}

// To relaxed canonicalization a line of blanks is an empty one.
func TestLinesOfBlanksTakeNoMemory(t *testing.T) {
	bank := newSigner(t)
	r := resolverOf(t, nameserver.Serve(t, zone{"TXT s1._domainkey.bank.test": {bank.record}}))
	head := signatureOf(bank.sign(t, letter, "bank.test"))
	text := strings.Repeat(head, 5) + letter + strings.Repeat(" \r\n\t\r\n", 10<<20/6)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := r.Message(t.Context(), netip.Addr{}, strings.NewReader(text))
	runtime.ReadMemStats(&after)
	if err != nil || m.DKIM("bank.test") != Pass {
		t.Errorf("%+v, %v", m, err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
		t.Errorf("%d octets allocated", took)
	}
}

// Anybody with a domain to sign with can name as many fields as a header has room for.
func TestNamesOfSignedFieldsCostNothing(t *testing.T) {
	bank := newSigner(t)
	r := resolverOf(t, nameserver.Serve(t, zone{"TXT s1._domainkey.bank.test": {bank.record}}))
	crowd := strings.Repeat("X: y\r\n", 900) + letter
	named := func(names int) string {
		return bank.resign(t, crowd, "bank.test", func(field string) string {
			return strings.Replace(field, " h=", " h="+strings.Repeat("q:", names), 1)
		})
	}
	began := time.Now()
	m, err := r.Message(t.Context(), netip.Addr{}, strings.NewReader(named(120_000)))
	if err != nil || m.DKIM("bank.test") != Pass {
		t.Errorf("%+v, %v", m, err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("120,000 names in h= took %s", took)
	}
	if m, err := r.Message(t.Context(), netip.Addr{}, strings.NewReader(named(100))); err != nil || m.DKIM("bank.test") != Pass {
		t.Errorf("a hundred names: %+v, %v", m, err)
	}
}

const letter = "From: Ann <ann@news.bank.test>\r\nTo: bob@here.example\r\nSubject: hello\r\n\r\nOne line.\r\nAnother.\r\n"

// TestForgeries has what a forger may try and what an honest signer may do, each
// with the proof that it is for mail from ann@news.bank.test.
func TestForgeries(t *testing.T) {
	bank, mallory := newSigner(t), newSigner(t)
	small := newRSASigner(t, 1024)
	z := zone{
		"TXT s1._domainkey.news.bank.test":         {bank.record},
		"TXT s1._domainkey.bank.test":              {bank.record},
		"TXT s1._domainkey.mallory.test":           {mallory.record},
		"TXT s1._domainkey.test":                   {mallory.record},
		"TXT s1._domainkey.co.uk":                  {mallory.record},
		"TXT testing._domainkey.bank.test":         {bank.record + "; t=y"},
		"TXT xn--bcher-kva._domainkey.bank.test":   {bank.record},
		"TXT strict._domainkey.bank.test":          {bank.record + "; t=s"},
		"TXT small._domainkey.bank.test":           {small.record},
		"TXT two._domainkey.bank.test":             {bank.record, mallory.record},
		"TXT revoked._domainkey.bank.test":         {"v=DKIM1; k=ed25519; p="},
		"TXT broken._domainkey.bank.test":          {"!SERVFAIL"},
		"TXT huge._domainkey.bank.test":            {"v=DKIM1; p=" + base64.StdEncoding.EncodeToString(make([]byte, 6000))},
		"TXT s1._domainkey.xn--bcher-kva.test":     {bank.record},
		"TXT s1._domainkey.news.bank.test.invalid": {mallory.record},
	}
	z["TXT crowd._domainkey.bank.test"] = append(numbered(24), bank.record)
	z["TXT thousand._domainkey.bank.test"] = append(numbered(1000), bank.record)
	selector := func(s string) func(*dkim.SignOptions) { return func(o *dkim.SignOptions) { o.Selector = s } }
	good := bank.sign(t, letter, "bank.test")
	bad := mallory.sign(t, letter, "mallory.test")
	tests := []struct {
		name, message string
		want          State
		why           string // part of the reason, where the facts have one
	}{
		{"signed by the organisation", good, Pass, ""},
		{"signed by the domain itself", bank.sign(t, letter, "news.bank.test"), Pass, ""},
		{"simple canonicalization", bank.sign(t, letter, "bank.test", func(o *dkim.SignOptions) {
			o.HeaderCanonicalization, o.BodyCanonicalization = dkim.CanonicalizationSimple, dkim.CanonicalizationSimple
		}), Pass, ""},
		{"RSA of 1,024 bits", small.sign(t, letter, "bank.test", selector("small")), Pass, ""},
		{"d= in capitals", bank.sign(t, letter, "BANK.test"), Pass, ""},
		{"an expiry to come", bank.sign(t, letter, "bank.test", func(o *dkim.SignOptions) { o.Expiration = time.Now().Add(time.Hour) }), Pass, ""},
		{"the attacker's signature beside it", mallory.sign(t, good, "mallory.test"), Pass, ""},
		{"five signatures, the good one last", strings.Repeat(signatureOf(bad), 4) + good, Pass, ""},
		{"the good one on top of fifty others", signatureOf(good) + strings.Repeat(signatureOf(bad), 50) + letter, Pass, ""},
		{"a key with t=s and i= of the same domain", bank.sign(t, letter, "bank.test", selector("strict")), Pass, ""},

		{"a selector with a U-label", bank.sign(t, letter, "bank.test", selector("bücher")), Pass, ""},

		{"no signature", letter, No, ""},
		{"of the attacker's own domain", bad, No, ""},
		{"d= of a public suffix", mallory.sign(t, letter, "test"), No, "public suffix"},
		{"d= of a public suffix of two labels", mallory.sign(t, letter, "co.uk"), No, "public suffix"},
		{"d= that only begins like it", mallory.sign(t, letter, "news.bank.test.invalid"), No, ""},
		{"another key than the domain's", mallory.sign(t, letter, "bank.test"), No, "did not verify"},
		{"a second From on top", "From: x@bank.test\r\n" + good, No, "more than one From"},
		{"a second From below", strings.Replace(good, "\r\n\r\n", "\r\nFrom: x@bank.test\r\n\r\n", 1), No, "more than one From"},
		{"a second From in other case with a blank before the colon", "FROM : x@bank.test\r\n" + good, No, "more than one From"},
		{"From hidden from the count behind a line that is no field", "From x\r\n" + good, No, "no field"},
		{"From with two addresses", bank.sign(t, strings.Replace(letter, "From: ", "From: x@mallory.test, ", 1), "bank.test"), No, "not exactly one"},
		{"From of the attacker, envelope of the bank", mallory.sign(t, strings.Replace(letter, "news.bank.test", "mallory.test", 1), "mallory.test"), No, ""},
		{"From of another organisation, signed by it", bank.sign(t, strings.Replace(letter, "news.bank.test", "xn--bcher-kva.test", 1), "bücher.test"), No, ""},
		{"another body", strings.Replace(good, "One line", "One lie", 1), No, "body hash"},
		{"a longer body", good + "more\r\n", No, "body hash"},
		{"another subject", strings.Replace(good, "hello", "urgent", 1), No, "signature did not verify"},
		{"a key in test mode", bank.sign(t, letter, "bank.test", selector("testing")), No, "t=y"},
		{"a key with t=s and i= below", bank.sign(t, letter, "bank.test", selector("strict"), func(o *dkim.SignOptions) { o.Identifier = "@news.bank.test" }), No, "t=s"},
		{"i= of another domain", bank.resign(t, letter, "bank.test", addTag("i=@mallory.test")), No, "domain mismatch"},
		{"l=", bank.resign(t, letter, "bank.test", addTag("l=5")), No, "length tag"},
		{"SHA-1", bank.resign(t, letter, "bank.test", replaceTag("ed25519-sha256", "ed25519-sha1")), No, "sha1"},
		{"expired", bank.sign(t, letter, "bank.test", func(o *dkim.SignOptions) { o.Expiration = time.Now().Add(-time.Second) }), No, "expired"},
		{"signed in an hour", bank.resign(t, letter, "bank.test", addTag(fmt.Sprint("t=", time.Now().Add(time.Hour).Unix()))), No, "future"},
		{"From not signed", bank.resign(t, letter, "bank.test", replaceTag("From:Subject", "Subject")), No, "From field is not signed"},
		{"a key beside texts that are none", bank.sign(t, letter, "bank.test", selector("crowd")), Pass, ""},
		{"a thousand texts beside a key", bank.sign(t, letter, "bank.test", selector("thousand")), Short, "more than 500"},
		{"two keys under one name", bank.sign(t, letter, "bank.test", selector("two")), No, "multiple TXT"},
		{"a key that was revoked", bank.sign(t, letter, "bank.test", selector("revoked")), No, "revoked"},
		{"a key of 48,000 bits", bank.sign(t, letter, "bank.test", selector("huge")), Short, "8000 octets"},
		{"no such key", bank.sign(t, letter, "bank.test", selector("none")), No, "no such name"},
		{"a selector that is no name", bank.sign(t, letter, "bank.test", selector(`a\.b`)), No, "no name"},
		{"fifty signatures, the good one last", strings.Repeat(signatureOf(bad), 50) + good, Pass, ""},
		{"21 of the organisation, the good one last", strings.Repeat(signatureOf(mallory.sign(t, letter, "bank.test")), 20) + good, Short, ""},
		{"21 of the organisation, the good one first", signatureOf(good) + strings.Repeat(signatureOf(mallory.sign(t, letter, "bank.test")), 20) + letter, Pass, ""},
		{"a header of 300 KiB", "X: " + strings.Repeat("a", 300<<10) + "\r\n" + good, Short, "262144"},
		{"a header of 1,001 fields", strings.Repeat("X: y\r\n", 1001) + good, Short, "1000 fields"},
		{"a field of 80,000 lines", "X: y\r\n" + strings.Repeat(" \r\n", 80_000) + good, Pass, ""},
		{"a NUL in the header", "X: \x00\r\n" + good, No, "0x00"},
		{"a bare CR in the header", "X: a\rFrom: x@bank.test\r\n" + good, No, "0x0d"},
		{"a continuation first", " x\r\n" + good, No, "continuation"},

		{"a server that fails", bank.sign(t, letter, "bank.test", selector("broken")), Unknown, "SERVFAIL"},
		{"a server that fails for one of two signatures", bank.sign(t, good, "bank.test", selector("broken")), Pass, ""},
	}
	s := nameserver.Serve(t, z)
	r := resolverOf(t, s)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := testkit.Value(r.Message(t.Context(), netip.Addr{}, strings.NewReader(tt.message)))(t)
			if got := m.DKIM("news.bank.test"); got != tt.want || m.Aligned("news.bank.test", SPF{}) != got {
				t.Errorf("DKIM = %s, want %s: %+v", got, tt.want, m)
			}
			testkit.Has(t, fmt.Sprint(m.Fault, m.Signatures), tt.why)
			if len(m.Signatures) > maxSignatures {
				t.Errorf("%d signatures were looked at", len(m.Signatures))
			}
		})
	}
}

// signatureOf is the topmost field of a signed letter.
func signatureOf(signed string) string { return signed[:strings.Index(signed, "From: ")] }

func addTag(tag string) func(string) string {
	return func(field string) string {
		if strings.HasPrefix(tag, "t=") { // which the signer has put there
			at := strings.Index(field, "t=")
			end := at + strings.IndexByte(field[at:], ';')
			return field[:at] + tag + field[end:]
		}
		return strings.Replace(field, "v=1;", "v=1; "+tag+";", 1)
	}
}

func replaceTag(old, with string) func(string) string {
	return func(field string) string { return strings.Replace(field, old, with, 1) }
}

// The way that forgeries are made must itself make what passes, or nothing would
// be proved by their failing.
func TestResignedMessagePasses(t *testing.T) {
	bank := newSigner(t)
	r := resolverOf(t, nameserver.Serve(t, zone{"TXT s1._domainkey.bank.test": {bank.record}}))
	for _, edit := range []func(string) string{
		addTag("i=@news.bank.test"), addTag("z=nothing"),
		addTag("i=@BANK.TEST"), addTag("i=ann@News.Bank.Test"), addTag("i=ann=20b=40x@bank.test"), addTag("i==40bank.test"), addTag("i=a=2\r\n 0b@bank\r\n .test"),
		addTag("i=bob=example.org@bank.test"), addTag("z=Subject:=20Job=20offer|To:=20bob=40here.example"),
		replaceTag("d=bank.test", "d=Bank.Test"), replaceTag("From:Subject", "from : subject"), replaceTag("From:Subject", "From:Subject:DKIM-Signature"),
		replaceTag("s=s1", "x=99999999999999999999; s=s1"), replaceTag("s=s1", "; s=s1"),
		func(field string) string { return regexp.MustCompile(`bh=([^;]*)=;`).ReplaceAllString(field, "bh=$1;") }, addTag(fmt.Sprint("t=", time.Now().Add(5*time.Minute).Unix())),
	} {
		m := testkit.Value(r.Message(t.Context(), netip.Addr{}, strings.NewReader(bank.resign(t, letter, "bank.test", edit))))(t)
		testkit.Equal(t, m, m.DKIM("bank.test"), Pass)
	}
}

func TestAMessageCostsAtMostTwentyQueries(t *testing.T) {
	bank := newSigner(t)
	s := nameserver.Serve(t, zone{})
	var message strings.Builder
	for i := range 50 {
		message.WriteString(signatureOf(bank.sign(t, letter, "bank.test", func(o *dkim.SignOptions) { o.Selector = fmt.Sprint("s", i) })))
	}
	m, err := resolverOf(t, s).Message(t.Context(), netip.Addr{}, strings.NewReader(message.String()+letter))
	if err != nil || !m.TooMany || len(m.Signatures) != maxSignatures || s.Count() > maxSignatures {
		t.Errorf("%d queries, %d signatures, too many %v, %v", s.Count(), len(m.Signatures), m.TooMany, err)
	}
}
