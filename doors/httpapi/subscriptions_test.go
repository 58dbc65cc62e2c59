package httpapi

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

const sendsJSON = "Content-Type: application/json"

// subscriptionFixture has one list that was added over HTTP, and notes what is done.
type subscriptionFixture struct {
	*entryFixture
	admin string
	made  []SubscriptionChange
	fails error // of what comes after before
}

func newSubscriptionFixture(t *testing.T) *subscriptionFixture {
	t.Helper()
	f := &subscriptionFixture{entryFixture: newEntryFixture(t)}
	all := SubscriptionList{Open: true, Most: 100, Lists: []Subscription{{List: "far", Address: "https://lists.example/far.txt", Mode: "shadow", Changes: true}}}
	f.settings.Tokens = filepath.Join(t.TempDir(), "tokens")
	f.read, f.write, f.admin = newToken(t, f.settings.Tokens, "viewer", Read), newToken(t, f.settings.Tokens, "helpdesk", Write), newToken(t, f.settings.Tokens, "boss", Admin)
	f.settings.Subscriptions = &Subscriptions{
		All: func() (SubscriptionList, error) { return all, nil },
		Change: func(_ context.Context, c SubscriptionChange, before func(SubscriptionList, string, string) error) (SubscriptionChanged, error) {
			switch c.List {
			case "", "far":
			default:
				return SubscriptionChanged{}, NoSubscription(c.List)
			}
			if err := before(all, "far", ""); err != nil {
				return SubscriptionChanged{}, err
			}
			if f.fails != nil {
				return SubscriptionChanged{}, f.fails
			}
			f.made = append(f.made, c)
			return SubscriptionChanged{List: "far", Mode: "shadow"}, nil
		}}
	f.serve(f.settings)
	return f
}

func TestSubscriptionFaults(t *testing.T) {
	f := newSubscriptionFixture(t)
	for _, tt := range []struct {
		method, path, body string
		headers            []string
		status             int
		words              string
	}{
		{"POST", "", `{"what":"far"}`, []string{"Content-Type: text/plain"}, http.StatusUnsupportedMediaType, "application/json"},
		{"POST", "", "", []string{sendsJSON}, http.StatusBadRequest, "JSON"},
		{"POST", "", `{"what":"far","mode":"enforce"}`, []string{sendsJSON}, http.StatusBadRequest, "mode"},
		{"POST", "", `{"what":"` + strings.Repeat("a", maxSubscription) + `"}`, []string{sendsJSON}, http.StatusRequestEntityTooLarge, "16"},
		{"POST", "", `{"what":"far","why":"a\nb"}`, []string{sendsJSON}, http.StatusBadRequest, "one line"},
		{"POST", "/none/enforce", "", nil, http.StatusNotFound, `no list "none"`},
		{"DELETE", "/none", "", nil, http.StatusNotFound, `no list "none"`},
		{"DELETE", "/far?what=1", "", nil, http.StatusBadRequest, "what"},
		{"DELETE", "/far", "", []string{"If-Match: nonsense"}, http.StatusBadRequest, "If-Match"},
		{"DELETE", "/far", "", []string{`If-Match: "0123456789abcdef"`}, http.StatusPreconditionFailed, "changed meanwhile"},
	} {
		wantProblem(t, f.ask(tt.method, subscriptionsPath+tt.path, tt.body, append(tt.headers, f.admin)...), tt.status, tt.words)
	}
	f.fails = &SubscriptionFault{http.StatusServiceUnavailable, "another change is under way"}
	w := f.ask("DELETE", subscriptionsPath+"/far", "", f.admin)
	if wantProblem(t, w, http.StatusServiceUnavailable, "under way"); w.Header().Get("Retry-After") == "" {
		t.Error("nothing says when to try again")
	}
	f.fails = errors.New("disk full")
	wantProblem(t, f.ask("DELETE", subscriptionsPath+"/far", "", f.admin), http.StatusInsufficientStorage, "disk full")
	if len(f.made) > 0 {
		t.Errorf("%+v was done", f.made)
	}
}

func TestSubscriptionChanges(t *testing.T) {
	f := newSubscriptionFixture(t)
	tag := f.ask("GET", subscriptionsPath, "", f.read).Header().Get("ETag")
	for _, r := range []struct{ method, path, body string }{
		{"POST", "", `{"what":"https://lists.example/far.txt","why":"spam","author":"jo"}`},
		{"POST", "/far/enforce", `{"author":"jo"}`},
		{"DELETE", "/far?author=jo", ""},
	} {
		w := f.ask(r.method, subscriptionsPath+r.path, r.body, f.admin, sendsJSON, "If-Match: "+tag)
		testkit.Equal(t, "the answer", decoded[SubscriptionChanged](t, w, http.StatusOK, typeJSON[0]).List, "far")
	}
	want := []SubscriptionChange{{Do: Subscribe, What: "https://lists.example/far.txt"}, {Do: Enforce, List: "far"}, {Do: Unsubscribe, List: "far"}}
	for i, c := range f.made {
		testkit.Has(t, c.By, "jo", "boss")
		if c.By = ""; c != want[i] {
			t.Errorf("%+v, want %+v", c, want[i])
		}
	}
	testkit.Equal(t, "changes", len(f.made), 3)
}
