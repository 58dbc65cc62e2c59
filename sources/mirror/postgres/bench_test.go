package postgres

import (
	"fmt"
	"testing"

	"blockd/internal/testkit/postgresserver"
	"blockd/sources/mirror/mirrortest"
	"blockd/sources/mirror/query"
)

// BenchmarkRead reads a table of so many rows into a copy, and takes changes in. BLOCKD_TEST_ROWS gives their number.
func BenchmarkRead(b *testing.B) {
	n := mirrortest.BenchRows(100_000)
	server, err := postgresserver.Open()
	if err != nil {
		b.Skip(err)
	}
	defer server.Close()
	server.Exec(b, "postgres", fmt.Sprintf(`create table senders as
		select i as id, 'user.' || substr(md5(i::text), 1, 10) || '@mail' || i %% 100000 || '.bulk.example' as entry from generate_series(1, %d) as i;
		create index on senders (entry)`, n))
	s := open(b, Options{DSN: server.URL("postgres", "postgres"), List: "bench", Query: "select entry, id from senders", Changes: query.Log})
	server.Exec(b, "postgres", s.DDL())
	mirrortest.Benchmark(b, s, n, func(i int) {
		server.Exec(b, "postgres", fmt.Sprintf("insert into senders values (0, 'new%d@bulk.example')", i))
	})
}
