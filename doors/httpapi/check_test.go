package httpapi

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/internal/testkit/asked"
	"blockd/policy"
	"blockd/policy/verdict"
	"blockd/reload"
)

func TestCheck(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n!good@bad.example\npromo+x@shop.example\n")
	for _, tt := range []struct {
		name, query   string
		input, sender string
		want          verdict.Kind
	}{
		{"listed domain", "sender=a@bad.example", "a@bad.example", "a@bad.example", verdict.Blocked},
		{"not listed is 200 and clear", "sender=a@ok.example", "a@ok.example", "a@ok.example", verdict.Clear},
		{"exception", "sender=good@bad.example", "good@bad.example", "good@bad.example", verdict.Allowed},
		{"text that is no sender", "sender=a%20b", "a b", "", verdict.Unknown},
		{"text that is no sender, and a listed domain", "sender=a%20b@bad.example", "a b@bad.example", "", verdict.Blocked},
		{"text that is no sender, and a clear domain", "sender=a%20b@ok.example", "a b@ok.example", "", verdict.Unknown},
		{"at sign behind a listed domain", "sender=a@bad.example@", "a@bad.example@", "a@bad.example", verdict.Blocked},
		{"at sign behind an exception", "sender=good@bad.example@", "good@bad.example@", "good@bad.example", verdict.Allowed},
		{"percent for an at sign", "sender=a%25bad.example", "a%bad.example", "a@bad.example", verdict.Blocked},
		{"null sender", "sender=", "", "", verdict.Clear},
		{"null sender in brackets", "sender=%3C%3E", "<>", "", verdict.Clear},
		{"input as it came", "sender=%3CA@BAD.Example%3E", "<A@BAD.Example>", "a@bad.example", verdict.Blocked},
		{"plus is a plus", "sender=promo+x@shop.example", "promo+x@shop.example", "promo+x@shop.example", verdict.Blocked},
		{"and so is %2B", "sender=promo%2Bx%40shop.example", "promo+x@shop.example", "promo+x@shop.example", verdict.Blocked},
		{"empty parts are none", "&sender=a@bad.example&", "a@bad.example", "a@bad.example", verdict.Blocked},
		{"U-label", "sender=" + url.QueryEscape("a@bücher.bad.example"), "a@bücher.bad.example", "a@xn--bcher-kva.bad.example", verdict.Blocked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := decoded[answer](t, f.ask("GET", "/v1/check?"+tt.query, ""), http.StatusOK, asJSON)
			if a.Input != tt.input || a.Sender != tt.sender || a.Verdict != tt.want || a.Generation != f.live.Generation() || a.Explain != nil {
				t.Errorf("answer %+v", a)
			}
			if (len(a.Matches) > 0) != (tt.want == verdict.Blocked || tt.want == verdict.Allowed) || a.Matches == nil {
				t.Errorf("matches %+v", a.Matches)
			}
		})
	}
}

