package shared

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	sum, owners, _ := strings.Cut(r.Why, " ")
	return strings.TrimRight(fmt.Sprintf("%s %s %s %s %s", r.Entry, r.Action, sum, time.Unix(r.Created, 0).UTC().Format(time.DateOnly), owners), " ")
}

// The bounds of the file of tokens: a reader takes none beyond them.
const (
	mostTokens    = 1000
	mostTokenFile = 200 << 10 // octets
)

var errTokens = fmt.Errorf("there are more than %d tokens, or they have more than %d octets", mostTokens, mostTokenFile)

// judge says why the row of a token is no line of the file, whoever has written it.
func (n *Node) judge(r *live.Row) error {
	if strings.ContainsFunc(r.Entry+r.Action, func(c rune) bool { return c <= ' ' || c == '#' || c == 127 }) || r.Entry == "" ||
		strings.ContainsFunc(r.Why, func(c rune) bool { return c < ' ' || c == '#' || c == 127 }) {
		return errors.New("it is not one line of words")
	}
	if n.o.Token == nil || r.Gone != 0 {
		return nil
	}
	return n.o.Token(tokenLine(r))
}

// takeTokens changes the file of tokens: by some changes, or, with all, to what rows have.
func (n *Node) takeTokens(rows []live.Row, all bool) error {
	path := TokenFile(n.o.Folder)
	was, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var names []string
	lines := map[string]string{}
	in := bufio.NewScanner(bytes.NewReader(was))
	for in.Scan() && !all {
		name, _, _ := strings.Cut(in.Text(), " ")
		if name != "" && name[0] != '#' {
			names, lines[name] = append(names, name), in.Text()
		}
	}
	for i := range rows {
		r := &rows[i]
		err := n.judge(r)
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
	count := 0
	for _, name := range slices.Compact(names) {
		line, there := lines[name]
		if !there {
			continue
		}
		if count++; count > mostTokens || len(text)+len(line) >= mostTokenFile {
			n.noteToken(name, errTokens)
			continue
		}
		text = append(append(text, line...), '\n')
	}
	if bytes.Equal(text, was) || len(lines) == 0 && len(was) == 0 {
		return nil
	}
	return durable.WriteFile(path, text, 0o644)
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

// AddToken adds a token, which is valid on each node as soon as it knows of it.
func (n *Node) AddToken(ctx context.Context, t Token) error {
	none := uint64(0)
	row := live.Row{Entry: t.Name, Scope: ScopeToken, Action: t.Scope, Why: strings.TrimRight(t.Sum+" "+t.Owners, " "), By: t.By, Created: n.o.Set.Now().Unix()}
	given, err := n.direct(ctx, live.Want{Row: row, IfRev: &none})
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
