package config

import (
	"fmt"
	"math"
	"testing"

	"blockd/internal/machine"
	"blockd/internal/testkit"
)

func TestOctets(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Octets
		back string
	}{
		{"469762048", 448 << 20, "448 MiB"},
		{"448 MiB", 448 << 20, "448 MiB"},
		{"448MiB", 448 << 20, "448 MiB"},
		{" 2 GiB ", 2 << 30, "2 GiB"},
		{"1024 KiB", 1 << 20, "1 MiB"},
		{"1 TiB", 1 << 40, "1 TiB"},
		{"1025", 1025, "1025"},
		{"0", 0, "0"},
	} {
		var got Octets
		testkit.Must(t, got.UnmarshalText([]byte(tt.text)))
		testkit.Got(got, got.String())(t, fmt.Sprintf("%q", tt.text), tt.want, tt.back)
	}
	for _, text := range []string{"", "MiB", "448 MB", "448 mib", "1.5 GiB", "-1", "+1", "0x10", "1 MiB KiB", "9223372036854775808", "8388608 TiB"} {
		got := Octets(7)
		if err := got.UnmarshalText([]byte(text)); err == nil || got != 7 {
			t.Errorf("%q is taken as %d", text, got)
		}
	}
}

func TestMemoryIsATextOrANumber(t *testing.T) {
	for _, value := range []string{`"448 MiB"`, "469762048", `"469762048"`} {
		c, _, faults := decode([]byte("[index]\nmemory = "+value+"\n"), nil)
		if len(faults) > 0 || c.Index.Memory != 448<<20 {
			t.Errorf("memory = %s: %d, %v", value, c.Index.Memory, faults)
		}
	}
	if c, _, faults := decode([]byte("[index]\nmemory = \"auto\"\n"), nil); len(faults) > 0 || c.Index.Memory != 0 {
		t.Errorf("memory = auto: %d, %v", c.Index.Memory, faults)
	}
	for _, value := range []string{`"448 MB"`, "true", "1.5", "0", `"0"`, `"Auto"`} {
		if _, _, faults := decode([]byte("[index]\nmemory = "+value+"\n"), nil); len(faults) != 1 {
			t.Errorf("memory = %s: %v, want one fault", value, faults)
		}
	}
}

func TestMemoryFollowsTheMachine(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		memory      Memory
		limit, want int64
		warning     string
	}{
		{0, math.MaxInt64, 448 * mib, ""},
		{0, 4096 * mib, 448 * mib, ""},
		{0, 384 * mib, 96 * mib, ""},
		{0, 32 * mib, 16 * mib, ""},
		{96 * mib, 384 * mib, 96 * mib, ""},
		{192 * mib, 384 * mib, 192 * mib, ""},
		{448 * mib, math.MaxInt64, 448 * mib, ""},
		{448 * mib, 384 * mib, 192 * mib,
			`index.memory = "448 MiB" is more than half of the 384.0 MiB that /a/memory.max allows: 192.0 MiB are used, and a temporary file`},
		{1 << 30, 1 << 20, 16 * mib, `index.memory = "1 GiB" is more than half of the 1.0 MiB that /a/memory.max allows: 16.0 MiB are used, and a temporary file`},
	} {
		if got, warning := tt.memory.Within(machine.Limit{Octets: tt.limit, From: "/a/memory.max"}); got != tt.want || warning != tt.warning {
			t.Errorf("%s within %d = %d, %q; want %d, %q", tt.memory, tt.limit, got, warning, tt.want, tt.warning)
		}
	}
}