func TestCheckOfClientsAndDomains(t *testing.T) {
	f := newFixture(t, Settings{}, "192.0.2.0/24\nbad.example\nbox@ok.example\n!good@ok.example\n")
	for _, tt := range []struct{ name, query, want string }{
		{"client alone", "ip=192.0.2.1", `192.0.2.1  192.0.2.1  blocked [192.0.2.0/24 cidr]`},
		{"other client", "ip=198.51.100.1", `198.51.100.1  198.51.100.1  clear []`},
		{"IPv4 address mapped into IPv6", "ip=::ffff:192.0.2.1", `::ffff:192.0.2.1  192.0.2.1  blocked [192.0.2.0/24 cidr]`},
		{"sender of a listed client", "sender=a@ok.example&client=192.0.2.1", `a@ok.example a@ok.example 192.0.2.1  blocked [192.0.2.0/24 cidr]`},
		{"bounce of a listed client", "sender=&client=192.0.2.1", `  192.0.2.1  blocked [192.0.2.0/24 cidr]`},
		{"allowed sender of a listed client", "sender=good@ok.example&client=192.0.2.1",
			`good@ok.example good@ok.example 192.0.2.1  allowed [good@ok.example addr 192.0.2.0/24 cidr]`},
		{"sender before client", "sender=a@bad.example&client=192.0.2.1",
			`a@bad.example a@bad.example 192.0.2.1  blocked [bad.example domain 192.0.2.0/24 cidr]`},
		{"domain", "domain=MX.Bad.Example", `MX.Bad.Example   mx.bad.example blocked [bad.example domain]`},
		{"domain where one address is listed", "domain=ok.example", `ok.example   ok.example clear []`},
		{"no domain", "domain=a@b", `a@b    unknown []`},
		{"sender of which the domain can be read", "sender=%01a@mx.bad.example", "\x01a@mx.bad.example   mx.bad.example blocked [bad.example domain]"},
		{"sender of which a parent can be read", "sender=a@-.bad.example", "a@-.bad.example   ?.bad.example blocked [bad.example domain]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := decoded[answer](t, f.ask("GET", "/v1/check?"+tt.query, ""), http.StatusOK, asJSON)
			var entries []string
			for _, m := range a.Matches {
				entries = append(entries, m.Entry+" "+m.Kind)
			}
			testkit.Equal(t, "answer is", fmt.Sprint(a.Input, " ", a.Sender, " ", a.Client, " ", a.Domain, " ", a.Verdict, " ", entries), tt.want)
		})
	}
	a := decoded[answer](t, f.ask("GET", "/v1/check?explain=1&ip=192.0.2.1", ""), http.StatusOK, asJSON)
	testkit.Equal(t, "explained by", fmt.Sprint(a.Explain.Keys), "[{192.0.2.0/24 cidr  perhaps listed [0]}]")
	batch := `{"senders":["a@ok.example",{"sender":"a@ok.example","client":"192.0.2.1"},{"sender":"a@ok.example"}]}`
	var kinds []string
	for _, a := range decoded[results](t, f.ask("POST", "/v1/check", batch, "Content-Type: application/json"), http.StatusOK, asJSON).Results {
		kinds = append(kinds, string(a.Verdict)+" "+a.Client)
	}
	testkit.Equal(t, "batch", strings.Join(kinds, ", "), "clear , blocked 192.0.2.1, clear ")
	stream := "{\"sender\":\"a@ok.example\",\"client\":\"192.0.2.1\"}\n{\"sender\":\"\",\"client\":\"\"}\n"
	w := f.ask("POST", "/v1/check", stream, "Content-Type: application/x-ndjson")
	lines := strings.Split(w.Body.String(), "\n")
	testkit.Got(len(lines), testkit.At(lines, 0), testkit.At(lines, 1))(t, fmt.Sprintf("stream: %s", w.Body), 3, `…"verdict":"blocked"…`, `…"line":2,"error":"client: want an IP address…`)
}

// With a recipient the answer is its own, in all three ways to ask.
func TestCheckForARecipient(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n192.0.2.0/24\n")
	for _, tt := range []struct{ sender, client, recipient, want string }{
		{"a@bad.example", "", "bob@here.example", "blocked refuse 1"},
		{"a@bad.example", "", "Postmaster@here.example", "blocked accept 1"},
		{"a@bad.example", "", "VIP@here.example", "clear accept 1"},
		{"a@bad.example", "", "no address", "blocked refuse 1"},
		{"a@ok.example", "", "bob@here.example", "clear accept 0"},
		{"a@ok.example", "192.0.2.1", "bob@here.example", "blocked refuse 1"},
		{"a@ok.example", "192.0.2.1", "vip@here.example", "clear accept 1"},
		{"", "", "bob@here.example", "clear accept 0"},
	} {
		object := map[string]string{"sender": tt.sender, "recipient": tt.recipient}
		query := url.Values{"sender": {tt.sender}, "recipient": {tt.recipient}}
		if tt.client != "" {
			object["client"] = tt.client
			query.Set("client", tt.client)
		}
		line, _ := json.Marshal(object)
		one := f.ask("GET", "/v1/check?"+strings.ReplaceAll(query.Encode(), "+", "%20"), "")
		stream := f.ask("POST", "/v1/check", string(line), "Content-Type: "+asStream)
		batch := decoded[results](t, f.ask("POST", "/v1/check", `{"senders":[`+string(line)+`]}`, "Content-Type: "+asJSON), http.StatusOK, asJSON).Results
		for way, a := range map[string]answer{
			"query": decoded[answer](t, one, http.StatusOK, asJSON), "stream": decoded[answer](t, stream, http.StatusOK, asStream), "batch": batch[0],
		} {
			got := fmt.Sprint(a.Verdict, " ", a.Outcome, " ", len(a.Matches))
			testkit.Got(got, a.Recipient)(t, fmt.Sprintf("%s, %s", line, way), tt.want, tt.recipient)
		}
	}
	for _, query := range []string{"sender=a@b.example&recipient=", "sender=a&recipient=b@c&recipient=b@c", "domain=b.example&recipient=a@b", "recipient=a@b"} {
		wantProblem(t, f.ask("GET", "/v1/check?"+query, ""), http.StatusBadRequest, "")
	}
	wantProblem(t, f.ask("POST", "/v1/check", `{"senders":[{"domain":"x","recipient":"a@b"}]}`, "Content-Type: "+asJSON), http.StatusBadRequest, "sender 0")
}

