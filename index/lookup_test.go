package index

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/index/internal/build"
	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
	"blockd/lists/pattern"
	"blockd/mail/addr"
)

// netListed is an entry for client addresses.
func netListed(net netip.Prefix, e listed) listed {
	e.net, e.scope = net, lists.Tree
	if net.IsSingleIP() {
		e.scope = lists.Exact
	}
	return e
}

// clientModel answers by walking over all entries.
func clientModel(entries []listed, ip netip.Addr, now int64) []Match {
	ip = ip.WithZone("").Unmap()
	var found []Match
	for i, e := range entries {
		repeated := slices.ContainsFunc(entries[:i], func(o listed) bool {
			return o.row == e.row && o.net == e.net && o.action == e.action
		})
		if repeated || !e.net.IsValid() || !e.net.Contains(ip) || e.expiry != 0 && e.expiry <= now {
			continue
		}
		found = append(found, Match{Row: e.row, Kind: format.NetKind(e.net), Net: e.net, Scope: e.scope, Action: e.action, Line: e.line, Reason: e.reason})
	}
	slices.SortStableFunc(found, func(a, b Match) int {
		if a.Net.Bits() != b.Net.Bits() {
			return b.Net.Bits() - a.Net.Bits()
		}
		return a.Row - b.Row
	})
	return found
}

// nearNet is a random network of few addresses, so that many contain each other.
func nearNet(rng *rand.Rand) netip.Prefix {
	var p netip.Prefix
	if ip := nearIP(rng); ip.Is4() {
		p = netip.PrefixFrom(ip, rng.IntN(33))
	} else {
		p = netip.PrefixFrom(ip, rng.IntN(129))
	}
	return p.Masked()
}

func nearIP(rng *rand.Rand) netip.Addr {
	bit := func(n int) byte { return byte(rng.IntN(2)) << rng.IntN(n) }
	if rng.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte{198 ^ bit(8), 51 ^ bit(8), bit(8), bit(8)})
	}
	return netip.AddrFrom16([16]byte{0x20, 1, 0xd ^ bit(4), 0xb8, 5: bit(8), 9: bit(8), 15: bit(8)})
}

func TestClientsAgreeWithModel(t *testing.T) {
	now, seeds := testTime.Unix(), uint64(60)
	if race.Enabled {
		seeds = 6
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 7))
		const rows = 3
		var entries []listed
		seen := map[listed]bool{} // a repeated one lasts as long as the longest: kept out
		for row := range rows {
			for line := range rng.IntN(150) {
				e := netListed(nearNet(rng), listed{row: row, action: lists.Action(rng.IntN(4))})
				if seen[e] {
					continue
				}
				seen[e] = true
				e.line, e.expiry = line+1, []int64{0, 0, now, now + 1}[rng.IntN(4)]
				if rng.IntN(2) == 0 {
					e.reason = "listed"
				}
				entries = append(entries, e)
			}
		}
		o := seeded(byte(seed))
		o.BitsPerKey = 8
		built := slices.DeleteFunc(slices.Clone(entries), func(e listed) bool { return e.expiry != 0 && e.expiry <= now })
		ix := indexOf(t, o, rowsNamed(rows), entries)
		for range 500 {
			ip := nearIP(rng)
			switch rng.IntN(4) {
			case 0:
				ip = netip.AddrFrom16(ip.As16()) // IPv4 mapped into IPv6
			case 1:
				ip = ip.WithZone("eth0")
			}
			got, err := ix.LookupClient(nil, ip, testTime)
			if want := clientModel(built, ip, now); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: LookupClient(%s) = %v, %v, want %v", seed, ip, got, err, want)
			}
		}
	}
}

func TestNetworkThatHasNoKeyIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		e    listed
		want string
	}{
		{"host bits", listed{net: netip.MustParsePrefix("198.51.100.7/24"), scope: lists.Tree}, "network 198.51.100.7/24 with scope 2"},
		{"mapped into IPv6", listed{net: netip.MustParsePrefix("::ffff:198.51.100.0/120"), scope: lists.Tree}, "network ::ffff:198.51.100.0/120 with scope 2"},
		{"names below", listed{net: netip.MustParsePrefix("198.51.100.0/24"), scope: lists.Sub}, "network 198.51.100.0/24 with scope 1"},
	} {
		_, err := tryDraft(t, filepath.Join(t.TempDir(), "x.bdx"), seeded(1), build.Hooks{}, rowsNamed(1), []listed{tt.e})
		testkit.Equal(t, tt.name, fmt.Sprint(err), tt.want)
	}
}

func TestClearClientDoesNotAllocate(t *testing.T) {
	var entries []listed
	for i := range 4000 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 9+i%24).Masked()
		entries = append(entries, netListed(p, listed{line: i}))
	}
	o := seeded(1)
	o.BitsPerKey = 8 // some of the keys are false positives
	ix := indexOf(t, o, rowsNamed(1), entries)
	dst := make([]Match, 0, 4)
	i := 0
	allocs := allocations(func() {
		i++
		if got, err := ix.LookupClient(dst, netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), testTime); err != nil || len(got) > 0 {
			t.Fatalf("LookupClient = %v, %v", got, err)
		}
	})
	if allocs != 0 && !race.Enabled {
		t.Errorf("%v allocations", allocs)
	}
	if wrong, _ := ix.FalsePositives(); wrong == 0 {
		t.Error("no false positive among 24,000 keys: the test says nothing of them")
	}
}

// TestLookupDomainIsWhatAllItsSendersHaveInCommon asks for a domain and compares
// with a sender there whose local-part no list has.
func TestLookupDomainIsWhatAllItsSendersHaveInCommon(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		entries := randomEntries(t, rng, 5, rng.IntN(600))
		ix := indexOf(t, seeded(byte(seed)), rowsNamed(5), entries)
		if seed%2 == 1 {
			allPerhaps(t, ix)
		}
		for range 200 {
			domain := randomDomain(rng)
			got, err := ix.LookupDomain(nil, domainKey(t, domain), testTime)
			want := model(entries).lookup(sender(t, "nobody-there@"+domain), testTime.Unix())
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: LookupDomain(%s) =\n%v, %v\nmodel says\n%v", seed, domain, got, err, want)
			}
		}
	}
}

// TestProbeTellsFilterAndStoreApart holds both answers against the entries.
func TestProbeTellsFilterAndStoreApart(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 4))
		entries := randomEntries(t, rng, 3, rng.IntN(300))
		for i := range 20 {
			entries = append(entries, netListed(nearNet(rng), listed{row: 2, line: 1000 + i}))
		}
		ix := indexOf(t, seeded(byte(seed)), rowsNamed(3), entries)
		perhaps := seed%2 == 1
		if perhaps {
			allPerhaps(t, ix)
		}
		asked, wrong := ix.asked.Load(), ix.falsePositives.Load()
		for range 100 {
			keys, ip := sender(t, randomSender(rng)).Keys(nil), nearIP(rng)
			probes, err := ix.Probe(keys, ip)
			if err != nil || len(probes) < len(keys) {
				t.Fatalf("%d probes of %d keys, %v", len(probes), len(keys), err)
			}
			for i, p := range probes {
				isNet := i >= len(keys)
				held := slices.ContainsFunc(entries, func(e listed) bool {
					return isNet && e.net == p.Net || !isNet && e.key == keys[i]
				})
				switch {
				case p.Listed != held, held && !p.Perhaps, perhaps && p.Perhaps != p.Asked, !p.Asked && p.Perhaps:
					t.Fatalf("seed %d: %+v, held: %v", seed, p, held)
				case isNet && !p.Net.Contains(ip), !isNet && p.Key != keys[i]:
					t.Fatalf("seed %d: probe %d is of %+v", seed, i, p)
				}
			}
		}
		testkit.Got(ix.asked.Load(), ix.falsePositives.Load())(t, "look-ups and false positives after a probe", asked, wrong)
	}
	ix := indexOf(t, seeded(1), rowsNamed(1), []listed{{key: addr.Key{Text: "bulk.test", Kind: addr.Domain, Labels: 2}, scope: lists.Tree, line: 1}})
	testkit.Equal(t, "networks where there are none", len(testkit.Value(ix.Probe(nil, netip.MustParseAddr("192.0.2.1")))(t)), 0)
}

