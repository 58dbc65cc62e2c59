package receipt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/html"

	"blockd/internal/testkit"
	"blockd/policy/reply"
	"blockd/records/history"
)

// rig is a door over a history of its own.
type rig struct {
	*Server
	handler  http.Handler
	folder   string
	records  map[string]*history.Record
	searches int
	fault    error
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{folder: filepath.Join(t.TempDir(), "receipts"), records: map[string]*history.Record{}}
	key := testkit.Value(OpenKey(r.folder))(t)
	r.Server = &Server{Key: key, Requests: NewStore(r.folder, key), Log: slog.New(slog.DiscardHandler),
		Contact: func(list, ref string) string { return "https://lists.example/r/" + ref },
		Find: func(_ context.Context, ref string) (*history.Record, error) {
			r.searches++
			return r.records[ref], r.fault
		}}
	r.Register(prometheus.NewRegistry())
	r.handler = r.Handler()
	return r
}

// refuse is a refusal in the history, by a list.
func (r *rig) refuse(sender, list string) (ref string) {
	ref = r.Key.NewRef()
	r.records[ref] = &history.Record{Time: time.Now(), Outcome: "refuse", List: list, Sender: sender, Recipient: "boss@here.example", Client: netip.MustParseAddr("192.0.2.7"),
		Entry: "secret-entry.example", Reason: "secret reason", Ref: ref}
	return ref
}