func TestCheckIsTheAnswerOfTheCommandLine(t *testing.T) {
	f := newFixture(t, Settings{}, "# bad ones\nsub.example\n")
	got := f.ask("GET", "/v1/check?sender=X@Sub.Example", "").Body.String()
	want := `{"input":"X@Sub.Example","sender":"x@sub.example","verdict":"blocked","matches":[{"list":"bad","file":"` +
		f.live.Lists()[0].Source.Path + `","line":2,"entry":"sub.example","kind":"domain","scope":"tree","action":"block",` +
		`"reason":"Bulk & <spam>"}],"generation":"` + f.live.Generation() + `"}` + "\n"
	testkit.Equal(t, "answer is", got, want)
}

func TestExplain(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	a := decoded[answer](t, f.ask("GET", "/v1/check?explain=1&sender=a@sub.bad.example", ""), http.StatusOK, asJSON)
	if e := a.Explain; e == nil || fmt.Sprint(e.Keys, e.Decider, e.Shadow, " ", e.Reply) !=
		"[{a@sub.bad.example addr    []} {a@ addr    []} {sub.bad.example domain    []} {bad.example domain  perhaps listed [0]} {example domain    []}] 0 -1 550 5.7.1 <a@sub.bad.example>: Sender address rejected: listed in bad (ref ID)" {
		t.Errorf("explain %+v", a.Explain)
	}
}

func TestCheckRefuses(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	for _, tt := range []struct{ name, query, words string }{
		{"nothing", "", "want one parameter sender, ip or domain, have 0"},
		{"another parameter", "senders=a@b.example", "senders: no such parameter; there are sender, ip, domain, client, recipient, explain"},
		{"another parameter beside", "sender=a@b.example&colour=red", "colour: no such parameter"},
		{"a parameter in capitals", "Sender=a@b.example", "Sender: no such parameter"},
		{"octets that are no UTF-8", "sender=%ff@b.example", "not UTF-8"},
		{"half a surrogate pair", "sender=%ed%a0%80@b.example", "not UTF-8"},
		{"two subjects", "sender=a@b.example&ip=192.0.2.1", "want sender, ip or domain, have sender and ip"},
		{"a client alone", "client=192.0.2.1", "have 0"},
		{"a client of a domain", "client=192.0.2.1&domain=b.example", "beside sender"},
		{"two clients", "client=192.0.2.1&client=192.0.2.2&sender=", "one parameter client at most"},
		{"no client", "client=localhost&sender=", `client: want an IP address, have "localhost"`},
		{"no IP address", "ip=192.0.2", `ip: want an IP address, have "192.0.2"`},
		{"two senders", "sender=a&sender=b", "have 2"},
		{"broken escape", "sender=%zz", "invalid URL escape"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantProblem(t, f.ask("GET", "/v1/check?"+tt.query, ""), http.StatusBadRequest, tt.words)
		})
	}
}

func TestBatch(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	body := `{"senders":["b@bad.example","a@ok.example","","not one","b@bad.example","<script>&@bad.example"]}`
	w := f.ask("POST", "/v1/check", body, "Content-Type: application/json; charset=utf-8")
	got := decoded[results](t, w, http.StatusOK, asJSON)
	var kinds []string
	for _, a := range got.Results {
		kinds = append(kinds, a.Input+"="+string(a.Verdict))
		testkit.Equal(t, fmt.Sprintf("%s is of generation", a.Input), a.Generation, got.Generation)
	}
	want := "b@bad.example=blocked a@ok.example=clear =clear not one=unknown b@bad.example=blocked <script>&@bad.example=blocked"
	testkit.Equal(t, "results are", strings.Join(kinds, " "), want)
	testkit.Equal(t, "of no senders", f.ask("POST", "/v1/check", `{"senders":[]}`, "Content-Type: application/json").Body.String(), `{"results":[],"generation":"`+f.live.Generation()+`"}`+"\n")
}

