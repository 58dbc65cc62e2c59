package sqlite

import (
	"database/sql"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/writers"
	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
)

const lastNumber = "select max(rev) from blockd_log"

// writerPath is the environment of a process that writes to a database.
const writerPath = "BLOCKD_TEST_WRITER"

var soak = flag.Bool("soak", false, "follow writers for long")

// process is a program that writes to a database.
type process struct {
	*exec.Cmd
	order io.WriteCloser // an octet for each change
}

func startWriter(t testing.TB, url string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], "-test.run=^TestFollowsProcesses$")}
	p.Env = append(os.Environ(), writerPath+"="+url)
	var err error
	if p.order, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	p.Stderr = os.Stderr
	testkit.Must(t, p.Start())
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

// write makes a change for each octet of its standard input.
func write(t *testing.T, url string) {
	db, err := sql.Open("sqlite", url)
	testkit.Must(t, err)
	defer db.Close()
	rng := rand.New(rand.NewPCG(rand.Uint64(), 50))
	for in := make([]byte, 1); ; {
		if _, err := os.Stdin.Read(in); err != nil {
			return
		}
		testkit.Must(t, writers.Change(t.Context(), db, rng, lastNumber))
	}
}

// TestFollowsProcesses lets two programs write at random, kills them at any moment, and starts them again. What the
// copy serves are states that the table had after a transaction, in their order, and in the end the last one.
func TestFollowsProcesses(t *testing.T) {
	if url := os.Getenv(writerPath); url != "" {
		write(t, url)
		return
	}
	polls := 20
	if *soak {
		polls = 2000
	}
	for _, mode := range []string{"delete", "wal"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, mode)
			d.do(t, "drop table senders; "+writers.Tables)
			url := d.url + "&_synchronous=off"
			source := d.source(t, Options{Changes: "log", Query: writers.Query})
			copied := writers.Follow(t, source)
			both := []*process{startWriter(t, url), startWriter(t, url)}
			rng := rand.New(rand.NewPCG(50, 50))
			for range polls {
				for _, p := range both {
					_, _ = p.order.Write(make([]byte, rng.IntN(60))) // while we read
				}
				switch rng.IntN(5) {
				case 0:
					i := rng.IntN(2)
					both[i].kill()
					both[i] = startWriter(t, url)
				case 1:
					copied.Restart(t)
				}
				err := copied.Poll(t, t.Context())
				if class := mirrortest.Class(err); class != "" && class != mirror.ClassTimeout && class != mirror.ClassUnreachable {
					t.Fatal(err)
				}
			}
			for _, p := range both {
				p.order.Close()
				_ = p.Wait()
			}
			copied.Check(t, d.DB)
		})
	}
}

// TestFollowsOwners: entries with owners are followed by the log as by a watermark.
func TestFollowsOwners(t *testing.T) {
	for _, o := range []Options{
		{Changes: "log", Query: writers.OwnedQuery, PerRecipient: true},
		{Changes: "watermark", Watermark: "changed", Query: writers.OwnedWatermark, PerRecipient: true},
	} {
		t.Run(o.Changes, func(t *testing.T) {
			d := newDatabase(t, "wal")
			d.do(t, "drop table senders; "+writers.OwnedTable)
			writers.FollowOwned(t, d.source(t, o), o.Watermark != "", func(sql string) { d.do(t, sql) })
		})
	}
}
