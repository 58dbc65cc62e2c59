package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

const dnsperfSays = `DNS Performance Testing Tool
> NOERROR a.example.dbl.test A 0.000100
> NXDOMAIN b.example.dbl.test A 0.000300
[Timeout] Query timed out: msg id 3
Statistics:

  Queries sent:         5
  Queries completed:    4 (80.00%%)
  Queries lost:         1 (20.00%%)

  Response codes:       NOERROR %d (50.00%%), NXDOMAIN 2 (50.00%%)
  Run time (s):         0.035002
  Queries per second:   114.279184
`

func TestParseLoad(t *testing.T) {
	l, err := parseLoad(strings.NewReader(fmt.Sprintf(dnsperfSays, 2)))
	if err != nil || l.check() != nil {
		t.Fatal(err, l.check())
	}
	if l.completed != 4 || l.lost != 1 || l.rate != 114.279184 || l.times.quantile(1) != 300 || len(l.times) != 2 {
		t.Errorf("load %+v", l)
	}
	if l, err := parseLoad(strings.NewReader(fmt.Sprintf(dnsperfSays, 200))); err != nil || l.check() == nil {
		t.Errorf("%v of %d answers are as many as there should be: %v", l.codes, l.completed, err)
	}
	if _, err := parseLoad(strings.NewReader("Error: no such file\n")); err == nil {
		t.Error("no figures and no error")
	}
}

func TestWriteQueries(t *testing.T) {
	var b strings.Builder
	testkit.Must(t, writeAddresses(&b, 1000, 1, kindDomain))
	if strings.Contains(b.String(), "@") || strings.Count(b.String(), "\n") != 1000 {
		t.Fatalf("no domains: %.100q", b.String())
	}
	text, queries := filepath.Join(t.TempDir(), "domains.txt"), filepath.Join(t.TempDir(), "queries.txt")
	testkit.Write(t, text, []byte(b.String()))
	testkit.Must(t, writeQueries(queries, text, 1000))
	n, seen := 0, map[string]bool{}
	err := eachLine(queries, func(line string) {
		name, ok := strings.CutSuffix(line, "."+dnsZone+" A")
		listed := strings.Contains("\n"+b.String(), "\n"+name+"\n")
		if !ok || seen[name] || listed != (n%2 == 0) {
			t.Errorf("query %d: %q, listed %v", n, line, listed)
		}
		seen[name] = true
		n++
	})
	if err != nil || n != 2000 {
		t.Errorf("%d queries, %v", n, err)
	}
}
