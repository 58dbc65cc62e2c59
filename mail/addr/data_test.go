package addr

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// openData opens a real list that is not part of the source tree.
func openData(t *testing.T, name string) io.Reader {
	t.Helper()
	f, err := os.Open(testkit.Shared(t, filepath.Join("lists", name)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if !strings.HasSuffix(name, ".gz") {
		return f
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func eachLine(t *testing.T, name string, f func(line string)) {
	t.Helper()
	lines := bufio.NewScanner(openData(t, name))
	for lines.Scan() {
		f(lines.Text())
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestRealDomains: a million names, sorted and without comments. Those with
// hyphens in the third and fourth place and those with underscores are why plain
// ASCII does not go through IDNA.
func TestRealDomains(t *testing.T) {
	race.Skip(t)
	var names, hyphens, underscores int
	refused := map[Class][]string{}
	eachLine(t, "union-domains.txt.gz", func(line string) {
		names++
		oddHyphens := false
		for label := range strings.SplitSeq(line, ".") {
			oddHyphens = oddHyphens || len(label) >= 4 && label[2:4] == "--" && label[:2] != "xn"
		}
		k, err := DomainKey(line)
		if err != nil {
			var e *Error
			errors.As(err, &e)
			refused[e.Class] = append(refused[e.Class], line)
			if oddHyphens || strings.Contains(line, "_") {
				t.Errorf("DomainKey(%q): %v", line, err)
			}
			return
		}
		if oddHyphens {
			hyphens++
		}
		if strings.Contains(line, "_") {
			underscores++
		}
		if again, err := DomainKey(k.Text); err != nil || again != k {
			t.Errorf("DomainKey(%q) = %q, then %q, %v", line, k.Text, again.Text, err)
		}
	})
	if names != 1006826 || hyphens != 10476 || underscores != 81 {
		t.Errorf("%d names, %d with odd hyphens, %d with underscores; want 1006826, 10476, 81", names, hyphens, underscores)
	}
	for class, lines := range refused {
		t.Logf("%s: %d refused, such as %q", class, len(lines), lines[:min(len(lines), 200)])
	}
}

func TestRealSenders(t *testing.T) {
	for name, want := range map[string]int{"ham-senders.txt": 729, "spam-senders.txt": 940} {
		t.Run(name, func(t *testing.T) {
			senders := 0
			eachLine(t, name, func(line string) {
				senders++
				a, err := Parse(line)
				if err != nil {
					t.Error(err)
				}
				checkKeys(t, a)
				checkPath(t, []byte("<"+line+">"))
			})
			if senders != want {
				t.Errorf("%d senders, want %d", senders, want)
			}
		})
	}
}

func TestRealNamesInTwoScripts(t *testing.T) {
	var names []string
	if err := json.NewDecoder(openData(t, "disposable-index.json.gz")).Decode(&names); err != nil {
		t.Fatal(err)
	}
	keys := map[Key]bool{}
	for _, name := range names {
		k, err := DomainKey(name)
		if err != nil {
			t.Error(err)
		}
		keys[k] = true
	}
	if len(names) != 121570 || len(keys) != 121558 {
		t.Errorf("%d names give %d keys, want 121570 and 121558", len(names), len(keys))
	}
}
