package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/postgresserver"
	"blockd/lists"
	"blockd/reload"
	"blockd/sources/mirror"
	"blockd/sources/mirror/postgres"
	"blockd/sources/mirror/query"
)

// numbered is a source of so many addresses. Each hint is one entry more.
type numbered struct {
	rows  int
	hints chan struct{}
}

func (numbered) Close() error                                { return nil }
func (numbered) Fingerprint(context.Context) (string, error) { return "numbered", nil }

func (n numbered) All(_ context.Context, yield func(mirror.Row) error) (mirror.Mark, error) {
	for i := range n.rows {
		x := uint64(i) * 0x9E3779B97F4A7C15
		if err := yield(mirror.Row{Entry: fmt.Sprintf("user.%x@mail%d.bulk.example", x>>24, x>>44)}); err != nil {
			return "", err
		}
	}
	return "0", nil
}

func (numbered) Changes(_ context.Context, since mirror.Mark, yield func(mirror.Change) error) (mirror.Mark, error) {
	n, _ := strconv.Atoi(string(since))
	entry := fmt.Sprintf("new%d@bulk.example", n)
	return mirror.Mark(strconv.Itoa(n + 1)), yield(mirror.Change{Entry: entry, Rows: []mirror.Row{{Entry: entry}}})
}

func (n numbered) Wait(ctx context.Context) error {
	select {
	case <-n.hints:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// BenchmarkChangeActs measures from a row that has changed, with a hint of it, to the generation that has it.
// BLOCKD_TEST_ROWS gives the number of rows, and BLOCKD_TEST_PAUSE the time between two changes.
func BenchmarkChangeActs(b *testing.B) {
	source := numbered{200_000, make(chan struct{}, 1)}
	if n, err := strconv.Atoi(os.Getenv("BLOCKD_TEST_ROWS")); err == nil {
		source.rows = n
	}
	changesAct(b, source.rows, mirror.List{Every: time.Hour, Open: func() (mirror.Source, error) { return source, nil }},
		func(int) { source.hints <- struct{}{} })
}

// BenchmarkRowActs is BenchmarkChangeActs of a table in PostgreSQL: from the commit of an INSERT, with NOTIFY, and
// without it with a poll each second.
func BenchmarkRowActs(b *testing.B) {
	rows := 100_000
	if n, err := strconv.Atoi(os.Getenv("BLOCKD_TEST_ROWS")); err == nil {
		rows = n
	}
	server, err := postgresserver.Open()
	if err != nil {
		b.Skip(err)
	}
	defer server.Close()
	for name, o := range map[string]struct {
		channel string
		every   time.Duration
	}{"notify": {"changed", time.Hour}, "poll": {"", time.Second}} {
		b.Run(name, func(b *testing.B) {
			server.Exec(b, "postgres", "drop table if exists senders, blockd_log; create table senders (entry text primary key)")
			server.Exec(b, "postgres", fmt.Sprintf("insert into senders select 'user.' || substr(md5(i::text), 1, 10) || '@mail' || i || '.bulk.example' from generate_series(1, %d) as i", rows))
			options := postgres.Options{DSN: server.URL("postgres", "postgres"), Query: "select entry from senders", Changes: query.Log, List: "a", Notify: o.channel}
			source := testkit.Value(postgres.Open(options))(b)
			server.Exec(b, "postgres", testkit.Value(source.DDL())(b))
			source.Close()
			changesAct(b, rows, mirror.List{Every: o.every, Open: func() (mirror.Source, error) { return postgres.Open(options) }},
				func(n int) {
					server.Exec(b, "postgres", fmt.Sprintf("insert into senders values ('new%d@bulk.example')", n))
				})
		})
	}
}

// changesAct measures a list of so many rows: from the end of change, which adds the nth one, to the generation that has it.
func changesAct(b *testing.B, rows int, l mirror.List, change func(n int)) {
	pause, _ := time.ParseDuration(os.Getenv("BLOCKD_TEST_PAUSE"))
	dir, log := b.TempDir(), slog.New(slog.DiscardHandler)
	if os.Getenv("BLOCKD_TEST_LOG") != "" {
		log = slog.Default()
	}
	folder := filepath.Join(dir, "copy")
	served := make(chan *index.Index, 1000)
	var r *reload.Reloader
	l.Name, l.Reconcile, l.Copy = "a", 24*time.Hour, mirror.Options{Folder: folder}
	keeper := mirror.NewKeeper([]mirror.List{l}, func() { r.Replaced() }, log, nil)
	r, err := reload.Open(b.Context(), reload.Settings{Path: filepath.Join(dir, "a.bdx"), Served: func(ix *index.Index) { served <- ix },
		Lists: []reload.List{{Name: "a", Path: mirror.Files(folder), Settings: lists.Settings{Format: "entries"}}}}, log, prometheus.NewRegistry())
	testkit.Must(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{}, 2)
	go func() { keeper.Run(ctx); done <- struct{}{} }()
	go func() { r.Run(ctx); done <- struct{}{} }()
	defer func() {
		cancel()
		<-done
		<-done
	}()
	has := func(ix *index.Index, entries int) bool {
		total := 0
		for _, row := range ix.Lists() {
			total += row.Summary.Entries
		}
		return total >= entries
	}
	began := time.Now()
	for want := rows; !has(<-served, want); {
	}
	b.Logf("%d rows served after %s", rows, time.Since(began))
	var all []time.Duration
	for b.Loop() {
		<-time.After(pause)
		for len(served) > 0 {
			<-served
		}
		change(len(all))
		began := time.Now()
		for want := rows + len(all) + 1; !has(<-served, want); {
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Milliseconds()), "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Milliseconds()), "p99-ms")
	b.ReportMetric(float64(all[len(all)-1].Milliseconds()), "max-ms")
}