func TestBatchIsOfOneGeneration(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	next := build(t, "other.example\n")
	f.reload = func() { f.live, next = next, f.live } // a reload before every look
	got := decoded[results](t, f.ask("POST", "/v1/check", `{"senders":["a@bad.example","a@bad.example","a@bad.example"]}`, "Content-Type: application/json"), http.StatusOK, asJSON)
	for i, a := range got.Results {
		testkit.Got(a.Generation, a.Verdict)(t, fmt.Sprint("result ", i), got.Generation, got.Results[0].Verdict)
	}
}

func TestBatchRefuses(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	many := func(n int) string { return `{"senders":["` + strings.Repeat(`x","`, n-1) + `x"]}` }
	testkit.Equal(t, "results", len(decoded[results](t, f.ask("POST", "/v1/check", many(1000), "Content-Type: application/json"), http.StatusOK, asJSON).Results), 1000)
	for _, tt := range []struct {
		name, body, contentType string
		status                  int
		words                   string
	}{
		{"one sender too many", many(1001), asJSON, http.StatusRequestEntityTooLarge, "at most 1000"},
		{"body without end", `{"senders":["` + strings.Repeat("x", maxBatch), asJSON, http.StatusRequestEntityTooLarge, "body over"},
		{"empty body", "", asJSON, http.StatusBadRequest, "not the JSON"},
		{"no JSON", "senders", asJSON, http.StatusBadRequest, "not the JSON"},
		{"array", `["a"]`, asJSON, http.StatusBadRequest, "not the JSON"},
		{"half a pair", `{"senders":["a\ud800@b.example"]}`, asJSON, http.StatusBadRequest, "surrogate"},
		{"the other half", `{"senders":["a\udc00@b.example"]}`, asJSON, http.StatusBadRequest, "surrogate"},
		{"halves apart", `{"senders":["\ud83dx\ude00"]}`, asJSON, http.StatusBadRequest, "surrogate"},
		{"two first halves", `{"senders":["\ud83d\ud83d"]}`, asJSON, http.StatusBadRequest, "surrogate"},
		{"half a pair in a question", `{"senders":[{"domain":"\ud800"}]}`, asJSON, http.StatusBadRequest, "surrogate"},
		{"octets that are no UTF-8", "{\"senders\":[\"a\xff@b.example\"]}", asJSON, http.StatusBadRequest, "not UTF-8"},
		{"unknown member", `{"senders":[],"explain":true}`, asJSON, http.StatusBadRequest, `unknown member "explain"`},
		{"member in capitals", `{"Senders":[]}`, asJSON, http.StatusBadRequest, `unknown member "Senders"`},
		{"of no senders", `{}`, asJSON, http.StatusBadRequest, `want {"senders"`},
		{"null for senders", `{"senders":null}`, asJSON, http.StatusBadRequest, `want {"senders"`},
		{"one string", `{"senders":"a@b.example"}`, asJSON, http.StatusBadRequest, `want {"senders"`},
		{"a number", `{"senders":["a",1]}`, asJSON, http.StatusBadRequest, `want {"senders"`},
		{"an object without sender", `{"senders":[{"client":"192.0.2.1"}]}`, asJSON, http.StatusBadRequest, `sender 0: want "ADDRESS" or {"sender"`},
		{"an object with another member", `{"senders":[{"sender":"","ip":"192.0.2.1"}]}`, asJSON, http.StatusBadRequest, `sender 0: want "ADDRESS" or {"sender"`},
		{"a client that is no address", `{"senders":[{"sender":"","client":"here"}]}`, asJSON, http.StatusBadRequest, `client: want an IP address, have "here"`},
		{"null sender as null", `{"senders":["a",null]}`, asJSON, http.StatusBadRequest, `sender 1 is null; the null sender is ""`},
		{"text behind", `{"senders":[]} x`, asJSON, http.StatusBadRequest, "text behind"},
		{"not UTF-8", "{\"senders\":[\"\xff@b.example\"]}", asJSON, http.StatusBadRequest, "not UTF-8"},
		{"a form", "senders=a", "application/x-www-form-urlencoded", http.StatusUnsupportedMediaType, "want Content-Type"},
		{"no type", "{}", "", http.StatusUnsupportedMediaType, "want Content-Type"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantProblem(t, f.ask("POST", "/v1/check", tt.body, "Content-Type: "+tt.contentType), tt.status, tt.words)
		})
	}
}

