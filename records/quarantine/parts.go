package quarantine

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/textproto"
	"strings"

	"golang.org/x/text/encoding/htmlindex"
)

// Part is one part of a message (MIME), without its content.
type Part struct {
	Type string `json:"type"` // "text/plain"
	Name string `json:"name"` // that the sender gave the file; "" = none
}

// The bounds of looking into a message: a hostile one has parts within parts, or a million of them.
const (
	maxParts = 100
	maxDepth = 8
)

// readable finds what a person can read in a message of which body is the beginning: the first text/plain, or else the first
// text of another kind, as its source; decoded from its transfer encoding and charset.
func readable(header, body string) (text string, parts []Part) {
	fields, err := textproto.NewReader(bufio.NewReader(strings.NewReader(header + "\r\n\r\n"))).ReadMIMEHeader()
	if err != nil && len(fields) == 0 {
		return strings.ToValidUTF8(body, "\uFFFD"), []Part{}
	}
	r := reader{parts: []Part{}}
	r.part(fields, strings.NewReader(body), 0)
	switch {
	case r.plain != nil:
		text = *r.plain
	case r.other != nil:
		text = *r.other
	}
	return text, r.parts
}

type reader struct {
	parts        []Part
	plain, other *string
}

func (r *reader) part(fields textproto.MIMEHeader, body io.Reader, depth int) {
	kind, params, err := mime.ParseMediaType(fields.Get("Content-Type"))
	if err != nil && kind == "" {
		kind, params = "text/plain", nil // RFC 2045, section 5.2
	}
	if strings.HasPrefix(kind, "multipart/") && params["boundary"] != "" && depth < maxDepth {
		inner := multipart.NewReader(body, params["boundary"])
		for len(r.parts) < maxParts {
			p, err := inner.NextRawPart()
			if err != nil {
				return
			}
			r.part(p.Header, p, depth+1)
		}
		return
	}
	name := params["name"]
	if _, given, err := mime.ParseMediaType(fields.Get("Content-Disposition")); err == nil && given["filename"] != "" {
		name = given["filename"]
	}
	r.parts = append(r.parts, Part{decoded(kind), decoded(name)})
	switch {
	case !strings.HasPrefix(kind, "text/"):
	case kind == "text/plain" && r.plain == nil:
		text := decodedBody(fields, params["charset"], body)
		r.plain = &text
	case r.other == nil:
		text := decodedBody(fields, params["charset"], body)
		r.other = &text
	}
}

// decodedBody is a part's text in UTF-8, as far as it can be decoded.
func decodedBody(fields textproto.MIMEHeader, charset string, body io.Reader) string {
	switch strings.ToLower(strings.TrimSpace(fields.Get("Content-Transfer-Encoding"))) {
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	}
	text, _ := io.ReadAll(body) // cut off, or wrongly encoded: what came before counts
	if e, err := htmlindex.Get(charset); err == nil && charset != "" {
		if utf8, err := e.NewDecoder().Bytes(text); err == nil {
			text = utf8
		}
	}
	return string(bytes.ToValidUTF8(text, []byte("\uFFFD")))
}
