package httpapi

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/records/history"
)

func TestParseDecisionQuery(t *testing.T) {
	for _, tt := range []struct {
		query, fault string
		want         history.Query
	}{
		{"", "", history.Query{Limit: 100}},
		{"sender=X@Sub.Example&recipient=You@here.example&limit=7", "", history.Query{Sender: "x@sub.example", Recipient: "You@here.example", Limit: 7}},
		{"sender=%3CX@Sub.Example%3E", "", history.Query{Sender: "x@sub.example", Limit: 100}},
		{"sender=B%C3%BCcher.Example", "", history.Query{Sender: "xn--bcher-kva.example", Limit: 100}},
		{"sender=%3C%3E", "", history.Query{Sender: "<>", Limit: 100}},
		{"sender=no%20sender%09", "", history.Query{Sender: "no sender\t", Limit: 100}},
		{"client=192.0.2.7", "", history.Query{Client: netip.MustParsePrefix("192.0.2.7/32"), Limit: 100}},
		{"client=::ffff:192.0.2.7", "", history.Query{Client: netip.MustParsePrefix("192.0.2.7/32"), Limit: 100}},
		{"client=::ffff:192.0.2.0/120", "", history.Query{Client: netip.MustParsePrefix("192.0.2.0/24"), Limit: 100}},
		{"client=2001:db8::/32", "", history.Query{Client: netip.MustParsePrefix("2001:db8::/32"), Limit: 100}},
		{"since=2027-01-31T12:00:00Z&verdict=blocked&outcome=tag&list=own&ref=k1", "", history.Query{
			Since: time.Date(2027, 1, 31, 12, 0, 0, 0, time.UTC), Verdict: "blocked", Outcome: "tag", List: "own", Ref: "k1", Limit: 100}},
		{"client=nobody", `client: want an IP address or a network, have "nobody"`, history.Query{}},
		{"since=7d", `since: want a time such as 2027-01-31T12:00:00Z, have "7d"`, history.Query{}},
		{"limit=0", `limit: want 1 to 1000, have "0"`, history.Query{}},
		{"limit=1001", `limit: want 1 to 1000, have "1001"`, history.Query{}},
		{"verdict=no", `verdict: want blocked, allowed, clear or unknown, have "no"`, history.Query{}},
		{"outcome=no", `outcome: want accept, refuse, defer, quarantine, tag, discard, listed or mail, have "no"`, history.Query{}},
		{"ref=a&ref=b", "ref: want it once", history.Query{}},
		{"colour=red", "colour: no such parameter", history.Query{}},
	} {
		v := testkit.Value(url.ParseQuery(tt.query))(t)
		got, err := ParseDecisionQuery(v)
		if tt.fault != "" && (err == nil || err.Error() != tt.fault) || tt.fault == "" && (err != nil || !reflect.DeepEqual(got, tt.want)) {
			t.Errorf("%s: %+v, %v, want %+v, %s", tt.query, got, err, tt.want, tt.fault)
		}
	}
}

// A plus is a plus here too, in an address and in a time.
func TestDecisionsOfAnAddressWithAPlus(t *testing.T) {
	past := newHistory(t)
	past.Add(refusal(time.Now(), "promo+x@bad.example"))
	f := newFixture(t, Settings{History: past, First: first}, "bad.example\n")
	for _, query := range []string{"sender=promo+x@bad.example", "sender=promo%2Bx@bad.example", "since=2020-01-31T12:00:00+01:00", "&"} {
		found := decoded[DecisionList](t, f.ask("GET", "/v1/decisions?"+query, "", bearFirst), http.StatusOK, asJSON)
		testkit.Got(len(found.Decisions), testkit.At(found.Decisions, 0).Sender)(t, fmt.Sprintf("%s: %+v", query, found), 1, "promo+x@bad.example")
	}
	wantProblem(t, f.ask("GET", "/v1/decisions?sender=%", "", bearFirst), http.StatusBadRequest, "query: invalid URL escape")
}
