package live

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"blockd/lists"
)

// Order is how a page of entries is sorted.
type Order uint8

// The orders.
const (
	Newest  Order = iota // the last change first
	Oldest               // the first change first
	ByEntry              // networks, then addresses and names, by the octets of their keys
	ByEnd                // the first to end first; those without an end come last
)

// MaxFound bounds how many entries one search returns.
const MaxFound = 1000

// ErrCursor is wrapped by the error of a cursor that no answer had, or that belongs to another order.
var ErrCursor = errors.New("no such cursor")

// Query selects entries of everybody in force. Those of an owner Of has.
type Query struct {
	Text  string // that the entry, its reason or its author has in it; upper and lower case are the same. "" = any
	Order Order
	After string // Next of an answer, with the same Order
	Limit int    // 0 = MaxFound
}

// Found is the result of a search.
type Found struct {
	Entries []*Entry
	Next    string // where the next search goes on, whatever has changed meanwhile; "" at the end
}

// Search returns one page of the entries in force, as they are when it begins. By Newest and Oldest it reads
// what it returns, unless a text is searched for; else it passes over all entries once, which takes about 0.2 s
// for a million. It keeps at most two pages in memory. The error is ErrCursor's or that of ctx.
func (s *Set) Search(ctx context.Context, q Query) (Found, error) {
	if q.Limit <= 0 || q.Limit > MaxFound {
		q.Limit = MaxFound
	}
	v := s.view.Load()
	defer runtime.KeepAlive(v)
	p := page{most: q.Limit + 1, order: q.Order}
	if q.After != "" {
		after, err := parseCursor(q.After, q.Order)
		if err != nil {
			return Found{}, err
		}
		p.after = &after
	}
	match, n := newMatcher(q.Text), 0
	v.rows(&p, s.Now().Unix(), func(r row) bool {
		if n++; n%4096 == 0 && ctx.Err() != nil {
			return false
		}
		if p.after != nil && p.compare(r, *p.after) <= 0 || p.full() && p.compare(r, p.last()) >= 0 {
			return true
		}
		if !match.any && !match.row(v, r) {
			return true
		}
		p.offer(r)
		return !(p.inOrder() && p.full())
	})
	if err := ctx.Err(); err != nil {
		return Found{}, err
	}
	p.trim()
	found := Found{Entries: make([]*Entry, 0, min(len(p.rows), q.Limit))}
	for i, r := range p.rows {
		if i == q.Limit {
			found.Next = p.rows[i-1].cursor(q.Order)
			break
		}
		found.Entries = append(found.Entries, v.entry(r))
	}
	return found, nil
}

// Matching returns whether an entry has a text in it, as Query.Text does.
func Matching(text string) func(*Entry) bool {
	m := newMatcher(text)
	return func(e *Entry) bool { return m.any || m.entry(e) }
}

// row is an entry before it is made. Its key may point into the mapping of a snapshot.
type row struct {
	number uint64
	expiry int64
	key    []byte
	scope  lists.Scope
	e      *Entry // nil: record i of the snapshot
	i      int
}

func (v *view) entry(r row) *Entry {
	if r.e != nil {
		return r.e
	}
	return v.base.entry(r.i)
}

// rows calls each for the entries in force until it returns false: the newest first for Newest, and else the
// oldest first. Those of a page by number begin at its cursor.
func (v *view) rows(p *page, now int64, each func(row) bool) {
	changes := v.sorted()
	first, end := 0, 0
	var changed marks
	if v.base != nil {
		end, changed = v.base.count, v.base.changedBy(changes)
		if p.after != nil && p.order == Newest {
			end = v.base.newerThan(p.after.number - 1)
		} else if p.after != nil && p.order == Oldest {
			first = v.base.newerThan(p.after.number)
		}
	}
	ofBase := func(i int) bool {
		if changed.has(i) || v.base.owned(i) {
			return true
		}
		ends := v.base.expiry(i)
		return ends != 0 && ends <= now ||
			each(row{number: v.base.number(i), expiry: ends, key: v.base.keyOf(i), scope: v.base.scope(i), i: i})
	}
	ofChanges := func(e *Entry) bool {
		return e.gone || e.Item.Owner.Text != "" || e.expired(now) || each(row{number: e.Number, expiry: e.expiry, key: []byte(e.key), scope: e.Item.Scope, e: e})
	}
	if p.order == Newest {
		for _, e := range slices.Backward(changes) {
			if !ofChanges(e) {
				return
			}
		}
		for i := end - 1; i >= first; i-- {
			if !ofBase(i) {
				return
			}
		}
		return
	}
	for i := first; i < end; i++ {
		if !ofBase(i) {
			return
		}
	}
	for _, e := range changes {
		if !ofChanges(e) {
			return
		}
	}
}

// page keeps the first rows of an order: at most twice as many as are wanted.
type page struct {
	order  Order
	most   int
	after  *row // the last row of the page before; nil = this is the first
	rows   []row
	sorted bool // rows has the first ones of all that were offered, in order
}

