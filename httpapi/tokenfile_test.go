package httpapi

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"blockd/internal/testkit"
)

// Who makes a token must not bring back one that somebody revokes meanwhile, nor lose
// one that somebody else makes.
func TestTokensMadeAndRevokedAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	const each = 20
	for i := range each {
		if _, err := NewToken(path, fmt.Sprintf("old-%d", i), Write, nil, ""); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i := range each {
		all.Go(func() {
			if found, err := RevokeToken(path, fmt.Sprintf("old-%d", i), nil, ""); err != nil || !found {
				t.Errorf("old-%d: revoked %t, %v", i, found, err)
			}
		})
		all.Go(func() {
			if _, err := NewToken(path, fmt.Sprintf("new-%d", i), Read, nil, ""); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	left, err := ReadTokens(path)
	if err != nil || len(left) != each {
		t.Fatalf("%d tokens, %v, want %d", len(left), err, each)
	}
	for _, token := range left {
		if token.Scope != Read {
			t.Errorf("%s was revoked and is there", token.Name)
		}
	}
}

// TestFirstToken: it is made once, for its owner's eyes, and read from there on.
func TestFirstToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blockd.bdx.token")
	token, made, err := FirstToken(path)
	if err != nil || !made || len(token) < 40 {
		t.Fatalf("FirstToken() = %q, %t, %v", token, made, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v, want mode 0600", info.Mode(), err)
	}
	if again, made, err := FirstToken(path); again != token || made || err != nil {
		t.Errorf("again: %q, %t, %v", again, made, err)
	}
	testkit.Write(t, path, "short\n")
	if _, made, err := FirstToken(path); err == nil || made {
		t.Errorf("a file that holds no token: %t, %v", made, err)
	}
}
