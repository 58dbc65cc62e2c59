package lists

import (
	"bytes"
	"io"
	"strings"
)

// sniffSize is how much of a file's text is looked at before it is read as a list.
const sniffSize = 64 << 10

// sniff refuses what is no text, and finds out what ends a line: LF, unless the
// whole file has none but has a CR (as old Macintosh editors write).
func sniff(src *source) (eol byte, err error) {
	r, err := src.text(nil)
	if err != nil {
		return 0, err
	}
	head := make([]byte, sniffSize)
	n, err := io.ReadFull(r, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return 0, err
	}
	whole := err != nil
	head = head[:n]
	if err := refuseBinary(head); err != nil {
		return 0, err
	}
	if beginsAsMarkup(head) {
		return 0, refusal(HTML, "begins as a web page or XML; the download went wrong")
	}
	if bytes.IndexByte(head, '\n') >= 0 {
		return '\n', nil
	}
	cr := bytes.IndexByte(head, '\r') >= 0
	// The first 64 KiB have no LF, but a later LF still makes every CR a fault.
	for !whole {
		n, err := r.Read(head[:cap(head)])
		if bytes.IndexByte(head[:n], '\n') >= 0 {
			return '\n', nil
		}
		cr = cr || bytes.IndexByte(head[:n], '\r') >= 0
		if err == io.EOF {
			whole = true
		} else if err != nil {
			return 0, err
		}
	}
	if cr {
		return '\r', nil
	}
	return '\n', nil
}

// signatures of files that are no text, as their formats define them. A list may
// be packed once: gzip inside gzip is binary too.
var signatures = []struct{ magic, name string }{
	{"PK\x03\x04", "a zip archive"},
	{"PK\x05\x06", "a zip archive"},
	{"\x28\xb5\x2f\xfd", "zstd"},
	{"\x7fELF", "a program"},
	{"%PDF-", "a PDF document"},
	{"\xfd7zXZ\x00", "xz"},
	{"BZh91AY&SY", "bzip2"},
	{"\x1f\x8b", "gzip inside gzip"},
}

func refuseBinary(head []byte) error {
	for _, s := range signatures {
		if bytes.HasPrefix(head, []byte(s.magic)) {
			return refusal(Binary, "this is %s", s.name)
		}
	}
	var nuls [2]int // at even and odd offsets
	bad := 0
	for i, c := range head {
		if isControl(c) {
			bad++
		}
		if c == 0 {
			nuls[i&1]++
		}
	}
	// ASCII in UTF-16 has a NUL in every second octet. 4 in 10 leave room for
	// letters beyond it; the other octets then hold nearly none.
	if most, least := max(nuls[0], nuls[1]), min(nuls[0], nuls[1]); most*10 >= len(head)*4 && least*10 <= most && most > 0 {
		return refusal(Encoding, "looks like UTF-16 without a byte order mark; a list is UTF-8")
	}
	if bad*10 > len(head) {
		return refusal(Binary, "%d of the first %d octets are NUL or control characters", bad, len(head))
	}
	return nil
}

var markup = []string{"<!doctype", "<!--", "<?xml", "<html", "<head", "<body", "<title", "<meta", "<script", "<rss", "<svg"}

// beginsAsMarkup tells a page from the entry "<html@bulk.test>".
func beginsAsMarkup(head []byte) bool {
	head = bytes.TrimLeft(head, " \t\r\n")
	text := strings.ToLower(string(head[:min(len(head), 16)]))
	for _, tag := range markup {
		if rest, ok := strings.CutPrefix(text, tag); ok {
			return rest == "" || strings.IndexByte(" \t\r\n>/", rest[0]) >= 0 || tag == "<!--"
		}
	}
	return false
}
