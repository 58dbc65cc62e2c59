package export

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strings"
	"time"

	"blockd/index"
	"blockd/index/live"
	"blockd/internal/runs"
	"blockd/internal/term"
	"blockd/lists"
	"blockd/mail/addr"
)

// OwnedFormat is the format of entries with owners: a CSV with the header owner,entry,action,reason, which a list with per_recipient = true reads, and
// blockd import --csv.
const OwnedFormat = "csv:entry"

// Owned writes entries with owners.
type Owned struct {
	Index *index.Index // nil: it has none
	Live  *live.Set    // nil: there are none
	Owner addr.Key     // of this one alone; zero = of all
	Rows  []bool       // the lists of the index that are written; nil = all
}

// OwnedResult is what was written and what was not.
type OwnedResult struct {
	Entries int `json:"entries"`
	Owners  int `json:"owners"`
	Ending  int `json:"ending"` // entries that end by themselves: the format has no end, and they would stay for good
}

// Partial reports whether something was left out.
func (r OwnedResult) Partial() bool { return r.Ending > 0 }

func (r OwnedResult) String() string {
	text := fmt.Sprintf("%s of %s", term.Counted(r.Entries, "entry"), term.Counted(r.Owners, "owner"))
	if r.Ending > 0 {
		text += fmt.Sprintf("; left out %s with an end, which the format does not have", term.Counted(r.Ending, "entry"))
	}
	return text
}

// sortMemory is what rows take until they are sorted; more goes to temporary files.
const sortMemory = 32 << 20

// Write writes the entries in force, sorted by owner and entry. What a live entry says of a sender, an entry of a list does not say once more: it is the later
// word.
func (o Owned) Write(ctx context.Context, out io.Writer) (told OwnedResult, err error) {
	sorter := runs.New("", sortMemory)
	defer sorter.Close()
	later := map[string]bool{}
	if o.Live != nil {
		for e := range o.Live.Owned() {
			if o.Owner.Text != "" && e.Item.Owner != o.Owner {
				continue
			}
			if err := ctx.Err(); err != nil {
				return told, err
			}
			later[e.Item.Owner.Text+" "+e.Text] = true
			if !e.Expires.IsZero() {
				told.Ending++
				continue
			}
			if err := sorter.Add(row(e.Item.Owner.Text, e.Text, e.Item.Action, e.Why)); err != nil {
				return told, err
			}
		}
	}
	if o.Index != nil {
		now := time.Now()
		for e, err := range o.Index.OwnedEntries(ctx, o.Owner) {
			if err != nil {
				return told, err
			}
			text := e.Item.Plain()
			switch {
			case e.Item.Owner.Text == "" || text == "" || e.Again || o.Rows != nil && !o.Rows[e.Row], !e.Expires.IsZero() && !e.Expires.After(now), later[e.Item.Owner.Text+" "+text]:
				continue
			case !e.Expires.IsZero():
				told.Ending++
				continue
			}
			if err := sorter.Add(row(e.Item.Owner.Text, text, e.Item.Action, e.Item.Reason)); err != nil {
				return told, err
			}
		}
	}
	if _, err := io.WriteString(out, "owner,entry,action,reason\n"); err != nil {
		return told, err
	}
	owner := ""
	var before []byte
	for line, err := range sorter.Lines() {
		if err != nil {
			return told, err
		}
		if bytes.Equal(line, before) { // of two lists
			continue
		}
		before = append(before[:0], line...)
		of, rest, _ := strings.Cut(string(line), "\x00")
		if told.Entries++; of != owner {
			owner, told.Owners = of, told.Owners+1
		}
		if _, err := io.WriteString(out, rest); err != nil {
			return told, err
		}
	}
	return told, ctx.Err()
}

// row is a record after its owner, by which it is sorted.
func row(owner, entry string, action lists.Action, reason string) []byte {
	var b bytes.Buffer
	b.WriteString(owner + "\x00")
	w := csv.NewWriter(&b)
	w.Write([]string{owner, entry, said(action), reason})
	w.Flush()
	return b.Bytes()
}

// said is the word of a CSV for an action.
func said(a lists.Action) string {
	if a.Allows() {
		return lists.Allow.String()
	}
	return lists.Block.String()
}
