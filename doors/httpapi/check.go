package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"unicode/utf8"

	"blockd/policy"
	"blockd/policy/verdict"
)

const checkPath = "/v1/check"

// The bounds of a batch. Its body has room for this many senders of the longest legal
// kind, 320 octets, as JSON may escape them.
const (
	maxSenders = 1000
	maxBatch   = 4 << 20
)

// answer is an answer of policy, with its explanation if asked for. workspace writes
// the same fields in the same order without it.
type answer struct {
	verdict.Answer
	Explain *policy.Explanation `json:"explain,omitempty" doc:"with explain=1"`
}

// check answers about what the query names: a sender ("" is the null sender),
// with or without its client, or a client or domain alone. It allocates three times for a
// clear sender, beside what net/http or the fast path does.
func (s *Server) check(w http.ResponseWriter, r *http.Request) {
	p, err := parseCheck(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	q, err := p.question()
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if !s.mayCheck(w, r, q.Recipient) {
		return
	}
	work := s.workspace(r, &p)
	defer work.release()
	work.text = append(work.appendAnswer(work.text, q), '\n')
	tagged(w, r, work.text)
}

// checkMany answers about the senders in the body: a batch, or a stream.
func (s *Server) checkMany(w http.ResponseWriter, r *http.Request) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case typeJSON[0], typeStream[0]:
		if !known(w, r, parameters[explainParameter:]) { // the others belong to the types below
			return
		}
		p, err := parseCheck(r.URL.RawQuery)
		if err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		if kind == typeJSON[0] {
			s.checkBatch(w, r, &p)
		} else {
			s.checkStream(w, r, &p)
		}
	case typeLines:
		if known(w, r, textParameters) {
			s.checkTexts(w, r)
		}
	case typeMail:
		if known(w, r, mailParameters) {
			s.checkMail(w, r)
		}
	default:
		w.Header().Set("Accept-Post", "application/json, application/x-ndjson, text/plain, message/rfc822")
		fail(w, http.StatusUnsupportedMediaType, "want Content-Type application/json, application/x-ndjson, text/plain or message/rfc822")
	}
}

// The parameters of the operations checkText and checkMessage, whose bodies checkMany takes too.
var (
	textParameters = []string{"explain", "client", "recipient", "whole", "paint"}
	mailParameters = []string{"explain", "client", "sender", "helo", "file", "paint"}
)

// only refuses bodies of another type.
func only(bodyType string, serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != bodyType {
			w.Header().Set("Accept-Post", bodyType)
			fail(w, http.StatusUnsupportedMediaType, "want Content-Type "+bodyType)
			return
		}
		serve(w, r)
	}
}

// checkLines answers a stream.
func (s *Server) checkLines(w http.ResponseWriter, r *http.Request) {
	p, err := parseCheck(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	s.checkStream(w, r, &p)
}

// results are the answers to a batch, in the order of its senders.
type results struct {
	Results    []answer `json:"results"`
	Generation string   `json:"generation" doc:"of all results"`
}

// checkBatch answers all senders from one generation.
func (s *Server) checkBatch(w http.ResponseWriter, r *http.Request, p *query) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBatch))
	if err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("body over %d octets; send a stream of application/x-ndjson", maxBatch))
			return
		}
		fail(w, http.StatusBadRequest, "the body ended too early")
		return
	}
	questions, err := decodeBatch(body)
	if errors.Is(err, errTooMany) {
		fail(w, http.StatusRequestEntityTooLarge, err.Error())
		return
	} else if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	work := s.workspace(r, p)
	defer work.release()
	work.questions = questions
	text := append(work.text, `{"results":[`...)
	text = work.appendAnswers(text, ',', "")
	text = append(text, `],"generation":`...)
	generation, _ := json.Marshal(work.batch.Generation)
	work.text = append(append(text, generation...), "}\n"...)
	w.Header()["Content-Type"] = typeJSON
	w.Write(work.text) // it fails only if the client has gone
}

// decode reads one JSON value that fills the text.
func decode(b []byte, v any) error { return decodeWith(b, v, false) }

// decodeWith is decode. strict: an object has no members that v does not have.
func decodeWith(b []byte, v any, strict bool) error {
	if !utf8.Valid(b) {
		return errors.New("not UTF-8")
	}
	if halfPair(b) {
		return errors.New("half a surrogate pair, which is no character") // encoding/json would put another in its place
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("not the JSON that is wanted: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("text behind the JSON")
	}
	return nil
}

// halfPair reports whether a text of JSON has an escape that is half a surrogate pair without the other.
func halfPair(b []byte) bool {
	high := false // the escape before this one is the first half
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 || i+1 == len(b) {
			return high
		}
		if high && i > 0 {
			return true
		}
		if b = b[i+1:]; b[0] != 'u' || len(b) < 5 {
			if high {
				return true
			}
			b = b[1:]
			continue
		}
		code, err := strconv.ParseUint(string(b[1:5]), 16, 16)
		first, second := err == nil && code>>10 == 0xd800>>10, err == nil && code>>10 == 0xdc00>>10
		if high != second {
			return true
		}
		high, b = first, b[5:]
	}
}
