// Package ldap reads the entries of a list from a directory (RFC 4511): every value of the attributes that are named is an
// entry. It reads in pages (RFC 2696), and finds changes by modifyTimestamp.
//
//	ldap://[BINDDN:PASSWORD@]HOST[:PORT]/BASE?ATTRIBUTES?SCOPE?FILTER?EXTENSIONS
//
// Referrals are not followed, and aliases are not resolved.
package ldap

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-ldap/ldap/v3"

	"blockd/sources/mirror"
	"blockd/sources/mirror/query"
)

// Options say where the directory is, and what of it is a list.
type Options struct {
	DSN       string // an LDAP URL, with its password
	Query     string // "COLUMN=ATTRIBUTE, …"; "" = the attributes of the URL are entries
	Changes   string // "watermark", or "none": everything is read each time
	Watermark string // the attribute of a change's time; "" = modifyTimestamp
	Overlap   time.Duration
	Timeout   time.Duration // of one answer, that is of a page; 0 = a minute
}

const (
	defaultWatermark = "modifyTimestamp"
	defaultTimeout   = time.Minute

	// pageSize stays below the size limit of 500 that OpenLDAP has by itself: a page above it is refused.
	pageSize = 500

	// emptyPages in a row end a read: some servers give a few where entries are hidden from this account.
	emptyPages = 1000

	// askedAtOnce is how many values one filter names.
	askedAtOnce = 50

	// maxValue is the longest value that can be an entry, in octets. Longer ones are refused without asking about them.
	maxValue = 4096
)

// versions are attributes of servers that differ after each change, also of two within a second: of OpenLDAP, Active
// Directory and 389 Directory Server.
var versions = []string{"entryCSN", "uSNChanged", "entryusn"}

// Source is a directory. It keeps one connection, which is made when it is needed.
type Source struct {
	where      *location
	columns    *columns
	changes    string
	watermark  string
	overlap    time.Duration
	timeout    time.Duration
	attributes []string // that are asked for
	seen       query.Seen
	batch      int // of changes that were yielded
	link       *link
	referrals  int // that the last search was given
}

// Open judges the options; it does not connect. The error names the key, and never shows the URL.
func Open(o Options) (*Source, error) {
	where, err := parseURL(o.DSN)
	if err != nil {
		return nil, fmt.Errorf("dsn: %w", err)
	}
	c, err := parseColumns(o.Query, where.attributes)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	s := &Source{where: where, columns: c, changes: cmp.Or(o.Changes, query.Watermark), watermark: o.Watermark,
		overlap: o.Overlap, timeout: cmp.Or(o.Timeout, defaultTimeout)}
	switch s.changes {
	case query.None:
		if s.watermark != "" {
			return nil, fmt.Errorf(`watermark: only with changes = "watermark", have %q`, s.changes)
		}
		s.attributes = c.attributes()
	case query.Watermark:
		if s.watermark = cmp.Or(s.watermark, defaultWatermark); !isAttribute(s.watermark) {
			return nil, fmt.Errorf("watermark: want an attribute such as %s, have %q", defaultWatermark, s.watermark)
		}
		s.attributes = slices.Concat(c.attributes(), []string{s.watermark}, versions)
	default:
		return nil, fmt.Errorf(`changes: a directory has "watermark" or "none", have %q`, o.Changes)
	}
	return s, nil
}

// Close ends the connection.
func (s *Source) Close() error {
	s.hangUp()
	return nil
}

// Fingerprint names the server, the base, the filter and the attributes. It makes no connection.
func (s *Source) Fingerprint(context.Context) (string, error) {
	w := s.where
	sum := sha256.Sum256([]byte(strings.Join([]string{w.filter, s.columns.String(), s.changes, s.watermark}, "\x00")))
	return fmt.Sprintf("ldap %s %s %s %s", w.address, w.base, w.scopeName(), hex.EncodeToString(sum[:8])), nil
}

