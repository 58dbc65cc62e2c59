package program

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// promtool returns the path of Prometheus' own checker: installed, or unpacked by
// promtool.sh.
func promtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	out := testkit.Value(exec.Command(filepath.Join(e2e.Root, "cmd/blockd/e2e/promtool.sh"), "--where").Output())(t)
	path := strings.TrimSpace(string(out))
	if _, err := os.Stat(path); err != nil {
		testkit.Missing(t, "promtool is not there (cmd/blockd/e2e/promtool.sh, or make peers)")
	}
	return path
}

// TestAlertRules has Prometheus read the rules, and tell what they say of made-up
// days.
func TestAlertRules(t *testing.T) {
	tool := promtool(t)
	for _, args := range [][]string{{"check", "rules", "blockd.rules.yml"}, {"test", "rules", "blockd.rules.test.yml"}} {
		cmd := exec.Command(tool, args...)
		cmd.Dir = filepath.Join(e2e.Root, "packaging/prometheus")
		e2e.Ran(t, cmd)
	}
}

// dashboard is what is looked at of Grafana's model.
type dashboard struct {
	Panels []struct {
		ID      int
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr string }
	}
	Annotations struct{ List []struct{ Name, Expr string } }
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text := testkit.Read(t, filepath.Join(e2e.Root, "packaging/grafana/blockd.json"))
	testkit.Must(t, json.Unmarshal(text, &d))
	return d
}

// expressions are the queries of the dashboard, with what Grafana puts in.
func (d dashboard) expressions() (all []string) {
	filled := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, filled.Replace(target.Expr))
		}
	}
	for _, a := range d.Annotations.List {
		all = append(all, filled.Replace(a.Expr))
	}
	return all
}

// TestDashboard has Prometheus read every query of the dashboard, and holds that no
// panel lies on another.
func TestDashboard(t *testing.T) {
	tool, d := promtool(t), readDashboard(t)
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for i, expr := range d.expressions() {
		fmt.Fprintf(&rules, "  - record: dashboard:query%d\n    expr: %q\n", i, expr)
	}
	path := testkit.File(t, "queries.yml", rules.String())
	e2e.Ran(t, exec.Command(tool, "check", "rules", path))
	ids, places := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels of id %d", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, taken := places[[2]int{x, y}]; taken || x >= 24 {
					t.Fatalf("%q lies on %q or outside", p.Title, other)
				}
				places[[2]int{x, y}] = p.Title
			}
		}
	}
}

// TestDashboardAndRulesNameRealMetrics asks a daemon of all doors for what it counts.
// Metrics that it shows only after something has happened must have their row in
// docs/operation.md, which another test holds against the code.
func TestDashboardAndRulesNameRealMetrics(t *testing.T) {
	d := e2e.Serve(t, e2e.Setup{SMTP: "quarantine = \"aside\"\n", Milter: fmt.Sprintf("listen = %q", e2e.FreeAddress(t)), Postfix: fmt.Sprintf("policy_listen = %q", e2e.FreeAddress(t)),
		Files: map[string]string{"own.txt": "listed.example\n"},
		Lists: fmt.Sprintf("[dns]\nlisten = %q\n[[dns.zone]]\nname = \"dbl.here.example\"\nkind = \"domain\"\n[resp]\nlisten = %q\n", e2e.FreeAddress(t), e2e.FreeAddress(t)) +
			"[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\nmax_age = \"365d\"\n"})
	e2e.Ask(t, d.SMTP, "x@listed.example")
	_, scrape := d.Get("/metrics")
	document := testkit.Read(t, filepath.Join(e2e.Root, "docs/operation.md"))
	rules := testkit.Read(t, filepath.Join(e2e.Root, "packaging/prometheus/blockd.rules.yml"))
	texts := append(readDashboard(t).expressions(), string(regexp.MustCompile(`(?m)^ *(- alert|summary|description|#).*$`).ReplaceAll(rules, nil)))
	name, shown, later := regexp.MustCompile(`\b(?:blockd|process|go)_[a-z_]+`), map[string]bool{}, 0
	for _, found := range name.FindAllString(strings.Join(texts, "\n"), -1) {
		metric := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(found, "")
		if shown[metric] {
			continue
		}
		shown[metric] = true
		switch {
		case strings.Contains(scrape, "# TYPE "+metric+" "):
		case strings.Contains(string(document), "| `"+metric+"`") || strings.Contains(string(document), "| `"+metric+"{"):
			later++
		default:
			t.Errorf("there is no metric %s", metric)
		}
	}
	if len(shown) < 30 || later > len(shown)/2 {
		t.Errorf("%d metrics are named, and %d of them not shown by a daemon that has just begun", len(shown), later)
	}
	t.Logf("%d metrics, %d of them only after something has happened", len(shown), later)
}
