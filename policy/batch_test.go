package policy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/policy"
	"blockd/policy/verdict"
)

// randomQuestions are of every kind, in random order.
func randomQuestions(rng *rand.Rand, n int) (all []policy.Question) {
	senders := []string{"", "<>", "x@bad.example", "X@mx.BAD.example", "offers@clear.example", "a b@bad.example", "a b@clear.example", "x%bad.example", "root", "x@good.example",
		"good@bad.example", "x@shadow.example", "jörg@bücher.example", `"a b"@bad.example`, "someone@clear.example"}
	clients := []netip.Addr{{}, {}, netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("::ffff:192.0.2.7"), netip.MustParseAddr("2001:db8::1%eth0")}
	recipients := []string{"", "", "bob@here.example", "postmaster@here.example"}
	for range n {
		q := policy.Question{Text: senders[rng.IntN(len(senders))], Client: clients[rng.IntN(len(clients))]}
		switch rng.IntN(8) {
		case 0:
			q.About = policy.AboutClient
		case 1:
			q.About, q.Text = policy.AboutDomain, "mx.bad.example"
		default:
			q.Recipient = recipients[rng.IntN(len(recipients))]
		}
		all = append(all, q)
	}
	return all
}

func batchLists() []list {
	return []list{block("a", "bad.example\n=exact.example"), block("b", "offers@\nx@bad.example"),
		allow("c", "good@bad.example\ngood.example"), block("s", "shadow.example").shadow()}
}

func TestAskAgreesWithOneByOne(t *testing.T) {
	ix := build(t, batchLists()...)
	settings := policy.Settings{RecipientsExempt: []string{"postmaster"}}
	one, oneMetrics := checker(t, ix, settings)
	many, manyMetrics := checker(t, ix, settings)
	rng := rand.New(rand.NewPCG(1, 2))
	var b policy.Batch
	for range 30 {
		all := randomQuestions(rng, rng.IntN(100))
		verdicts := many.AskAll(&b, all)
		for i, q := range all {
			if want := one.Ask(q); !reflect.DeepEqual(verdicts[i], want) {
				t.Fatalf("question %d, %+v:\nAskAll %+v\nAsk %+v", i, q, verdicts[i], want)
			}
		}
	}
	if got, want := counters(t, manyMetrics), counters(t, oneMetrics); got != want {
		t.Errorf("Ask counts\n%s\none by one\n%s", got, want)
	}
}

// counters are the metrics without the times of hits.
func counters(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	var kept strings.Builder
	for line := range strings.Lines(testkit.Metrics(reg)) {
		if !strings.Contains(line, "timestamp") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func TestAskTellsOfAnUnreadableStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.bdx")
	buildAt(t, path, block("a", "bad.example"))
	ix := testkit.Value(index.Open(path))(t)
	if err := os.Truncate(path, 8192); err != nil { // header and filter stay
		t.Fatal(err)
	}
	c, _ := checker(t, ix, policy.Settings{})
	var b policy.Batch
	verdicts := c.AskAll(&b, []policy.Question{{Text: "x@clear.example"}, {Text: "x@bad.example"}})
	if v := verdicts[0]; v.Kind != verdict.Clear {
		t.Errorf("a sender that needs the filter alone: %s, %v", v.Kind, v.Err)
	}
	if v := verdicts[1]; v.Kind != verdict.Unknown || !v.Internal() || len(v.Matches) > 0 {
		t.Errorf("a sender whose page is gone: %s, %v", v.Kind, v.Err)
	}
}

// A defect costs the one sender that meets it.
func TestAskSurvivesADefect(t *testing.T) {
	ix := build(t, batchLists()...)
	serving, lost := ix, false
	c := policy.New(func() *index.Index {
		if lost {
			panic("no generation")
		}
		return serving
	}, policy.Settings{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	var b policy.Batch
	questions := []policy.Question{{Text: "x@bad.example"}}
	for i, broken := range []*index.Index{{}, nil, ix} { // the first two panic at the first use
		serving, lost = broken, i == 2
		verdicts := c.AskAll(&b, questions)
		if len(verdicts) != 1 || verdicts[0].Kind != verdict.Unknown || !verdicts[0].Internal() || b.Generation != "" {
			t.Errorf("Ask of a broken index = %+v, of generation %q", verdicts, b.Generation)
		}
		serving, lost = ix, false
		if verdicts = c.AskAll(&b, questions); verdicts[0].Kind != verdict.Blocked {
			t.Errorf("and then = %+v", verdicts)
		}
	}
}

// A panic among many questions is counted and logged, also if each of them alone has its answer.
func TestDefectOfABatchIsLogged(t *testing.T) {
	ix, asked := build(t, batchLists()...), 0
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	c := policy.New(func() *index.Index {
		if asked++; asked == 1 {
			panic("no generation")
		}
		return ix
	}, policy.Settings{}, slog.New(slog.NewTextHandler(&log, nil)), reg)
	var b policy.Batch
	verdicts := c.AskAll(&b, []policy.Question{{Text: "x@bad.example"}, {Text: "x@clear.example"}})
	if verdicts[0].Kind != verdict.Blocked || verdicts[1].Kind != verdict.Clear {
		t.Errorf("verdicts = %+v, want blocked and clear", verdicts)
	}
	wantMetric(t, reg, "blockd_internal_errors_total", `
		blockd_internal_errors_total{where="panic"} 1
		blockd_internal_errors_total{where="store"} 0`)
	testkit.Has(t, log.String(), "no generation", "AskAll")
}

func TestAskAllocatesNothingForClearSenders(t *testing.T) {
	c, _ := checker(t, build(t, batchLists()...), policy.Settings{})
	var b policy.Batch
	questions := make([]policy.Question, 200)
	for i := range questions {
		questions[i].Text = fmt.Sprintf("someone%d@mail.clear.example", i)
	}
	var out []byte
	ask := func() {
		out = out[:0]
		verdicts := c.AskAll(&b, questions)
		for i := range verdicts {
			if verdicts[i].Kind != verdict.Clear {
				t.Fatalf("%s is %s", questions[i].Text, verdicts[i].Kind)
			}
			out = verdicts[i].AppendJSON(out, questions[i].Text)
		}
	}
	ask()
	if allocs := testing.AllocsPerRun(20, ask); allocs != 0 {
		t.Errorf("Ask and AppendJSON of %d clear senders: %v allocations", len(questions), allocs)
	}
}

func TestAppendJSONIsTheAnswerOfEncodingJSON(t *testing.T) {
	ix := build(t, append(batchLists(), block("q", "\"quoted\\\"one\"@odd.example"))...)
	c, _ := checker(t, ix, policy.Settings{})
	rng := rand.New(rand.NewPCG(5, 6))
	for _, q := range randomQuestions(rng, 500) {
		for _, input := range []string{q.Text, "a<b>&c", "\x00\t\u2028", "\xff\xfe", `"\`, "é"} {
			v := c.Ask(q)
			var want bytes.Buffer
			e := json.NewEncoder(&want)
			e.SetEscapeHTML(false)
			testkit.Must(t, e.Encode(v.Answer(input)))
			if got := append(v.AppendJSON(nil, input), '\n'); string(got) != want.String() {
				t.Fatalf("AppendJSON(%q) =\n%s\nwant\n%s", input, got, want.String())
			}
		}
	}
}
