package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"blockd/policy"
)

func TestSandbox(t *testing.T) {
	// Lists that cover all of it: they have no say.
	f := newFixture(t, Settings{}, "invalid\n100::/64\n!blocked@"+sandboxDomain+"\n")
	for _, tt := range []struct {
		question, text string
		want           policy.Kind
	}{
		{"sender", "blocked@" + sandboxDomain, policy.Blocked},
		{"sender", "allowed@" + sandboxDomain, policy.Allowed},
		{"sender", "clear@" + sandboxDomain, policy.Clear},
		{"sender", "unknown@" + sandboxDomain, policy.Unknown},
		{"sender", "<Blocked@SANDBOX.blockd.invalid>", policy.Blocked},
		{"domain", "blocked." + sandboxDomain, policy.Blocked},
		{"domain", "Clear." + sandboxDomain, policy.Clear},
		{"ip", sandboxBlocked, policy.Blocked},
		{"ip", sandboxClear, policy.Clear},
		{"ip", sandboxAllowed, policy.Allowed},
		{"ip", sandboxUnreadable, policy.Unknown},
	} {
		t.Run(tt.question+" "+tt.text, func(t *testing.T) {
			for _, explain := range []string{"", "&explain=1"} {
				a := decoded[answer](t, f.ask("GET", "/v1/check?"+tt.question+"="+url.QueryEscape(tt.text)+explain, ""), http.StatusOK, asJSON)
				if !a.Sandbox || a.Verdict != tt.want || a.Generation != "sandbox" || a.Input != tt.text {
					t.Errorf("answer %+v, want %s of the sandbox", a, tt.want)
				}
				if decides := tt.want == policy.Blocked || tt.want == policy.Allowed; a.Matches == nil || (len(a.Matches) == 1) != decides ||
					decides && (a.Matches[0].List != "sandbox" || a.Matches[0].Reason != sandboxReason) {
					t.Errorf("matches %+v", a.Matches)
				}
				if (a.Explain != nil) != (explain != "") {
					t.Errorf("explanation %+v", a.Explain)
				}
			}
		})
	}
	if w := f.ask("GET", "/metrics", ""); strings.Contains(w.Body.String(), `blockd_verdicts_total{verdict="blocked"} 1`) {
		t.Error("the sandbox is counted")
	}
}

func TestWhatIsNoSandbox(t *testing.T) {
	f := newFixture(t, Settings{}, "clear."+sandboxDomain+"\n")
	for _, query := range []string{
		"sender=other@" + sandboxDomain, "sender=a@clear." + sandboxDomain, "sender=blocked@x" + sandboxDomain, "sender=blocked@invalid", "sender=",
		"domain=" + sandboxDomain, "domain=blocked." + sandboxDomain + ".example", "domain=x.blocked." + sandboxDomain, "ip=100::5", "ip=127.0.0.2",
		"sender=" + strings.Repeat("x", 300) + "@" + sandboxDomain,
	} {
		a := decoded[answer](t, f.ask("GET", "/v1/check?"+query, ""), http.StatusOK, asJSON)
		if a.Sandbox || a.Generation == "sandbox" {
			t.Errorf("%s is answered by the sandbox: %+v", query, a)
		}
	}
}

// TestSandboxAmongOthers holds that the sandbox takes no question's place.
func TestSandboxAmongOthers(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n192.0.2.0/24\n")
	senders := []string{`"blocked@` + sandboxDomain + `"`, `"a@bad.example"`, `{"ip":"100::2"}`, `{"ip":"192.0.2.1"}`, `{"domain":"ok.example"}`, `"clear@` + sandboxDomain + `"`, `"a@ok.example"`}
	const want = "blocked true, blocked false, blocked true, blocked false, clear false, clear true, clear false"
	var kinds []string
	batch := f.ask("POST", "/v1/check", `{"senders":[`+strings.Join(senders, ",")+`]}`, "Content-Type: application/json")
	for _, a := range decoded[results](t, batch, http.StatusOK, asJSON).Results {
		kinds = append(kinds, fmt.Sprint(a.Verdict, " ", a.Sandbox))
	}
	if got := strings.Join(kinds, ", "); got != want {
		t.Errorf("batch: %s, want %s", got, want)
	}
	stream := f.ask("POST", "/v1/check?explain=1", strings.Join(senders, "\n"), "Content-Type: application/x-ndjson").Body.String()
	kinds = nil
	for line := range strings.Lines(stream) {
		kinds = append(kinds, fmt.Sprint(strings.Split(strings.SplitAfter(line, `"verdict":"`)[1], `"`)[0], " ", strings.Contains(line, `"sandbox":true`)))
		if !strings.Contains(line, `"explain":{`) {
			t.Errorf("not explained: %s", line)
		}
	}
	if got := strings.Join(kinds, ", "); got != want {
		t.Errorf("stream: %s, want %s", got, want)
	}
}
