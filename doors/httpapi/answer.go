package httpapi

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"
)

// problem is an error in the form of RFC 9457. Its type is "about:blank": the status
// has all that a program can act on, and the detail is for people.
type problem struct {
	Title  string `json:"title" doc:"the status in words"`
	Status int    `json:"status" minimum:"400" maximum:"599"`
	Detail string `json:"detail" doc:"for people: what was wrong, and what is wanted"`
}

// The types of answers, in the form of header fields, so that no answer has to make a
// slice.
var (
	typeJSON    = []string{"application/json"}
	typeProblem = []string{"application/problem+json"}
	typeStream  = []string{"application/x-ndjson"}
	typeCSV     = []string{"text/csv; charset=utf-8"}
	typeText    = []string{"text/plain; charset=utf-8"}

	typeLines = "text/plain"
	typeMail  = "message/rfc822"

	// For an answer with a tag: a client may keep it, but must ask again each time.
	revalidate = []string{"private, no-cache"}
	noStore    = []string{"no-store"}
	noSniff    = []string{"nosniff"}
)

// maxDetail is how many octets of a detail are sent: it may quote a question of megabytes.
const maxDetail = 1 << 10

func fail(w http.ResponseWriter, status int, detail string) {
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail], "") + "…"
	}
	send(w, status, typeProblem, problem{http.StatusText(status), status, detail})
}

func send(w http.ResponseWriter, status int, contentType []string, v any) {
	w.Header()["Content-Type"] = contentType
	w.WriteHeader(status)
	encoder(w).Encode(v) // it fails only if the client has gone
}

// sendTagged is send for the answer to a GET, with its tag.
func sendTagged(w http.ResponseWriter, r *http.Request, v any) {
	var b bytes.Buffer
	encoder(&b).Encode(v) // own types and a Buffer: it cannot fail
	tagged(w, r, b.Bytes())
}

// tagged answers 200 with a JSON body and its entity tag, or 304 to a client that has it. The
// tag is a hash of the body alone. The body has the question, the
// generation, and the effects of live entries and the clock. So a 304 is always true; a tag
// made from the generation would not be.
func tagged(w http.ResponseWriter, r *http.Request, body []byte) {
	h, tag := w.Header(), entityTag(body)
	h["Etag"] = []string{tag}
	h["Cache-Control"] = revalidate
	if wants := r.Header["If-None-Match"]; len(wants) > 0 && hasTag(wants, tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h["Content-Type"] = typeJSON
	if len(body) > countedByServer {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.Write(body) // it fails only if the client has gone
}

// countedByServer is how long an answer may be for net/http to send its length by itself. It
// would send longer ones in chunks.
const countedByServer = 2 << 10

// entityTag is a strong one: 64 bits, which two answers to one question share once in
// 10^19 times.
func entityTag(body []byte) string {
	var sum [8]byte
	binary.BigEndian.PutUint64(sum[:], xxh3.Hash(body))
	var tag [18]byte
	tag[0], tag[17] = '"', '"'
	hex.Encode(tag[1:], sum[:])
	return string(tag[:])
}

// hasTag compares as If-None-Match does, weakly (RFC 9110, section 13.1.2).
func hasTag(fields []string, tag string) bool {
	for _, field := range fields {
		for one := range strings.SplitSeq(field, ",") {
			if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
				return true
			}
		}
	}
	return false
}

// encoder writes senders as they are: nothing here is HTML.
func encoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header()["Content-Type"] = typeText
	w.WriteHeader(status)
	io.WriteString(w, body)
}
