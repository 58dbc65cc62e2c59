package postfix

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/policy/rule"
)

// request is a policy request: that of an ordinary recipient, with the attributes
// of more in their places or after it.
func request(more ...string) string {
	lines := []string{
		"request=smtpd_access_policy", "protocol_state=RCPT", "protocol_name=ESMTP", "helo_name=there.example", "queue_id=",
		"sender=a@there.example", "recipient=bob@here.example", "recipient_count=0", "client_address=192.0.2.1",
		"client_name=unknown", "instance=1a2b.3c.0", "sasl_method=", "sasl_username=", "size=0",
	}
	for _, m := range more {
		name, _, _ := strings.Cut(m, "=")
		if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+"=") }); i >= 0 {
			lines[i] = m
		} else {
			lines = append(lines, m)
		}
	}
	return strings.Join(lines, "\n") + "\n\n"
}

var reference = regexp.MustCompile(`ref[ =][0-9a-z]{10}`)

// shown is an answer without what ends it, and with its reference replaced.
func shown(answer string) string {
	return reference.ReplaceAllString(strings.TrimSuffix(strings.TrimPrefix(answer, "action="), "\n\n"), "ref *")
}

func TestPolicy(t *testing.T) {
	bad := testList{name: "bad", text: "bulk.example\npromo@shop.example\n\"bad q\"@x.example\n\"a\\\"b\"@x.example\n198.51.100.0/24\nbücher.example\n"}
	good := testList{name: "good", text: "news.bulk.example", action: lists.Allow}
	for _, tt := range []struct {
		name    string
		lists   []testList
		set     func(*rig)
		request string
		want    string
	}{
		{"clear sender", nil, nil, request("sender=a@good.example"), "DUNNO"},
		{"listed sender, without the prefix that Postfix adds", nil, nil, request("sender=a@bulk.example"),
			"550 5.7.1 listed in bad (ref *)"},
		{"subdomain of a listed domain", nil, nil, request("sender=a@mx.bulk.example"), "550 5.7.1 listed in bad (ref *)"},
		{"same ending, other domain", nil, nil, request("sender=a@notbulk.example"), "DUNNO"},
		{"capitals", nil, nil, request("sender=A@BULK.Example"), "550 5.7.1 listed in bad (ref *)"},
		{"allow before block, and never OK", nil, nil, request("sender=a@news.bulk.example"), "DUNNO"},
		{"null sender", nil, nil, request("sender="), "DUNNO"},
		{"a sender without a domain", nil, nil, request("sender=local"), "DUNNO"},
		{"unquoted local-part", nil, nil, request("sender=bad q@x.example"), "550 5.7.1 listed in bad (ref *)"},
		{"unquoted local-part with a quote", nil, nil, request(`sender=a"b@x.example`), "550 5.7.1 listed in bad (ref *)"},
		{"what looks quoted has quotes in it", nil, nil, request(`sender="promo"@shop.example`), "DUNNO"},
		{"the last @ splits", nil, nil, request("sender=promo@shop.example@bulk.example"), "550 5.7.1 listed in bad (ref *)"},
		{"U-label", nil, nil, request("sender=a@BÜCHER.example"), "550 5.7.1 listed in bad (ref *)"},
		{"A-label", nil, nil, request("sender=a@xn--bcher-kva.example"), "550 5.7.1 listed in bad (ref *)"},
		{"a sender that is none", nil, nil, request("sender=a@b..c"), "DUNNO"},

		{"exempt recipient", nil, nil, request("sender=a@bulk.example", "recipient=Postmaster@here.example"), "DUNNO"},
		{"exempt recipient without a domain", nil, nil, request("sender=a@bulk.example", "recipient=postmaster"), "DUNNO"},
		{"abuse, without a domain, is a user", nil, nil, request("sender=a@bulk.example", "recipient=abuse"), "550 5.7.1 listed in bad (ref *)"},
		{"a recipient that only begins so", nil, nil, request("sender=a@bulk.example", "recipient=postmaster x@here.example"), "550 5.7.1 listed in bad (ref *)"},
		{"a recipient with no list", nil, onlyFor("sales@here.example"), request("sender=a@bulk.example", "recipient=sales@here.example"), "DUNNO"},
		{"a recipient beside it", nil, onlyFor("sales@here.example"), request("sender=a@bulk.example"), "550 5.7.1 listed in bad (ref *)"},
		{"a policy for a quoted recipient", nil, onlyFor(`"our sales"@here.example`), request("sender=a@bulk.example", "recipient=our sales@here.example"), "DUNNO"},

		{"listed client", nil, nil, request("client_address=198.51.100.9"),
			"550 5.7.1 client address [198.51.100.9] listed in bad (ref *)"},
		{"listed client with a null sender", nil, nil, request("client_address=198.51.100.9", "sender="),
			"550 5.7.1 client address [198.51.100.9] listed in bad (ref *)"},
		{"allowed sender at a listed client", nil, nil, request("client_address=198.51.100.9", "sender=a@news.bulk.example"), "DUNNO"},
		{"unknown client", nil, nil, request("client_address=unknown"), "DUNNO"},
		{"IPv4 in IPv6", nil, nil, request("client_address=::ffff:198.51.100.9"),
			"550 5.7.1 client address [198.51.100.9] listed in bad (ref *)"},
		{"trusted client", nil, trust("192.0.2.0/24"), request("sender=a@bulk.example"), "DUNNO"},
		{"trusted client that is listed", nil, trust("198.51.100.0/25"), request("client_address=198.51.100.9"), "DUNNO"},
		{"authenticated sender", nil, skip, request("sender=a@bulk.example", "sasl_username=alice"), "DUNNO"},
		{"authenticated sender where that is no excuse", nil, nil, request("sender=a@bulk.example", "sasl_username=alice"), "550 5.7.1 listed in bad (ref *)"},
		{"authenticated sender at a listed client", nil, skip, request("client_address=198.51.100.9", "sasl_username=alice"),
			"550 5.7.1 client address [198.51.100.9] listed in bad (ref *)"},

		{"MAIL, refused at RCPT", nil, nil, request("sender=a@bulk.example", "protocol_state=MAIL", "recipient="), "DUNNO"},
		{"MAIL, refused there", nil, atMail, request("sender=a@bulk.example", "protocol_state=MAIL", "recipient="), "550 5.7.1 listed in bad (ref *)"},
		{"clear at MAIL", nil, atMail, request("protocol_state=MAIL", "recipient="), "DUNNO"},
		{"CONNECT, refused at RCPT", nil, nil, request("client_address=198.51.100.9", "protocol_state=CONNECT", "sender=", "recipient="), "DUNNO"},
		{"CONNECT, refused there", nil, atConnect, request("client_address=198.51.100.9", "protocol_state=CONNECT", "sender=", "recipient="),
			"550 5.7.1 client address [198.51.100.9] listed in bad (ref *)"},
		{"trusted at CONNECT", nil, func(r *rig) { atConnect(r); trust("198.51.100.0/25")(r) },
			request("client_address=198.51.100.9", "protocol_state=CONNECT", "sender=", "recipient="), "DUNNO"},
		{"HELO", nil, atMail, request("sender=a@bulk.example", "protocol_state=HELO"), "DUNNO"},
		{"DATA", nil, atMail, request("sender=a@bulk.example", "protocol_state=DATA"), "DUNNO"},
		{"END-OF-MESSAGE", nil, atMail, request("sender=a@bulk.example", "protocol_state=END-OF-MESSAGE"), "DUNNO"},
		{"VRFY", nil, atMail, request("sender=a@bulk.example", "protocol_state=VRFY"), "DUNNO"},
		{"no state at all", nil, nil, "request=smtpd_access_policy\nsender=a@bulk.example\n\n", "DUNNO"},

		{"list that defers", []testList{{name: "slow", text: "bulk.example", rule: rule.List{OnMatch: rule.Tempfail}}}, nil,
			request("sender=a@bulk.example"), "DEFER_IF_PERMIT 4.7.1 listed in slow (ref *)"},
		{"list that tags", []testList{{name: "odd", text: "bulk.example", rule: rule.List{OnMatch: rule.Tag}}}, nil,
			request("sender=a@bulk.example"), "PREPEND X-Blockd: list=odd ref *"},
		{"list that sets aside", []testList{{name: "odd", text: "bulk.example", rule: rule.List{OnMatch: rule.Quarantine}}}, nil,
			request("sender=a@bulk.example"), "HOLD listed in odd (ref *)"},
		{"list that discards, where Postfix would for everybody", []testList{{name: "gone", text: "bulk.example DISCARD", rule: rule.List{Discard: true}}}, nil,
			request("sender=a@bulk.example"), "550 5.7.1 listed in gone (ref *)"},
		{"discard entry of a list that may not", []testList{{name: "gone", text: "bulk.example DISCARD"}}, nil,
			request("sender=a@bulk.example"), "550 5.7.1 listed in gone (ref *)"},
		{"shadow list", []testList{{name: "trial", text: "bulk.example", mode: index.Shadow}}, nil, request("sender=a@bulk.example"), "DUNNO"},

		{"broken store", nil, broken(rule.AcceptOnError), request("sender=a@bulk.example"), "DUNNO"},
		{"broken store, tempfail", nil, broken(rule.TempfailOnError), request("sender=a@bulk.example"),
			"DEFER_IF_PERMIT 4.3.0 not checked: try again later (ref *)"},
		{"broken store, tempfail, exempt recipient", nil, broken(rule.TempfailOnError),
			request("sender=a@bulk.example", "recipient=abuse@here.example"), "DUNNO"},

		{"unknown attributes are skipped", nil, nil, request("sender=a@bulk.example", "compatibility_level=3.6", "mail_version=9"), "550 5.7.1 listed in bad (ref *)"},
		{"of two the last counts", nil, nil, "request=smtpd_access_policy\nprotocol_state=RCPT\nsender=a@bulk.example\nsender=a@good.example\n\n", "DUNNO"},
		{"percent needs no doubling", []testList{{name: "bad", text: "100%@bulk.example"}}, nil, request("sender=100%@bulk.example"), "550 5.7.1 listed in bad (ref *)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.lists == nil {
				tt.lists = []testList{bad, good}
			}
			r := newRig(t, tt.lists...)
			if tt.set != nil {
				tt.set(r)
			}
			answer := ask(t, r.speak(Policy), tt.request)
			testkit.Equal(t, "answer", shown(answer), tt.want)
			testkit.Got(answer, strings.Count(answer, "\n"))(t, "answer", "action=…\n\n", 2)
			if ref := reference.FindString(answer); ref != "" && !strings.Contains(r.log.String(), "ref="+ref[len("ref "):]) {
				t.Errorf("%s is not in the log:\n%s", ref, r.log.String())
			}
		})
	}
}

