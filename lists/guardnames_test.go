package lists

import (
	"bufio"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/mail/addr"
)

func TestIsSuffix(t *testing.T) {
	tests := []struct {
		rule, name string
		is, icann  bool
	}{
		{"a plain rule", "co.uk", true, true},
		{"a registered name", "example.co.uk", false, false},
		{"a name below a registered one", "www.example.co.uk", false, false},
		{"a rule of three labels", "k12.ak.us", true, true},
		{"the rule behind which another one goes on", "ak.us", true, true},
		{"a wildcard's parent, whose subdomains are the rule", "kobe.jp", true, true},
		{"any name at a wildcard", "any.kobe.jp", true, true},
		{"a name below a wildcard", "shop.any.kobe.jp", false, false},
		{"an exception from a wildcard", "city.kobe.jp", false, false},
		{"any name at the wildcard of a top-level domain", "any.ck", true, true},
		{"its exception", "www.ck", false, false},
		{"A-labels", "xn--55qx5d.cn", true, true},
		{"an internationalised top-level domain has rules too", "shop.xn--fiqs8s", false, false},
		{"the private section", "github.io", true, false},
		{"a name below the private section", "somebody.github.io", false, false},
		{"a private wildcard", "x.compute.amazonaws.com", true, false},
		{"a name between two rules", "amazonaws.com", false, false},
		{"a top-level domain that is in no list", "bulk.test", false, false},
	}
	for _, tt := range tests {
		if is, icann := isSuffix(tt.name); is != tt.is || icann != tt.icann {
			t.Errorf("%s: isSuffix(%q) = %t, %t, want %t, %t", tt.rule, tt.name, is, icann, tt.is, tt.icann)
		}
	}
}

func TestRegistrableDomain(t *testing.T) {
	for name, want := range map[string]string{
		"mx1.Mail.Example.CO.UK.": "example.co.uk", "here.example": "here.example", "mx.city.kobe.jp": "city.kobe.jp",
		"co.uk": "", "mailhost": "", "": "", "x y": "", "shop.公司.cn": "shop.xn--55qx5d.cn",
	} {
		testkit.Equal(t, fmt.Sprintf("RegistrableDomain(%q)", name), RegistrableDomain(name), want)
	}
}

// suffixRules is a Public Suffix List as its file has it.
type suffixRules struct{ plain, wildcards, exceptions map[string]bool }

func readRules(t *testing.T, section string) suffixRules {
	t.Helper()
	f := testkit.Value(os.Open(testkit.Shared(t, "psl/public_suffix_list.dat")))(t)
	defer f.Close()
	rules := suffixRules{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	within := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		switch {
		case strings.Contains(line, "===BEGIN "+section), strings.Contains(line, "===END "+section):
			within = !within
			continue
		case !within || line == "" || strings.HasPrefix(line, "//"):
			continue
		}
		set, name := rules.plain, line
		if rest, ok := strings.CutPrefix(line, "*."); ok {
			set, name = rules.wildcards, rest
		} else if rest, ok := strings.CutPrefix(line, "!"); ok {
			set, name = rules.exceptions, rest
		}
		key, err := addr.DomainKey(name)
		if err != nil {
			t.Fatalf("rule %s: %v", line, err)
		}
		set[key.Text] = true
	}
	return rules
}

// The program's list is three years younger than the file: the 540 names of
// .museum and those of blogspot have gone since, and a few of either section. All
// others must be found, and in their section.
func TestSuffixesOfTheFile(t *testing.T) {
	for _, section := range []struct {
		name  string
		icann bool
		gone  float64 // share of rules that may have gone since
	}{{"ICANN DOMAINS", true, 0.015}, {"PRIVATE DOMAINS", false, 0.12}} {
		rules := readRules(t, section.name)
		var missed, moved []string
		count := 0
		check := func(name string) {
			if strings.HasSuffix(name, ".museum") || strings.Contains(name, "blogspot.") {
				return
			}
			count++
			if is, icann := isSuffix(name); !is {
				missed = append(missed, name)
			} else if icann != section.icann {
				moved = append(moved, name)
			}
		}
		for name := range rules.plain {
			if strings.Contains(name, ".") { // else a single label
				check(name)
			}
		}
		for name := range rules.wildcards {
			check("any--name." + name)
			if strings.Contains(name, ".") {
				check(name)
			}
		}
		for name := range rules.exceptions {
			if is, _ := isSuffix(name); is {
				t.Errorf("the exception %s is a suffix", name)
			}
		}
		t.Logf("%s: %d names, %d are none any more, %d are of the other section now", section.name, count, len(missed), len(moved))
		if count < 1000 || float64(len(missed)) > section.gone*float64(count) || len(moved) > count/100 {
			t.Errorf("%s: too many rules differ: not found %v, moved %v", section.name, missed, moved)
		}
	}
}

