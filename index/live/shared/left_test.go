package shared_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"blockd/index/live/shared"
	"blockd/internal/testkit"
)

// One token that is none does not take the others away. It is named, and valid nowhere.
func TestABadTokenLeavesTheOthers(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		a := fleet(t, e, 1, func(o *shared.Options) {
			o.Token = func(line string) error {
				if strings.Contains(line, "admin") {
					return errors.New("want read or write")
				}
				return nil
			}
		})[0]
		add := func(name, scope, sum string) {
			t.Helper()
			if err := a.AddToken(t.Context(), shared.Token{Name: name, Scope: scope, Sum: sum, By: "anna"}); err != nil {
				t.Fatal(err)
			}
		}
		sum := "sha256:" + strings.Repeat("ab", 32)
		add("first", "read", sum)
		add("second", "admin", sum)
		add("two words", "read", sum)
		add("last", "write", sum)
		file := func() string {
			text, err := os.ReadFile(a.TokenFile())
			if err != nil {
				return err.Error()
			}
			return string(text)
		}
		check := func() {
			t.Helper()
			testkit.Eventually(t, "the good ones", func() bool { return strings.Contains(file(), "\nlast write") })
			if text := file(); !strings.Contains(text, "\nfirst read") || strings.Contains(text, "admin") || strings.Contains(text, "words") {
				t.Errorf("the file has\n%s", text)
			}
			if p := strings.Join(a.Problems(), "\n"); !strings.Contains(p, "2 tokens of the fleet are not valid here") {
				t.Errorf("Problems() = %q", p)
			}
		}
		check()
		a.stop()
		if err := os.Remove(a.TokenFile()); err != nil {
			t.Fatal(err)
		}
	})
}

// What somebody has written into a Redis by hand, and is no row, is passed over and named; the rest goes on.
func TestWhatIsNoRowIsPassedOver(t *testing.T) {
	e := ofRedis(t)
	a := fleet(t, e, 1, func(o *shared.Options) { o.SumEvery = time.Second })[0]
	c, ctx := client(t, e.address), context.Background()
	write := func(field, value string) {
		t.Helper()
		rev := c.Incr(ctx, "{blockd:eu-mx}:rev").Val()
		if err := c.HSet(ctx, "{blockd:eu-mx}:live", field, value).Err(); err != nil {
			t.Fatal(err)
		}
		if err := c.XAdd(ctx, &goredis.XAddArgs{Stream: "{blockd:eu-mx}:log", ID: fmt.Sprintf("%d-1", rev), Values: []string{"f", field, "v", value}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	a.apply(t, block("before.example", "b"))
	write("no field", "no value")
	write("\x1fbad.example\x1ftree", "x\ty")
	write("\x1flong.example\x1ftree", "1\t0\t\t0\t0\tblock\t\tanna\t"+strings.Repeat("w", 50_000_000))
	testkit.Eventually(t, "they are passed over", func() bool { return a.set.Cursor().Revision == 4 })
	a.apply(t, block("after.example", "a"))
	a.eventually(t, "before.example", "block b")
	b := fleet(t, e, 1, nil)[0] // reads everything
	for _, n := range []*node{a, b} {
		n.eventually(t, "after.example", "block a")
		if p := strings.Join(n.Problems(), "\n"); !strings.Contains(p, "3 fields that are no entries") || len(p) > 1000 {
			t.Errorf("Problems() = %.2000q", p)
		}
	}
	testkit.Eventually(t, "nothing differs", func() bool { return a.Status().Up && a.Status().Differs == 0 })
}

// Rows of any length are left out of the table too.
func TestLongRowsAreLeftOut(t *testing.T) {
	e := ofPostgres(t)
	a := fleet(t, e, 1, nil)[0]
	a.apply(t, block("before.example", "b"))
	e.exec(t, "insert into blockd_live (name, entry, scope, action, why, rev) values ('eu-mx', 'long.example', 'tree', 'block', repeat('w', 100000000), nextval('blockd_live_rev'))")
	a.apply(t, block("after.example", "a"))
	a.eventually(t, "before.example", "block b")
	if p := strings.Join(a.Problems(), "\n"); !strings.Contains(p, "1 rows of the store cannot be read") {
		t.Errorf("Problems() = %.1000q", p)
	}
}

// Reports are bounded, whoever writes them.
func TestReportsAreBounded(t *testing.T) {
	onEach(t, func(t *testing.T, e engine) {
		a := fleet(t, e, 1, nil)[0]
		for name, report := range map[string]string{"small": "{}", "large": strings.Repeat("x", shared.MaxReport+1)} {
			if err := a.Report(t.Context(), name, []byte(report), time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		all, err := a.Reports(t.Context())
		if err != nil || len(all) != 1 || string(all["small"]) != "{}" {
			t.Errorf("Reports() = %d reports, %v", len(all), err)
		}
	})
}
