package config

import (
	"reflect"
	"testing"
	"time"

	"blockd/policy/rule"
	"blockd/records/history"
)

// What a table may hold is checked key by key, and what is not given is not.
func TestWants(t *testing.T) {
	type table struct {
		Word  string    `toml:"word" want:"rcpt|mail"`
		Share float64   `toml:"share" want:"0 to 1"`
		Size  Octets    `toml:"size" want:"1 KiB to 1 MiB"`
		Age   Duration  `toml:"age" want:"0s or 1m to 2d"`
		Every *Duration `toml:"every,omitempty" want:"1m to 2d"`
		Free  string    `toml:"free"`
	}
	good, second, hour := table{"mail", 0.5, 1024, 0, nil, "?"}, Duration(time.Second), Duration(time.Hour)
	for name, tt := range map[string]struct {
		change func(*table)
		want   string
	}{
		"good":         {func(*table) {}, ""},
		"word":         {func(x *table) { x.Word = "dot" }, `t.word: want "rcpt" or "mail", have "dot"`},
		"share":        {func(x *table) { x.Share = 1.5 }, "t.share: want 0 to 1, have 1.5"},
		"size":         {func(x *table) { x.Size = 2 << 20 }, "t.size: want 1 KiB to 1 MiB, have 2 MiB"},
		"age":          {func(x *table) { x.Age = 30 * Duration(day) }, "t.age: want 0s or 1m to 2d, have 30d"},
		"a given one":  {func(x *table) { x.Every = &second }, "t.every: want 1m to 2d, have 1s"},
		"no other one": {func(x *table) { x.Every = &hour }, ""},
	} {
		x := good
		tt.change(&x)
		var f Faults
		if f.wants("t", reflect.ValueOf(x)); f.Error() != tt.want {
			t.Errorf("%s: %q, want %q", name, f.Error(), tt.want)
		}
	}
}

// Bounds that other packages hold too are the same there.
func TestBoundsOfOtherPackages(t *testing.T) {
	c := Default()
	c.Lists = []List{defaultList()}
	c.Lists[0].Name, c.Lists[0].Path, c.Lists[0].Tarpit = "a", "a.txt", Duration(rule.MaxTarpit)
	c.History.Max = history.MinMax
	if faults := c.Validate(); len(faults) > 0 {
		t.Errorf("the bounds of policy and history are faults: %v", faults)
	}
	c.Lists[0].Tarpit++
	c.History.Max--
	if faults := c.Validate(); len(faults) != 2 {
		t.Errorf("beyond the bounds of policy and history: %v, want two faults", faults)
	}
}
