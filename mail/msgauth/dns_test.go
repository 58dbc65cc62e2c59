package msgauth

import (
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
)

type zone = nameserver.Zone

func resolverOf(t testing.TB, s *nameserver.Server) *Resolver {
	t.Helper()
	return newResolver(t, Settings{Server: s.Address})
}

func newResolver(t testing.TB, settings Settings) *Resolver {
	t.Helper()
	r := testkit.Value(NewResolver(settings))(t)
	return r
}
