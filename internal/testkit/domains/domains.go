// Package domains gives tests sets of domains that have sent mail.
package domains

import (
	"path/filepath"
	"testing"

	"blockd/bloom/filter"
	"blockd/records/firstseen"
)

// Known is a set, until the test ends, in which some domains are known.
func Known(t testing.TB, known ...string) *firstseen.Set {
	t.Helper()
	s, _, err := firstseen.Open(filepath.Join(t.TempDir(), "domains.bds"), filter.SeenSettings{Octets: 4096})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, domain := range known {
		s.AddIfAbsent(domain)
	}
	return s
}
