package httpapi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"blockd/internal/testkit"
	"blockd/mail/addr"
)

// Who makes a token must not bring back one that somebody revokes meanwhile, nor lose
// one that somebody else makes.
func TestTokensMadeAndRevokedAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	const each = 20
	for i := range each {
		testkit.Value(NewToken(path, fmt.Sprintf("old-%d", i), Write, nil, ""))(t)
	}
	var all sync.WaitGroup
	for i := range each {
		all.Go(func() {
			testkit.Got(RevokeToken(path, fmt.Sprintf("old-%d", i), nil, ""))(t, "an old token", true, nil)
		})
		all.Go(func() {
			testkit.Value(NewToken(path, fmt.Sprintf("new-%d", i), Read, nil, ""))(t)
		})
	}
	all.Wait()
	left := testkit.Value(ReadTokens(path))(t)
	testkit.MustEqual(t, "tokens left", len(left), each)
	for _, token := range left {
		testkit.Equal(t, token.Name, token.Scope, Read)
	}
}

// TestFirstToken: it is made once, for its owner's eyes, and read from there on.
func TestFirstToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blockd.bdx.token")
	token, made, err := FirstToken(path)
	if err != nil || !made || len(token) < 40 {
		t.Fatalf("FirstToken() = %q, %t, %v", token, made, err)
	}
	info := testkit.Value(os.Stat(path))(t)
	testkit.Equal(t, "mode", info.Mode(), 0o600)
	if again, made, err := FirstToken(path); again != token || made || err != nil {
		t.Errorf("again: %q, %t, %v", again, made, err)
	}
	testkit.Write(t, path, "short\n")
	if _, made, err := FirstToken(path); err == nil || made {
		t.Errorf("a file that holds no token: %t, %v", made, err)
	}
}

// A token for which the file has no room is refused: a file that is too long would make all of them worthless.
func TestTokenFileHasABound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	var owners []addr.Key
	for i := range MaxTokenOwners {
		owner := testkit.Value(addr.ParseOwner(fmt.Sprintf("%d%s@here.example", i, strings.Repeat("ü", 25))))(t)
		owners = append(owners, owner)
	}
	made := 0
	for ; made < maxTokens; made++ {
		if _, err := NewToken(path, fmt.Sprintf("n%d", made), Read, nil, "", owners...); err != nil {
			testkit.IsError(t, "the last one", err, errTokensFull)
			break
		}
	}
	if all, err := ReadTokens(path); err != nil || len(all) != made || made == 0 {
		t.Errorf("%d tokens after %d, %v", len(all), made, err)
	}
}
