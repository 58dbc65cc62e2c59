package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
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

// check answers about what the query names: a sender ("" is the null sender),
// with or without its client, or a client or domain alone.
func (s *Server) check(w http.ResponseWriter, r *http.Request) {
	query, err := parseQuery(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	checker := s.checker.Pin() // the explanation asks the same generation again
	input, v, err := verdictOf(checker, query)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	a := answer{Answer: v.Answer(input)}
	if explain := query["explain"]; len(explain) == 1 && explain[0] == "1" {
		e := checker.Explain(v)
		a.Explain = &e
	}
	send(w, http.StatusOK, "application/json", a)
}

// verdictOf asks what a query does; input is the text that it is about.
func verdictOf(c *policy.Checker, query map[string][]string) (input string, v policy.Verdict, err error) {
	subject := ""
	for _, name := range []string{"sender", "ip", "domain"} {
		switch n := len(query[name]); {
		case n > 1:
			return "", v, fmt.Errorf("want one parameter %s, have %d", name, n)
		case n == 1 && subject != "":
			return "", v, fmt.Errorf("want sender, ip or domain, have %s and %s", subject, name)
		case n == 1:
			subject, input = name, query[name][0]
		}
	}
	var client netip.Addr
	switch from := query["client"]; {
	case subject == "":
		return "", v, errors.New("want one parameter sender, ip or domain, have 0")
	case len(from) > 1, len(from) == 1 && subject != "sender":
		return "", v, errors.New("want one parameter client at most, beside sender")
	case len(from) == 1:
		client, err = parseIP("client", from[0])
	case subject == "ip":
		client, err = parseIP("ip", input)
	}
	switch {
	case err != nil:
		return "", v, err
	case subject == "ip":
		return input, c.Client(client), nil
	case subject == "domain":
		return input, c.Domain(input), nil
	}
	return input, c.Envelope(client, input), nil
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
	questions, err := decodeBatch(body)
	if errors.Is(err, errTooMany) {
		fail(w, http.StatusRequestEntityTooLarge, err.Error())
		return
	} else if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	checker := s.checker.Pin()
	all := results{Results: make([]policy.Answer, len(questions)), Generation: checker.Generation()}
	var batch policy.Batch
	for _, q := range questions {
		batch.Envelope(q.client, q.sender)
	}
	for i, v := range checker.Ask(&batch) {
		all.Results[i] = v.Answer(questions[i].sender)
	}
	send(w, http.StatusOK, "application/json", all)
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