// call asks from a client, with header fields "Name: value".
func (r *rig) call(method, path, form, from string, header ...string) *http.Response {
	q := httptest.NewRequest(method, path, strings.NewReader(form))
	q.RemoteAddr = from + ":1234"
	if method == http.MethodPost {
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, field := range header {
		name, value, _ := strings.Cut(field, ": ")
		q.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, q)
	return w.Result()
}

// gives wants a status for what a client asks.
func (r *rig) gives(t testing.TB, want int, method, path, form, from string, header ...string) {
	t.Helper()
	testkit.MustEqual(t, fmt.Sprintf("%s %s from %s", method, path, from), r.call(method, path, form, from, header...).StatusCode, want)
}

// put makes a request without the syncs of the store, of which thousands take long.
func (r *rig) put(t testing.TB, q Request) {
	t.Helper()
	f := testkit.Value(os.OpenFile(r.folder+"/requests", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(t)
	defer f.Close()
	testkit.Must(t, json.NewEncoder(f).Encode(map[string]Request{"row": q}))
}

func textOf(t testing.TB, resp *http.Response) string {
	t.Helper()
	text := testkit.Value(io.ReadAll(resp.Body))(t)
	return string(text)
}

func TestPage(t *testing.T) {
	r := newRig(t)
	ref := r.refuse("anna@bulk.example", "bad<script>")
	resp := r.call("GET", "/r/"+ref, "", "198.51.100.1")
	text := textOf(t, resp)
	if resp.StatusCode != 200 || !strings.Contains(text, "The list “bad&lt;script&gt;” names your address") || !strings.Contains(text, `<form method="post">`) || !strings.Contains(text, ref) {
		t.Errorf("%d\n%s", resp.StatusCode, text)
	}
	for _, secret := range []string{"boss@here.example", "192.0.2.7", "secret", "anna@", "<script"} {
		testkit.Lacks(t, text, secret)
	}
	// The contact that leads to this page is no news here.
	testkit.Lacks(t, text, "lists.example")
	policy := resp.Header.Get("Content-Security-Policy")
	testkit.Got(policy, resp.Header.Get("Referrer-Policy"), resp.Header.Get("Cache-Control"))(t, "header", "default-src 'none'; style-src 'sha256-…", "no-referrer", "no-store")
	r.Contact = func(list, ref string) string { return "mailto:postmaster@here.example?subject=" + ref }
	testkit.Has(t, textOf(t, r.call("GET", "/r/"+ref, "", "198.51.100.1")), `<a href="mailto:postmaster@here.example?subject=`+ref+`">`)
	r.Contact = func(list, ref string) string { return "javascript:alert(1)" }
	testkit.Lacks(t, textOf(t, r.call("GET", "/r/"+ref, "", "198.51.100.1")), "href")
	r.Contact = func(list, ref string) string { return "" }
	home, complaints := "https://list.example/?a=1&b=\"<script>", "mailto:help@list.example"
	r.About = func(list string) (string, string) { return home, complaints }
	if text := textOf(t, r.call("GET", "/r/"+ref, "", "198.51.100.1")); !strings.Contains(text, `<a rel="noreferrer" href="mailto:help@list.example">mailto:help@list.example</a>`) ||
		!strings.Contains(text, `<a rel="noreferrer" href="https://list.example/?a=1&amp;b=&#34;&lt;script&gt;">`) || strings.Contains(text, "<script") {
		t.Errorf("where the list comes from:\n%s", text)
	}
	home, complaints = "javascript:alert(1)", "data:text/html,x"
	testkit.Lacks(t, textOf(t, r.call("GET", "/r/"+ref, "", "198.51.100.1")), "href", "javascript")
	testkit.Equal(t, "searches for one reference", r.searches, 1)
}

func TestLanguages(t *testing.T) {
	r := newRig(t)
	ref := r.refuse("anna@bulk.example", "bad")
	for accept, want := range map[string]string{
		"": "en", "de-AT,en;q=0.5": "de", "fr": "fr", "es-MX": "es", "zh-TW": "zh", "zh": "zh", "nl, de;q=0.8": "de", "xx-nonsense;;q=a": "en", "pl": "en",
		strings.Repeat("aa,", 500) + "de": "en",
	} {
		resp := r.call("GET", "/r/"+ref, "", "198.51.100.1", "Accept-Language: "+accept)
		got := resp.Header.Get("Content-Language")
		testkit.Got(got, textOf(t, resp))(t, fmt.Sprintf("%.40q", accept), want, "…"+`<html lang="`+want+`">…`)
	}
	// Each language has all words, with the places that they need.
	for i, w := range catalogues {
		for name, text := range map[string]string{"Title": w.Title, "Way": w.Way, "Ask": w.Ask, "AskWhy": w.AskWhy, "Note": w.Note, "Button": w.Button, "Forever": w.Forever, "Declined": w.Declined,
			"Contact": w.Contact, "TooMany": w.TooMany, "Complain": w.Complain, "Home": w.Home, "UnknownTitle": w.UnknownTitle, "Unknown": w.Unknown, "TroubleTitle": w.TroubleTitle, "Trouble": w.Trouble, "Receipt": w.Receipt} {
			if text == "" || strings.Contains(text, "{") {
				t.Errorf("%s, %s: %q", languages[i], name, text)
			}
		}
		if !strings.Contains(w.Refused, "{list}") || !strings.Contains(w.Refused, "{date}") || !strings.Contains(w.Client, "{date}") || !strings.Contains(w.Personal, "{date}") || strings.Contains(w.Personal, "{list}") || !strings.Contains(w.Open, "{date}") || !strings.Contains(w.Granted, "{date}") {
			t.Errorf("%s lacks a place", languages[i])
		}
	}
}

// Unknown, forged and foreign references, and all other addresses, are one and the same; none of them costs a search.
func TestUnknownIsOne(t *testing.T) {
	r, other := newRig(t), newRig(t)
	ref := r.refuse("anna@bulk.example", "bad")
	forged := ref[:len(ref)-1] + map[bool]string{true: "1", false: "0"}[ref[len(ref)-1] == '0']
	want := ""
	for _, path := range []string{"/r/" + forged, "/r/" + other.Key.NewRef(), "/r/" + reply.NewRef(), "/r/" + strings.ToUpper(ref) + "A", "/r/x", "/r/", "/", "/v1/check?sender=a@b.example", "/metrics", "/r/" + ref + "/x", "/r/..%2f..%2fetc%2fpasswd", "/r/%00"} {
		resp := r.call("GET", path, "", "198.51.100.1")
		text := textOf(t, resp)
		if want == "" {
			want = text
		}
		testkit.Got(resp.StatusCode, text)(t, path, 404, want)
		r.gives(t, 404, "POST", path, "note=x", "198.51.100.2")
	}
	testkit.Equal(t, "searches", r.searches, 0)
	// What the history has no more, or what was no refusal, is unknown too.
	gone := r.Key.NewRef()
	taken := r.refuse("b@bulk.example", "bad")
	r.records[taken].Outcome = "accept"
	for _, ref := range []string{gone, taken} {
		if resp := r.call("GET", "/r/"+ref, "", "198.51.100.3"); resp.StatusCode != 404 || textOf(t, resp) != want {
			t.Errorf("%s: %d", ref, resp.StatusCode)
		}
	}
	r.fault = history.ErrBusy
	if resp := r.call("GET", "/r/"+r.Key.NewRef(), "", "198.51.100.3"); resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
		t.Errorf("while the history is busy: %d", resp.StatusCode)
	}
}

func TestRequest(t *testing.T) {
	r := newRig(t)
	ref := r.refuse("anna@bulk.example", "bad")
	resp := r.call("POST", "/r/"+ref, url.Values{"note": {"  I am\r\n\ta person\x1b[31m\u202e " + strings.Repeat("ä", 400)}}.Encode(), "198.51.100.1")
	testkit.MustGot(resp.StatusCode, resp.Header.Get("Location"))(t, "the answer", http.StatusSeeOther, "/r/"+ref)
	q, err := r.Requests.Get(ref)
	if err != nil || q.State != Open || q.Sender != "anna@bulk.example" || q.List != "bad" || !strings.HasPrefix(q.Note, "I am a person[31m ä") || len(q.Note) > MaxNote || strings.ContainsAny(q.Note, "\x1b\u202e\n") {
		t.Errorf("%+v, %v", q, err)
	}
	// Once more changes nothing, whoever asks and whatever the note says.
	r.gives(t, http.StatusSeeOther, "POST", "/r/"+ref, "note=other", "203.0.113.1") // again
	if again, _ := r.Requests.Get(ref); again != q {
		t.Errorf("again: %+v, want %+v", again, q)
	}
	has := func(when, want string, asks bool) {
		t.Helper()
		text := textOf(t, r.call("GET", "/r/"+ref, "", "198.51.100.1"))
		testkit.Got(text, strings.Contains(text, "<form"))(t, when, "…"+want+"…", asks)
	}
	has("open", "Your request waits for a person", false)
	now := time.Now()
	testkit.Value(r.Requests.Decide(ref, Granted, "root", now.Add(240*time.Hour), now))(t)
	has("granted", "passes until "+now.Add(240*time.Hour).UTC().Format(time.DateOnly), false)
	testkit.Fails(r.Requests.Decide(ref, Declined, "root", time.Time{}, now))(t, "decided twice", ErrDecided)
	// The history forgets, the request does not.
	delete(r.records, ref)
	r.mu.Lock()
	r.found = nil
	r.mu.Unlock()
	has("when the history has forgotten", "Your request was granted", false)

	second := r.refuse("bert@bulk.example", "")
	has2 := textOf(t, r.call("GET", "/r/"+second, "", "198.51.100.1"))
	testkit.Has(t, has2, "because of the name that the sending server gave itself")
	r.call("POST", "/r/"+second, "", "198.51.100.1")
	testkit.Value(r.Requests.Decide(second, Declined, "root", time.Time{}, now))(t)
	ref = second
	has("declined", "Your request was declined", false)
	r.gives(t, 400, "POST", "/r/"+r.refuse("c@bulk.example", "bad"), "note="+strings.Repeat("x", maxBody), "198.51.100.1") // a form that is too long
}

func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ask := func(want int, sender, from string) {
			t.Helper()
			r.gives(t, want, "POST", "/r/"+r.refuse(sender, "bad"), "", from)
		}
		for i := range mostANet {
			ask(303, fmt.Sprintf("a%d@bulk.example", i), "198.51.100.1")
		}
		ask(429, "b@bulk.example", "198.51.100.1") // one network too many times
		for i := range mostSender {
			ask(303, "same@bulk.example", fmt.Sprintf("203.0.113.%d", i))
		}
		ask(429, "same@bulk.example", "203.0.113.99") // one sender too many times
		for i := range mostADay - mostANet - mostSender {
			ask(303, fmt.Sprintf("c%d@bulk.example", i), fmt.Sprintf("10.%d.%d.1", i/200, i%200))
		}
		ask(429, "d@bulk.example", "203.0.113.200") // too many a day
		time.Sleep(25 * time.Hour)
		ask(303, "d@bulk.example", "198.51.100.1") // on the next day
		time.Sleep(keptFor)
		ask(303, "e@bulk.example", "198.51.100.1") // later
		all, damaged, err := r.Requests.All()
		testkit.Got(len(all), damaged, err)(t, "requests kept", 2, 0, nil)
	})
}