// inOrder reports whether rows come in the page's own order.
func (p *page) inOrder() bool { return p.order == Newest || p.order == Oldest }

// full reports whether a row has to come before last to be of the page.
func (p *page) full() bool { return p.sorted && len(p.rows) >= p.most }

func (p *page) last() row { return p.rows[p.most-1] }

func (p *page) offer(r row) {
	p.rows = append(p.rows, r)
	switch {
	case p.inOrder():
		p.sorted = len(p.rows) >= p.most
	case len(p.rows) >= 2*p.most:
		p.trim() // until the next time its last row stays a bound, if not the least one
	}
}

// trim sorts the rows and leaves out those beyond the page.
func (p *page) trim() {
	slices.SortFunc(p.rows, p.compare)
	p.rows = p.rows[:min(len(p.rows), p.most)]
	p.sorted = len(p.rows) >= p.most
}

func (p *page) compare(a, b row) int {
	switch p.order {
	case Newest:
		return cmp.Compare(b.number, a.number)
	case ByEntry:
		return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(a.scope, b.scope))
	case ByEnd: // 0 is never, and as an unsigned number less 1 the greatest
		return cmp.Or(cmp.Compare(uint64(a.expiry)-1, uint64(b.expiry)-1), cmp.Compare(a.number, b.number))
	}
	return cmp.Compare(a.number, b.number)
}

// cursorMarks are the first letters of the orders' cursors.
const cursorMarks = "noke"

// cursor says where a page goes on that ends with r.
func (r row) cursor(o Order) string {
	mark := cursorMarks[o : o+1]
	switch o {
	case ByEntry:
		return mark + base64.RawURLEncoding.EncodeToString(append([]byte{byte(r.scope)}, r.key...))
	case ByEnd:
		return fmt.Sprintf("%s%d-%d", mark, r.expiry, r.number)
	}
	return mark + strconv.FormatUint(r.number, 10)
}

func parseCursor(text string, o Order) (r row, err error) {
	bad := fmt.Errorf("%w: %q", ErrCursor, text[:min(len(text), 64)])
	rest, ok := strings.CutPrefix(text, cursorMarks[o:o+1])
	if !ok {
		return r, bad
	}
	if o == ByEntry {
		key, err := base64.RawURLEncoding.DecodeString(rest)
		if err != nil || len(key) < 2 {
			return r, bad
		}
		return row{scope: lists.Scope(key[0]), key: key[1:]}, nil
	}
	number := rest
	if o == ByEnd {
		var end string
		if end, number, ok = strings.Cut(rest, "-"); !ok {
			return r, bad
		}
		if r.expiry, err = strconv.ParseInt(end, 10, 64); err != nil || r.expiry < 0 {
			return r, bad
		}
	}
	if r.number, err = strconv.ParseUint(number, 10, 64); err != nil || r.number == 0 {
		return r, bad
	}
	return r, nil
}

// matcher finds entries by a part of their text. Most records of a snapshot are passed over by their octets,
// without making the entry, in a twentieth of the time.
type matcher struct {
	any  bool
	text string // in lower case
	part []byte // the same
	room []byte
}

func newMatcher(text string) *matcher {
	text = strings.ToLower(text)
	return &matcher{any: text == "", text: text, part: []byte(text)}
}

func (m *matcher) row(v *view, r row) bool {
	return (r.e != nil || m.may(v.base, r.i)) && m.entry(v.entry(r))
}

// may reports whether a record has the text, or could say it in another way: letters beyond ASCII have lower cases of their own, and
// some local-parts are written in quotes.
func (m *matcher) may(s *snapshot, i int) bool {
	text, end, _, _ := s.textsOf(i)
	key, rest := text[:end], text[end:len(text)-s.revised(i)]
	m.room = m.room[:0]
	switch kindCodes[s.record(i)[38]].item {
	case lists.IP:
		m.room = s.item(i).Net.Addr().AppendTo(m.room)
	case lists.CIDR:
		m.room = s.item(i).Net.AppendTo(m.room)
	case lists.Domain: // with its mark
		switch scope := s.scope(i); {
		case key[0] == '[':
			m.room = append(m.room, '@')
		case scope == lists.Exact:
			m.room = append(m.room, '=')
		case scope == lists.Sub:
			m.room = append(m.room, '.')
		}
		m.room = append(m.room, key...)
	case lists.Addr:
		if bytes.ContainsAny(key, "!#$%&'*/?^`{|}~") {
			return true
		}
		m.room = append(m.room, key...)
	default:
		return true
	}
	m.room = append(append(m.room, 0), rest...)
	for i, c := range m.room {
		if c >= 0x80 {
			return true
		}
		if 'A' <= c && c <= 'Z' {
			m.room[i] = c + 'a' - 'A'
		}
	}
	return bytes.Contains(m.room, m.part)
}

func (m *matcher) entry(e *Entry) bool {
	for _, text := range [...]string{e.Text, e.Why, e.Author} {
		if strings.Contains(strings.ToLower(text), m.text) {
			return true
		}
	}
	return false
}
