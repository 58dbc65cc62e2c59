package ldap

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/slapdserver"
	"blockd/sources/mirror"
)

// BenchmarkDirectory reads so many objects, and then takes changes in, one at a time. BLOCKD_TEST_ROWS gives their number.
func BenchmarkDirectory(b *testing.B) {
	n, err := strconv.Atoi(os.Getenv("BLOCKD_TEST_ROWS"))
	if err != nil {
		n = 10_000
	}
	var more strings.Builder
	more.WriteString("dn: ou=many,dc=test\nobjectClass: organizationalUnit\nou: many\n\n")
	for i := range n {
		fmt.Fprintf(&more, "dn: cn=s%d,ou=many,dc=test\nobjectClass: person\nobjectClass: blockedSender\ncn: s%d\nsn: s\nmail: user.%x@mail%d.bulk.example\nmodifyTimestamp: 20250101000000Z\n\n",
			i, i, uint32(i)*0x9E3779B9, i%1000)
	}
	server := slapdserver.Start(b, more.String())
	s := mustOpen(b, Options{DSN: server.URL("ou=many,dc=test?mail"), Overlap: time.Minute})
	m, err := mirror.Open(mirror.Options{Folder: filepath.Join(b.TempDir(), "copy")})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	b.Run("read", func(b *testing.B) {
		peak := testkit.PeakHeap()
		for b.Loop() {
			if told, err := m.Read(b.Context(), s); err != nil || told.Entries != int64(n) {
				b.Fatalf("%+v, %v", told, err)
			}
		}
		b.ReportMetric(float64(peak())/(1<<20), "MiB-heap")
	})
	b.Run("idle", func(b *testing.B) {
		for b.Loop() {
			if _, err := m.Follow(b.Context(), s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("change", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			server.Set(b, "cn=s7,ou=many,dc=test", "mail", fmt.Sprintf("new%d@bulk.example", i))
			if _, err := m.Follow(b.Context(), s); err != nil {
				b.Fatal(err)
			}
		}
	})
}