// FuzzBatch holds that every body gets an answer of 200 or a problem, and that a
// good one has as many results as senders.
func FuzzBatch(f *testing.F) {
	f.Add([]byte(`{"senders":["a@bad.example",""]}`), asJSON)
	f.Add([]byte(`{"senders":[null]}`), asJSON)
	f.Add([]byte(`{"senders":[{"sender":"a@bad.example","client":"192.0.2.1"},{"sender":null}]}`), asJSON)
	f.Add([]byte(`{"sender":"","client":"::ffff:192.0.2.1%x"}`), asStream)
	f.Add([]byte("\"a@bad.example\"\n{\"sender\":\"b@ok.example\"}\n\n[]"), asStream)
	fix := newFixture(f, Settings{}, "bad.example\n")
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		w := fix.ask("POST", "/v1/check", string(body), "Content-Type: "+contentType)
		switch got := w.Header().Get("Content-Type"); {
		case w.Code == http.StatusOK && got == asJSON:
			senders, err := decodeBatch(body)
			if err != nil {
				t.Fatalf("accepted what is refused: %v", err)
			}
			testkit.MustEqual(t, "results for", len(decoded[results](t, w, http.StatusOK, asJSON).Results), len(senders))
		case w.Code == http.StatusOK && got == asStream:
			lines := 0
			for line := range strings.Lines(string(body)) {
				if strings.Trim(line, " \t\r\n\v\f\u0085\u00a0") != "" || len(line) >= maxLine {
					lines++
				}
			}
			if n := strings.Count(w.Body.String(), "\n"); n > lines {
				t.Fatalf("%d answers to %d lines", n, lines)
			}
		case w.Code >= 400 && w.Code < 500:
			decoded[problem](t, w, w.Code, asProblem)
		default:
			t.Fatalf("answer is %d %s", w.Code, got)
		}
	})
}