// A network that asks for too many pages is put off; others are not.
func TestPagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ref := r.refuse("anna@bulk.example", "bad")
		for range mostPages {
			r.gives(t, 200, "GET", "/r/"+ref, "", "198.51.100.1")
		}
		r.gives(t, 429, "GET", "/r/"+ref, "", "198.51.100.1") // one more
		r.gives(t, 200, "GET", "/r/"+ref, "", "203.0.113.1")  // another client
		// Behind a web server of this machine it is the client that counts, and elsewhere nobody believes the field.
		r.gives(t, 429, "GET", "/r/"+ref, "", "127.0.0.1", "X-Forwarded-For: 203.0.113.9, 198.51.100.1") // behind a web server
		r.gives(t, 429, "GET", "/r/"+ref, "", "198.51.100.1", "X-Forwarded-For: 203.0.113.5")            // a field that anybody can write
		time.Sleep(61 * time.Second)
		r.gives(t, 200, "GET", "/r/"+ref, "", "198.51.100.1") // a minute later
	})
}

// TestInventedNetworks: who invents networks of his own shuts the page for nobody else, by GET or HEAD, and for
// himself no longer than a minute.
func TestInventedNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ref := r.refuse("anna@bulk.example", "bad")
		shown := 0
		for i := range 11_000 {
			if r.call("HEAD", "/r/"+ref, "", fmt.Sprintf("[2001:db8:7:%x::1]", i)).StatusCode == 200 {
				shown++
			}
		}
		testkit.Equal(t, "pages of one network of 65,536", shown, mostWide)
		others := 0
		for i := range 2000 {
			if r.call("GET", "/r/"+ref, "", fmt.Sprintf("[2001:db9:%x::1]", i)).StatusCode == 200 {
				others++
			}
		}
		testkit.AtLeast(t, "other networks that see the page", others, 1990) // one in 65,536 has the counter of the invented ones
		r.gives(t, 429, "GET", "/r/"+ref, "", "[2001:db8:7:1::1]")
		time.Sleep(61 * time.Second)
		r.gives(t, 200, "GET", "/r/"+ref, "", "[2001:db8:7:1::1]")
	})
}