// A line of the log has the instance of its own request, also where no message has begun.
func TestLineHasTheInstanceOfItsRequest(t *testing.T) {
	r := newRig(t, testList{name: "bad", text: "198.51.100.9"})
	atConnect(r)
	d := r.speak(Policy)
	ask(t, d, request("instance=first"))
	r.log.Reset()
	ask(t, d, request("instance=second", "client_address=198.51.100.9", "protocol_state=CONNECT", "sender=", "recipient="))
	testkit.Has(t, r.log.String(), "instance=second")
}

func onlyFor(recipient string) func(*rig) {
	return func(r *rig) {
		r.verdicts.Policies = []rule.Recipients{{Recipients: []string{recipient}, Lists: []string{}}}
	}
}

func trust(network string) func(*rig) {
	return func(r *rig) { r.settings.Trusted = []netip.Prefix{netip.MustParsePrefix(network)} }
}

func broken(o rule.OnError) func(*rig) {
	return func(r *rig) { r.verdicts.OnError = o; r.live.Store(nil) }
}

func skip(r *rig)      { r.settings.SkipAuthenticated = true }
func atMail(r *rig)    { r.settings.RejectAt = "mail" }
func atConnect(r *rig) { r.settings.ClientRejectAt = "connect" }

// One message has one generation, whatever is reloaded between its recipients.
func TestPolicyKeepsToItsInstance(t *testing.T) {
	bad := testList{name: "bad", text: "bulk.example"}
	for _, tt := range []struct {
		name string
		next string // the second request, after the list has lost its entry
		want string
	}{
		{"the same instance", request("sender=a@bulk.example", "recipient=carol@here.example", "queue_id=1F"), "550 5.7.1 listed in bad (ref *)"},
		{"the next message", request("sender=a@bulk.example", "instance=1a2b.3c.1"), "DUNNO"},
		{"no instance", request("sender=a@bulk.example", "instance="), "DUNNO"},
		{"another sender", request("sender=b@bulk.example"), "DUNNO"},
		{"another client", request("sender=a@bulk.example", "client_address=192.0.2.9"), "DUNNO"},
		{"authenticated meanwhile", request("sender=a@bulk.example", "sasl_username=alice"), "DUNNO"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, bad)
			skip(r)
			d := r.speak(Policy)
			first := request("sender=a@bulk.example")
			if tt.name == "no instance" {
				first = request("sender=a@bulk.example", "instance=")
			}
			wants(t, "550 5.7.1 listed in bad (ref *)", d, first)
			r.load(testList{name: "bad", text: "other.example"})
			wants(t, tt.want, d, tt.next)
		})
	}
}

