package httpapi

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"blockd/internal/durable"
	"blockd/internal/stamp"
	"blockd/mail/addr"
	"blockd/records/audit"
)

// Scope is what the holder of a token may do.
type Scope int8

// The scopes, of which each may what those before it may, but that Reporting may say how a node is (POST /v1/fleet), and nothing else. Write changes what is filtered,
// Admin also who may: tokens, and the sessions of others.
const (
	Reporting Scope = iota - 1
	Read
	Write
	Admin
)

var scopeWords = [...]string{"read", "write", "admin"}

// String is the scope's word in a file of tokens.
func (s Scope) String() string {
	if s == Reporting {
		return "report"
	}
	return scopeWords[s]
}

func parseScope(word string) (Scope, bool) {
	if word == Reporting.String() {
		return Reporting, true
	}
	at := slices.Index(scopeWords[:], word)
	return Scope(max(at, 0)), at >= 0
}

// Token is a row of a file of tokens: the holder's name, and the hash.
type Token struct {
	Name  string
	Scope Scope
	Made  string // a date, for people
	// Owners are the mailboxes and domains that the token is bound to; none = it is not. A domain has its mailboxes.
	Owners []addr.Key
	hash   [sha256.Size]byte
}

// The bounds of a file of tokens.
const (
	maxTokens     = 1000
	maxTokensFile = 256 << 10
	tokenBytes    = 32 // random, so that a plain hash of it cannot be inverted
	tokenPrefix   = "blockd_"

	// MaxTokenOwners bounds the owners of one token.
	MaxTokenOwners = 100
)