// A pair is a character, and an escaped backslash begins no escape.
func TestHalfPair(t *testing.T) {
	for text, want := range map[string]bool{`"\ud83d\ude00"`: false, `"\\ud800"`: false, `"\\\ud800"`: true, `"\u00e4\n"`: false, `"\uD83D\uDE00\uD83D\uDE00"`: false,
		`"\ude00\ud83d"`: true, `"\ud83d\n\ude00"`: true, `"\ud83d"`: true, `"\ud83d\`: true, `\`: false, "": false, `"\uZZZZ"`: false} {
		testkit.Equal(t, text, halfPair([]byte(text)), want)
	}
}

// TestListThatIsAsked: a verdict if the store answers, "unknown" if it is away and no other list decides.
func TestListThatIsAsked(t *testing.T) {
	s := &asked.Store{}
	ix, reg, log := build(t, "bad.example\n"), prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	checker := policy.New(func() *index.Index { return ix }, policy.Settings{Stores: s.Sets(t, "bad", asked.Name)}, log, reg)
	f := &fixture{Server: New(Settings{Fast: true}, checker, func() reload.Status { return reload.Status{Ready: true} }, reg, log)}
	s.Door(t, func(domain string) string {
		var got struct {
			Verdict string
			Explain struct{ Reply string }
		}
		testkit.Must(t, json.Unmarshal(f.ask("GET", "/v1/check?explain=1&sender=ann@"+domain, "").Body.Bytes(), &got))
		if reply := got.Explain.Reply; got.Verdict != "blocked" && strings.HasPrefix(reply, "550") || got.Verdict == "blocked" && !strings.HasPrefix(reply, "550") {
			t.Errorf("%s: %s, and a reply %q", domain, got.Verdict, reply)
		}
		return got.Verdict
	}, asked.Answers{Listed: "blocked", Clear: "clear", Excepted: "allowed", Unknown: "unknown", Others: map[string]string{"bad.example": "blocked"}})
}

// FuzzQuestion holds the short way to a sender against encoding/json: where it
// finds one, that finds the same.
func FuzzQuestion(f *testing.F) {
	for _, text := range []string{
		`"promo@bulk.test"`, `""`, `{"sender":"promo@bulk.test"}`, `{"sender": "a@b"}`, `{"sender":"a@b","client":"192.0.2.1"}`,
		`{"sender":"a\u0040b"}`, `"a"b"`, `"`, `{"sender":"}`, `{"sender":""}`, `{"sender":"a"}}`, "\"a\x7f\"", `{"sender":  "a"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		sender, ok := plainSender(string(b))
		if !ok {
			return
		}
		var want *string
		if b[0] == '"' {
			if err := decode(b, &want); err != nil || want == nil || *want != sender {
				t.Fatalf("plainSender(%q) = %q, encoding/json says %v, %v", b, sender, want, err)
			}
			return
		}
		var object map[string]*string
		if err := decode(b, &object); err != nil || len(object) != 1 || object["sender"] == nil || *object["sender"] != sender {
			t.Fatalf("plainSender(%q) = %q, encoding/json says %v, %v", b, sender, object, err)
		}
	})
}

// FuzzPlainBatch holds the short way through a batch against encoding/json: what it
// reads, that reads alike.
func FuzzPlainBatch(f *testing.F) {
	for _, text := range []string{
		`{"senders":["a@b"]}`, `{"senders":["a@b",""]}`, ` {"senders": [ "a@b" , {"sender":"c"},{"sender": "d"} ]}` + "\n",
		`{"senders":[]}`, `{"senders":["a",]}`, `{"senders":[,"a"]}`, `{"senders":["a" "b"]}`, `{"senders":["a"],"x":["b"]}`, `{"senders":["a\u0040b"]}`,
		`{"senders":["a]}"]}`, `{"senders":[{"sender":"a}"}]}`, `{"senders":[{"sender":"a"]}`, `{"senders":["]}`, `{"senders":[{"ip":"100::2"}]}`, `{"senders":[""]}`,
		`{"senders":["a"]}]}`, `{"senders":["a"]]}`, "{\"senders\":[\"a\",\f\"b\"]}", "{\"senders\":[\"a\x7f\"]}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, ok := plainBatch(body)
		if !ok {
			return
		}
		if want, err := decodeAnyBatch(body); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("plainBatch(%q) = %v, encoding/json says %v, %v", body, got, want, err)
		}
	})
}

// TestPlainBatch holds that batches as programs write them go the short way, to the last
// sender that there may be.
func TestPlainBatch(t *testing.T) {
	senders := func(n int) string { return strings.TrimPrefix(strings.Repeat(`,"a@b.example"`, n), ",") }
	for _, tt := range []struct {
		name, body string
		want       int // -1: not the short way
	}{
		{"compact", `{"senders":["a@b.example",""]}`, 2},
		{"with blanks", "{\"senders\": [\n  \"a@b.example\",\n  {\"sender\": \"c@d.example\"}\n]}\n", 2},
		{"as many as there may be", `{"senders":[` + senders(maxSenders) + `]}`, maxSenders},
		{"one more", `{"senders":[` + senders(maxSenders+1) + `]}`, -1},
		{"an escape", `{"senders":["a@b.example","\u0061@b.example"]}`, -1},
		{"a client", `{"senders":[{"sender":"a@b.example","client":"192.0.2.1"}]}`, -1},
	} {
		got, ok := plainBatch([]byte(tt.body))
		if ok != (tt.want >= 0) || ok && len(got) != tt.want {
			t.Errorf("%s: %d questions, %v; want %d", tt.name, len(got), ok, tt.want)
		}
	}
}

func BenchmarkBatch(b *testing.B) {
	var senders []string
	for i := range maxSenders {
		senders = append(senders, fmt.Sprintf("someone%d@mail.clear.example", i))
	}
	body := testkit.Value(json.Marshal(map[string][]string{"senders": senders}))(b)
	for name, read := range map[string]func([]byte) ([]policy.Question, error){"plain": decodeBatch, "any": decodeAnyBatch} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				testkit.Value(read(body))(b)
			}
		})
	}
}