// TestRequestsForOthers: who has no sender, or one in whose name somebody else writes, may ask when three others have.
func TestRequestsForOthers(t *testing.T) {
	for _, sender := range []string{"", "victim@bulk.example"} {
		r, n := newRig(t), 0
		ask := func(want int, client string) {
			t.Helper()
			n++
			ref := r.refuse(sender, "bad")
			r.records[ref].Client, _ = netip.ParseAddr(client)
			r.gives(t, want, "POST", "/r/"+ref, "", fmt.Sprintf("10.1.%d.1", n))
		}
		for range mostSender {
			ask(303, "192.0.2.7")
		}
		ask(429, "192.0.2.200") // of the same network
		ask(303, "198.51.100.1")
		ask(303, "2001:db8::1")
		for range mostSender + 1 {
			ask(303, "") // of a door that knows no client: each asks from another network
		}
	}
}

// What one recipient does not want is told without the name of a list, and asks nobody: to let in is his to say.
func TestPersonalRefusal(t *testing.T) {
	r := newRig(t)
	r.Contact = func(list, ref string) string { return "https://" + list + "/" }
	r.About = func(list string) (string, string) { return "https://home.example/" + list, "" }
	for _, change := range []func(*history.Record){
		func(h *history.Record) { h.Owner = "boss@here.example" },
		func(h *history.Record) { h.Entry = "recipient:boss@here.example" },
	} {
		ref := r.refuse("anna@bulk.example", "private-list")
		change(r.records[ref])
		for _, method := range []string{"POST", "GET"} {
			resp := r.call(method, "/r/"+ref, "", "198.51.100.1")
			text := textOf(t, resp)
			if resp.StatusCode != 200 || !strings.Contains(text, "because its recipient does not accept mail from you") || strings.Contains(text, "private-list") || strings.Contains(text, "<form") || strings.Contains(text, "boss") {
				t.Errorf("%s: %d\n%s", method, resp.StatusCode, text)
			}
		}
		testkit.Fails(r.Requests.Get(ref))(t, "a request was made", ErrNoRequest)
	}
}

