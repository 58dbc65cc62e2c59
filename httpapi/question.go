package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
)

// question is what is asked about mail: a sender, and the client that the mail
// comes from if that is known.
type question struct {
	sender string
	client netip.Addr // zero = unknown
}

// The faults of a question in JSON.
var (
	errNull     = errors.New(`null; the null sender is ""`)
	errQuestion = errors.New(`want "ADDRESS" or {"sender":"ADDRESS","client":"IP"}, the client if it is known`)
)

// decodeQuestion reads a JSON string, the sender, or an object.
func decodeQuestion(b []byte) (q question, err error) {
	b = bytes.TrimSpace(b)
	if sender, ok := plainSender(b); ok {
		return question{sender: sender}, nil
	}
	if len(b) == 0 || b[0] != '{' {
		var sender *string
		if decode(b, &sender) != nil {
			return q, errQuestion
		}
		if sender == nil {
			return q, errNull
		}
		return question{sender: *sender}, nil
	}
	var object map[string]*string
	if decode(b, &object) != nil || object["sender"] == nil {
		return q, errQuestion
	}
	q.sender = *object["sender"]
	for name, value := range object {
		switch {
		case name == "sender":
		case name != "client", value == nil:
			return q, errQuestion
		default:
			if q.client, err = parseIP("client", *value); err != nil {
				return q, err
			}
		}
	}
	return q, nil
}

// plainSender reads the two usual ways to ask, in plain ASCII and without escapes,
// in a twentieth of the time that encoding/json takes. What else b may be is not
// its to say.
func plainSender(b []byte) (sender string, ok bool) {
	if inner, object := bytes.CutPrefix(b, []byte(`{"sender":`)); object {
		if b, object = bytes.CutSuffix(bytes.TrimPrefix(inner, []byte(" ")), []byte("}")); !object {
			return "", false
		}
	}
	if len(b) < 2 || b[0] != '"' || b[len(b)-1] != '"' {
		return "", false
	}
	b = b[1 : len(b)-1]
	for _, c := range b {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return "", false
		}
	}
	return string(b), true
}

func parseIP(name, text string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return ip, fmt.Errorf("%s: want an IP address, have %q", name, text[:min(len(text), 64)])
	}
	return ip, nil
}

// errTooMany is about a batch.
var errTooMany = fmt.Errorf("want at most %d; send a stream of application/x-ndjson", maxSenders)

// decodeBatch reads {"senders":[…]} and nothing else. Names are compared
// exactly, and what is not UTF-8 is refused rather than repaired: another sender
// would be looked up than was meant. Of more than maxSenders none is kept: the
// error wraps errTooMany.
func decodeBatch(body []byte) ([]question, error) {
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
	questions, n := []question{}, 0
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
