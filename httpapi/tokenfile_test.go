package httpapi

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
)

// Who makes a token must not bring back one that somebody revokes meanwhile, nor lose
// one that somebody else makes.
func TestTokensMadeAndRevokedAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	const each = 20
	for i := range each {
		if _, err := NewToken(path, fmt.Sprintf("old-%d", i), Write); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i := range each {
		all.Go(func() {
			if found, err := RevokeToken(path, fmt.Sprintf("old-%d", i)); err != nil || !found {
				t.Errorf("old-%d: revoked %t, %v", i, found, err)
			}
		})
		all.Go(func() {
			if _, err := NewToken(path, fmt.Sprintf("new-%d", i), Read); err != nil {
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
