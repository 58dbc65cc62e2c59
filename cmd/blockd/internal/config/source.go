package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"blockd/internal/spelling"
	"blockd/policy/ask"
	"blockd/sources/mirror"
	"blockd/sources/mirror/preset"
)

// Source is [list.source], below a [[list]] whose truth is in a database or on another machine (docs/sources.md). blockd
// keeps a copy of it in a folder, and reads that.
type Source struct {
	// What the source is: "postgres", "mysql", "sqlite", "ldap", "redis" or "s3".
	Kind string `toml:"kind"`
	// With "copy", blockd follows the source and serves a copy of it. With "ask", the list stays where it is: blockd
	// keeps a filter of it, and asks about senders that the filter perhaps has (docs/ask.md).
	Mode string `toml:"mode" want:"copy|ask"`
	// Where it is, as a URL without a password, such as "postgres://blockd@db.example/mail".
	DSN string `toml:"dsn,omitempty"`
	// A file with the URL in its first line, password and all. A name without a slash is looked for among
	// systemd's credentials first.
	DSNFile string `toml:"dsn_file,omitempty"`
	// What gives the rows: a SELECT with the columns entry and, if wanted, action, expires, reason and id; for
	// "ldap" which attributes they are, such as "entry=mail, expires=blockdExpires". "amavis:wblist", "spamassassin:userpref",
	// "mailcow:filterconf" and "postfix:FILE.cf" read the tables of these programs.
	Query string `toml:"query,omitempty"`
	// How changes are found: "log" is a table or a stream of changes, "watermark" a column that grows with each
	// change, "none" reads everything each time. Without it: "watermark" for "ldap", "log" for "redis" without
	// key, else "none".
	Changes string `toml:"changes,omitempty"`
	// The column of changes = "watermark"; for "ldap" it is modifyTimestamp if it is not set.
	Watermark string `toml:"watermark,omitempty"`
	// Rows that are older than the watermark by no more than this are read again; 2m if it is not set.
	Overlap *Duration `toml:"overlap,omitempty" want:"0s to 24h"`
	// The channel of PostgreSQL on which a change is announced. It is a hint: what is missed is found at the
	// next poll.
	Notify string `toml:"notify,omitempty"`
	// How often changes are asked for; 5s if it is not set, 1m for "s3", which tells at once whether anything differs, and else
	// 1h with changes = "none".
	Every *Duration `toml:"every,omitempty" want:"100ms to 31d"`
	// How often everything is read again, and compared with the copy.
	Reconcile Duration `toml:"reconcile" want:"1m to 31d"`
	// A source with more rows is refused.
	MaxRows int `toml:"max_rows" want:"1 to 1000000000"`
	// The set or hash of a Redis that another program writes.
	Key string `toml:"key,omitempty"`
	// The number of parts of blockd's own hash and stream in a Redis, a power of two; 0 is one.
	Shards int `toml:"shards,omitempty" want:"0 to 1024"`
	// With "ask", where the filter comes from: "keys" reads the keys of the source once and follows its changes,
	// "snapshot" takes the one that the publisher of [fleet] has made, "redisbloom:KEY" and "redisson:KEY" one that another program keeps in
	// the same Redis. "keys" if it is not set.
	Filter string `toml:"filter,omitempty"`
	// How long a question may take, all attempts in it; 50ms if it is not set.
	Timeout *Duration `toml:"timeout,omitempty" want:"1ms to 10s"`
	// How many answers are kept; 65536 if it is not set.
	Cache *int `toml:"cache,omitempty" want:"1 to 100000000"`
	// How long the answer that an entry is there is kept, so that it may act for so long after it has gone; 30s
	// if it is not set.
	PositiveTTL *Duration `toml:"positive_ttl,omitempty" want:"1s to 24h"`
	// How long the answer that an entry is not there is kept; 60s if it is not set.
	NegativeTTL *Duration `toml:"negative_ttl,omitempty" want:"1s to 24h"`
	// What becomes of mail that no other list decides about if the source could not be asked: it passes, or it is put
	// off. "pass" if it is not set.
	OnError string `toml:"on_error,omitempty"`
	// When a source that fails is left alone.
	Breaker Breaker `toml:"breaker"`
}

func defaultSource() Source {
	return Source{Mode: "copy", Reconcile: Duration(24 * time.Hour), MaxRows: mirror.DefaultMaxRows,
		Breaker: Breaker{Failures: ask.DefaultFailures, Pause: Duration(ask.DefaultPause), Probe: 1}}
}