// A mail server that asks the DNS door refuses with the text of its answer, so the reference in it has a page.
func TestRefusedByDNS(t *testing.T) {
	r := newRig(t)
	ref := r.refuse("bulk.example", "bad")
	r.records[ref].Outcome = history.Listed
	r.gives(t, 200, "GET", "/r/"+ref, "", "198.51.100.1")
}

// A network of many small ones has its own bound; a full store makes room for a new request by the oldest that is decided, and
// only by such; and a clock that jumps neither ends a bound nor shuts the door for longer than a day.
func TestFloods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ask := func(want int, sender, from string) {
			t.Helper()
			r.gives(t, want, "POST", "/r/"+r.refuse(sender, "bad"), "", from)
		}
		for i := range mostAWide {
			ask(303, fmt.Sprintf("a%d@bulk.example", i), fmt.Sprintf("[2001:db8:0:%x::1]", i))
		}
		ask(429, "b@bulk.example", "[2001:db8:0:ffff::1]") // a /48 too many times
		ask(303, "b@bulk.example", "[2001:db8:1::1]")      // another /48

		// All days of a flood: the store is full, and none of it is decided.
		now := time.Now()
		var first string
		for i := len(r.records); i <= mostKept; i++ {
			ref := r.Key.NewRef()
			q := Request{Ref: ref, State: Open, Time: now.Add(-time.Duration(i) * time.Minute * 30), Sender: fmt.Sprintf("c%d@bulk.example", i)}
			r.put(t, q)
			first = ref
		}
		ask(429, "d@bulk.example", "203.0.113.1") // a full store
		testkit.Value(r.Requests.Decide(first, Declined, "root", time.Time{}, now))(t)
		all, _, _ := r.Requests.All()
		ask(303, "d@bulk.example", "203.0.113.1") // a full store with one that is decided
		after, _, _ := r.Requests.All()
		if _, err := r.Requests.Get(first); !errors.Is(err, ErrNoRequest) || len(after) != len(all) {
			t.Errorf("%d requests, before %d; the decided one: %v", len(after), len(all), err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range mostADay { // while the clock is a year ahead
			q := Request{Ref: r.Key.NewRef(), State: Open, Time: time.Now().Add(365 * 24 * time.Hour), Sender: fmt.Sprintf("a%d@bulk.example", i)}
			r.put(t, q)
		}
		r.gives(t, 303, "POST", "/r/"+r.refuse("b@bulk.example", "bad"), "", "203.0.113.1") // after the clock was set right
		all, _, err := r.Requests.All()
		testkit.Got(len(all), err)(t, "requests of a day", mostADay+1, nil)
		for range mostPages { // an hour back: the bound of a minute begins anew, and holds
			r.allows(netip.MustParsePrefix("203.0.113.7/32"), time.Now().Add(time.Hour))
		}
		if client := netip.MustParsePrefix("203.0.113.7/32"); !r.allows(client, time.Now()) {
			t.Error("a clock that was set back shuts a client out")
		}
	})
}

