package term

import (
	"cmp"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Bar is a progress bar on a terminal, and nothing anywhere else.
type Bar struct {
	w     io.Writer
	width int // of the terminal
	stage string
	bar   *progressbar.ProgressBar
}

// Step is how far some work is.
type Step struct {
	Stage       string // each has a bar of its own
	Text        string // before the bar; "": the stage
	More        string // behind Text, on a wide terminal
	Done, Total int64
	Things      bool // that are counted, and not octets
}

// NewBar makes a bar for w.
func NewBar(w io.Writer) *Bar { return &Bar{w: w, width: Width(w)} }

// barFacts is how many columns the library may need beside text and bar: per cent,
// octets of octets, octets a second, and the time.
const barFacts = 52

// A bar that is wider than the terminal could not be overwritten: each look would
// leave a line behind.
func (b *Bar) narrow() bool { return b.width < 120 }

// length is that of the bar itself.
func (b *Bar) length() int {
	if b.narrow() {
		return 4
	}
	return 24
}

// text is what stands before the bar.
func (b *Bar) text(s Step) string {
	text := cmp.Or(s.Text, s.Stage)
	if !b.narrow() {
		text += s.More
	}
	room := b.width - barFacts - b.length()
	if !b.narrow() {
		room -= 8 // the time that is left
	}
	return Clip(Visible(text), max(room, 1))
}

// Show shows a step.
func (b *Bar) Show(s Step) {
	if !IsTerminal(b.w) {
		return
	}
	if s.Stage != b.stage {
		b.Clear()
		b.stage = s.Stage
		b.bar = progressbar.NewOptions64(max(s.Total, 1), progressbar.OptionSetWriter(b.w), progressbar.OptionShowBytes(!s.Things), progressbar.OptionShowCount(),
			progressbar.OptionSetWidth(b.length()), progressbar.OptionThrottle(65*time.Millisecond), progressbar.OptionUseIECUnits(true),
			progressbar.OptionSetPredictTime(!b.narrow()), progressbar.OptionClearOnFinish())
	}
	b.bar.Describe(b.text(s))
	// The bar writes to a terminal; when that fails there is nobody to tell.
	_ = b.bar.Set64(min(s.Done, max(s.Total, 1)))
}

// Clear takes the bar away.
func (b *Bar) Clear() {
	if b.bar != nil {
		_ = b.bar.Clear()
		b.bar, b.stage = nil, ""
	}
}
