// Package accessmodel generates configurations of Postfix for tests: tables of access(5) about a few senders, clients
// and recipients,
// in restrictions of any order.
package accessmodel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// Row is a line of a table.
type Row struct {
	Key, Action string
	Line        int
}

// Table is one access table.
type Table struct {
	Name  string // of its file
	About string // "sender", "client" or "recipient"
	CIDR  bool   // else hash
	Rows  []Row
}

// restriction is a word of a list of restrictions with its table; nil is
// permit_mynetworks.
type restriction struct{ table *Table }

// Model is a configuration.
type Model struct {
	parents    bool // parent_domain_matches_subdomains has smtpd_access_maps
	delimiter  string
	mynetworks string
	phases     [3][]restriction // client, sender, recipient
	Tables     []*Table
}

var (
	modelLocals  = []string{"a", "promo", "promo+x", "a+promo", "b"}
	modelDomains = []string{"bulk.test", "a.bulk.test", "b.a.bulk.test", "shop.test", "a.shop.test", "x.example", "c.x.example"}
	modelActions = []string{"REJECT", "REJECT", "REJECT no thanks", "550 5.7.1 go away", "450 later", "DEFER", "OK", "OK", "DUNNO", "HOLD", "1234567",
		"PREPEND X-Seen: yes", "DEFER_IF_PERMIT not now", "DEFER_IF_REJECT not now", "WARN look", "REJECT 5.7.9 status", "permit", "reject"}
)

func pick(r *rand.Rand, from []string) string { return from[r.IntN(len(from))] }

// randomKey is a key of a table, some of which nothing matches.
func randomKey(r *rand.Rand, t *Table) string {
	switch {
	case t.CIDR:
		return pick(r, []string{"192.0.2.0/24", "192.0.2.64/26", "198.51.100.0/24", "198.51.0.0/16", "198.51.100.1/32", "2001:db8::/32", "2001:db8:2::/48", "203.0.113.9/32"})
	case t.About == "client":
		return pick(r, []string{"192.0.2", "192.0.2.1", "192.0.2.77", "198.51", "198.51.100", "198.51.100.1", "203", "2001:db8", "2001:db8:2", "2001:db8:1::1", "198.51.100.0/24", "bulk.test"})
	}
	domain := pick(r, modelDomains)
	if t.About == "recipient" {
		domain = "here.example"
	}
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
	m := &Model{parents: r.IntN(2) == 0, mynetworks: "192.0.2.64/26"}
	if r.IntN(2) == 0 {
		m.delimiter = "+"
	}
	for i := range 1 + r.IntN(4) {
		t := &Table{Name: fmt.Sprintf("table%d", i), About: pick(r, []string{"sender", "sender", "sender", "client", "client", "recipient"})}
		t.CIDR = t.About == "client" && r.IntN(2) == 0
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
			fmt.Fprintf(&b, "  check_%s_access %s:${config_directory}/%s\n", r.table.About, r.table.Kind(), r.table.Name)
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
