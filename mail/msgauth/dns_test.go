package msgauth

import (
	"testing"

	"blockd/internal/testkit/nameserver"
)

type zone = nameserver.Zone

func resolverOf(t testing.TB, s *nameserver.Server) *Resolver {
	t.Helper()
	return newResolver(t, Settings{Server: s.Address})
}

func newResolver(t testing.TB, settings Settings) *Resolver {
	t.Helper()
	r, err := NewResolver(settings)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
