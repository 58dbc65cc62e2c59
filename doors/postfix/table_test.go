package postfix

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/policy/rule"
)

func tableLists() []testList {
	return []testList{
		{name: "bad", text: "bulk.example\n\"bad q\"@x.example\nbücher.example\n198.51.100.0/24\n100%@shop.example"},
		{name: "worse", text: "bulk.example\nworse.example"},
		{name: "good", text: "news.bulk.example", action: lists.Allow},
		{name: "trial", text: "trial.example", mode: index.Shadow},
		{name: "slow", text: "slow.example", rule: rule.List{OnMatch: rule.Tempfail}},
		{name: "odd", text: "odd.example", rule: rule.List{OnMatch: rule.Tag}},
		{name: "aside", text: "aside.example", rule: rule.List{OnMatch: rule.Quarantine}},
	}
}

// Section by section what a table answers: the result is "" where nothing is found.
var tableTests = []struct{ name, key, want string }{
	{"clear sender", "a@there.example", ""},
	{"listed domain", "a@bulk.example", "550 5.7.1 listed in bad (ref *)"},
	{"the domain walk is ours", "a@deep.below.bulk.example", "550 5.7.1 listed in bad (ref *)"},
	{"same ending, other domain", "a@notbulk.example", ""},
	{"allow before block", "a@news.bulk.example", ""},
	{"null sender", "<>", ""},
	{"quoted local-part", `"bad q"@x.example`, "550 5.7.1 listed in bad (ref *)"},
	{"the same without its quotes", "bad q@x.example", "550 5.7.1 listed in bad (ref *)"},
	{"U-label", "a@bücher.example", "550 5.7.1 listed in bad (ref *)"},
	{"A-label", "a@xn--bcher-kva.example", "550 5.7.1 listed in bad (ref *)"},
	{"capitals", "A@Bulk.Example", "550 5.7.1 listed in bad (ref *)"},
	{"percent", "100%@shop.example", "550 5.7.1 listed in bad (ref *)"},
	{"a client's address", "198.51.100.7", ""},
	{"shadow list", "a@trial.example", ""},
	{"list that defers", "a@slow.example", "DEFER_IF_PERMIT 4.7.1 listed in slow (ref *)"},
	{"list that tags", "a@odd.example", "PREPEND X-Blockd: list=odd ref *"},
	{"list that sets aside", "a@aside.example", "HOLD listed in aside (ref *)"},
	{"no address", "a@b..c", ""},
	{"controls, and a listed domain", "a\x01b@bulk.example", "550 5.7.1 listed in bad (ref *)"},
	{"controls, and one that is not", "a\x01b@there.example", ""},
}

func netstring(text string) string { return string(appendNetstring(nil, text)) }

func TestSocketmap(t *testing.T) {
	r := newRig(t, tableLists()...)
	d := r.speak(Socketmap)
	for _, tt := range tableTests {
		t.Run(tt.name, func(t *testing.T) {
			want := netstring("NOTFOUND ")
			if tt.want != "" {
				want = "OK " + tt.want
			}
			got := reference.ReplaceAllString(ask(t, d, netstring("senders "+tt.key)), "ref *")
			if tt.want == "" && got != want || !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", tt.key, got, want)
			}
		})
	}
	for _, tt := range []struct{ name, request, want string }{
		{"a list by its name", "worse a@bulk.example", "OK 550 5.7.1 listed in worse (ref *)"},
		{"a list that has no such sender", "worse a@slow.example", "NOTFOUND "},
		{"an exception of another list has no part", "bad a@news.bulk.example", "OK 550 5.7.1 listed in bad (ref *)"},
		{"a list of exceptions", "good a@news.bulk.example", "NOTFOUND "},
		{"a shadow list", "trial a@trial.example", "NOTFOUND "},
		{"another name", "other a@bulk.example", "PERM unknown map"},
		{"the name in capitals", "BAD a@bulk.example", "PERM unknown map"},
		{"an empty name", " a@bulk.example", "PERM unknown map"},
		{"no key", "senders", "PERM want a map's name, a blank and a key"},
		{"an empty key", "senders ", "NOTFOUND "},
		{"nothing", "", "PERM want a map's name, a blank and a key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ask(t, d, netstring(tt.request))
			_, got, _ = strings.Cut(strings.TrimSuffix(got, ","), ":")
			if got = reference.ReplaceAllString(got, "ref *"); got != tt.want {
				t.Errorf("%q: %q, want %q", tt.request, got, tt.want)
			}
		})
	}
}