// TestEntriesOfAListEnd: a file may say when an entry ends, and the index keeps to it, whether the entry came from the
// text, from the cache, or by an update.
func TestEntriesOfAListEnd(t *testing.T) {
	dir := t.TempDir()
	source := Source{List: "desk", Path: filepath.Join(dir, "desk.ent"), Settings: lists.Settings{Format: "entries"}}
	soon, late := time.Now().Add(time.Hour).Truncate(time.Second), time.Now().Add(48*time.Hour).Truncate(time.Second)
	write := func(middle time.Time) {
		var b strings.Builder
		b.WriteString(lists.EntriesHead + "\n")
		fmt.Fprintf(&b, "ended@bulk.test\tb\tx\t%d\t\t\n", 1)
		fmt.Fprintf(&b, "ends@bulk.test\tb\tx\t%d\trow 7\tby the desk\n", middle.Unix())
		fmt.Fprintf(&b, "stays@bulk.test\tb\tx\t\t\t\n")
		testkit.Write(t, source.Path, b.String())
	}
	check := func(what string, ix *Index, ends time.Time) {
		t.Helper()
		for _, tt := range []struct {
			sender string
			at     time.Time
			listed bool
		}{
			{"ended@bulk.test", time.Now(), false},
			{"ends@bulk.test", ends.Add(-time.Second), true},
			{"ends@bulk.test", ends, false},
			{"stays@bulk.test", ends, true},
		} {
			got := testkit.Value(ix.Lookup(nil, sender(t, tt.sender), tt.at))(t)
			testkit.Equal(t, fmt.Sprintf("%s: %s at %v: %v", what, tt.sender, tt.at, got), len(got) > 0, tt.listed)
		}
		for e, err := range ix.Entries(t.Context(), nil) {
			if err != nil || e.Item.Name() == "ends@bulk.test" && e.Item.Expires != ends.Unix() {
				t.Errorf("%s: %+v, %v, want it to end at %d", what, e, err, ends.Unix())
			}
		}
	}
	path := filepath.Join(dir, "test.bdx")
	write(soon)
	ix := published(t, path, []Source{source})
	check("from the text", ix, soon)
	ix = published(t, path, []Source{source})
	check("from the cache", ix, soon)
	write(late)
	updated, report, err := ix.Update(t.Context(), []Source{source}, Options{Cache: path + CacheSuffix})
	testkit.MustGot(err, report.Keys)(t, "keys", nil, 1)
	check("by an update", updated, late)
	check("from the text again", published(t, path, []Source{source}), late)
}

func patternKind(text string) lists.Kind {
	if text[0] == '/' {
		return lists.Regexp
	}
	return lists.Glob
}

// matchesPattern is what a pattern of a test means, without package pattern.
func matchesPattern(text, address string) bool {
	if patternKind(text) == lists.Regexp {
		return regexp.MustCompile("(?i)" + strings.Trim(text, "/")).MatchString(address)
	}
	return regexp.MustCompile("^" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(text)) + "$").MatchString(address)
}

// patternModel answers by walking over all entries.
func patternModel(entries []listed, a addr.Addr, now int64) []Match {
	var found []Match
	for i, e := range entries {
		repeated := slices.ContainsFunc(entries[:i], func(o listed) bool {
			return o.row == e.row && o.pattern == e.pattern && o.action == e.action
		})
		if e.pattern == "" || repeated || e.expiry != 0 && e.expiry <= now || !matchesPattern(e.pattern, a.String()) {
			continue
		}
		found = append(found, Match{Row: e.row, Kind: patternKind(e.pattern), Pattern: e.pattern, Action: e.action, Line: e.line, Reason: e.reason})
	}
	slices.SortStableFunc(found, func(a, b Match) int { return cmp.Or(a.Row-b.Row, a.Line-b.Line) })
	return found
}

