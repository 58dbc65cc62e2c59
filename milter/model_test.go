package milter_test

import (
	"strings"
	"testing"

	"blockd/policy/rule"
)

// model says how a filter with the lists of FuzzEvents answers, in as few words as possible.
// It knows nothing of packets, callbacks or policies.
type model struct {
	listedClient bool
	tx           string // "": none, or none that is asked about; else what its sender leads to
	fate         string // of a recipient that was taken: "accept", "tag", "discard"; "" none was
}

func (m *model) reset() { m.tx, m.fate = "", "" }

func (m *model) mail(kind string) string {
	m.reset()
	if kind == "clear" && !m.listedClient {
		return "a"
	}
	m.tx = kind
	if kind == "clear" {
		m.tx = "bad" // its client is listed
	}
	return "c"
}

func (m *model) rcpt(exempt bool) string {
	fate := map[string]string{"tag": "tag", "discard": "discard"}[m.tx]
	switch {
	case m.tx == "":
		return "c"
	case exempt:
		fate = "accept"
	case m.tx == "bad":
		return "550"
	}
	if m.fate == "" {
		m.fate = fate
	}
	if m.fate != fate {
		return "452"
	}
	return "c"
}

func (m *model) end() string {
	fate := m.fate
	m.reset()
	switch fate {
	case "tag":
		return "ia"
	case "discard":
		return "d"
	}
	return "a"
}

// FuzzEvents sends events in any order and compares every answer with the model. It finds what
// a transaction leaves behind after its end, an abort, another MAIL, a greeting, another
// client, or none of these.
func FuzzEvents(f *testing.F) {
	for _, events := range []string{"mr", "Mrpr", "MrAMr", "MMrE", "TrpE", "TprE", "DrrE", "DprE", "xmrp", "xnr", "xKmr", "MHr", "TrHE", "rE", "TrKE", "TrcrE", "nrE", "AAAMAr", "uMur", "TrE" + "E"} {
		f.Add(events)
	}
	d := open(f, setup{
		lists: map[string]string{"bad": "bad.example\n203.0.113.0/24\n", "tag": "tag.example\n", "gone": "gone.example DISCARD\n"},
		rules: map[string]rule.List{"tag": {OnMatch: rule.Tag}, "gone": {Discard: true}},
	})
	f.Fuzz(func(t *testing.T, events string) {
		own := *d
		own.t = t
		m, want := own.greet("192.0.2.1"), model{}
		defer m.conn.Close()
		for i, event := range events {
			got, wanted := "", ""
			switch event {
			case 'm':
				got, wanted = m.mail("a@there.example", "a@there.example"), want.mail("clear")
			case 'n':
				got, wanted = m.mail("", ""), want.mail("clear")
			case 'M':
				got, wanted = m.mail("a@bad.example", "a@bad.example"), want.mail("bad")
			case 'T':
				sender := want.mail("tag")
				got, wanted = m.mail("a@tag.example", "a@tag.example"), sender
			case 'D':
				got, wanted = m.mail("a@gone.example", "a@gone.example"), want.mail("discard")
			case 'r':
				got, wanted = m.rcpt("bob@here.example"), want.rcpt(false)
			case 'p':
				got, wanted = m.rcpt("postmaster@here.example"), want.rcpt(true)
			case 'E':
				changes, answer := m.end()
				for _, c := range changes {
					got += c[:1]
				}
				got, wanted = got+answer, want.end()
			case 'A':
				m.send('A', "")
				want.reset()
			case 'K':
				m.send('K', "")
				want = model{}
			case 'H':
				m.event('H', "again.there.example\x00")
				want.reset()
			case 'c', 'x':
				client := map[rune]string{'c': "192.0.2.1", 'x': "203.0.113.9"}[event]
				m.connect(client)
				want = model{listedClient: event == 'x'}
			case 'u':
				m.event('U', "XYZZY\x00")
			default:
				continue
			}
			if !strings.HasPrefix(got, wanted) || wanted == "" && got != "" {
				t.Fatalf("events %q, the %d. of them: %q, want %q", events, i+1, got, wanted)
			}
		}
	})
}
