package dnsbl

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/mail/digest"
	"blockd/policy/rule"
)

// shown is an answer in one line: its code, the records, and SOA where it says how long "no"
// holds.
func shown(m *dns.Msg) string {
	words := []string{dns.RcodeToString[m.Rcode]}
	for _, rr := range m.Answer {
		words = append(words, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			words = append(words, fmt.Sprintf("SOA(%s %d)", soa.Hdr.Name, soa.Minttl))
		}
	}
	if m.Truncated {
		words = append(words, "TC")
	}
	return strings.Join(words, " ")
}

func TestAnswers(t *testing.T) {
	r := newRig(t, nil)
	const no, empty = "NXDOMAIN SOA(%s 60)", "NOERROR SOA(%s 60)"
	dbl := func(form string) string { return fmt.Sprintf(form, "dbl.here.example.") }
	ip := func(form string) string { return fmt.Sprintf(form, "ip.here.example.") }
	sha1 := func(text string) string { return digest.Of(digest.SHA1, text).String() }
	nibbles := func(a string) string {
		octets, name := netip.MustParseAddr(a).As16(), "ip.here.example"
		for _, o := range octets {
			name = fmt.Sprintf("%x.%x.%s", o&15, o>>4, name)
		}
		return name
	}
	for _, row := range []struct {
		name  string
		qtype uint16
		want  string
	}{
		// Domains: entries, names below them, exceptions.
		{"bulk.example.dbl.here.example", dns.TypeA, "NOERROR 127.0.0.2"},
		{"www.bulk.example.dbl.here.example", dns.TypeA, "NOERROR 127.0.0.2"},
		{"BULK.eXample.dbl.here.EXAMPLE", dns.TypeA, "NOERROR 127.0.0.2"},
		{"a.sub.example.dbl.here.example", dns.TypeA, "NOERROR 127.0.0.2"},
		{"sub.example.dbl.here.example", dns.TypeA, dbl(no)},
		{"good.bulk.example.dbl.here.example", dns.TypeA, dbl(no)},
		{"other.example.dbl.here.example", dns.TypeA, dbl(no)},
		{"person.example.dbl.here.example", dns.TypeA, dbl(no)},
		{"xn--mller-kva.example.dbl.here.example", dns.TypeA, "NOERROR 127.0.0.2"},
		{"m\\195\\188ller.example.dbl.here.example", dns.TypeA, "NOERROR 127.0.0.2"},

		// Zones: the longest name counts, and its lists alone.
		{"ads.example.dbl.here.example", dns.TypeA, "NOERROR 127.0.0.2"},
		{"ads.example.one.dbl.here.example", dns.TypeA, fmt.Sprintf(no, "one.dbl.here.example.")},
		{"bulk.example.one.dbl.here.example", dns.TypeA, "NOERROR 127.0.0.3"},
		{"bulk.example.here.example", dns.TypeA, "REFUSED"},
		{"here.example", dns.TypeSOA, "REFUSED"},
		{"xdbl.here.example", dns.TypeA, "REFUSED"},
		{".", dns.TypeNS, "REFUSED"},

		// Types.
		{"bulk.example.dbl.here.example", dns.TypeAAAA, dbl(empty)},
		{"bulk.example.dbl.here.example", dns.TypeMX, dbl(empty)},
		{"bulk.example.dbl.here.example", dns.TypeANY, dbl(empty)},
		{"other.example.dbl.here.example", dns.TypeAAAA, dbl(no)},
		{"bulk.example.dbl.here.example", dns.TypeAXFR, "REFUSED"},
		{"dbl.here.example", dns.TypeAXFR, "REFUSED"},
		{"dbl.here.example", dns.TypeIXFR, "REFUSED"},
		{"dbl.here.example", dns.TypeNS, "NOERROR mx.here.example."},
		{"dbl.here.example", dns.TypeA, dbl(empty)},
		{"dbl.here.example", dns.TypeTXT, dbl(empty)},

		// Test entries (RFC 5782).
		{"test.dbl.here.example", dns.TypeA, "NOERROR 127.0.0.2"},
		{"TEST.dbl.here.example", dns.TypeTXT, `NOERROR "test entry of dbl.here.example (RFC 5782)"`},
		{"invalid.dbl.here.example", dns.TypeA, dbl(no)},
		{"2.0.0.127.ip.here.example", dns.TypeA, "NOERROR 127.0.0.4"},
		{"1.0.0.127.ip.here.example", dns.TypeA, ip(no)},
		{nibbles("::ffff:127.0.0.2"), dns.TypeA, "NOERROR 127.0.0.4"},
		{nibbles("::ffff:127.0.0.1"), dns.TypeA, ip(no)},

		// Addresses.
		{"7.2.0.192.ip.here.example", dns.TypeA, "NOERROR 127.0.0.4"},
		{"8.2.0.192.ip.here.example", dns.TypeA, ip(no)},
		{"255.100.51.198.ip.here.example", dns.TypeA, "NOERROR 127.0.0.4"},
		{nibbles("2001:db8::1"), dns.TypeA, "NOERROR 127.0.0.4"},
		{strings.ToUpper(nibbles("2001:db8::abcd")), dns.TypeA, "NOERROR 127.0.0.4"},
		{nibbles("2001:db9::1"), dns.TypeA, ip(no)},
		{nibbles("::ffff:192.0.2.7"), dns.TypeA, "NOERROR 127.0.0.4"},
		{"256.2.0.192.ip.here.example", dns.TypeA, ip(no)},
		{"07.2.0.192.ip.here.example", dns.TypeA, ip(no)},
		{"x.7.2.0.192.ip.here.example", dns.TypeA, ip(no)},
		{"1.7.2.0.192.ip.here.example", dns.TypeA, ip(no)},
		{"bulk.example.ip.here.example", dns.TypeA, ip(no)},

		// Digests.
		{sha1("spammer@person.example") + ".sha1.here.example", dns.TypeA, "NOERROR 127.0.0.5"},
		{strings.ToUpper(sha1("spammer@person.example")) + ".sha1.here.example", dns.TypeA, "NOERROR 127.0.0.5"},
		{sha1("other@person.example") + ".sha1.here.example", dns.TypeA, "NXDOMAIN SOA(sha1.here.example. 60)"},
		{digest.Of(digest.SHA256, "spammer@person.example").String() + ".sha1.here.example", dns.TypeA, "NXDOMAIN SOA(sha1.here.example. 60)"},
		{"x." + sha1("spammer@person.example") + ".sha1.here.example", dns.TypeA, "NXDOMAIN SOA(sha1.here.example. 60)"},
		{"0.sha1.here.example", dns.TypeA, "NXDOMAIN SOA(sha1.here.example. 60)"},

		// Names that stand between a zone and its questions: RFC 8020 would let a resolver
		// conclude that nothing is below them.
		{"192.ip.here.example", dns.TypeNS, ip(empty)},
		{"2.0.192.ip.here.example", dns.TypeA, ip(empty)},
		{"1.0.0.2.ip.here.example", dns.TypeA, ip(empty)}, // both 2.0.0.1 and the end of 2001::/16
		{strings.TrimPrefix(nibbles("2001:db9::1"), "1."), dns.TypeA, ip(empty)},
		{"1." + nibbles("2001:db9::1"), dns.TypeA, ip(no)},
		{"example.dbl.here.example", dns.TypeA, dbl(empty)},

		// What is no domain.
		{"a\\.bulk.example.dbl.here.example", dns.TypeA, dbl(no)},
		{"bulk\\.example.dbl.here.example", dns.TypeA, dbl(no)},
		{"\\000.bulk.example.dbl.here.example", dns.TypeA, dbl(no)},
		{"x\\@bulk.example.dbl.here.example", dns.TypeA, dbl(no)},
		{"*.sub.example.dbl.here.example", dns.TypeA, dbl(no)},
		{"7.2.0.192.dbl.here.example", dns.TypeA, dbl(no)},
		{"\\255.example.dbl.here.example", dns.TypeA, dbl(no)},
	} {
		m := r.ask(row.name, row.qtype)
		testkit.Equal(t, fmt.Sprintf("%s %s", row.name, dns.TypeToString[row.qtype]), shown(m), row.want)
		if aa := m.Rcode != dns.RcodeRefused; m.Authoritative != aa || m.RecursionAvailable || !m.RecursionDesired || !m.Response {
			t.Errorf("%s: header %+v, want AA %v, RA unset, RD as asked", row.name, m.MsgHdr, aa)
		}
		if len(m.Question) == 1 && m.Question[0].Name != dns.Fqdn(row.name) {
			t.Errorf("%s: the question came back as %s", row.name, m.Question[0].Name)
		}
	}
	soa := r.ask("dbl.here.example", dns.TypeSOA).Answer[0].(*dns.SOA)
	built := r.live.Load().Built().Unix()
	testkit.Got(int64(soa.Serial), soa.Ns, soa.Mbox)(t, "SOA", built, "mx.here.example.", "hostmaster.mx.here.example.")
}

