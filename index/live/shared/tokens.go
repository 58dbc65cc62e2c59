package shared

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"blockd/index/live"
	"blockd/internal/durable"
)

// TokenFile is the file of the fleet's tokens on a node, in the form of a file of tokens of the HTTP door.
func TokenFile(folder string) string { return filepath.Join(folder, "tokens") }

// TokenFile is that of the node; a nil Node has none.
func (n *Node) TokenFile() string {
	if n == nil {
		return ""
	}
	return TokenFile(n.o.Folder)
}

// tokenLine is the row of a file of tokens.
func tokenLine(r *live.Row) string {
	sum, _, owners := tokenParts(r.Why)
	return strings.TrimRight(fmt.Sprintf("%s %s %s %s %s", r.Entry, r.Action, sum, time.Unix(r.Created, 0).UTC().Format(time.DateOnly), owners), " ")
}

// tokenParts are what the row of a token has of it: its hash, the proof that a machine of the fleet has made it, and
// its owners.
func tokenParts(why string) (sum, proof, owners string) {
	sum, rest, _ := strings.Cut(why, " ")
	proof, owners, _ = strings.Cut(rest, " ")
	return sum, proof, owners
}

// prove is the proof of a token: a keyed hash (RFC 2104) of all that it may, which who can write to the store cannot
// make.
func (n *Node) prove(r *live.Row) string {
	sum, _, owners := tokenParts(r.Why)
	mac := hmac.New(sha256.New, []byte(n.o.Key))
	fmt.Fprintf(mac, "token of a fleet 1\n%s\n%s\n%s\n%s\n%s\n%d\n", n.o.Name, r.Entry, r.Action, sum, owners, r.Created)
	return "proof:" + hex.EncodeToString(mac.Sum(nil))
}

// ErrNoKey is the error of a token where the machines of a fleet have no key.
var ErrNoKey = errors.New(`the fleet has no key for tokens: write one as the second line of live.dsn_file, the same on each machine (head -c 32 /dev/urandom | base64)`)

var (
	errUnproved = errors.New("no machine with the key of this fleet has made it; revoke it, and make it anew with blockd token new")
	errRevoked  = errors.New("it was revoked, and somebody has written it again")
)

// The bounds of the file of tokens: a reader takes none beyond them.
const (
	mostTokens    = 1000
	mostTokenFile = 200 << 10 // octets
	mostRevoked   = 500       // hashes of tokens that were revoked, 42 KiB
)

// revokedMark begins a line of the file with the hash of a token that was revoked, which a writer of the store cannot
// bring back.
const revokedMark = "# revoked "

var errTokens = fmt.Errorf("there are more than %d tokens, or they have more than %d octets", mostTokens, mostTokenFile)

// judge says why the row of a token is no line of the file, whoever has written it.
func (n *Node) judge(r *live.Row) error {
	if strings.ContainsFunc(r.Entry+r.Action, func(c rune) bool { return c <= ' ' || c == '#' || c == 127 }) || r.Entry == "" ||
		strings.ContainsFunc(r.Why, func(c rune) bool { return c < ' ' || c == '#' || c == 127 }) {
		return errors.New("it is not one line of words")
	}
	if r.Gone != 0 {
		return nil
	}
	if _, proof, _ := tokenParts(r.Why); n.o.Key == "" {
		return ErrNoKey
	} else if !hmac.Equal([]byte(proof), []byte(n.prove(r))) {
		return errUnproved
	}
	if n.o.Token == nil {
		return nil
	}
	return n.o.Token(tokenLine(r))
}

// keyMark begins the line of the file that says by which key its tokens are proved: their proofs are not in it.
const keyMark = "# key "

// keyLine is that line for the key of the node; "" = it has none.
func (n *Node) keyLine() string {
	if n.o.Key == "" {
		return ""
	}
	mac := hmac.New(sha256.New, []byte(n.o.Key))
	fmt.Fprintf(mac, "file of tokens 1\n%s\n", n.o.Name)
	return keyMark + hex.EncodeToString(mac.Sum(nil))
}

// dropTokens empties the file if its tokens are not proved by the key of the node, be it another one than before, the
// first or none. What the engine has of them is read anew then.
func (n *Node) dropTokens() error {
	path := TokenFile(n.o.Folder)
	was, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all := strings.Split(string(was), "\n")
	if key := n.keyLine(); key != "" && slices.Contains(all, key) {
		return nil
	}
	n.anew = n.o.Key != ""
	left := slices.DeleteFunc(slices.Clone(all), func(line string) bool {
		return strings.HasPrefix(line, keyMark) || line != "" && line[0] != '#'
	})
	if len(left) == len(all) {
		return nil
	}
	n.o.Log.Warn("tokens of the fleet are not valid here until they are read again: their file is of another key, or there is none", slog.String("file", path))
	return durable.WriteFile(path, []byte(strings.Join(left, "\n")), 0o644)
}

