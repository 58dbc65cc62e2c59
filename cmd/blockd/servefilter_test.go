package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/bloom/filter"
	"blockd/doors/httpapi"
	"blockd/internal/testkit"
)

// TestServeKeepsFilters: a filter on disk follows the lists, a filter that cannot be written is told of, and mail goes on.
func TestServeKeepsFilters(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "config.toml", anyPorts+`
[[filter]]
name = "bl"
as = "guava"
to = "bl.bf"
p = 0.0001
[[filter]]
name = "nowhere"
as = "bits"
to = "none/bl.bits"
`)
	writeFile(t, dir, "lists/a.txt", "bulk.example\n")
	d := serveIn(t, dir, "smtp", "http")
	has := func(key string) func() bool {
		return func() bool {
			f, err := filter.Open(filepath.Join(dir, "bl.bf"))
			return err == nil && f.Has([]byte(key))
		}
	}
	testkit.Eventually(t, "the filter", has("bulk.example"))
	writeFile(t, dir, "lists/a.txt", "other.example\n")
	testkit.Eventually(t, "the filter of the next generation", has("other.example"))
	var table httpapi.ListTable
	testkit.Eventually(t, "the filters in /v1/lists", func() bool {
		_, body := d.get(t, "/v1/lists")
		table = httpapi.ListTable{}
		err := json.Unmarshal([]byte(body), &table)
		return err == nil && len(table.Filters) == 2 && table.Filters[0].Generation == table.Generation && table.Filters[1].Error != ""
	})
	if f := table.Filters[0]; f.Name != "bl" || f.Keys != 1 || f.Written == nil || f.To != filepath.Join(dir, "bl.bf") || f.Error != "" {
		t.Errorf("/v1/lists has %+v", f)
	}
	testkit.Got(blockd(t, "", "lists", "-c", filepath.Join(dir, "config.toml")))(t, "blockd lists", 0, "…\nbl …\nfilter nowhere: …", "…")
	if _, metrics := d.get(t, "/metrics"); !strings.Contains(metrics, "\nblockd_filter_keys{filter=\"bl\"} 1\n") {
		t.Error("/metrics does not have the filter")
	}
	testkit.Begins(t, "a clear sender", d.send(t, "friend@clear.example", "you@here.example"), "250 ")
	d.end(t)
	before := testkit.Value(os.Stat(filepath.Join(dir, "bl.bf")))(t)
	d = serveIn(t, dir, "smtp", "http")
	d.wait(t, "filter not written") // the second of them, so the first has had its turn
	if after, err := os.Stat(filepath.Join(dir, "bl.bf")); err != nil || !os.SameFile(before, after) {
		t.Errorf("the filter was written again after a restart: %v", err)
	}
}
