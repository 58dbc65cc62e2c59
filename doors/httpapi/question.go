package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"blockd/policy"
)

// query holds the parameters of a check: how often each was there,
// and its last value.
type query struct {
	values [len(parameters)]string
	counts [len(parameters)]int
}

// The places of parameters: the subjects' by their numbers, and three more.
const (
	clientParameter = iota + 3
	recipientParameter
	explainParameter
)

var parameters = [...]string{policy.AboutSender: "sender", policy.AboutClient: "ip", policy.AboutDomain: "domain", clientParameter: "client",
	recipientParameter: "recipient", explainParameter: "explain"}

// parseCheck reads a query by RFC 3986, where "+" is a plus. In an HTML form "+"
// is a blank: promo+x@bulk.test, typed by hand, would be taken for
// "promo x@bulk.test", which is no sender and so not listed.
func parseCheck(raw string) (p query, err error) {
	for part := range strings.SplitSeq(raw, "&") {
		name, value, err := parsePart(part)
		if err != nil {
			return p, err
		}
		i := slices.Index(parameters[:], name)
		if i >= 0 {
			p.values[i] = value
			p.counts[i]++
		} else if name != "" {
			return p, errors.New(noParameter(name, parameters[:]))
		}
	}
	if n := p.counts[explainParameter]; n > 1 || n == 1 && p.values[explainParameter] != "0" && p.values[explainParameter] != "1" {
		return p, errors.New("explain: want 0 or 1, once")
	}
	return p, nil
}

func parsePart(part string) (name, value string, err error) {
	name, value, _ = strings.Cut(part, "=")
	name, err1 := url.PathUnescape(name)
	value, err2 := url.PathUnescape(value)
	if err := errors.Join(err1, err2); err != nil {
		return "", "", fmt.Errorf("query: %w", err)
	}
	if !utf8.ValidString(name) || !utf8.ValidString(value) {
		return "", "", errors.New("query: not UTF-8")
	}
	return name, value, nil
}

// parseQuery reads all of a query in the same way.
func parseQuery(raw string) (map[string][]string, error) {
	query := map[string][]string{}
	for part := range strings.SplitSeq(raw, "&") {
		name, value, err := parsePart(part)
		if err != nil {
			return nil, err
		}
		if name != "" {
			query[name] = append(query[name], value)
		}
	}
	return query, nil
}

// explains reports whether the answer needs an explanation.
func (p *query) explains() bool {
	return p.counts[explainParameter] == 1 && p.values[explainParameter] == "1"
}

// question is the question of p.
func (p *query) question() (q policy.Question, err error) {
	found := false
	for about, name := range parameters[:clientParameter] {
		switch n := p.counts[about]; {
		case n > 1:
			return q, fmt.Errorf("want one parameter %s, have %d", name, n)
		case n == 1 && found:
			return q, fmt.Errorf("want sender, ip or domain, have %s and %s", parameters[q.About], name)
		case n == 1:
			found, q.About, q.Text = true, policy.Subject(about), p.values[about]
		}
	}
	switch n := p.counts[clientParameter]; {
	case !found:
		return q, errors.New("want one parameter sender, ip or domain, have 0")
	case n > 1, n == 1 && q.About != policy.AboutSender:
		return q, errors.New("want one parameter client at most, beside sender")
	case n == 1:
		q.Client, err = parseIP("client", p.values[clientParameter])
	case q.About == policy.AboutClient:
		q.Client, err = parseIP("ip", q.Text)
	}
	if n := p.counts[recipientParameter]; err == nil && n > 0 {
		if q.Recipient = p.values[recipientParameter]; n > 1 || q.About != policy.AboutSender || q.Recipient == "" {
			err = errors.New("want one parameter recipient at most, an address, beside sender")
		}
	}
	return q, err
}

// The faults of a question in JSON.
var (
	errNull     = errors.New(`null; the null sender is ""`)
	errQuestion = errors.New(`want "ADDRESS" or {"sender":"ADDRESS","client":"IP","recipient":"ADDRESS"}, client and recipient if they are known, or {"ip":"IP"} or {"domain":"NAME"}`)
)

// decodeQuestion reads a JSON string, the sender, or an object.
func decodeQuestion(b []byte) (q policy.Question, err error) {
	b = bytes.TrimSpace(b)
	if sender, ok := plainSender(string(b)); ok {
		return policy.Question{Text: sender}, nil
	}
	if len(b) == 0 || b[0] != '{' {
		var sender *string
		if decode(b, &sender) != nil {
			return q, errQuestion
		}
		if sender == nil {
			return q, errNull
		}
		return policy.Question{Text: *sender}, nil
	}
	var object map[string]*string
	if decode(b, &object) != nil {
		return q, errQuestion
	}
	var p query
	for name, value := range object {
		i := recipientParameter
		for i >= 0 && parameters[i] != name {
			i--
		}
		if i < 0 || value == nil {
			return q, errQuestion
		}
		p.values[i], p.counts[i] = *value, 1
	}
	if n := p.counts[policy.AboutSender] + p.counts[policy.AboutClient] + p.counts[policy.AboutDomain]; n != 1 || max(p.counts[clientParameter], p.counts[recipientParameter]) > p.counts[policy.AboutSender] {
		return q, errQuestion
	}
	return p.question()
}