// Where a request cannot be written it is refused with a plain page, no page has an internal error on it, and what is there stays.
func TestUnwritableRequests(t *testing.T) {
	r := newRig(t)
	kept := r.refuse("anna@bulk.example", "bad")
	r.gives(t, 303, "POST", "/r/"+kept, "", "198.51.100.1")
	aside := r.folder + ".aside"
	testkit.Must(t, os.Rename(r.folder, aside))
	if err := os.WriteFile(r.folder, nil, 0o600); err != nil { // no folder: nothing can be written there, as on a full disk
		t.Fatal(err)
	}
	ref := r.refuse("bert@bulk.example", "bad")
	resp := r.call("POST", "/r/"+ref, "", "198.51.100.1", "Accept-Language: de")
	if text := textOf(t, resp); resp.StatusCode != 503 || !strings.Contains(text, "Gerade nicht") || strings.Contains(text, r.folder) || strings.Contains(text, "<form") {
		t.Errorf("%d\n%s", resp.StatusCode, text)
	}
	r.gives(t, 200, "GET", "/r/"+ref, "", "198.51.100.1") // the page
	testkit.Must(t, errors.Join(os.Remove(r.folder), os.Rename(aside, r.folder)))
	if q, err := r.Requests.Get(kept); err != nil || q.Sender != "anna@bulk.example" {
		t.Errorf("%+v, %v", q, err)
	}
	r.gives(t, 303, "POST", "/r/"+ref, "", "198.51.100.1") // when there is room again
}

// DNS is asked once for a request that is kept, outside its lock, and not for one over the bounds.
func TestProofIsAsked(t *testing.T) {
	r := newRig(t)
	asked := 0
	r.Proves = func(_ context.Context, q Request) Proof {
		asked++
		testkit.Value(r.Requests.Get(q.Ref))(t)
		return SPF
	}
	ref := r.refuse("anna@bulk.example", "bad")
	r.records[ref].Helo = "mx.bulk.example"
	for range 3 {
		r.call("POST", "/r/"+ref, "", "198.51.100.1")
	}
	if q, err := r.Requests.Get(ref); asked != 1 || q.Proof != SPF || q.Helo != "mx.bulk.example" || err != nil {
		t.Errorf("asked %d times: %+v, %v", asked, q, err)
	}
	header := r.refuse("anna@bulk.example", "bad")
	r.records[header].Source = "From"
	r.call("POST", "/r/"+header, "", "198.51.100.1")
	if q, _ := r.Requests.Get(header); asked != 1 || q.Proof != NoProof {
		t.Errorf("of an address in the header: asked %d times, %q", asked, q.Proof)
	}
	for i := range mostANet {
		r.call("POST", "/r/"+r.refuse(fmt.Sprintf("c%d@bulk.example", i), "bad"), "", "198.51.100.1")
	}
	if asked > mostANet {
		t.Errorf("asked %d times: also beyond the bounds", asked)
	}
}

func TestReferences(t *testing.T) {
	r := newRig(t)
	look := regexp.MustCompile(`^[0-9a-hjkmnp-tv-z]{16}$`)
	for range 1000 {
		ref := r.Key.NewRef()
		testkit.MustGot(look.MatchString(ref), r.Key.Made(ref))(t, "a reference", true, true)
	}
	// The key is the same behind a restart, and for two that make it at the same time.
	dir := t.TempDir()
	keys := make([]*Key, 8)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() { keys[i], _ = OpenKey(dir) })
	}
	all.Wait()
	for _, k := range keys {
		if k == nil || *k != *keys[0] {
			t.Fatal("two keys in one folder")
		}
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "key"), []byte("torn"), 0o600))
	testkit.Got(OpenKey(dir))(t, "a torn key", "…", "…want a key of 64 hexadecimal digits…")
}

