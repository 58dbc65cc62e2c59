package term

import "testing"

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"plain@bulk.example": "plain@bulk.example",
		"jürgen@bücher.test": "jürgen@bücher.test",
		"a\tb\r\n":           `a\tb\r\n`,
		"\x1b[2J":            `\x1b[2J`,
		"x\u200by":           `x\u200by`,
		"x\u202ey":           `x\u202ey`,
		"M\xfcller":          `M\xfcller`,
	} {
		if got := Visible(text); got != want {
			t.Errorf("visible(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1006826: "1,006,826"} {
		if got := Grouped(n); got != want {
			t.Errorf("grouped(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 40 << 20: "40.0 MiB", 5 << 40: "5.0 TiB", 1 << 60: "1048576.0 TiB"} {
		if got := Octets(n); got != want {
			t.Errorf("octets(%d) = %q, want %q", n, got, want)
		}
	}
	for want, n := range map[string]int{"no entries": 0, "1 entry": 1, "2 entries": 2} {
		if got := Counted(n, "entry"); got != want {
			t.Errorf("counted(%d) = %q, want %q", n, got, want)
		}
	}
	if got := Counted(5, "key"); got != "5 keys" {
		t.Errorf("counted(5) = %q", got)
	}
}

func TestPercent(t *testing.T) {
	for _, tt := range []struct {
		n, of uint64
		want  string
	}{{0, 0, ""}, {0, 9, "0%"}, {1, 1000, "<1%"}, {1, 3, "33%"}, {999, 1000, ">99%"}, {1000, 1000, "100%"}} {
		if have := Percent(tt.n, tt.of); have != tt.want {
			t.Errorf("Percent(%d, %d) = %q, want %q", tt.n, tt.of, have, tt.want)
		}
	}
}
