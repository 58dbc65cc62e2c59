package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Decision is what blockd decided about a message and one of its recipients, or answered to a program (docs/history.md).
type Decision struct {
	Time      time.Time `json:"time"`
	Door      string    `json:"door"`
	Outcome   string    `json:"outcome"` // accept, refuse, defer, quarantine, tag, discard or listed
	Verdict   Verdict   `json:"verdict"`
	Sender    string    `json:"sender"`
	Recipient string    `json:"recipient"`
	Client    string    `json:"client"`
	List      string    `json:"list"`
	Entry     string    `json:"entry"`
	Owner     string    `json:"owner"`
	File      string    `json:"file"`
	Line      int64     `json:"line"`
	Reason    string    `json:"reason"`
	Ref       string    `json:"ref"`      // that the sender of the mail has read
	Repeated  uint64    `json:"repeated"` // how many more like it were folded into it
}

// DecisionQuery selects decisions. What is not set selects all.
type DecisionQuery struct {
	Text, Sender, Recipient, Client, List, Ref string
	Domain, Entry, Door                        string // the sender's domain; the entry that decided; where it came in
	Verdict                                    Verdict
	Outcome                                    string
	Since, Until                               time.Time
}

// Decisions yields decisions, the newest first, page by page. It ends at the first error.
func (c *Client) Decisions(ctx context.Context, q DecisionQuery) iter.Seq2[Decision, error] {
	v := values{url.Values{}}
	for name, value := range map[string]string{"q": q.Text, "sender": q.Sender, "recipient": q.Recipient, "client": q.Client,
		"list": q.List, "ref": q.Ref, "domain": q.Domain, "entry": q.Entry, "door": q.Door, "verdict": string(q.Verdict), "outcome": q.Outcome} {
		v.text(name, value)
	}
	v.time("since", q.Since)
	v.time("until", q.Until)
	return pages(ctx, c, "/v1/decisions", v, func(p *struct {
		Decisions []Decision
		Next      string
	}) ([]Decision, string) {
		return p.Decisions, p.Next
	})
}

// List is what serves of one file of a list (docs/operation.md).
type List struct {
	List    string `json:"list"`
	File    string `json:"file"`
	State   string `json:"state"`
	Entries int64  `json:"entries"`
	Errors  int64  `json:"errors"`
	Why     string `json:"why"`
}

// Lists are the lists that serve, and the generation that has them.
func (c *Client) Lists(ctx context.Context) (all []List, generation string, err error) {
	var answer struct {
		Lists      []List
		Generation string
	}
	err = c.ask(ctx, http.MethodGet, "/v1/lists", nil, nil, &answer)
	return answer.Lists, answer.Generation, err
}
