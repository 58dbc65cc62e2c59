package msgauth

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func TestOrganisation(t *testing.T) {
	for domain, want := range map[string]string{
		"x.example": "x.example", "a.b.x.example": "x.example", "X.EXAMPLE.": "x.example", "bücher.example": "xn--bcher-kva.example",
		"a.co.uk": "a.co.uk", "mx.a.co.uk": "a.co.uk", "a.github.io": "a.github.io", "_spf.x.example": "x.example",
		"co.uk": "", "com": "", "github.io": "", "example": "", "": "", ".": "", "a..example": "", "192.0.2.1": "", "[192.0.2.1]": "",
		"a b.example": "", `a\.example`: "", strings.Repeat("a", 64) + ".example": "", strings.Repeat("a.", 127) + "example": "",
	} {
		testkit.Equal(t, fmt.Sprintf("Organisation(%q)", domain), Organisation(domain), want)
	}
}

func TestAligned(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"x.example", "x.example", true}, {"a.x.example", "b.x.example", true}, {"X.example", "mx.x.EXAMPLE", true},
		{"bücher.example", "mx.xn--bcher-kva.example", true},
		{"x.example", "y.example", false}, {"x.example", "notx.example", false}, {"co.uk", "co.uk", false},
		{"a.co.uk", "b.co.uk", false}, {"a.github.io", "b.github.io", false}, {"", "", false}, {"x.example", "", false},
	} {
		testkit.Equal(t, fmt.Sprintf("Aligned(%q, %q)", tt.a, tt.b), Aligned(tt.a, tt.b), tt.want)
	}
}

// TestSuffixVectors runs the vectors of the Public Suffix List's own project.
func TestSuffixVectors(t *testing.T) {
	f := testkit.Value(os.Open(testkit.Shared(t, "psl/test_psl.txt")))(t)
	defer f.Close()
	vector := regexp.MustCompile(`^checkPublicSuffix\((?:null|'([^']*)'), (?:null|'([^']*)')\);`)
	n := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := vector.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		n++
		if strings.HasPrefix(m[1], ".") {
			continue // no domain at all, here
		}
		testkit.Equal(t, fmt.Sprintf("Organisation(%q)", m[1]), Organisation(m[1]), canonical(m[2]))
	}
	if n < 70 {
		t.Errorf("%d vectors, want over 70", n)
	}
}

// FuzzOrganisation holds what alignment must be: the same both ways, of what is its
// own organisation, and never by a suffix.
func FuzzOrganisation(f *testing.F) {
	f.Add("a.x.example", "x.example")
	f.Add("BÜCHER.co.uk", "co.uk")
	f.Add("x.github.io", "y.github.io")
	f.Fuzz(func(t *testing.T, a, b string) {
		org := Organisation(a)
		if Organisation(org) != org {
			t.Fatalf("Organisation(%q) = %q, whose own is %q", a, org, Organisation(org))
		}
		if org != "" && !strings.HasSuffix("."+canonical(a), "."+org) {
			t.Fatalf("Organisation(%q) = %q, which is not above it", a, org)
		}
		if Aligned(a, b) != Aligned(b, a) || Aligned(a, a) != (org != "") {
			t.Fatalf("Aligned(%q, %q) is not what it should be", a, b)
		}
		if org != "" && !Aligned(a, "mx."+org) {
			t.Fatalf("%q is not aligned with a host below %q", a, org)
		}
	})
}

func TestSuffixListTellsItsDay(t *testing.T) {
	if version, day := SuffixList(); day.Year() < 2024 {
		t.Errorf("%q is of %s", version, day)
	}
}
