package client

import (
	"context"
	"net/http"
	"net/url"
	"slices"
)

// Verdict is what the lists say.
type Verdict string

// The verdicts.
const (
	Blocked Verdict = "blocked" // an entry that counts blocks, defers or discards
	Allowed Verdict = "allowed" // an allow entry decides
	Clear   Verdict = "clear"   // nothing that counts matches
	Unknown Verdict = "unknown" // no sender, or the lists could not be read: it says nothing about the sender
)

// MaxQuestions is how many questions one request has; CheckMany makes as many requests as it takes.
const MaxQuestions = 1000

// Question is about a sender, with a client or a recipient where these are known; or about IP or Domain alone. The zero Question is about the
// null sender.
type Question struct {
	Sender    string // an envelope sender
	Client    string // the IP address that the mail comes from
	Recipient string // whose rules count
	IP        string // a client alone
	Domain    string // what all senders at a domain have in common
}

// asked is a question as a batch has it.
func (q *Question) asked() map[string]string {
	switch {
	case q.IP != "":
		return map[string]string{"ip": q.IP}
	case q.Domain != "":
		return map[string]string{"domain": q.Domain}
	}
	all := map[string]string{"sender": q.Sender}
	for name, value := range map[string]string{"client": q.Client, "recipient": q.Recipient} {
		if value != "" {
			all[name] = value
		}
	}
	return all
}

// Answer is what blockd says of a question.
type Answer struct {
	Input      string  `json:"input"`
	Sender     string  `json:"sender"`              // canonical; "" if only the domain can be read
	Domain     string  `json:"domain,omitempty"`    // the name, with ? for labels that cannot be read
	Recipient  string  `json:"recipient,omitempty"` // as asked
	Verdict    Verdict `json:"verdict"`
	Outcome    string  `json:"outcome,omitempty"` // with a recipient, what becomes of the mail: accept, refuse, defer, quarantine or tag
	Matches    []Match `json:"matches"`           // all entries that cover the question, the most specific first
	Generation string  `json:"generation"`        // of the index that has answered
}

// Match is an entry that covers a question.
type Match struct {
	List   string `json:"list"`
	File   string `json:"file"`
	Line   int64  `json:"line"`
	Entry  string `json:"entry"`
	Kind   string `json:"kind"`
	Scope  string `json:"scope"`
	Action string `json:"action"`
	Reason string `json:"reason"`
	Owner  string `json:"owner,omitempty"` // whose entry it is; "" = everybody's
	Mode   string `json:"mode,omitempty"`  // why it does not count: shadow, paused, percent; "" = it counts
}

// Check asks one question.
func (c *Client) Check(ctx context.Context, q Question) (Answer, error) {
	query := url.Values{}
	for name, value := range q.asked() {
		query.Set(name, value)
	}
	var a Answer
	err := c.ask(ctx, http.MethodGet, "/v1/check", query, nil, &a)
	return a, err
}

// CheckMany asks any number of questions, and answers in their order. Answers of different thousands may be of different generations. After an
// error there are the answers that came before it.
func (c *Client) CheckMany(ctx context.Context, questions []Question) ([]Answer, error) {
	all := make([]Answer, 0, len(questions))
	for part := range slices.Chunk(questions, MaxQuestions) {
		asked := make([]map[string]string, len(part))
		for i := range part {
			asked[i] = part[i].asked()
		}
		var answers struct{ Results []Answer }
		if err := c.ask(ctx, http.MethodPost, "/v1/check", nil, map[string]any{"senders": asked}, &answers); err != nil {
			return all, err
		}
		if len(answers.Results) != len(part) {
			return all, &Error{Status: http.StatusOK, Detail: "the answer has another number of results than there were questions"}
		}
		all = append(all, answers.Results...)
	}
	return all, nil
}
