package msgauth

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
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
// place: the library alone would leave a goroutine for each signature.
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

// FuzzMessage gives the library any message and any key record.
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

// The library copies a run of blank lines for each piece of it that comes: without a
// bound this message takes it minutes.
func TestBlankLinesCostNothing(t *testing.T) {
	bank := newSigner(t)
	r := resolverOf(t, nameserver.Serve(t, zone{"TXT s1._domainkey.bank.test": {bank.record}}))
	simple := func(o *dkim.SignOptions) { o.BodyCanonicalization = dkim.CanonicalizationSimple }
	head := signatureOf(bank.sign(t, letter, "bank.test", simple))
	began := time.Now()
	m, err := r.Message(t.Context(), netip.Addr{}, strings.NewReader(strings.Repeat(head, 5)+letter+strings.Repeat("\r\n", 5<<20)))
	if err != nil || m.DKIM("bank.test") != No || !strings.Contains(m.Fault, "blank lines") {
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

// To relaxed canonicalization a line of blanks is an empty one, and the library keeps a run
// of them for each signature: 10 MiB took it 310 MB.
func TestLinesOfBlanksTakeNoMemory(t *testing.T) {
	bank := newSigner(t)
	r := resolverOf(t, nameserver.Serve(t, zone{"TXT s1._domainkey.bank.test": {bank.record}}))
	head := signatureOf(bank.sign(t, letter, "bank.test"))
	text := strings.Repeat(head, 5) + letter + strings.Repeat(" \r\n\t\r\n", 10<<20/6)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := r.Message(t.Context(), netip.Addr{}, strings.NewReader(text))
	runtime.ReadMemStats(&after)
	if err != nil || m.DKIM("bank.test") != No || !strings.Contains(m.Fault, "blank lines") {
		t.Errorf("%+v, %v", m, err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
		t.Errorf("%d octets allocated", took)
	}
}

// The library looks through the whole header for each name in h=: of a header as
// large as may be that was 4 s for one message, of anybody with a domain to sign with.
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
	if err != nil || m.DKIM("bank.test") != No || !strings.Contains(m.Fault, "names over") {
		t.Errorf("%+v, %v", m, err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("120,000 names in h= took %s", took)
	}
	if m, err := r.Message(t.Context(), netip.Addr{}, strings.NewReader(named(100))); err != nil || m.DKIM("bank.test") != Pass {
		t.Errorf("a hundred names: %+v, %v", m, err)
	}
}