func TestEntityTag(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	const target = "/v1/check?sender=a@bad.example"
	first := f.ask("GET", target, "")
	tag := first.Header().Get("ETag")
	testkit.MustGot(len(tag), first.Header().Get("Cache-Control"))(t, tag, 18, "private, no-cache")
	for _, tt := range []struct {
		name, target, tags string
		want               int
	}{
		{"the same question", target, tag, http.StatusNotModified},
		{"compared weakly", target, "W/" + tag, http.StatusNotModified},
		{"one of several", target, `"x", ` + tag, http.StatusNotModified},
		{"any", target, "*", http.StatusNotModified},
		{"another tag", target, `"x"`, http.StatusOK},
		{"without its quotes", target, tag[1:17], http.StatusOK},
		{"another question", "/v1/check?sender=b@bad.example", tag, http.StatusOK},
		{"with an explanation", target + "&explain=1", tag, http.StatusOK},
	} {
		w := f.ask("GET", tt.target, "", "If-None-Match: "+tt.tags)
		testkit.Equal(t, tt.name, w.Code, tt.want)
		if tt.want == http.StatusNotModified && (w.Body.Len() > 0 || w.Header().Get("ETag") != tag || w.Header().Get("Content-Type") != "") {
			t.Errorf("%s: 304 with %v and %d octets", tt.name, w.Header(), w.Body.Len())
		}
	}
	f.live = build(t, "bad.example\nother.example\n")
	f.gives(t, http.StatusOK, "GET", target, "", "If-None-Match: "+tag)
}

// TestEntityTagFollowsLiveEntries holds what a tag of the generation would break: the
// answer changes without one.
func TestEntityTagFollowsLiveEntries(t *testing.T) {
	f := newEntryFixture(t)
	const target = "/v1/check?sender=new@ok.example"
	tag := f.ask("GET", target, "", f.read).Header().Get("ETag")
	testkit.Value(f.set.Apply(live.Change{Entry: "new@ok.example", Expires: time.Now().Add(time.Hour)}))(t)
	w := f.ask("GET", target, "", f.read, "If-None-Match: "+tag)
	testkit.Equal(t, "with a live entry", decoded[answer](t, w, http.StatusOK, asJSON).Verdict, verdict.Blocked)
}

func TestHotPathAllocates(t *testing.T) {
	f := newFixture(t, Settings{MaxRate: 1 << 20}, "bad.example\n")
	for _, tt := range []struct {
		name, target string
		most         float64
	}{
		{"clear", "/v1/check?sender=a@ok.example", 8},
		{"listed", "/v1/check?sender=a@bad.example", 12},
	} {
		serve := f.request(tt.target)
		if got := testing.AllocsPerRun(200, serve); got > tt.most {
			t.Errorf("%s: %.0f allocations, want %.0f at most", tt.name, got, tt.most)
		}
	}
}

// blank is a ResponseWriter that costs nothing.
type blank struct{ header http.Header }

func (b blank) Header() http.Header         { return b.header }
func (b blank) Write(p []byte) (int, error) { return len(p), nil }
func (b blank) WriteHeader(int)             {}

// request returns a function that has one request answered.
func (f *fixture) request(target string) func() {
	r, err := http.NewRequest("GET", target, nil)
	if err != nil {
		panic(err)
	}
	r.Host, r.RemoteAddr = "127.0.0.1:8025", "127.0.0.1:40000"
	w := blank{http.Header{}}
	return func() { f.Handler().ServeHTTP(w, r) }
}

// What is wrong is told without all of what was wrong.
func TestDetailIsShort(t *testing.T) {
	f := newEntryFixture(t)
	long := strings.Repeat("ü", 1_000_000)
	for _, w := range []*httptest.ResponseRecorder{
		f.ask("POST", "/v1/check", `{"`+long+`":[]}`, f.read, "Content-Type: application/json"),
		f.ask("POST", "/v1/entries", `{"entry":"x.example","action":"`+long+`"}`, f.write, "Content-Type: application/json"),
		f.ask("POST", "/v1/entries", `{"`+long+`":"x.example"}`, f.write, "Content-Type: application/json"),
		f.ask("GET", "/v1/decisions?"+long, "", f.read),
	} {
		if w.Code == http.StatusOK || w.Body.Len() > 2*maxDetail || !utf8.Valid(w.Body.Bytes()) {
			t.Errorf("%d of %d octets", w.Code, w.Body.Len())
		}
	}
}
