package ldap

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit/slapdserver"
	"blockd/sources/mirror/mirrortest"
)

// BenchmarkDirectory reads so many objects, and then takes changes in, one at a time. BLOCKD_TEST_ROWS gives their number.
func BenchmarkDirectory(b *testing.B) {
	n := mirrortest.BenchRows(10_000)
	var more strings.Builder
	more.WriteString("dn: ou=many,dc=test\nobjectClass: organizationalUnit\nou: many\n\n")
	for i := range n {
		fmt.Fprintf(&more, "dn: cn=s%d,ou=many,dc=test\nobjectClass: person\nobjectClass: blockedSender\ncn: s%d\nsn: s\nmail: user.%x@mail%d.bulk.example\nmodifyTimestamp: 20250101000000Z\n\n",
			i, i, uint32(i)*0x9E3779B9, i%1000)
	}
	server := slapdserver.Start(b, more.String())
	s := mustOpen(b, Options{DSN: server.URL("ou=many,dc=test?mail"), Overlap: time.Minute})
	mirrortest.Benchmark(b, s, n, func(i int) { server.Set(b, "cn=s7,ou=many,dc=test", "mail", fmt.Sprintf("new%d@bulk.example", i)) })
}