// The ways in which changes are found.
const (
	changesLog       = "log"
	changesWatermark = "watermark"
	changesNone      = "none"
)

// sourceKind is what a kind of source may be told.
type sourceKind struct {
	name    string
	schemes []string // of its URL
	changes []string // the first one is the default
	query   string   // an example; "" = it takes none
	needs   bool     // the query
	omitted bool     // of a build with the tag nosql
}

// sourceKinds are the kinds, in the order of the documentation.
func sourceKinds() []sourceKind {
	const sql = "select address as entry from senders"
	tables := []string{changesNone, changesLog, changesWatermark}
	return []sourceKind{
		{"postgres", []string{"postgres", "postgresql"}, tables, sql, true, noSQL},
		{"mysql", []string{"mysql"}, tables, sql, true, noSQL},
		{"sqlite", []string{"sqlite"}, tables, sql, true, noSQL},
		{"ldap", []string{"ldap", "ldaps", "ldapi"}, []string{changesWatermark, changesNone}, "entry=mail", false, noSQL},
		{"redis", []string{"redis", "rediss", "redis-sentinel", "rediss-sentinel", "unix"}, []string{changesLog, changesNone}, "", false, false},
		{"s3", []string{"s3"}, []string{changesNone}, "", false, noSQL},
	}
}

func kindOfSource(name string) (sourceKind, bool) {
	kinds := sourceKinds()
	i := slices.IndexFunc(kinds, func(k sourceKind) bool { return k.name == name })
	if i < 0 {
		return sourceKind{}, false
	}
	return kinds[i], true
}

// FoundBy says how changes are found: Changes, or what the kind does without it.
func (s Source) FoundBy() string {
	if s.Changes != "" {
		return s.Changes
	}
	if s.Key != "" || preset.IsName(s.Query) {
		return changesNone
	}
	if k, ok := kindOfSource(s.Kind); ok {
		return k.changes[0]
	}
	return changesNone
}

// Poll is how often changes are asked for.
func (s Source) Poll() time.Duration {
	usual := 5 * time.Second
	if s.Kind == "s3" {
		usual = time.Minute
	} else if s.FoundBy() == changesNone {
		usual = time.Hour
	}
	return time.Duration(or(s.Every, Duration(usual)))
}

// Back is how far behind the watermark rows are read again.
func (s Source) Back() time.Duration { return time.Duration(or(s.Overlap, Duration(2*time.Minute))) }

// maxDSN is what a file with a URL may hold.
const maxDSN = 64 << 10