// takeTokens changes the file of tokens: by some changes, or, with all, to what rows have.
func (n *Node) takeTokens(rows []live.Row, all bool) error {
	path := TokenFile(n.o.Folder)
	was, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var names, revoked []string
	lines, before := map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(was)) {
		line = strings.TrimSuffix(line, "\n")
		name, _, _ := strings.Cut(line, " ")
		if sum, found := strings.CutPrefix(line, revokedMark); found {
			revoked = append(revoked, sum)
		} else if name != "" && name[0] != '#' {
			before[name] = line
		}
	}
	if !all {
		names, lines = slices.Collect(maps.Keys(before)), maps.Clone(before)
	}
	for i := range rows {
		r := &rows[i]
		sum, _, _ := tokenParts(r.Why)
		err := n.judge(r)
		if err == nil && r.Gone == 0 && slices.Contains(revoked, sum) {
			err = errRevoked
		}
		if had := sumOf(before[r.Entry]); had != "" && err == nil && (r.Gone != 0 || had != sum) {
			revoked = append(revoked, had)
		}
		if n.noteToken(r.Entry, err); err != nil {
			delete(lines, r.Entry) // it was another one before
			continue
		}
		if _, there := lines[r.Entry]; !there {
			names = append(names, r.Entry)
		}
		if lines[r.Entry] = tokenLine(r); r.Gone != 0 {
			delete(lines, r.Entry)
		}
	}
	slices.Sort(names)
	text := []byte("# Tokens of the fleet, as the store of live entries has them. blockd writes this file; blockd token new makes one.\n")
	if key := n.keyLine(); key != "" && (all || bytes.Contains(was, []byte(key+"\n"))) {
		text = append(text, key+"\n"...)
	}
	for _, sum := range revoked[max(0, len(revoked)-mostRevoked):] {
		text = append(text, revokedMark+sum+"\n"...)
	}
	room := len(text) + mostTokenFile
	count := 0
	for _, name := range slices.Compact(names) {
		line, there := lines[name]
		if !there {
			continue
		}
		if count++; count > mostTokens || len(text)+len(line) >= room {
			n.noteToken(name, errTokens)
			continue
		}
		text = append(append(text, line...), '\n')
	}
	if bytes.Equal(text, was) || len(lines) == 0 && len(was) == 0 && !all {
		return nil
	}
	return durable.WriteFile(path, text, 0o644)
}

// sumOf is the hash in a line of the file; "" = it has none.
func sumOf(line string) string {
	if fields := strings.Fields(line); len(fields) > 2 {
		return fields[2]
	}
	return ""
}

// Token is a token of the fleet.
type Token struct {
	Name, Scope string // the scope: "read" or "write"
	Sum         string // "sha256:HEX"
	Owners      string // that it is bound to, as a file of tokens has them; "" = none
	By          string
}

// ErrTokenThere is the error of a token whose name is taken.
var ErrTokenThere = errors.New("there is a token of this name")

// AddToken adds a token, which is valid on each node as soon as it knows of it, with the key of the fleet; ErrNoKey:
// this one has none. anew: it takes the place of the one of its name, which is worthless then.
func (n *Node) AddToken(ctx context.Context, t Token, anew bool) error {
	if n.o.Key == "" {
		return ErrNoKey
	}
	row := live.Row{Entry: t.Name, Scope: ScopeToken, Action: t.Scope, Why: t.Sum + "  " + t.Owners, By: t.By, Created: n.o.Set.Now().Unix()}
	row.Why = strings.TrimRight(t.Sum+" "+n.prove(&row)+" "+t.Owners, " ")
	want := live.Want{Row: row}
	if !anew {
		want.IfRev = new(uint64)
	}
	given, err := n.direct(ctx, want)
	if err == nil && given.Conflict {
		err = ErrTokenThere
	}
	return err
}

// RevokeToken revokes a token; false = there is none of that name.
func (n *Node) RevokeToken(ctx context.Context, name, by string) (bool, error) {
	given, err := n.direct(ctx, live.Want{Row: live.Row{Entry: name, Scope: ScopeToken, By: by, Gone: n.o.Set.Now().Unix()}})
	return given.Was != nil, err
}

// direct writes one change that is of no live entry. A node that runs has taken it when direct returns; for another one the Set need not be open.
func (n *Node) direct(ctx context.Context, w live.Want) (live.Given, error) {
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	if err := n.take(ctx); err != nil {
		return live.Given{}, err
	}
	defer n.release()
	wants := []live.Want{w}
	written, err := n.o.Engine.Write(ctx, wants, live.Terms{})
	if err != nil {
		return live.Given{}, fmt.Errorf("%w: %w", live.ErrAway, err)
	}
	n.mu.Lock()
	runs := n.runs
	n.mu.Unlock()
	if runs {
		n.catchUp(ctx, wants, written.Given)
	}
	return written.Given[0], nil
}

// MayWrite reports whether tokens of the fleet that may write are valid here: the engine has answered within WritesFor, so
// none of them was revoked longer ago than that. A nil Node has no tokens.
func (n *Node) MayWrite() bool {
	if n == nil {
		return false
	}
	n.mu.Lock()
	up := n.tried && n.fault == nil
	n.mu.Unlock()
	return up || n.o.Set.Now().Sub(n.kept.seenAt()) <= WritesFor
}