// What is no request is left out and counted.
func TestDamagedRequests(t *testing.T) {
	r := newRig(t)
	ref := r.refuse("anna@bulk.example", "bad")
	r.call("POST", "/r/"+ref, "", "198.51.100.1")
	path := filepath.Join(r.folder, "requests")
	testkit.Write(t, path, string(testkit.Read(t, path))+`{"row":{"ref":"to`+"\n"+`{"row":{}}`+"\n")
	all, damaged, err := r.Requests.All()
	testkit.Got(len(all), testkit.At(all, 0).Ref, damaged, err)(t, "damaged", 1, ref, 2, nil)
	testkit.Fails(r.Requests.Get("../../etc/passwd"))(t, "a path as reference", ErrNoRequest)
}

// TestRequestsOfBefore: files of an older program, one a request, go into the table once.
func TestRequestsOfBefore(t *testing.T) {
	r := newRig(t)
	ref, at := r.Key.NewRef(), time.Now().UTC().Format(time.RFC3339)
	path := filepath.Join(r.folder, ref+".request")
	testkit.Write(t, path, `{"ref":"`+ref+`","state":"open","time":"`+at+`","list":"bad","refused":"`+at+`","sender":"anna@bulk.example","client":"192.0.2.7","from":"00","wide":"11"}`+"\n")
	testkit.Write(t, filepath.Join(r.folder, "torn.request"), `{"ref":"to`)
	testkit.Write(t, filepath.Join(r.folder, "old.request"), `{"ref":"old","state":"declined","time":"2020-01-01T00:00:00Z"}`)
	for range 2 {
		all, damaged, err := NewStore(r.folder, r.Key).All()
		testkit.Got(len(all), testkit.At(all, 0).Sender, damaged, err)(t, "of before", 1, "anna@bulk.example", 1, nil)
	}
	left, _ := filepath.Glob(filepath.Join(r.folder, "*.request"))
	testkit.EqualSlices(t, "files that are left", left, []string{filepath.Join(r.folder, "torn.request")}) // which nobody can read
	testkit.Value(NewStore(r.folder, r.Key).Decide(ref, Declined, "jo", time.Time{}, time.Now()))(t)
	testkit.Write(t, path, `{"ref":"`+ref+`","state":"open","time":"`+at+`","list":"bad","refused":"`+at+`","sender":"anna@bulk.example"}`) // a crash had left it
	q, err := NewStore(r.folder, r.Key).Get(ref)
	testkit.Got(q.State, err)(t, "a decided request whose file came back", Declined, nil)
	testkit.IsError(t, "decided twice", func() error { _, err := r.Requests.Decide(ref, Granted, "jo", time.Time{}, time.Now()); return err }(), ErrDecided)
}

// The page is what a browser reads as it was meant, whatever the list and the language are called.
func FuzzPage(f *testing.F) {
	r := newRig(f)
	f.Add("bad", "de", "a@b.example", "note")
	f.Add("</p><script>alert(1)</script>", "zh;q=0.1, *", "\"><img src=x>@b.example", "{{.}}{list}")
	f.Fuzz(func(t *testing.T, list, accept, sender, note string) {
		if strings.ContainsAny(accept, "\r\n\x00") {
			return
		}
		ref := r.Key.NewRef()
		r.records = map[string]*history.Record{ref: {Time: time.Unix(1e9, 0), Outcome: "refuse", List: list, Sender: sender}}
		r.mu.Lock()
		r.asked, r.found = nil, nil
		r.mu.Unlock()
		r.call("POST", "/r/"+ref, url.Values{"note": {note}}.Encode(), "198.51.100.1")
		defer r.Requests.Forget(func(*Request) bool { return true })
		resp := r.call("GET", "/r/"+ref, "", "198.51.100.1", "Accept-Language: "+accept)
		testkit.MustEqual(t, "status", resp.StatusCode, 200)
		for z := html.NewTokenizer(resp.Body); z.Next() != html.ErrorToken; {
			switch name, attributes := z.TagName(); string(name) {
			case "script", "img", "iframe", "object", "link":
				t.Fatalf("the page has <%s> (%v)", name, attributes)
			}
		}
		q, err := r.Requests.Get(ref)
		if err != nil || len(q.Note) > MaxNote || strings.ContainsAny(q.Note, "\x1b\n\r\x00\u202e") {
			t.Fatalf("%+v, %v", q, err)
		}
	})
}
