package resp

import (
	"strconv"

	"github.com/tidwall/redcon"
)

// writer appends answers in RESP 2, or in RESP 3 where a client has asked for it by HELLO and
// Redis answers in another way there.
type writer struct {
	out   []byte
	resp3 bool
}

func (w *writer) ok()           { w.out = redcon.AppendOK(w.out) }
func (w *writer) word(s string) { w.out = redcon.AppendString(w.out, s) }
func (w *writer) err(s string)  { w.out = redcon.AppendError(w.out, s) }
func (w *writer) int(n int64)   { w.out = redcon.AppendInt(w.out, n) }
func (w *writer) bulk(s string) { w.out = redcon.AppendBulkString(w.out, s) }
func (w *writer) echo(b []byte) { w.out = redcon.AppendBulk(w.out, b) }
func (w *writer) array(n int)   { w.out = redcon.AppendArray(w.out, n) }
func (w *writer) header(c byte, n int) {
	w.out = append(strconv.AppendInt(append(w.out, c), int64(n), 10), '\r', '\n')
}

func (w *writer) null() {
	if w.resp3 {
		w.out = append(w.out, "_\r\n"...)
		return
	}
	w.out = redcon.AppendNull(w.out)
}

// bool is 1 or 0 in RESP 2.
func (w *writer) bool(yes bool) {
	switch {
	case !w.resp3 && yes:
		w.int(1)
	case !w.resp3:
		w.int(0)
	case yes:
		w.out = append(w.out, "#t\r\n"...)
	default:
		w.out = append(w.out, "#f\r\n"...)
	}
}

// pairs begins a map of n keys and values, which is an array in RESP 2.
func (w *writer) pairs(n int) {
	if w.resp3 {
		w.header('%', n)
		return
	}
	w.array(2 * n)
}

// set begins a set of n members, which is an array in RESP 2.
func (w *writer) set(n int) {
	if w.resp3 {
		w.header('~', n)
		return
	}
	w.array(n)
}

// text is a text for people, of several lines.
func (w *writer) text(s string) {
	if !w.resp3 {
		w.bulk(s)
		return
	}
	w.header('=', len("txt:")+len(s))
	w.out = append(append(append(w.out, "txt:"...), s...), "\r\n"...)
}