// plainSender reads the two usual ways to ask, in plain ASCII and without escapes,
// in a twentieth of the time that encoding/json takes. It does not judge any other text.
func plainSender(text string) (sender string, ok bool) {
	if inner, object := strings.CutPrefix(text, `{"sender":`); object {
		if text, object = strings.CutSuffix(strings.TrimPrefix(inner, " "), "}"); !object {
			return "", false
		}
	}
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return "", false
	}
	text = text[1 : len(text)-1]
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return "", false
		}
	}
	return text, true
}

func parseIP(name, text string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return ip, fmt.Errorf("%s: want an IP address, have %q", name, text[:min(len(text), 64)])
	}
	return ip, nil
}

// errTooMany reports a batch with too many senders.
var errTooMany = fmt.Errorf("want at most %d; send a stream of application/x-ndjson", maxSenders)

// decodeBatch reads {"senders":[…]} and nothing else. Names are compared
// exactly. Text that is not UTF-8 is refused, not repaired, because a repaired
// sender would be another one. Of more than maxSenders none is kept: the
// error wraps errTooMany.
func decodeBatch(body []byte) ([]policy.Question, error) {
	if questions, ok := plainBatch(body); ok {
		return questions, nil
	}
	return decodeAnyBatch(body)
}

// plainBatch reads a batch of questions that plainSender can read, in a sixth of the
// time that encoding/json takes. It does not judge any other body.
func plainBatch(body []byte) (questions []policy.Question, ok bool) {
	const blanks = " \t\r\n"
	rest, opens := strings.CutPrefix(strings.Trim(string(body), blanks), `{"senders":`)
	rest, lists := strings.CutPrefix(strings.TrimLeft(rest, blanks), "[")
	rest, ends := strings.CutSuffix(rest, "]}")
	if !opens || !lists || !ends {
		return nil, false
	}
	questions = make([]policy.Question, 0, min(maxSenders, 1+strings.Count(rest, ",")))
	for range maxSenders {
		rest = strings.TrimLeft(rest, blanks)
		last := byte('"')
		if len(rest) > 0 && rest[0] == '{' {
			last = '}'
		}
		n := strings.IndexByte(rest[min(1, len(rest)):], last) + 2
		if n < 2 {
			return nil, false
		}
		sender, plain := plainSender(rest[:n])
		if !plain {
			return nil, false
		}
		questions = append(questions, policy.Question{Text: sender})
		if rest = strings.TrimLeft(rest[n:], blanks); len(rest) == 0 {
			return questions, true
		} else if rest[0] != ',' {
			return nil, false
		}
		rest = rest[1:]
	}
	return nil, false // decodeAnyBatch counts them
}

// decodeAnyBatch is decodeBatch for the bodies that plainBatch does not read.
func decodeAnyBatch(body []byte) ([]policy.Question, error) {
	var batch map[string]json.RawMessage
	if err := decode(body, &batch); err != nil {
		return nil, err
	}
	for name := range batch {
		if name != "senders" {
			return nil, fmt.Errorf("unknown member %q, want senders", name)
		}
	}
	d := json.NewDecoder(bytes.NewReader(batch["senders"]))
	if open, err := d.Token(); err != nil || open != json.Delim('[') {
		return nil, errors.New(`want {"senders":["ADDRESS",…]}`)
	}
	questions, n := make([]policy.Question, 0, min(maxSenders, 1+bytes.Count(body, []byte(",")))), 0
	for ; d.More(); n++ {
		var one json.RawMessage
		if err := d.Decode(&one); err != nil {
			return nil, fmt.Errorf("sender %d: %w", n, err)
		}
		if n >= maxSenders {
			continue // only counted
		}
		q, err := decodeQuestion(one)
		if err == errNull {
			return nil, fmt.Errorf("sender %d is %w", n, err)
		} else if err != nil {
			return nil, fmt.Errorf(`want {"senders":["ADDRESS",…]}; sender %d: %w`, n, err)
		}
		questions = append(questions, q)
	}
	if n > maxSenders {
		return nil, fmt.Errorf("%d senders, %w", n, errTooMany)
	}
	return questions, nil
}
