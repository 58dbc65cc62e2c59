package config

import (
	"fmt"
	"testing"

	"blockd/internal/testkit"
)

// A zone waits for its lists that are not optional.
func TestRequiredListsOfZones(t *testing.T) {
	c := Default()
	for _, name := range []string{"spam", "own", "extra"} {
		l := defaultList()
		l.Name, l.Optional = name, name == "extra"
		c.Lists = append(c.Lists, l)
	}
	for _, row := range []struct {
		lists []string
		want  string
	}{
		{nil, "[spam own]"}, {[]string{"own", "extra", "live"}, "[own]"}, {[]string{"extra", "live"}, "[]"},
	} {
		z := defaultZone()
		z.Name, z.Kind, z.Lists = "dbl.here.example", "domain", row.lists
		c.DNS.Zones = []DNSZone{z}
		testkit.Equal(t, fmt.Sprintf("lists %q: required", row.lists), fmt.Sprint(c.DNSDoor().Zones[0].Required), row.want)
	}
}
