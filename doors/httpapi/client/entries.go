package client

import (
	"context"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// Entry is a live entry: it acts at every door before the request that adds it ends (docs/live.md).
type Entry struct {
	Entry   string     `json:"entry"`            // as a plain list has it
	Action  string     `json:"action,omitempty"` // block, allow, tempfail or discard; "" = block
	Owner   string     `json:"owner,omitempty"`  // for whose mail it counts; "" = everybody's
	Why     string     `json:"why,omitempty"`
	Author  string     `json:"author,omitempty"`
	Require []string   `json:"require,omitempty"` // what an allow entry wants proved: spf, dkim
	Force   bool       `json:"force,omitempty"`   // although the gate refuses it
	Expires *time.Time `json:"expires,omitempty"` // nil = never
	Added   *time.Time `json:"added,omitempty"`   // nil = now
}

// EntryQuery selects live entries. The zero EntryQuery selects all of everybody's.
type EntryQuery struct {
	Text  string // is in the entry, its reason or its author
	Owner string // whose; "" = everybody's
}

// Change is what came of one change: added, changed, same, removed, absent or a like word of docs/live.md, and what was there before.
type Change struct {
	Result string `json:"result"`
	Entry  *Entry `json:"entry"`
	Was    *Entry `json:"was"`
}

// Entries yields live entries, the newest first, page by page. It ends at the first error.
func (c *Client) Entries(ctx context.Context, q EntryQuery) iter.Seq2[Entry, error] {
	v := values{url.Values{}}
	v.text("q", q.Text)
	v.text("owner", q.Owner)
	return pages(ctx, c, "/v1/entries", v, func(p *struct {
		Entries []Entry
		Next    string
	}) ([]Entry, string) {
		return p.Entries, p.Next
	})
}

// Add adds live entries, or changes those that are there. A thousand at a time are made together or not at all.
func (c *Client) Add(ctx context.Context, entries ...Entry) (done []Change, err error) {
	for part := range slices.Chunk(entries, MaxQuestions) {
		var answer struct{ Results []Change }
		if err := c.ask(ctx, http.MethodPost, "/v1/entries", nil, map[string]any{"entries": part}, &answer); err != nil {
			return done, err
		}
		done = append(done, answer.Results...)
	}
	return done, nil
}

// Remove removes a live entry of an owner, of everybody's for "". One that is not there is no error.
func (c *Client) Remove(ctx context.Context, entry, owner string) (done []Change, err error) {
	v := values{url.Values{}}
	v.text("entry", entry)
	v.text("owner", owner)
	var answer struct{ Results []Change }
	err = c.ask(ctx, http.MethodDelete, "/v1/entries", v.Values, nil, &answer)
	return answer.Results, err
}

// pages yields the rows of all pages of a list.
func pages[Page, Row any](ctx context.Context, c *Client, path string, v values, rows func(*Page) ([]Row, string)) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		asked := values{maps.Clone(v.Values)}
		for more := true; more; {
			var page Page
			if err := c.ask(ctx, http.MethodGet, path, asked.Values, nil, &page); err != nil {
				var none Row
				yield(none, err)
				return
			}
			all, next := rows(&page)
			for _, row := range all {
				if !yield(row, nil) {
					return
				}
			}
			if more = next != ""; more {
				asked.Set("cursor", next)
			}
		}
	}
}
