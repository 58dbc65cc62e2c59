package lists

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"

	"github.com/miekg/dns"
)

// ourRecords reads a zone whose name is "zone." and returns its records as
// "owner type data", the data of CNAME alone.
func ourRecords(t *testing.T, text string) []string {
	f, _, err := findFormat("rpz")
	testkit.Must(t, err)
	r := newReading(f, "", Settings{}, func(*Item) error { return nil })
	r.lines = newLineReader(strings.NewReader(text), '\n')
	var got []string
	rpz := rpzFile{r: r, origin: zoneName{"zone", true}, apex: zoneName{"zone", true}}
	zone := zoneFile{r: r}
	err = zone.each(func(words []string, indented bool) {
		rpz.record(words, indented)
		if words[0][0] == '$' {
			return
		}
		if !indented {
			words = words[1:]
		}
		kind, data := recordType(words)
		record := strings.ToLower(rpz.owner.text) + ". " + kind
		if kind == "CNAME" {
			target, _ := rpz.absolute(data[0])
			record += " " + strings.ToLower(target.text) + "."
		}
		got = append(got, record)
	}, func(line string) { t.Errorf("not cut: %q in\n%s", line, text) })
	testkit.Must(t, err)
	return got
}

// theirRecords does the same by the DNS library.
func theirRecords(t *testing.T, text string) []string {
	var got []string
	zone := dns.NewZoneParser(strings.NewReader(text), "zone.", "")
	zone.SetDefaultTTL(60)
	for rr, ok := zone.Next(); ok; rr, ok = zone.Next() {
		record := strings.ToLower(rr.Header().Name) + " " + dns.TypeToString[rr.Header().Rrtype]
		if c, ok := rr.(*dns.CNAME); ok {
			record += " " + strings.ToLower(c.Target)
		}
		got = append(got, record)
	}
	if err := zone.Err(); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return got
}

// randomZone writes a zone with everything that a zone file may have around its
// records: blanks, comments, parentheses over lines, quotes, origins.
func randomZone(rng *rand.Rand) string {
	one := func(from ...string) string { return from[rng.IntN(len(from))] }
	var b strings.Builder
	b.WriteString("@ IN SOA a. b. (1 2 3\n 4 5)\n")
	for range rng.IntN(12) {
		switch rng.IntN(8) {
		case 0:
			b.WriteString(one("", "; c (", " ; \"", "\t") + "\n")
			continue
		case 1:
			b.WriteString("$ORIGIN " + one("zone.", "sub", "b.zone.", "@") + one("", " ; c") + "\n")
			continue
		case 2:
			b.WriteString("$TTL 1h\n")
			continue
		}
		words := []string{one("", "@", "bulk.test", "*.ads", "x.zone.", "Y", "_z-.w")}
		words = append(words, strings.Fields(one("", "60", "IN", "1h IN", "IN 1h", "in 1d2h"))...)
		switch rng.IntN(4) {
		case 0:
			words = append(words, "CNAME", one(".", "*.", "rpz-drop.", "landing", "@", "a.b."))
		case 1:
			words = append(words, one("A", "a"), "192.0.2.1")
		case 2:
			words = append(words, "AAAA", "2001:db8::1")
		case 3:
			words = append(words, "TXT", one(`"a ; ( b"`, `"\""`, `x\;y`, `""`), one("z", `"w)"`))
		}
		open := false
		for i, w := range words {
			if i > 0 {
				if b.WriteString(one(" ", "\t", "  ")); !open && rng.IntN(6) == 0 {
					b.WriteString("( ")
					open = true
				}
				if open && rng.IntN(3) == 0 {
					b.WriteString(one("\n ", " ; c )\n\t", "\n\n  "))
				}
			}
			b.WriteString(w)
		}
		if open {
			b.WriteString(one(" )", "\n )", " ; c\n)"))
		}
		b.WriteString(one("", " ", " ; c", " ; )") + "\n")
	}
	return b.String()
}

// TestZonesAgreeWithADNSLibrary holds the cutting of zones into records, owners and
// origins against a library that ends at the first fault and so cannot do it here.
func TestZonesAgreeWithADNSLibrary(t *testing.T) {
	records := 0
	for seed := range uint64(10_000) {
		text := randomZone(rand.New(rand.NewPCG(seed, 0)))
		got, want := ourRecords(t, text), theirRecords(t, text)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d:\n%s\ngot  %q\nwant %q", seed, text, got, want)
		}
		records += len(got)
	}
	if records < 30_000 {
		t.Errorf("only %d records were compared", records)
	}
}

// TestOneBadRecordCostsNoOther puts a line that is no record between the records of
// random zones, where none is open.
func TestOneBadRecordCostsNoOther(t *testing.T) {
	bad := []string{"press.test", "bulk.test CNAME", ")", `x TXT "`, "x TXT (", "$INCLUDE /etc/passwd", "x\x01 A 192.0.2.1", "bad..name CNAME .", "*"}
	entries := func(text string) (keys []string, faults int) {
		sum, err := read(sourceOf([]byte(text)), nil, Settings{Format: "rpz"}, func(it *Item) error {
			if it.Kind == Domain {
				keys = append(keys, fmt.Sprint(it.Key.Text, it.Scope, it.Action))
			}
			return nil
		})
		if _, ours := err.(*FileError); err != nil && err != io.EOF && !ours {
			t.Fatal(err)
		}
		return keys, sum.Errors
	}
	for seed := range uint64(2_000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		first, second := randomZone(rng), strings.TrimLeft(randomZone(rng), "@")
		second = "a.test CNAME .\n" + "b.test IN" + strings.TrimPrefix(second, " IN")
		want, faults := entries(first + second)
		line := bad[rng.IntN(len(bad))]
		got, now := entries(first + line + "\n" + second)
		if !slices.Equal(got, want) || now != faults+1 {
			t.Fatalf("seed %d, %q: %q and %d faults, want %q and %d, in\n%s---\n%s", seed, line, got, now, want, faults+1, first, second)
		}
	}
}
