package term

import (
	"bytes"
	"testing"
)

func TestColoursAreForTerminals(t *testing.T) {
	if got := (Paint{on: true}).Red("x"); got != "\x1b[1;31mx\x1b[0m" {
		t.Errorf("red on a terminal is %q", got)
	}
	if got := NewPaint(&bytes.Buffer{}).Red("x"); got != "x" {
		t.Errorf("red in a pipe is %q", got)
	}
}
