package reload

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/mail/addr"
	"blockd/records/correspondents"
)

// processor is the time that this process has had of a processor: what other programs of the machine do is not in it.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	testkit.Must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkNamed walks over a new list of a million addresses, of whom one in ten thousand is a correspondent, with nearly a million
// correspondents: what a load costs for their sake. cpu-ns/entry is the figure of docs/correspondents.md.
func BenchmarkNamed(b *testing.B) {
	const entries, known = 1_000_000, 1_000_000
	path := b.TempDir() + "/set"
	set, _, err := correspondents.Open(correspondents.Settings{Path: path, Keep: 365 * 24 * time.Hour})
	testkit.Must(b, err)
	defer set.Close()
	sender, _ := addr.Parse("anna@here.example")
	learn := func(text string) {
		recipient := testkit.Value(addr.Parse(text))(b)
		set.Learn(sender, recipient, time.Now())
	}
	for i := range known {
		learn(fmt.Sprintf("user%d@d%d.example", i, i/5))
	}
	var list strings.Builder
	for i := range entries {
		if i%10_000 == 0 {
			fmt.Fprintf(&list, "user%d@d%d.example\n", i/10, i/50)
			continue
		}
		fmt.Fprintf(&list, "offer%d@mail%d.bulk%d.example\n", i, i%97, i/11)
	}
	ix := indexes.Build(b, indexes.Source(b, "bad", list.String()))
	testkit.Must(b, set.Save())
	info := testkit.Value(os.Stat(path))(b)
	b.ReportAllocs()
	found, spent := 0, processor(b)
	for b.Loop() {
		found = 0
		for _, err := range ix.Named(b.Context(), nil, set.Known) {
			testkit.Must(b, err)
			found++
		}
	}
	b.ReportMetric(float64(processor(b)-spent)/float64(b.N)/entries, "cpu-ns/entry")
	b.ReportMetric(float64(info.Size())/1e6, "MB-file")
	b.ReportMetric(float64(set.Len()), "known")
	if found < entries/10_000*9/10 {
		b.Errorf("%d found", found)
	}
}
