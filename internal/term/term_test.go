package term

import (
	"bytes"
	"testing"

	"blockd/internal/testkit"
)

func TestColoursAreForTerminals(t *testing.T) {
	testkit.Equal(t, "red on a terminal", (Paint{on: true}).Red("x"), "\x1b[1;31mx\x1b[0m")
	testkit.Equal(t, "red in a pipe", NewPaint(&bytes.Buffer{}).Red("x"), "x")
}