func TestTCPTable(t *testing.T) {
	r := newRig(t, tableLists()...)
	d := r.speak(TCPTable)
	for _, tt := range tableTests {
		t.Run(tt.name, func(t *testing.T) {
			var key strings.Builder
			for _, c := range []byte(tt.key) { // every octet may be encoded, in any case
				fmt.Fprintf(&key, "%%%02x", c)
			}
			for _, request := range []string{string(appendReply(nil, "get", tt.key)), "get " + key.String() + "\n"} {
				got := ask(t, d, request)
				want := "500 not%20found\n"
				if tt.want != "" {
					want = "200 " + tt.want + "\n"
					code, text, _ := strings.Cut(strings.TrimSuffix(got, "\n"), " ")
					decoded, ok := decodeKey([]byte(text))
					if !ok {
						t.Fatalf("%q is not encoded", got)
					}
					got = reference.ReplaceAllString(code+" "+decoded+"\n", "ref *")
				}
				testkit.Equal(t, request, got, want)
			}
		})
	}
	for _, tt := range []struct{ name, request, want string }{
		{"another request", "put a b\n", "400 want%20get%20and%20a%20key\n"},
		{"get alone", "get\n", "400 want%20get%20and%20a%20key\n"},
		{"an empty key", "get \n", "400 want%20a%20key%20in%20which%20blanks%20and%20%25%20are%20encoded\n"},
		{"a blank in the key", "get a b\n", "400 want%20a%20key%20in%20which%20blanks%20and%20%25%20are%20encoded\n"},
		{"a lone %", "get a%\n", "400 want%20a%20key%20in%20which%20blanks%20and%20%25%20are%20encoded\n"},
		{"half an octet", "get a%4\n", "400 want%20a%20key%20in%20which%20blanks%20and%20%25%20are%20encoded\n"},
		{"no hexadecimal digits", "get a%4g\n", "400 want%20a%20key%20in%20which%20blanks%20and%20%25%20are%20encoded\n"},
		{"an octet of two cases", "get a%40%62%55lk.example\n", "200"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := ask(t, d, tt.request); got != tt.want && !(len(tt.want) == 3 && strings.HasPrefix(got, tt.want+" ")) {
				t.Errorf("%q: %q, want %q", tt.request, got, tt.want)
			}
		})
	}
}

func TestTablesOnAnInternalError(t *testing.T) {
	for _, tt := range []struct {
		onError        rule.OnError
		socketmap, tcp string
	}{
		{rule.AcceptOnError, "NOTFOUND ", "500 not%20found\n"},
		{rule.TempfailOnError, "TEMP not checked: try again later (ref ", "400 not%20checked:%20try%20again%20later%20(ref%20"},
	} {
		r := newRig(t, tableLists()...)
		broken(tt.onError)(r)
		_, got, _ := strings.Cut(ask(t, r.speak(Socketmap), netstring("senders a@bulk.example")), ":")
		testkit.Begins(t, fmt.Sprintf("%s: socketmap", tt.onError), got, tt.socketmap)
		testkit.Begins(t, fmt.Sprintf("%s: tcp", tt.onError), ask(t, r.speak(TCPTable), "get a@bulk.example\n"), tt.tcp)
	}
}

func TestNetstringFrame(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       int
		err        error
	}{
		{"empty", "0:,", 3, nil},
		{"one", "3:a b,", 6, nil},
		{"two", "3:a b,3:c d,", 6, nil},
		{"no digit yet", "1", 0, nil},
		{"no colon yet", "12345", 0, errTooLong},
		{"no octets yet", "3:", 0, nil},
		{"no comma yet", "3:a b", 0, nil},
		{"wrong comma", "3:a b;", 0, errMalformed},
		{"length too small", "2:a b,", 0, errMalformed},
		{"length too large", "4:a b,x", 0, errMalformed},
		{"leading zero", "03:a b,", 0, errMalformed},
		{"no digits", ":a,", 0, errMalformed},
		{"sign", "-1:a,", 0, errMalformed},
		{"letters", "x", 0, errMalformed},
		{"six digits", "100000:", 0, errMalformed},
		{"8 KiB", "8192:" + strings.Repeat("a", 8192) + ",", 5 + 8192 + 1, nil},
		{"8 KiB and one, announced alone", "8193:", 0, errTooLong},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if n, err := new(socketmap).measure([]byte(tt.text), 0); n != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("measure(%.20q) = %d, %v, want %d, %v", tt.text, n, err, tt.want, tt.err)
			}
		})
	}
}

func FuzzNetstring(f *testing.F) {
	for _, s := range []string{"0:,", "26:senders a@bulk.example etc,", "3:a b;", "03:abc,", "99999:", "8192:", ":,"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := new(socketmap)
		n, err := m.measure(data, 0)
		switch {
		case err != nil && n != 0, n < 0, n > len(data):
			t.Fatalf("measure = %d, %v", n, err)
		case n > 0:
			_, text, _ := strings.Cut(string(data[:n-1]), ":")
			testkit.MustEqual(t, text, netstring(text), string(data[:n]))
		}
		for size := range data { // more octets never take back what was measured
			if m, mErr := m.measure(data[:size], 0); m > 0 && m != n || mErr != nil && err == nil {
				t.Fatalf("%d octets measure %d, %v; %d measure %d, %v", size, m, mErr, len(data), n, err)
			}
		}
	})
}

func FuzzTCPTable(f *testing.F) {
	for _, s := range []string{"get a@bulk.example\n", "get a%40b\n", "get %\n", "put a b\n", "get a b\n", "\n", "get a"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := new(tcpTable).measure(data, 0)
		if err != nil || n == 0 {
			if i := strings.IndexByte(string(data), '\n'); i >= 0 && i < maxLine {
				t.Fatalf("measure(%q) = %d, %v", data, n, err)
			}
			return
		}
		encoded, ok := strings.CutPrefix(string(data[:n-1]), "get ")
		if !ok {
			return
		}
		key, ok := decodeKey([]byte(encoded))
		if !ok {
			return
		}
		again, ok := decodeKey(appendReply(nil, "", key)[1:][:len(appendReply(nil, "", key))-2])
		testkit.MustGot(ok, again)(t, fmt.Sprintf("%q is the key", encoded), true, key)
	})
}
