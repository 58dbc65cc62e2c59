// Package accessmodel is the golden model of Postfix's access tables for tests: the
// look-up of access(5) and the walk over restrictions as the manual has them, slow
// and plain, on generated configurations. It shares no code with package migration,
// and a test of e2e/ holds it against a real Postfix.
package accessmodel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Row is a line of a table.
type Row struct {
	Key, Action string
	Line        int
}

// Table is one access table.
type Table struct {
	Name   string // of its file
	Client bool   // asked about the client, else the sender
	CIDR   bool   // else hash
	Rows   []Row
}

// restriction is a word of a list of restrictions with its table; nil is
// permit_mynetworks.
type restriction struct{ table *Table }

// Model is a configuration.
type Model struct {
	parents    bool // parent_domain_matches_subdomains has smtpd_access_maps
	delimiter  string
	mynetworks netip.Prefix
	phases     [3][]restriction // client, sender, recipient
	Tables     []*Table
}

// asked are the keys that Postfix looks up for a mail, in order.
func (m *Model) asked(t *Table, sender string, client netip.Addr) []string {
	if t.Client {
		keys := []string{}
		for text := client.String(); ; {
			keys = append(keys, text)
			i := strings.LastIndexAny(text, ".:")
			if i < 0 {
				return keys
			}
			text = text[:i]
		}
	}
	local, domain, _ := strings.Cut(sender, "@")
	keys := []string{sender}
	bare, _, extended := strings.Cut(local, "+")
	extended = extended && m.delimiter == "+" && bare != ""
	if extended {
		keys = append(keys, bare+"@"+domain)
	}
	for name := domain; ; {
		keys = append(keys, name)
		i := strings.IndexByte(name[1:], '.') + 1
		if i == 0 {
			break
		}
		if m.parents {
			i++
		}
		name = name[i:]
	}
	keys = append(keys, local+"@")
	if extended {
		keys = append(keys, bare+"@")
	}
	return keys
}

// find looks a mail up in one table.
func (m *Model) find(t *Table, sender string, client netip.Addr) (Row, bool) {
	if t.CIDR {
		for _, r := range t.Rows {
			if p, err := netip.ParsePrefix(r.Key); err == nil && p.Contains(client) {
				return r, true
			}
		}
		return Row{}, false
	}
	for _, key := range m.asked(t, sender, client) {
		for _, r := range t.Rows {
			if r.Key == key {
				return r, true
			}
		}
	}
	return Row{}, false
}

// Refuses walks the restrictions.
func (m *Model) Refuses(sender string, client netip.Addr) bool {
	for _, phase := range m.phases {
	walk:
		for _, r := range phase {
			if r.table == nil {
				if m.mynetworks.Contains(client) {
					break
				}
				continue
			}
			if found, ok := m.find(r.table, sender, client); ok {
				switch strings.Fields(found.Action)[0] {
				case "OK", "1234567":
					break walk
				case "DUNNO", "HOLD":
				default:
					return true
				}
			}
		}
	}
	return false
}

// Senders are those to ask about, of every local-part at every domain.
func Senders() (senders []string) {
	for _, local := range modelLocals {
		for _, domain := range modelDomains {
			senders = append(senders, local+"@"+domain)
		}
	}
	return senders
}

// Clients are those to ask about.
func Clients() []string { return slices.Clone(modelClients[:]) }

var (
	modelLocals  = []string{"a", "promo", "promo+x", "a+promo", "b"}
	modelDomains = []string{"bulk.test", "a.bulk.test", "b.a.bulk.test", "shop.test", "a.shop.test", "x.example", "c.x.example"}
	modelClients = []string{"192.0.2.1", "192.0.2.77", "198.51.100.1", "198.51.100.200", "198.51.7.1", "203.0.113.9", "2001:db8:1::1", "2001:db8:2:3::4"}
	modelActions = []string{"REJECT", "REJECT", "REJECT no thanks", "550 5.7.1 go away", "450 later", "DEFER", "OK", "OK", "DUNNO", "HOLD", "1234567"}
)

func pick(r *rand.Rand, from []string) string { return from[r.IntN(len(from))] }

