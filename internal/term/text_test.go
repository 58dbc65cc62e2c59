package term

import (
	"fmt"
	"testing"

	"blockd/internal/testkit"
)

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
		testkit.Equal(t, fmt.Sprintf("visible(%q)", text), Visible(text), want)
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1006826: "1,006,826"} {
		testkit.Equal(t, fmt.Sprintf("grouped(%d)", n), Grouped(n), want)
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 40 << 20: "40.0 MiB", 5 << 40: "5.0 TiB", 1 << 60: "1048576.0 TiB"} {
		testkit.Equal(t, fmt.Sprintf("octets(%d)", n), Octets(n), want)
	}
	for want, n := range map[string]int{"no entries": 0, "1 entry": 1, "2 entries": 2} {
		testkit.Equal(t, fmt.Sprintf("counted(%d)", n), Counted(n, "entry"), want)
	}
	testkit.Equal(t, "counted(5)", Counted(5, "key"), "5 keys")
}

func TestPercent(t *testing.T) {
	for _, tt := range []struct {
		n, of uint64
		want  string
	}{{0, 0, ""}, {0, 9, "0%"}, {1, 1000, "<1%"}, {1, 3, "33%"}, {999, 1000, ">99%"}, {1000, 1000, "100%"}} {
		testkit.Equal(t, fmt.Sprintf("Percent(%d, %d)", tt.n, tt.of), Percent(tt.n, tt.of), tt.want)
	}
}