// ReadDSN returns the URL of the source, with its password. No error of it has any of that.
func (s Source) ReadDSN() (string, error) {
	if s.DSNFile == "" {
		return s.DSN, nil
	}
	info, err := os.Stat(s.DSNFile)
	if err != nil {
		return "", fmt.Errorf("dsn_file: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxDSN {
		return "", fmt.Errorf("dsn_file: %s: want a file with a URL in its first line", s.DSNFile)
	}
	text, err := os.ReadFile(s.DSNFile)
	if err != nil {
		return "", fmt.Errorf("dsn_file: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("dsn_file: %s: its first line is empty; want a URL", s.DSNFile)
	}
	return line, nil
}

// credential returns the path of a credential that systemd has for this service; "" if it has none.
func credential(name string) string {
	folder := os.Getenv("CREDENTIALS_DIRECTORY")
	if folder == "" || name == "" || strings.Contains(name, "/") {
		return ""
	}
	path := filepath.Join(folder, name)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return path
}

// relativeTo makes the paths those of a process anywhere.
func (s *Source) relativeTo(resolve func(*string)) {
	if path := credential(s.DSNFile); path != "" {
		s.DSNFile = path
	} else {
		resolve(&s.DSNFile)
	}
	if path, ok := strings.CutPrefix(s.Query, "postfix:"); ok {
		resolve(&path)
		s.Query = "postfix:" + path
	}
	if path, ok := strings.CutPrefix(s.DSN, "sqlite:"); ok && !strings.HasPrefix(path, "/") {
		resolve(&path)
		s.DSN = "sqlite:" + path
	}
}

// CopyFolder is where the copy of a list with a source is, in a configuration that was loaded.
func (l List) CopyFolder() string { return filepath.Dir(filepath.Dir(l.Path)) }

// copied makes the path of a list with a source that of its copy. Its format stays that of the objects of an "s3".
func (c Config) copied(l *List) {
	folder := l.Path + ".d"
	if l.Path == "" {
		folder = filepath.Join(c.Index.Path+".mirror", l.Name)
	}
	l.Path = mirror.Files(folder)
}

// validateSource checks what a list says of its source. copies has the paths of the lists above that have copies, with
// their names.
func (l List) validateSource(f *Faults, key string, copies map[string]string) {
	s := l.Source
	if s == nil {
		return
	}
	if l.URL != "" {
		f.add(key+".url", "goes without [list.source]: a list has one source")
	}
	if l.Format != "auto" && l.Format != "rows" && s.Kind != "s3" {
		f.add(key+".format", `want "rows" or nothing, have %q: the columns of the query say what a row means`, l.Format)
	}
	if l.Patterns {
		f.add(key+".patterns", "has no effect: the copy of a source holds addresses, domains and networks")
	}
	switch {
	case l.URL != "": // validateRemote has seen the path
	case strings.ContainsAny(l.Path, `*?[`):
		f.add(key+".path", "want a path beside which the copy is kept, as PATH.d/, or nothing; have the glob %q", l.Path)
	case l.Path != "":
		path := filepath.Clean(l.Path)
		if other, ok := copies[path]; ok {
			f.add(key+".path", "holds the copy of list %q", other)
		}
		copies[path] = l.Name
	}
	s.validate(f, key+".source")
}

func (s Source) validate(f *Faults, key string) {
	f.wants(key, reflect.ValueOf(s))
	s.validateAsk(f, key)
	var names []string
	for _, k := range sourceKinds() {
		names = append(names, k.name)
	}
	kind, known := kindOfSource(s.Kind)
	switch {
	case s.Kind == "":
		f.add(key+".kind", "is missing; want %s", strings.Join(names, ", "))
	case !known:
		f.add(key+".kind", "want one of %s, have %q%s", strings.Join(names, ", "), s.Kind, spelling.Hint(s.Kind, "", names))
	case kind.omitted:
		f.add(key+".kind", "%q is not in this build of blockd (-tags nosql); take a build that has it", s.Kind)
	}
	switch {
	case s.DSN == "" && s.DSNFile == "" && strings.HasPrefix(s.Query, "postfix:"):
	case s.DSN == "" && s.DSNFile == "":
		f.add(key+".dsn_file", "is missing; want a file with the URL of the source")
	case s.DSN != "" && s.DSNFile != "":
		f.add(key+".dsn", "goes without dsn_file: one of them says where the source is")
	case s.DSN != "":
		s.validateDSN(f, key+".dsn", kind)
	}
	if known {
		s.validateKind(f, key, kind)
		s.validatePreset(f, key)
	}
	s.validateChanges(f, key)
}

// secretParameter is the name of a URL's parameter that holds a secret.
var secretParameter = regexp.MustCompile(`(?i)(^|_)(pass|password|passwd|pwd|secret|secret_?key|token|sslpassword)$`)

// validateDSN checks a URL that stands in the configuration. No fault shows it.
func (s Source) validateDSN(f *Faults, key string, kind sourceKind) {
	const instead = "put it into a file of mode 0600, and name that in dsn_file"
	u, err := url.Parse(strings.Replace(s.DSN, "ldapi://%2F", "ldapi:///", 1)) // net/url takes no path for a host
	if err != nil || u.Scheme == "" {
		want := "SCHEME://HOST/…"
		if len(kind.schemes) > 0 {
			want = kind.schemes[0] + "://HOST/…"
		}
		if kind.name == "sqlite" {
			want = "sqlite:PATH"
		}
		if strings.Contains(strings.ToLower(s.DSN), "password") || strings.Contains(s.DSN, "@") {
			f.add(key, "is no URL %s, and may hold a password: %s", want, instead)
			return
		}
		f.add(key, "want a URL %s", want)
		return
	}
	if _, has := u.User.Password(); has {
		f.add(key, "has a password: %s", instead)
	}
	for name := range u.Query() {
		if secretParameter.MatchString(name) {
			f.add(key, "has a secret in its parameter %q: %s", name, instead)
		}
	}
	if len(kind.schemes) > 0 && !slices.Contains(kind.schemes, u.Scheme) {
		f.add(key, "want %s:… for kind %q, have %s:…", strings.Join(kind.schemes, ":… or "), kind.name, u.Scheme)
	}
}

// validateKind checks the keys that only some kinds have.
func (s Source) validateKind(f *Faults, key string, kind sourceKind) {
	switch {
	case s.Query == "" && kind.needs:
		f.add(key+".query", "is missing; want one such as %q", kind.query)
	case s.Query != "" && kind.query == "":
		f.add(key+".query", "has no effect with kind %q", kind.name)
	}
	switch {
	case s.Changes == "", slices.Contains(kind.changes, s.Changes):
	case !slices.Contains([]string{changesLog, changesWatermark, changesNone}, s.Changes):
		f.oneOf(key+".changes", s.Changes, kind.changes...)
	default:
		f.add(key+".changes", `kind %q has no %q; want "%s"`, kind.name, s.Changes, strings.Join(kind.changes, `" or "`))
	}
	if s.Notify != "" && kind.name != "postgres" {
		f.add(key+".notify", `goes with kind = "postgres"`)
	}
	if kind.name != "redis" {
		if s.Key != "" {
			f.add(key+".key", `goes with kind = "redis"`)
		}
		if s.Shards != 0 {
			f.add(key+".shards", `goes with kind = "redis"`)
		}
		return
	}
	switch {
	case s.Key != "" && s.Changes == changesLog:
		f.add(key+".changes", `"log" is of blockd's own stream, and key names the data of another program; want "none"`)
	case s.Key != "" && s.Shards != 0:
		f.add(key+".shards", "goes without key: it is of blockd's own hash and stream")
	case s.Shards&(s.Shards-1) != 0:
		f.add(key+".shards", "want 0 or a power of two, have %d", s.Shards)
	}
}

// validatePreset checks a query that names the tables of another program. A file that cannot be read is none of its
// faults: until it can be, the copy serves.
func (s Source) validatePreset(f *Faults, key string) {
	if !preset.IsName(s.Query) {
		return
	}
	if _, err := preset.Find(s.Query, s.Kind); err != nil {
		if _, unread := errors.AsType[*fs.PathError](err); !unread {
			f.add(key+".query", "%v", err)
		}
	}
	if by := s.FoundBy(); by != changesNone {
		f.add(key+".changes", `want "none" with query = %q: these tables have no record of their changes`, s.Query)
	}
	if s.Mode == "ask" {
		f.add(key+".mode", `want "copy" with query = %q: a question is not asked of such tables`, s.Query)
	}
}

// validateChanges checks the keys that only some ways of finding changes have.
func (s Source) validateChanges(f *Faults, key string) {
	by := s.FoundBy()
	if by == changesWatermark && s.Watermark == "" && s.Kind != "ldap" && s.Kind != "redis" && s.Kind != "s3" {
		f.add(key+".watermark", `is missing; changes = "watermark" needs a column that grows with each change, such as "updated_at"`)
	}
	if by != changesWatermark {
		if s.Watermark != "" {
			f.add(key+".watermark", `goes with changes = "watermark"`)
		}
		if s.Overlap != nil {
			f.add(key+".overlap", `goes with changes = "watermark"`)
		}
	}
	if by == changesNone && s.Notify != "" && s.Kind == "postgres" && s.Every != nil && time.Duration(*s.Every) < time.Minute {
		f.add(key+".every", `reads the whole table each %s; with notify and changes = "none" want 1m or more, or changes = "log"`, s.Every)
	}
}

// sourceWarnings are about sources that work and are not what may be meant.
func (c Config) sourceWarnings() (w []string) {
	warn := func(l List, format string, args ...any) {
		w = append(w, fmt.Sprintf("list %q: ", l.Name)+fmt.Sprintf(format, args...))
	}
	for _, l := range c.Lists {
		s := l.Source
		if s == nil {
			continue
		}
		if by := s.FoundBy(); by == changesNone && s.Kind != "s3" && s.Poll() < time.Minute {
			warn(l, `changes = "none" reads everything each %s`, s.Poll())
		} else if by != changesNone && time.Duration(s.Reconcile) < s.Poll() {
			warn(l, "reconcile = %q comes before every = %q: everything is read each time", s.Reconcile, Duration(s.Poll()))
		}
		if l.MaxAge != nil && time.Duration(*l.MaxAge) > 0 && time.Duration(*l.MaxAge) < s.Poll() {
			warn(l, "max_age is shorter than every: the list is old between two polls")
		}
		if _, err := preset.Find(s.Query, s.Kind); err != nil && preset.IsName(s.Query) {
			warn(l, "source.query: %v; until it can be read, the copy serves", err)
		}
		if s.DSNFile == "" {
			continue
		}
		if info, err := os.Stat(s.DSNFile); err != nil {
			warn(l, "source.dsn_file: %v; until it is there, the copy serves", err)
		} else if info.Mode().Perm()&0o007 != 0 {
			warn(l, "source.dsn_file: every user of this machine may read %s; let its mode be 0600", s.DSNFile)
		}
	}
	return w
}