// nearPattern is one of a few hundred that match some of nearSender.
func nearPattern(rng *rand.Rand) string {
	name := func() string { return []string{"bulk", "promo", "shop", "news"}[rng.IntN(4)] }
	switch rng.IntN(6) {
	case 0:
		return fmt.Sprintf(`/^%s[0-9]+@/`, name())
	case 1:
		return fmt.Sprintf(`/\.%s-?%d\./`, name(), rng.IntN(4))
	case 2:
		return fmt.Sprintf(`%s%d*@*`, name(), rng.IntN(4))
	case 3:
		return fmt.Sprintf(`*@%s?.test`, name())
	case 4:
		return fmt.Sprintf(`/(%s|%s)[0-%d]/`, name(), name(), rng.IntN(4))
	}
	return fmt.Sprintf(`/^.*%d@.*%s.*$/`, rng.IntN(4), name())
}

func nearSender(rng *rand.Rand) string {
	name := func() string { return []string{"bulk", "promo", "shop", "news", "anna"}[rng.IntN(5)] }
	return fmt.Sprintf("%s%d@%s.%s-%d.%s%d.test", name(), rng.IntN(5), name(), name(), rng.IntN(4), name(), rng.IntN(4))
}

func TestPatternsAgreeWithModel(t *testing.T) {
	now, seeds := testTime.Unix(), uint64(30)
	if race.Enabled {
		seeds = 4
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 11))
		const rows = 3
		entries := randomEntries(t, rng, rows, 40)
		seen := map[listed]bool{}
		for row := range rows {
			for line := range rng.IntN(60) {
				e := listed{row: row, pattern: nearPattern(rng), action: lists.Action(rng.IntN(4))}
				if seen[e] {
					continue
				}
				seen[e] = true
				e.line, e.expiry = line+1, []int64{0, 0, now, now + 1}[rng.IntN(4)]
				e.reason = []string{"", "listed"}[rng.IntN(2)]
				entries = append(entries, e)
			}
		}
		built := slices.DeleteFunc(slices.Clone(entries), func(e listed) bool { return e.expiry != 0 && e.expiry <= now })
		keys := model(slices.DeleteFunc(slices.Clone(entries), func(e listed) bool { return e.pattern != "" }))
		ix := indexOf(t, seeded(byte(seed)), rowsNamed(rows), entries)
		testkit.Must(t, ix.Verify(t.Context()))
		var senders []addr.Addr
		var answers [][]Match
		for range 100 {
			text := nearSender(rng)
			if rng.IntN(3) == 0 {
				text = randomSender(rng)
			}
			a := sender(t, text)
			want := append(keys.lookup(a, now), patternModel(built, a, now)...)
			got, err := ix.Lookup(nil, a, testTime)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: Lookup(%s) = %v, %v, want %v", seed, a, got, err, want)
			}
			senders, answers = append(senders, a), append(answers, want)
		}
		var b Batch
		for range 2 { // the second with the memory of the first
			ix.LookupBatch(&b, senders, testTime)
			for i, want := range answers {
				if got, err := b.Matches(i); err != nil || !slices.Equal(got, want) {
					t.Fatalf("seed %d: Matches(%s) = %v, %v, want %v", seed, senders[i], got, err, want)
				}
			}
		}
	}
}

func TestNullSenderMatchesNoPattern(t *testing.T) {
	ix := indexOf(t, seeded(1), rowsNamed(1), []listed{{pattern: "/.*/"}, {pattern: "*"}})
	testkit.Equal(t, "Lookup(<>)", len(testkit.Value(ix.Lookup(nil, addr.Addr{}, testTime))(t)), 0)
	testkit.Equal(t, "Lookup(a@b.test)", len(testkit.Value(ix.Lookup(nil, sender(t, "a@b.test"), testTime))(t)), 2)
}