// randomKey is a key of a table, some of which nothing matches.
func randomKey(r *rand.Rand, t *Table) string {
	switch {
	case t.CIDR:
		return pick(r, []string{"192.0.2.0/24", "192.0.2.64/26", "198.51.100.0/24", "198.51.0.0/16", "198.51.100.1/32", "2001:db8::/32", "2001:db8:2::/48", "203.0.113.9/32"})
	case t.Client:
		return pick(r, []string{"192.0.2", "192.0.2.1", "192.0.2.77", "198.51", "198.51.100", "198.51.100.1", "203", "2001:db8", "2001:db8:2", "2001:db8:1::1", "198.51.100.0/24", "bulk.test"})
	}
	domain := pick(r, modelDomains)
	switch r.IntN(6) {
	case 0:
		return "." + domain
	case 1:
		return pick(r, modelLocals) + "@"
	case 2, 3:
		return pick(r, modelLocals) + "@" + domain
	}
	return pick(r, append(modelDomains, "test", "@bulk.test", "*.bulk.test", "198.51.100.1"))
}

// Random generates a configuration.
func Random(r *rand.Rand) *Model {
	m := &Model{parents: r.IntN(2) == 0, mynetworks: netip.MustParsePrefix("192.0.2.64/26")}
	if r.IntN(2) == 0 {
		m.delimiter = "+"
	}
	for i := range 1 + r.IntN(4) {
		t := &Table{Name: fmt.Sprintf("table%d", i), Client: r.IntN(3) == 0}
		t.CIDR = t.Client && r.IntN(2) == 0
		seen := map[string]bool{}
		for range 1 + r.IntN(6) {
			key := randomKey(r, t)
			if seen[key] && !t.CIDR {
				continue
			}
			seen[key] = true
			t.Rows = append(t.Rows, Row{key, pick(r, modelActions), len(t.Rows) + 1})
		}
		m.Tables = append(m.Tables, t)
	}
	for range len(m.Tables) + r.IntN(3) {
		phase := &m.phases[r.IntN(3)]
		*phase = append(*phase, restriction{table: m.Tables[r.IntN(len(m.Tables))]})
	}
	for i := range m.phases {
		if r.IntN(2) == 0 {
			at := r.IntN(len(m.phases[i]) + 1)
			m.phases[i] = append(m.phases[i][:at:at], append([]restriction{{}}, m.phases[i][at:]...)...)
		}
	}
	return m
}

// Restrictions is the configuration's part of main.cf.
func (m *Model) Restrictions() string {
	var b strings.Builder
	fmt.Fprintf(&b, "mynetworks = %s\nrecipient_delimiter = %s\n", m.mynetworks, m.delimiter)
	if !m.parents {
		b.WriteString("parent_domain_matches_subdomains =\n")
	}
	for i, phase := range m.phases {
		fmt.Fprintf(&b, "smtpd_%s_restrictions =\n", [...]string{"client", "sender", "recipient"}[i])
		for _, r := range phase {
			if r.table == nil {
				b.WriteString("  permit_mynetworks,\n")
				continue
			}
			what := "sender"
			if r.table.Client {
				what = "client"
			}
			fmt.Fprintf(&b, "  check_%s_access %s:${config_directory}/%s\n", what, r.table.Kind(), r.table.Name)
		}
	}
	return b.String()
}

// Kind is the table's type.
func (t *Table) Kind() string {
	if t.CIDR {
		return "cidr"
	}
	return "hash"
}

// Text is the table's file.
func (t *Table) Text() string {
	var b strings.Builder
	for _, r := range t.Rows {
		fmt.Fprintf(&b, "%s\t%s\n", r.Key, r.Action)
	}
	return b.String()
}

// Write writes main.cf, with head before the restrictions, and the tables.
func (m *Model) Write(dir, head string) error {
	err := os.WriteFile(filepath.Join(dir, "main.cf"), []byte(head+m.Restrictions()), 0o644)
	for _, t := range m.Tables {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, t.Name), []byte(t.Text()), 0o644))
	}
	return err
}

// Differs reports whether an entry that matches the mail is said to mean something
// else: same has the entries, "table0:3" and "permit_mynetworks", that do not.
func (m *Model) Differs(same map[string]bool, sender string, client netip.Addr) bool {
	if m.mynetworks.Contains(client) && !same["permit_mynetworks"] {
		return true
	}
	for _, t := range m.Tables {
		keys := m.asked(t, sender, client)
		for _, r := range t.Rows {
			hit := false
			if p, err := netip.ParsePrefix(r.Key); t.CIDR && err == nil {
				hit = p.Contains(client)
			}
			for _, k := range keys {
				hit = hit || !t.CIDR && k == r.Key
			}
			if hit && !same[fmt.Sprintf("%s:%d", t.Name, r.Line)] {
				return true
			}
		}
	}
	return false
}
