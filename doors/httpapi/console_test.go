package httpapi

import (
	"fmt"
	"io/fs"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

const asBrowser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8"

// The page and all that it loads come from the program itself, without a token.
func TestConsoleNeedsNothingElse(t *testing.T) {
	f := newFixture(t, Settings{Token: "0123456789abcdef"}, "bad.example\n")
	page := f.ask("GET", "/", "", asBrowser)
	testkit.MustGot(page.Code, page.Header().Get("Content-Type"))(t, "/", http.StatusOK, "text/html; charset=utf-8")
	loads := regexp.MustCompile(`(?:src|href)="(?:\./)?([^"#]+)"|(?:from |import\()'\./([^']+)'`)
	seen, todo := map[string]bool{}, []string{page.Body.String()}
	for len(todo) > 0 {
		text := todo[0]
		todo = todo[1:]
		for _, m := range loads.FindAllStringSubmatch(text, -1) {
			path := m[1]
			if path == "" {
				path = "console/" + m[2]
			}
			if seen[path] {
				continue
			}
			seen[path] = true
			w := f.ask("GET", "/"+path, "")
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") == "" {
				t.Errorf("%s is %d %q", path, w.Code, w.Header().Get("Content-Type"))
			}
			todo = append(todo, w.Body.String())
		}
	}
	files := testkit.Value(fs.ReadDir(assets, "console"))(t)
	for _, file := range files {
		if name := "console/" + file.Name(); !seen[name] && name != "console/page.html" {
			t.Errorf("nothing loads %s", name)
		}
	}
}

func TestConsoleHeaders(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	for _, path := range []string{"/", "/console/page.js", "/console/page.css", "/console/icon.svg"} {
		h := f.ask("GET", path, "", asBrowser).Header()
		for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store"} {
			testkit.Equal(t, fmt.Sprintf("%s: %s", path, name), h.Get(name), want)
		}
		policy := h.Get("Content-Security-Policy")
		testkit.Has(t, policy, "default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'none'", "base-uri 'none'")
		if strings.Contains(policy, "unsafe") || strings.ContainsAny(policy, "*:") {
			t.Errorf("%s: the policy is %s", path, policy)
		}
	}
}

// What would break the policy is not even written: code or style in the page, and ways
// to make HTML of a text.
func TestConsoleHasNothingInline(t *testing.T) {
	inline := regexp.MustCompile(`(?i)<style|\sstyle="|<script(?:>| [^>]*>\s*\S[^<]*</script)|\son[a-z]+="|javascript:`)
	html := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|setHTML|DOMParser|\beval\b|new Function|localStorage|https?://`)
	err := fs.WalkDir(assets, "console", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := assets.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".html") && inline.Match(text) {
			t.Errorf("%s: %q", path, inline.Find(text))
		}
		if found := html.Find(withoutNamespaces(text)); found != nil && strings.HasSuffix(path, ".js") {
			t.Errorf("%s: %q", path, found)
		}
		return nil
	})
	testkit.Must(t, err)
}

// withoutNamespaces takes out the addresses that are names, which nobody asks.
func withoutNamespaces(text []byte) []byte {
	return regexp.MustCompile(`http://www\.w3\.org/(?:1999/xhtml|2000/svg)`).ReplaceAll(text, nil)
}

func TestConsoleAndPrograms(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	if w := f.ask("GET", "/", "", "Accept: */*"); !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") || !slices.Contains(w.Header().Values("Vary"), "Accept") {
		t.Errorf("a program gets %s, Vary %q", w.Header().Get("Content-Type"), w.Header().Values("Vary"))
	}
	for _, path := range []string{"/console/", "/console/none.js", "/console/../console.go", "/console/%2e%2e%2fconsole.go"} {
		if w := f.ask("GET", path, "", asBrowser); w.Code == http.StatusOK {
			t.Errorf("%s is %d", path, w.Code)
		}
	}
	// A page of another site may lead here, and may not load or frame what is here.
	f.gives(t, http.StatusOK, "GET", "/", "", asBrowser, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate")
	wantProblem(t, f.ask("GET", "/console/page.js", "", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"), http.StatusForbidden, "another site")
}
