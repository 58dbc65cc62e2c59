package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"blockd/policy"
)

// The bounds of a batch. Its body holds that many senders of the longest legal
// kind, 320 octets, as JSON may escape them, with room to spare.
const (
	maxSenders = 1000
	maxBatch   = 4 << 20
)

// answer is an answer as policy gives it, with its explanation if asked for.
type answer struct {
	policy.Answer
	Explain *policy.Explanation `json:"explain,omitempty"`
}

// check answers about the sender in the query. "" is the null sender.
func (s *Server) check(w http.ResponseWriter, r *http.Request) {
	query, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	senders := query["sender"]
	if len(senders) != 1 {
		fail(w, http.StatusBadRequest, fmt.Sprintf("want one parameter sender, have %d", len(senders)))
		return
	}
	v := s.checker.Sender(senders[0])
	a := answer{Answer: v.Answer(senders[0])}
	if explain := query["explain"]; len(explain) == 1 && explain[0] == "1" {
		e := v.Explain()
		a.Explain = &e
	}
	send(w, http.StatusOK, "application/json", a)
}

// parseQuery reads a query by RFC 3986, where "+" is a plus. As an HTML form
// has it, where it is a blank, promo+x@bulk.test typed by hand would be taken for
// "promo x@bulk.test", which is no sender and so not listed.
func parseQuery(raw string) (map[string][]string, error) {
	query := map[string][]string{}
	for part := range strings.SplitSeq(raw, "&") {
		name, value, _ := strings.Cut(part, "=")
		name, err1 := url.PathUnescape(name)
		value, err2 := url.PathUnescape(value)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("query: %w", err)
		}
		if name != "" {
			query[name] = append(query[name], value)
		}
	}
	return query, nil
}

// checkMany answers about the senders in the body: a batch, or a stream.
func (s *Server) checkMany(w http.ResponseWriter, r *http.Request) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case "application/json":
		s.checkBatch(w, r)
	case "application/x-ndjson":
		s.checkStream(w, r)
	default:
		w.Header().Set("Accept-Post", "application/json, application/x-ndjson")
		fail(w, http.StatusUnsupportedMediaType, "want Content-Type application/json or application/x-ndjson")
	}
}

// results are the answers to a batch, in the order of its senders.
type results struct {
	Results    []policy.Answer `json:"results"`
	Generation string          `json:"generation"`
}

// checkBatch answers all senders from one generation.
func (s *Server) checkBatch(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBatch))
	if err != nil {
		if errors.As(err, new(*http.MaxBytesError)) {
			fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("body over %d octets; send a stream of application/x-ndjson", maxBatch))
			return
		}
		fail(w, http.StatusBadRequest, "the body ended too early")
		return
	}
	senders, err := decodeBatch(body)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if len(senders) > maxSenders {
		fail(w, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("%d senders, want at most %d; send a stream of application/x-ndjson", len(senders), maxSenders))
		return
	}
	checker := s.checker.Pin()
	all := results{Results: make([]policy.Answer, len(senders)), Generation: checker.Generation()}
	for i, sender := range senders {
		all.Results[i] = checker.Sender(sender).Answer(sender)
	}
	send(w, http.StatusOK, "application/json", all)
}

// decodeBatch reads {"senders":["…",…]} and nothing else. Names are compared
// exactly, and what is not UTF-8 is refused rather than repaired: another sender
// would be looked up than was meant.
func decodeBatch(body []byte) ([]string, error) {
	var batch map[string]json.RawMessage
	if err := decode(body, &batch); err != nil {
		return nil, err
	}
	for name := range batch {
		if name != "senders" {
			return nil, fmt.Errorf("unknown member %q, want senders", name)
		}
	}
	var senders []*string
	if err := decode(batch["senders"], &senders); err != nil || senders == nil {
		return nil, errors.New(`want {"senders":["ADDRESS",…]}`)
	}
	texts := make([]string, len(senders))
	for i, s := range senders {
		if s == nil {
			return nil, fmt.Errorf(`sender %d is null; the null sender is ""`, i)
		}
		texts[i] = *s
	}
	return texts, nil
}

// decode reads one JSON value that fills the text.
func decode(b []byte, v any) error {
	if !utf8.Valid(b) {
		return errors.New("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("not the JSON that is wanted: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("text behind the JSON")
	}
	return nil
}