// Expressions that are small enough each, and in each file, are bounded in all lists together.
func TestTooCostlyPatternsRefuseTheirSource(t *testing.T) {
	costly := func(name string) Source {
		var text strings.Builder
		for i := range 120 {
			fmt.Fprintf(&text, "/^\\pL{4}@%s%d[.]example$/\n", name, i)
		}
		s := plain(name, testkit.File(t, name, text.String()))
		s.Settings.Patterns = true
		return s
	}
	_, err := Build(t.Context(), filepath.Join(t.TempDir(), "x.bdx"), []Source{costly("a.txt"), costly("b.txt")}, seeded(1))
	testkit.Has(t, fmt.Sprint(err), "b.txt: too-big: with it the expressions of all lists have 6", "steps and ranges of characters, at most 500000 can be held")
}

func TestTooManyPatternsRefuseTheirSource(t *testing.T) {
	free := func(name string) Source {
		s := plain(name, testkit.File(t, name, "bulk.test\n"+strings.Repeat("/^[0-9]{9}@/\n", 60)))
		s.Settings.Patterns = true
		return s
	}
	sources := []Source{free("a.txt"), free("b.txt")}
	o := seeded(1)
	_, err := Build(t.Context(), filepath.Join(t.TempDir(), "x.bdx"), sources, o)
	want := "with it all lists have 120 patterns without a text of three octets that a sender must hold, at most 100 can be tried on every sender"
	testkit.Has(t, fmt.Sprint(err), "b.txt: too-big: "+want)
	o.KeepGoing = true
	d := built(t, filepath.Join(t.TempDir(), "x.bdx"), sources, o)
	got, err := d.Index().Lookup(nil, sender(t, "123456789@bulk.test"), testTime)
	if err != nil || len(got) != 2 || got[0].Row != 0 || got[1].Row != 0 {
		t.Errorf("Lookup = %v, %v, want two matches of the first source", got, err)
	}
	row := d.Report.Lists[1]
	testkit.Got(row.Summary.Verdict, row.Summary.Why)(t, "row 1", lists.Refused, "too-big: "+want)
}

func TestLongestPattern(t *testing.T) {
	text := "/" + strings.Repeat("a", pattern.MaxText) + "/"
	var entries []listed
	for row := range 70 {
		entries = append(entries, listed{row: row, pattern: text, line: 1 << 40, reason: fmt.Sprint(row), expiry: 1 << 40})
	}
	ix := indexOf(t, seeded(1), rowsNamed(70), entries)
	testkit.Should(t, ix.Verify(t.Context()))
	entries[0].pattern = "/a" + text[1:]
	_, err := tryDraft(t, filepath.Join(t.TempDir(), "x.bdx"), seeded(1), build.Hooks{}, rowsNamed(1), entries[:1])
	testkit.Equal(t, "a pattern that is too long", fmt.Sprint(err), "pattern of 1003 octets with scope 0")
}

func TestClearSenderAmongPatternsDoesNotAllocate(t *testing.T) {
	var entries []listed
	for i := range 500 {
		entries = append(entries, listed{pattern: fmt.Sprintf(`/\.bulk-%d-[0-9]+\.test$/`, i), line: i})
	}
	ix := indexOf(t, seeded(1), rowsNamed(1), entries)
	a := sender(t, "anna.weber@mail.firm.test")
	dst := make([]Match, 0, 4)
	allocs := allocations(func() {
		if got, err := ix.Lookup(dst, a, testTime); err != nil || len(got) > 0 {
			t.Fatalf("Lookup = %v, %v", got, err)
		}
	})
	if allocs != 0 && !race.Enabled {
		t.Errorf("%v allocations", allocs)
	}
}