// No name below a registered one is taken for a suffix: by the list's own vectors.
func TestSuffixVectors(t *testing.T) {
	text := testkit.Value(os.ReadFile(testkit.Shared(t, "psl/test_psl.txt")))(t)
	n := 0
	for line := range strings.Lines(string(text)) {
		args, ok := strings.CutPrefix(strings.TrimSpace(line), "checkPublicSuffix(")
		if !ok || strings.HasPrefix(args, "null") || strings.HasPrefix(args, "'.") {
			continue
		}
		name, want, _ := strings.Cut(strings.TrimSuffix(args, ");"), ", ")
		name, want = strings.Trim(name, "'"), strings.Trim(want, "'")
		if want == "null" {
			want = ""
		} else if key, err := addr.DomainKey(want); err == nil {
			want = key.Text
		}
		n++
		testkit.Equal(t, fmt.Sprintf("RegistrableDomain(%q)", name), RegistrableDomain(name), want)
		key, err := addr.DomainKey(name)
		if err != nil || key.Labels == 1 {
			continue
		}
		if is, _ := isSuffix(key.Text); is && want != "" {
			t.Errorf("%q is a suffix, and %q is registered", name, want)
		}
	}
	if n < 70 {
		t.Errorf("%d vectors", n)
	}
}

// packageRules are the rules that the package was made from, as its own tests have
// them; they come with its source.
func packageRules(t *testing.T) (rules []string) {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/net").Output()
	if err != nil {
		t.Skip("go list does not find the package's source: ", err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(strings.TrimSpace(string(dir)), "publicsuffix/table_test.go"), nil, 0)
	if err != nil {
		t.Skip("the package's tests are not in its source: ", err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if spec.Names[0].Name == "rules" {
			ast.Inspect(spec, func(n ast.Node) bool {
				if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
					rule := testkit.Value(strconv.Unquote(text.Value))(t)
					rules = append(rules, rule)
				}
				return true
			})
		}
		return false
	})
	if len(rules) < 5000 {
		t.Fatalf("the package has %d rules", len(rules))
	}
	return rules
}

// A filter of another version would be safe and slow: whoever takes a new version of
// the package writes the filter too.
func TestSuffixFilterIsOfThisVersion(t *testing.T) {
	if !strings.HasPrefix(suffixNames, suffixVersion()) || maybeSuffix("example.com") {
		t.Error("suffixes.bin is of another Public Suffix List: go test ./lists -run SuffixNames -update")
	}
}

func TestSuffixNames(t *testing.T) {
	rules := packageRules(t)
	bits := make([]byte, 1<<suffixBits/8)
	add := func(sum uint64) {
		for _, bit := range []uint64{suffixBit(sum), suffixBit(sum >> suffixBits)} {
			bits[bit/8] |= 1 << (bit % 8)
		}
	}
	for _, rule := range rules {
		if parent, ok := strings.CutPrefix(rule, "*."); ok {
			add(wildcardSum(parent))
			add(ruleSum(parent))
		} else if !strings.HasPrefix(rule, "!") && strings.Contains(rule, ".") {
			add(ruleSum(rule))
		}
	}
	want := suffixVersion() + string(bits)
	if flag.Lookup("update").Value.String() == "true" { // of the package lists_test
		testkit.Must(t, os.WriteFile("suffixes.bin", []byte(want), 0o644))
	} else if want != suffixNames {
		t.Error("suffixes.bin is not what the package's rules give: go test ./lists -run SuffixNames -update")
	}
}

// With the filter and without it the answer is the same: for every rule, the names
// around it, and a name at random below each.
func TestSuffixFilterHidesNothing(t *testing.T) {
	asked, passed := 0, 0
	for i, rule := range packageRules(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(rule, "*."), "!")
		random := fmt.Sprintf("n%x.%s", i*2654435761, name)
		for _, name := range []string{name, "any." + name, "x.any." + name, "_." + name, "www." + name, random} {
			if !strings.Contains(name, ".") {
				continue
			}
			is, icann := isSuffix(name)
			if wantIs, wantICANN := findSuffix(name); is != wantIs || is && icann != wantICANN {
				t.Errorf("isSuffix(%q) = %t, %t; without the filter %t, %t", name, is, icann, wantIs, wantICANN)
			}
			if name == random && !is {
				asked++
				if maybeSuffix(name) {
					passed++
				}
			}
		}
		for parent := range namesAbove(name) {
			if !strings.Contains(parent, ".") {
				break
			}
			is, _ := isSuffix(parent)
			if want, _ := findSuffix(parent); is != want {
				t.Errorf("isSuffix(%q) = %t, without the filter %t", parent, is, want)
			}
		}
	}
	if passed > asked/50 {
		t.Errorf("%d of %d names that are no suffix pass the filter", passed, asked)
	}
}

func BenchmarkIsSuffix(b *testing.B) {
	names := []string{"example.com", "mail.example.co.uk", "a.b.c.bulk.test", "somebody.github.io", "promo-2024.shop-online.xyz"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		isSuffix(names[i%len(names)])
	}
}