// Wait ends with the context: a directory does not announce its changes.
func (s *Source) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// All reads every entry of the directory that the filter lets through. A directory has no snapshots: what changes meanwhile is read
// by Changes, whose mark lies before the read.
func (s *Source) All(ctx context.Context, yield func(mirror.Row) error) (mirror.Mark, error) {
	at := clock{begin: time.Now()}
	err := s.search(ctx, s.where.filter, s.attributes, func(e *ldap.Entry) error {
		at.saw(s.changed(e))
		return s.columns.rows(e, yield)
	})
	if err != nil {
		return "", err
	}
	s.batch++
	return s.mark(at), nil
}

// Changes reads the objects that have changed since a mark, and then every object that has one of their values. So the values of an
// object that the filter no longer lets through go at once. Values that were removed from an
// object, and deleted objects, are found by the next full read alone.
func (s *Source) Changes(ctx context.Context, since mirror.Mark, yield func(mirror.Change) error) (mirror.Mark, error) {
	from, ok := parseMark(since)
	if s.changes == query.None || !ok {
		return "", mirror.ErrTooOld
	}
	at, asked := clock{begin: time.Now()}, newValues()
	s.seen.Begin(since)
	changed := fmt.Sprintf("(%s>=%s)", s.watermark, s.timeText(from.Add(-s.overlap)))
	err := s.search(ctx, "(&"+changed+s.columns.present()+")", s.attributes, func(e *ldap.Entry) error {
		at.saw(s.changed(e))
		if !s.seen.New(signature(e)) {
			return nil
		}
		for _, value := range s.columns.entries(e) {
			if asked.add(value); len(asked.order) > query.MaxEntries {
				return s.tooMany()
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	rows, err := s.ask(ctx, changed, asked)
	if err != nil {
		return "", err
	}
	keys := make([]query.Key, len(asked.order))
	for i, entry := range asked.order {
		keys[i].Entry = entry
	}
	if err := query.Changes(keys, rows, false, yield); err != nil {
		return "", err
	}
	if len(asked.order) > 0 {
		s.batch++
	}
	mark := s.mark(at)
	if next, _ := parseMark(mark); len(asked.order) == 0 && !next.Before(from) && next.Sub(from) <= s.overlap {
		mark = since // an idle directory does not cost a write each time
	}
	s.seen.End(mark)
	return mark, nil
}

// tooMany is the error for more changes than one poll reads again. They are there again at the next one.
func (s *Source) tooMany() error {
	return &mirror.Unlogged{Why: fmt.Sprintf("more than %d values have changed, by %s, within %v before the last read", query.MaxEntries, s.watermark, s.overlap),
		Hint: `a shorter overlap, or changes = "none"`}
}

// ask reads what the directory says now of values.
func (s *Source) ask(ctx context.Context, changed string, asked *values) (rows []mirror.Row, err error) {
	if len(asked.order) == 0 {
		return nil, nil
	}
	had := map[mirror.Row]bool{}
	take := func(e *ldap.Entry) error {
		return s.columns.rows(e, func(row mirror.Row) error {
			spelling, ok := asked.spelling[strings.ToLower(row.Entry)]
			if row.Entry = spelling; !ok || had[row] {
				return nil
			}
			if had[row] = true; len(rows) >= 2*query.MaxEntries {
				return s.tooMany()
			}
			rows = append(rows, row)
			return nil
		})
	}
	// The changed objects themselves count even where values cannot be searched for, as with an attribute that has no rule of equality.
	if err := s.search(ctx, "(&"+changed+s.where.filter+")", s.columns.attributes(), take); err != nil {
		return nil, err
	}
	short := slices.DeleteFunc(slices.Clone(asked.order), func(v string) bool { return len(v) > maxValue })
	for some := range slices.Chunk(short, askedAtOnce) {
		if err := s.search(ctx, "(&"+s.where.filter+s.columns.oneOf(some)+")", s.columns.attributes(), take); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// values are texts without those that differ in case alone, as most attributes compare them.
type values struct {
	order    []string
	spelling map[string]string // by the text in small letters
}

func newValues() *values { return &values{spelling: map[string]string{}} }

func (v *values) add(text string) {
	small := strings.ToLower(text)
	if _, known := v.spelling[small]; !known {
		v.spelling[small] = text
		v.order = append(v.order, text)
	}
}

// changed is when an object has changed, by the clock of the server; zero if it does not say.
func (s *Source) changed(e *ldap.Entry) time.Time {
	if s.changes == query.None {
		return time.Time{}
	}
	t, _ := parseTime(e.GetEqualFoldAttributeValue(s.watermark))
	return t
}

// signature is all that an object was found to be.
func signature(e *ldap.Entry) []string {
	all := []string{e.DN}
	for _, a := range e.Attributes {
		all = append(append(all, a.Name), a.Values...)
	}
	return all
}

// clock tells from when on a read may have missed changes.
type clock struct {
	begin  time.Time // of the read, by the clock of this machine
	newest time.Time // change that was read, by the clock of the server
}

func (c *clock) saw(t time.Time) {
	if t.After(c.newest) {
		c.newest = t
	}
}

// mark is where the changes after a read begin: at its beginning. If the server's clock is ahead, it is so by the newest change that was read less the time
// that the read took. A server's clock that is behind by more than the overlap hides changes until the next full read.
func (s *Source) mark(c clock) mirror.Mark {
	at := c.begin
	if since := c.newest.Add(-time.Since(c.begin)); since.After(at) {
		at = since
	}
	return mirror.Mark(fmt.Sprintf("%s %d", at.UTC().Format(markForm), s.batch))
}

const markForm = "20060102150405Z"

// parseMark reads a mark: a time, and a number that differs after each batch of changes, so that query.Seen can tell whether the batch was
// taken in.
func parseMark(m mirror.Mark) (time.Time, bool) {
	text, _, _ := strings.Cut(string(m), " ")
	t, err := time.Parse(markForm, text)
	return t, err == nil
}

// timeText is a time as the server compares it. Active Directory wants a fraction.
func (s *Source) timeText(t time.Time) string {
	if strings.EqualFold(s.watermark, "whenChanged") {
		return t.UTC().Format("20060102150405.0Z")
	}
	return t.UTC().Format(markForm)
}

// parseTime reads a generalized time (RFC 4517, section 3.3.13).
func parseTime(text string) (time.Time, bool) {
	for _, form := range []string{"20060102150405Z0700", "200601021504Z0700", "2006010215Z0700"} {
		if t, err := time.Parse(form, strings.Replace(text, ",", ".", 1)); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// Plan says how the directory is read, after a look at it.
func (s *Source) Plan(ctx context.Context) (string, error) {
	w := s.where
	root, err := s.rootDSE(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "connect to %s%s", w.address, w.security())
	if w.bindDN != "" {
		fmt.Fprintf(&b, ", bind as %s", mirror.Said(w.bindDN, w.password))
	}
	fmt.Fprintf(&b, "\nsearch %s, scope %s, filter %s, in pages of %d\n", w.base, w.scopeName(), w.filter, pageSize)
	fmt.Fprintf(&b, "columns: %s\n", s.columns)
	if root != nil && !slices.Contains(root.GetEqualFoldAttributeValues("supportedControl"), ldap.ControlTypePaging) {
		b.WriteString("the server does not say that it gives pages (RFC 2696): what its size limit cuts off is refused as a part\n")
	}
	if s.changes == query.None {
		b.WriteString("changes: none; everything is read each time\n")
	} else {
		found := false
		err := s.page(ctx, "(&("+s.watermark+"=*)"+s.columns.present()+")", []string{"1.1"}, func(*ldap.Entry) error { found = true; return nil })
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "changes: objects whose %s is newer than the last read, and %v before it; removed values and deleted objects are found by reconcile\n", s.watermark, s.overlap)
		if !found {
			fmt.Fprintf(&b, "no object has an entry and a %s that this account may search for: no change will be found before reconcile\n", s.watermark)
		}
	}
	if s.referrals > 0 {
		fmt.Fprintf(&b, "the server refers to others, %d times: these are not read\n", s.referrals)
	}
	return b.String(), nil
}