// What Postfix does to a message it does for all its recipients: those that need
// something else come again by themselves.
func TestPolicyTreatsAMessageInOneWay(t *testing.T) {
	tag := testList{name: "odd", text: "bulk.example", rule: rule.List{OnMatch: rule.Tag}}
	hold := testList{name: "odd", text: "bulk.example", rule: rule.List{OnMatch: rule.Quarantine}}
	const again = "452 4.5.3 send this recipient in a transaction of its own"
	for _, tt := range []struct {
		name       string
		list       testList
		recipients string
		want       []string
	}{
		{"a field is put there once", tag, "bob carol", []string{"PREPEND X-Blockd: list=odd ref *", "DUNNO"}},
		{"an exempt recipient behind a tagged one", tag, "bob postmaster carol", []string{"PREPEND X-Blockd: list=odd ref *", again, "DUNNO"}},
		{"a tagged one behind an exempt recipient", tag, "abuse bob postmaster", []string{"DUNNO", again, "DUNNO"}},
		{"all of it is held", hold, "bob carol", []string{"HOLD listed in odd (ref *)", "HOLD listed in odd (ref *)"}},
		{"an exempt recipient is not held", hold, "bob postmaster", []string{"HOLD listed in odd (ref *)", again}},
		{"nor with postmaster in front", hold, "postmaster bob", []string{"DUNNO", again}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, tt.list)
			d := r.speak(Policy)
			var got []string
			for to := range strings.FieldsSeq(tt.recipients) {
				got = append(got, shown(ask(t, d, request("sender=a@bulk.example", "recipient="+to+"@here.example"))))
			}
			testkit.EqualSlices(t, "answers", got, tt.want)
			// The recipient that was put off comes in a transaction of its own.
			first, _, _ := strings.Cut(tt.recipients, " ")
			for to := range strings.FieldsSeq(tt.recipients) {
				if got := ask(t, d, request("sender=a@bulk.example", "recipient="+to+"@here.example", "instance=second-"+to)); strings.HasPrefix(got, "action=452") {
					t.Errorf("%s by itself, after %s: %s", to, first, got)
				}
			}
		})
	}
}