// A text is one string of printable ASCII within 255 octets, whatever stands in a list.
func TestTexts(t *testing.T) {
	const name = "bulk.example.dbl.here.example"
	text := func(r *rig) string {
		txt := r.ask(name, dns.TypeTXT).Answer[0].(*dns.TXT).Txt
		testkit.MustEqual(t, txt, len(txt), 1)
		return strings.ReplaceAll(strings.ReplaceAll(txt[0], `\\`, `\`), `\"`, `"`)
	}
	r := newRig(t, nil)
	if got, want := text(r), `listed in one, line 1: why "one" \ und more (ref 0123456789)`; got != want {
		t.Errorf("TXT %q, want %q", got, want)
	}
	// Both ways were asked.
	if len(r.told) != 2 || r.told[0].Door != "dns" || r.told[0].Ref != "0123456789" || r.told[0].Sender != "bulk.example" || r.told[0].List != "one" {
		t.Errorf("history %+v", r.told)
	}
	long := newRig(t, func(r *rig) {
		r.verdicts.Contact = "https://here.example/%list/%ref"
		s := indexes.Source(t, "one", "bulk.example\n")
		s.Settings.Reason = strings.Repeat("long ", 70)
		r.live.Store(indexes.Build(t, s))
	})
	got := text(long)
	testkit.Got(len(got), got)(t, "TXT", 255, "… (ref 0123456789) https://here.example/one/0123456789")
	silent := newRig(t, func(r *rig) { r.verdicts.Decided = nil })
	testkit.Lacks(t, text(silent), "ref")
	own := newRig(t, func(r *rig) {
		r.verdicts.Contact, r.verdicts.Lists["one"] = "a", rule.List{Contact: "mailto:one@here.example"}
	})
	if got := text(own); !strings.HasSuffix(got, ") mailto:one@here.example") {
		t.Errorf("TXT %q, want the contact of the list", got)
	}
}

// Whatever is wrong is SERVFAIL, and never an address.
func TestWhatIsWrongIsServfail(t *testing.T) {
	listed := []string{"bulk.example.dbl.here.example", "test.dbl.here.example", "7.2.0.192.ip.here.example", "2.0.0.127.ip.here.example"}
	t.Run("damaged", func(t *testing.T) {
		r := newRig(t, nil)
		path := t.TempDir() + "/test.bdx"
		indexes.BuildAt(t, path, indexes.Source(t, "one", testLists["one"]), indexes.Source(t, "two", testLists["two"]))
		data := testkit.Read(t, path)
		for at := range data {
			if bytes.HasPrefix(data[at:], []byte("bulk.example")) {
				data[at]++
			}
		}
		ix := testkit.Value(index.Open(testkit.File(t, "damaged.bdx", data)))(t)
		r.live.Store(ix)
		for _, qtype := range []uint16{dns.TypeA, dns.TypeTXT, dns.TypeAAAA, dns.TypeANY} {
			m := r.ask(listed[0], qtype)
			testkit.Got(shown(m), m.Authoritative)(t, dns.TypeToString[qtype], "SERVFAIL", false)
		}
		if got := r.count("blockd_dnsbl_answers_total", "dbl.here.example", "failed"); got < 4 {
			t.Errorf("%v failed answers are counted", got)
		}
	})
	t.Run("no generation", func(t *testing.T) {
		r := newRig(t, nil)
		r.live.Store(nil)
		q := new(dns.Msg)
		for _, name := range append(listed, "dbl.here.example") {
			q.SetQuestion(dns.Fqdn(name), dns.TypeA)
			testkit.Equal(t, name, shown(unpack(t, r.worker().reply(nil, pack(t, q), byLists, maxUDP))), "SERVFAIL")
		}
		if got := r.count("blockd_dnsbl_refused_total", "defect"); got != 5 || !strings.Contains(r.log.String(), "dns panicked") {
			t.Errorf("%v defects are counted; log: %s", got, &r.log)
		}
	})
	t.Run("an index without digests", func(t *testing.T) {
		r := newRig(t, nil)
		r.live.Store(indexes.Build(t, indexes.Source(t, "one", "spammer@person.example\n")))
		name := digest.Of(digest.SHA1, "spammer@person.example").String() + ".sha1.here.example"
		r.wants("SERVFAIL", name, dns.TypeA)
	})
}

// What a list that was never read would say is not known; what others list is listed, as mail from it is refused.
func TestUnreadListIsServfail(t *testing.T) {
	one, two := indexes.Source(t, "one", ""), indexes.Source(t, "two", "ads.example\n")
	one.Path += ".missing"
	for _, tt := range []struct {
		name    string
		change  func(*rig)
		sources []index.Source
		want    map[string]string
	}{
		{"that its zone waits for", func(r *rig) { r.settings.Zones[0].Required = []string{"one"} }, []index.Source{one, two}, map[string]string{
			"ads.example.dbl.here.example": "NOERROR 127.0.0.2", "clear.example.dbl.here.example": "SERVFAIL", "test.dbl.here.example": "SERVFAIL",
			"invalid.dbl.here.example": "SERVFAIL", "dbl.here.example": "SERVFAIL"}},
		{"that is all of its zone", nil, []index.Source{one, two}, map[string]string{
			"ads.example.dbl.here.example": "NOERROR 127.0.0.2", "ads.example.one.dbl.here.example": "SERVFAIL", "test.one.dbl.here.example": "SERVFAIL",
			"one.dbl.here.example": "SERVFAIL"}},
		{"without a row in the index", func(r *rig) { r.settings.Zones[2].Lists = []string{"one"} }, []index.Source{two}, map[string]string{ // that zone does without
			"ads.example.dbl.here.example": "NOERROR 127.0.0.2", "ads.example.one.dbl.here.example": "SERVFAIL",
			"7.2.0.192.ip.here.example": "NXDOMAIN SOA(ip.here.example. 60)"}},
	} {
		r := newRig(t, tt.change)
		r.live.Store(indexes.BuildWith(t, t.TempDir()+"/test.bdx", index.Options{KeepGoing: true}, tt.sources...))
		for name, want := range tt.want {
			r.wants(want, name, dns.TypeA)
		}
	}
}

// A list in service answers at once after a swap, with a new serial.
func TestSwap(t *testing.T) {
	r := newRig(t, nil)
	r.load(map[string]string{"one": "fresh.example\n", "two": "ads.example\n"})
	r.wants("NOERROR 127.0.0.2", "fresh.example.dbl.here.example", dns.TypeA)
	testkit.Begins(t, "a name of another zone", shown(r.ask("bulk.example.one.dbl.here.example", dns.TypeA)), "NXDOMAIN")
}

func TestMessages(t *testing.T) {
	r := newRig(t, nil)
	question := func(change func(*dns.Msg)) []byte {
		q := new(dns.Msg)
		q.SetQuestion("bulk.example.dbl.here.example.", dns.TypeA)
		change(q)
		return pack(t, q)
	}
	plain := question(func(*dns.Msg) {})
	for _, row := range []struct {
		name  string
		query []byte
		want  string
	}{
		{"class CH", question(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }), "REFUSED"},
		{"class ANY", question(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }), "REFUSED"},
		{"notify", question(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), "REFUSED"},
		{"update", question(func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }), "REFUSED"},
		{"status", question(func(m *dns.Msg) { m.Opcode = dns.OpcodeStatus }), "NOTIMP"},
		{"two questions", question(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), "FORMERR"},
		{"no question", question(func(m *dns.Msg) { m.Question = nil }), "FORMERR"},
		{"header alone", plain[:12], "FORMERR"},
		{"cut", plain[:20], "FORMERR"},
		{"EDNS", question(func(m *dns.Msg) { m.SetEdns0(4096, true) }), "NOERROR 127.0.0.2"},
		{"EDNS version 1", question(func(m *dns.Msg) { m.SetEdns0(4096, false).IsEdns0().SetVersion(1) }), dns.RcodeToString[dns.RcodeBadVers]},
		{"EDNS twice", question(func(m *dns.Msg) { m.SetEdns0(4096, false).SetEdns0(4096, false) }), "FORMERR"},
		{"a cookie", question(func(m *dns.Msg) {
			m.SetEdns0(4096, false)
			m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0123456789abcdef"})
		}), "NOERROR 127.0.0.2"},
		{"a pointer to itself", append(append([]byte{}, plain[:12]...), 0xc0, 12, 0, 1, 0, 1), "FORMERR"},
		{"AD and CD", question(func(m *dns.Msg) { m.AuthenticatedData, m.CheckingDisabled = true, true }), "NOERROR 127.0.0.2"},
	} {
		m := r.exchange(row.query, maxMessage)
		if got := shown(m); got != row.want || m.Id != uint16(row.query[0])<<8|uint16(row.query[1]) {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
		q := new(dns.Msg)
		if q.Unpack(row.query) == nil && row.want != "FORMERR" && m.Opcode == dns.OpcodeQuery && (q.IsEdns0() != nil) != (m.IsEdns0() != nil) {
			t.Errorf("%s: an answer has an OPT record if the question has one", row.name)
		}
	}
	for name, query := range map[string][]byte{
		"an answer": question(func(m *dns.Msg) { m.Response = true }), "eleven octets": plain[:11], "nothing": nil,
	} {
		if got := r.worker().reply(nil, query, byLists, maxUDP); len(got) > 0 {
			t.Errorf("%s: answered with %x", name, got)
		}
	}
}

// An answer by UDP has the size that the client takes, and 1,232 octets at most.
func TestTruncation(t *testing.T) {
	r := newRig(t, func(r *rig) {
		// With a name of 180 octets a text of 255 does not fit into 512.
		r.settings.Zones[0].Name = strings.Repeat("a23456789.", 17) + "here.example"
		s := indexes.Source(t, "one", strings.Repeat("b23456789.", 4)+"example\n")
		s.Settings.Reason = strings.Repeat("long ", 70)
		r.live.Store(indexes.Build(t, s))
	})
	ask := func(size uint16, most int) *dns.Msg {
		q := new(dns.Msg)
		q.SetQuestion(strings.Repeat("b23456789.", 4)+"example."+r.settings.Zones[0].Name+".", dns.TypeTXT)
		if size > 0 {
			q.SetEdns0(size, false)
		}
		return r.exchange(pack(t, q), most)
	}
	for _, row := range []struct {
		size      uint16
		most      int
		truncated bool
	}{{0, maxUDP, true}, {0, maxMessage, false}, {100, maxUDP, true}, {512, maxUDP, true}, {1232, maxUDP, false}, {4096, maxUDP, false}, {512, maxMessage, false}} {
		m := ask(row.size, row.most)
		if m.Truncated != row.truncated || (len(m.Answer) == 0) != row.truncated || m.Rcode != dns.RcodeSuccess {
			t.Errorf("size %d of %d: %s, want truncated %v", row.size, row.most, shown(m), row.truncated)
		}
	}
}

// A plain question that no list has an entry for costs no allocation.
func TestClearQuestionDoesNotAllocate(t *testing.T) {
	r := newRig(t, nil)
	w, out := r.worker(), make([]byte, 0, maxUDP)
	for _, name := range []string{"some.other.example.dbl.here.example.", "8.2.0.192.ip.here.example."} {
		for _, edns := range []bool{false, true} {
			q := new(dns.Msg)
			q.SetQuestion(name, dns.TypeA)
			if edns {
				q.SetEdns0(1232, true)
			}
			query := pack(t, q)
			testkit.Equal(t, name, testing.AllocsPerRun(1000, func() { out = w.reply(out[:0], query, byLists, maxUDP) }), 0)
		}
	}
}

// Both ways give the same answer to everything that the plain one takes, and neither answers
// what cannot be read with an address.
func FuzzAnswer(f *testing.F) {
	r := newRig(f, func(r *rig) { r.verdicts.Decided = nil })
	r.server.newRef = func() string { return "0123456789" }
	for _, name := range []string{"bulk.example.dbl.here.example.", "Other.example.dbl.here.example.", "7.2.0.192.ip.here.example.", ".", "dbl.here.example.", "192.ip.here.example."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeTXT, dns.TypeSOA} {
			q := new(dns.Msg)
			q.SetQuestion(name, qtype)
			f.Add(pack(f, q))
			q.SetEdns0(1232, true)
			f.Add(pack(f, q))
		}
	}
	listed := netip.MustParsePrefix("127.0.0.0/8")
	f.Fuzz(func(t *testing.T, query []byte) {
		w := r.worker()
		for _, most := range []int{maxUDP, maxMessage} {
			answer := w.general(nil, query, byLists, most)
			if len(answer) == 0 {
				if plain, ok := w.plain(nil, query, byLists, most); ok {
					t.Fatalf("%x: the plain way answers %x, the general one not at all", query, plain)
				}
				return
			}
			general := unpack(t, answer)
			if len(answer) > most {
				t.Fatalf("%x: an answer of %d octets", query, len(answer))
			}
			if plain, ok := w.plain(nil, query, byLists, most); ok && unpack(t, plain).String() != general.String() {
				t.Fatalf("%x: the plain way answers\n%s\nthe general one\n%s", query, unpack(t, plain), general)
			}
			for _, rr := range general.Answer {
				if a, ok := rr.(*dns.A); ok {
					ip, _ := netip.AddrFromSlice(a.A.To4())
					testkit.MustGot(listed.Contains(ip), general.Rcode)(t, fmt.Sprintf("%x", query), true, dns.RcodeSuccess)
				}
			}
		}
	})
}