// tokenName is the form of a token's name, which stands in logs and beside entries.
var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$`)

// ReadTokens reads a file of tokens: a row a line, "NAME read|write|admin|report sha256:HEX DATE [OWNER,OWNER...]",
// with comments after "#". A missing file has none.
func ReadTokens(path string) ([]Token, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	whole, err := io.ReadAll(io.LimitReader(f, maxTokensFile+1))
	if err == nil && len(whole) > maxTokensFile {
		err = fmt.Errorf("%s: more than %d octets", path, maxTokensFile)
	}
	if err != nil {
		return nil, err
	}
	var all []Token
	n := 0
	for line := range strings.Lines(string(whole)) {
		n++
		text, _, _ := strings.Cut(line, "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		t, err := parseToken(text)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if slices.ContainsFunc(all, func(o Token) bool { return o.Name == t.Name }) {
			return nil, fmt.Errorf("%s:%d: a second token named %s", path, n, t.Name)
		}
		if all = append(all, t); len(all) > maxTokens {
			return nil, fmt.Errorf("%s: more than %d tokens", path, maxTokens)
		}
	}
	return all, nil
}

var errTokenRow = errors.New(`want "NAME read|write|admin|report sha256:HEX DATE [OWNER,OWNER...]"`)

func parseToken(text string) (t Token, err error) {
	fields := strings.Fields(text)
	if len(fields) != 4 && len(fields) != 5 || !tokenName.MatchString(fields[0]) {
		return t, errTokenRow
	}
	t.Name, t.Made = fields[0], fields[3]
	var ok bool
	if t.Scope, ok = parseScope(fields[1]); !ok || t.Scope == Reporting && len(fields) == 5 {
		return t, errTokenRow
	}
	sum, ok := strings.CutPrefix(fields[2], "sha256:")
	hash, err := hex.DecodeString(sum)
	if !ok || err != nil || len(hash) != len(t.hash) {
		return t, errTokenRow
	}
	copy(t.hash[:], hash)
	if len(fields) == 5 {
		for text := range strings.SplitSeq(fields[4], ",") {
			plain, err := url.PathUnescape(text)
			if err != nil {
				return t, errTokenRow
			}
			owner, err := addr.ParseOwner(plain)
			if err != nil || len(t.Owners) == MaxTokenOwners {
				return t, errTokenRow
			}
			t.Owners = append(t.Owners, owner)
		}
	}
	return t, nil
}

// CheckToken says why a line of a file of tokens is none.
func CheckToken(line string) error {
	_, err := parseToken(line)
	return err
}

func (t Token) row() string {
	row := fmt.Sprintf("%s %s sha256:%x %s", t.Name, t.Scope, t.hash, t.Made)
	for i, owner := range t.Owners {
		between := ","
		if i == 0 {
			between = " "
		}
		row += between + url.PathEscape(owner.Text)
	}
	return row + "\n"
}

var (
	errTokenTaken  = errors.New("has a token named")
	errNoTokenFile = errors.New(`this machine has no file of tokens of its own (http.tokens); without "local" one of the fleet is made`)
	errTokensFull  = errors.New("no room for another token: revoke some, or bind them to fewer owners")
	errManyOwners  = fmt.Errorf("a token has %d owners at most", MaxTokenOwners)
	errAdminOwner  = errors.New("a token of scope admin is bound to nobody")
)

// NewToken draws a token, and adds its hash to the file under a name that is not
// taken. The token itself is stored nowhere: it is returned once. journal, which may be nil, has a line about it by the name by. owners are Token.Owners.
func NewToken(path, name string, scope Scope, journal *audit.Log, by string, owners ...addr.Key) (token string, err error) {
	all, unlock, err := openTokens(path)
	if err != nil {
		return "", err
	}
	defer unlock()
	if slices.ContainsFunc(all, func(t Token) bool { return t.Name == name }) {
		return "", fmt.Errorf("%s %w %s", path, errTokenTaken, name)
	}
	if len(all) == maxTokens {
		return "", fmt.Errorf("%s: %w: it has %d", path, errTokensFull, maxTokens)
	}
	token, t, err := DrawToken(name, scope, owners...)
	if err != nil {
		return "", err
	}
	if all = append(all, t); len(tokensText(all)) > maxTokensFile { // which nobody could read: then no token is valid
		return "", fmt.Errorf("%s: %w: it has %d octets at most", path, errTokensFull, maxTokensFile)
	}
	if err := journal.Add(audit.Line{By: by, Action: audit.TokenAdd, Subject: name, Detail: t.May()}); err != nil {
		return "", err
	}
	return token, writeTokens(path, all)
}

// DrawToken draws a token, and returns its row too, which stands in no file yet.
func DrawToken(name string, scope Scope, owners ...addr.Key) (token string, t Token, err error) {
	if !tokenName.MatchString(name) {
		return "", t, fmt.Errorf("want letters, digits and . _ - (at most 32) for a name, have %q", name)
	}
	if scope == Reporting && len(owners) > 0 {
		return "", t, errors.New("a token that reports how a node is has no owners")
	}
	if scope == Admin && len(owners) > 0 {
		return "", t, errAdminOwner
	}
	if len(owners) > MaxTokenOwners {
		return "", t, errManyOwners
	}
	token = randomToken()
	return token, Token{Name: name, Scope: scope, Made: time.Now().UTC().Format(time.DateOnly), Owners: owners, hash: sha256.Sum256([]byte(token))}, nil
}

// May says what the holder may do.
func (t Token) May() string {
	if t.Scope == Reporting {
		return "may report how a node is"
	}
	text := "may " + t.Scope.String()
	for i, owner := range t.Owners {
		if i == 0 {
			text += " what is of"
		}
		text += " " + owner.Text
	}
	return text
}

// RevokeToken takes a token out of the file. It is false if there is none of that name. journal and by are those of NewToken.
func RevokeToken(path, name string, journal *audit.Log, by string) (bool, error) {
	all, unlock, err := openTokens(path)
	if err != nil {
		return false, err
	}
	defer unlock()
	left := slices.DeleteFunc(slices.Clone(all), func(t Token) bool { return t.Name == name })
	if len(left) == len(all) {
		return false, nil
	}
	if err := journal.Add(audit.Line{By: by, Action: audit.TokenRevoke, Subject: name}); err != nil {
		return true, err
	}
	return true, writeTokens(path, left)
}

// errNoToken is wrapped where there is no token of a name.
var errNoToken = errors.New("has no token named")

// RotateToken draws another token for a name of the file, with what it may: the one before is worthless at once.
// journal and by are those of NewToken.
func RotateToken(path, name string, journal *audit.Log, by string) (token string, err error) {
	all, unlock, err := openTokens(path)
	if err != nil {
		return "", err
	}
	defer unlock()
	at := slices.IndexFunc(all, func(t Token) bool { return t.Name == name })
	if at < 0 {
		return "", fmt.Errorf("%s %w %s", path, errNoToken, name)
	}
	if token, all[at], err = DrawToken(name, all[at].Scope, all[at].Owners...); err != nil {
		return "", err
	}
	if err := journal.Add(audit.Line{By: by, Action: audit.TokenRotate, Subject: name, Detail: all[at].May()}); err != nil {
		return "", err
	}
	return token, writeTokens(path, all)
}

// RotateFirst draws another token of the first start, into its file; a daemon that runs has it at once. journal and
// by are those of NewToken.
func RotateFirst(path string, journal *audit.Log, by string) error {
	if _, err := ReadToken(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := journal.Add(audit.Line{By: by, Action: audit.TokenRotate, Subject: theToken, Detail: "that of the first start"}); err != nil {
		return err
	}
	return durable.WriteFile(path, []byte(randomToken()+"\n"), 0o600)
}

// readFirst reads the token of the first start as a row of a file of tokens, which has no name.
func readFirst(path string) ([]Token, error) {
	token, err := ReadToken(path)
	if err != nil {
		return nil, err
	}
	return []Token{{Scope: Admin, hash: sha256.Sum256([]byte(token))}}, nil
}

// openTokens reads the file for a change, and lets nobody else change it until unlock.
func openTokens(path string) (all []Token, unlock func() error, err error) {
	if unlock, err = lockTokens(path); err != nil {
		return nil, nil, err
	}
	if all, err = ReadTokens(path); err != nil {
		unlock()
		return nil, nil, err
	}
	return all, unlock, nil
}

// FirstToken reads the file of Settings.First, and makes it if it is missing: a token
// on a line, readable by the owner only. made reports that it was made.
func FirstToken(path string) (token string, made bool, err error) {
	token, err = ReadToken(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, false, err
	}
	token = randomToken()
	return token, true, durable.WriteFile(path, []byte(token+"\n"), 0o600)
}

func randomToken() string {
	var chance [tokenBytes]byte
	rand.Read(chance[:]) // never fails: it ends the process rather
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(chance[:])
}

// lockTokens waits until no other process changes the file. Of two changes at once the
// later would bring back a token that the earlier has revoked. The lock is on the folder,
// because the file is replaced.
func lockTokens(path string) (unlock func() error, err error) {
	f, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", filepath.Dir(path), err)
	}
	return f.Close, nil
}

// writeTokens replaces the file, whole or not at all. Every user may read it, because the
// daemon often runs as another user than the writer. Hashes of 32 random octets reveal
// nothing.
func writeTokens(path string, all []Token) error {
	return durable.WriteFile(path, []byte(tokensText(all)), 0o644)
}

func tokensText(all []Token) string {
	var text strings.Builder
	text.WriteString("# Tokens of blockd's HTTP door: name, scope, hash, date. Made by blockd token new.\n")
	for _, t := range all {
		text.WriteString(t.row())
	}
	return text.String()
}

// tokens are the tokens of a file as it is now, so a revoked one is refused at once.
type tokens struct {
	path string
	read func(path string) ([]Token, error)

	mu    sync.Mutex
	stamp fs.FileInfo
	all   []Token
	fault string // why it could not be read the last time
}

// current reads the file again if it has changed. If the file cannot be read no
// token counts. The error is returned once, until it changes.
func (t *tokens) current() ([]Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, err := os.Stat(t.path)
	if err != nil {
		now = nil
	}
	if now == nil || !stamp.Same(now, t.stamp) {
		t.stamp = now
		t.all, err = t.read(t.path)
		if fault := fmt.Sprint(err); fault != t.fault {
			t.fault = fault
			return t.all, err
		}
	}
	return t.all, nil
}

// find returns the row of the token with a hash. It always looks at every row, and compares
// hashes of one length, so that the time tells nothing about a token.
func (t *tokens) find(hash [sha256.Size]byte) (found Token, ok bool, err error) {
	all, err := t.current()
	at := -1
	for i := range all {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], all[i].hash[:]), i, at)
	}
	if at < 0 {
		return Token{}, false, err
	}
	return all[at], true, nil
}