// Whom no list has anything on costs no allocation: a site's mail is such mail.
func TestPolicyClearPathDoesNotAllocate(t *testing.T) {
	r := newRig(t, testList{name: "bad", text: "bulk.example"})
	d := r.speak(Policy)
	requests := [][]byte{
		[]byte(request("sender=alice@there.example", "instance=1a2b.3c.0")),
		[]byte(request("sender=bob@elsewhere.example", "instance=1a2b.3c.1", "recipient=carol@here.example")),
	}
	out := make([]byte, 0, 1<<10)
	n := 0
	got := testing.AllocsPerRun(10_000, func() {
		var err error
		if out, err = d.answer(out[:0], requests[n&1]); err != nil || string(out) != "action=DUNNO\n\n" {
			t.Fatalf("%q, %v", out, err)
		}
		n++
	})
	// Texts that outlive their request come out of a block for forty requests.
	if most := 0.0; got > most {
		t.Errorf("%v allocations for a clear request, want %v", got, most)
	}
}

func TestPolicyDuplicatesAreCounted(t *testing.T) {
	r := newRig(t, testList{name: "bad", text: "bulk.example"})
	ask(t, r.speak(Policy), "request=smtpd_access_policy\nsender=a\nsender=b\nsender=\nsize=1\nsize=2\n\n")
	r.counts(2, "blockd_postfix_duplicate_attributes_total")
}
