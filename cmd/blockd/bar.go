package main

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/schollz/progressbar/v3"

	"blockd/index"
)

// bar is a progress bar on a terminal, and nothing anywhere else.
type bar struct {
	w     io.Writer
	width int // of the terminal
	stage string
	bar   *progressbar.ProgressBar
}

func newBar(w io.Writer) *bar { return &bar{w: w, width: terminalWidth(w)} }

// barFacts is how many columns the library may need beside text and bar: per cent,
// octets of octets, octets a second, and the time.
const barFacts = 52

// A bar that is wider than the terminal could not be overwritten: each look would
// leave a line behind.
func (b *bar) narrow() bool { return b.width < 120 }

// length is that of the bar itself.
func (b *bar) length() int {
	if b.narrow() {
		return 4
	}
	return 24
}

// text is what stands before the bar.
func (b *bar) text(p index.Progress) string {
	text := p.Stage
	if p.Stage == "read" {
		text = fmt.Sprintf("read %s entries", grouped(uint64(p.Entries)))
		if !b.narrow() {
			text += ", " + filepath.Base(p.Source)
		}
	}
	room := b.width - barFacts - b.length()
	if !b.narrow() {
		room -= 8 // the time that is left
	}
	return clipRight(visible(text), max(room-1, 0))
}

// show is index.Options.Progress.
func (b *bar) show(p index.Progress) {
	if !onTerminal(b.w) {
		return
	}
	if p.Stage != b.stage {
		b.clear()
		b.stage = p.Stage
		b.bar = progressbar.NewOptions64(max(p.Total, 1), progressbar.OptionSetWriter(b.w), progressbar.OptionShowBytes(p.Stage != exporting), progressbar.OptionShowCount(),
			progressbar.OptionSetWidth(b.length()), progressbar.OptionThrottle(65*time.Millisecond), progressbar.OptionUseIECUnits(true),
			progressbar.OptionSetPredictTime(!b.narrow()), progressbar.OptionClearOnFinish())
	}
	b.bar.Describe(b.text(p))
	// The bar writes to a terminal; when that fails there is nobody to tell.
	_ = b.bar.Set64(min(p.Done, max(p.Total, 1)))
}

func (b *bar) clear() {
	if b.bar != nil {
		_ = b.bar.Clear()
		b.bar, b.stage = nil, ""
	}
}
