package forget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"blockd/index/live"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/records/audit"
	"blockd/records/quarantine"
)

func (f *Forgotten) remains(where string, count int, format string, args ...any) {
	if count > 0 {
		f.Remains = append(f.Remains, Remainder{where, count, fmt.Sprintf(format, args...)})
	}
}

// atOnce bounds how many live entries one change removes.
const atOnce = 1000

// entries removes the person's own live entries, and others for the person where that is wished. An entry that an operator has made
// is the operator's.
func (p *Places) entries(ctx context.Context, f *Forgotten, who *person, w Wish) error {
	if p.Live == nil {
		return nil
	}
	pseudonym := "person " + p.Correspondents.Pseudonym(who.address)
	var gone []live.Change
	var example string
	left, words := 0, 0
	for e := range p.Live.Every() {
		owner := e.Item.Owner.Text
		remove := live.Change{Owner: owner, Entry: e.Text, Remove: true, Author: w.Author, Journal: pseudonym}
		switch {
		case owner != "" && who.gets(owner):
			gone = append(gone, remove)
			f.Own++
		case !who.named(e.Text):
			if who.named(e.Why) {
				words++
			}
		case w.Entries:
			gone = append(gone, remove)
			f.Entries++
		default:
			left++
			if example = "blockd remove " + e.Text; owner != "" {
				example = "blockd remove --owner " + owner + " " + e.Text
			}
		}
	}
	f.remains("entries", left, "live entries that people have made for the address; --entries removes them, or %s", example)
	f.remains("entries", words, "live entries for others whose reason names the address; blockd add writes another reason")
	for some := range slices.Chunk(gone, atOnce) {
		if _, err := p.Live.Apply(some...); err != nil {
			return err
		}
	}
	return p.Live.Erase(ctx) // one that was removed before may still be in a file
}

// quarantine looks for messages from and to the person.
func (p *Places) quarantine(ctx context.Context, f *Forgotten, who *person, w Wish) error {
	if p.Quarantine == "" {
		return nil
	}
	var all, shared []string
	q := quarantine.Query{Limit: quarantine.MaxFound}
	for {
		found, err := p.Quarantine.List(ctx, q)
		if err != nil {
			return err
		}
		for _, m := range found.Messages {
			switch gets := slices.ContainsFunc(m.Recipients, who.gets); {
			case who.is(m.Sender) || who.named(m.From):
				all = append(all, m.ID)
			case gets && w.Quarantine && slices.ContainsFunc(m.Recipients, func(r string) bool { return !who.gets(r) }):
				shared = append(shared, m.ID) // it is theirs too
			case gets:
				all = append(all, m.ID)
			}
		}
		if !found.More || len(found.Messages) == 0 {
			break
		}
		q.After = found.Messages[len(found.Messages)-1].ID
	}
	if !w.Quarantine {
		f.remains("quarantine", len(all), "messages from or to the address, which somebody may wait for; --quarantine removes them, and leaves those to others for these alone")
		return nil
	}
	f.remains("quarantine", len(shared), "messages that others get too, who alone get them now; what stands in them may name the address")
	var errs []error
	for _, id := range shared {
		errs = append(errs, p.Quarantine.TakeOut(id, who.gets))
	}
	for _, id := range all {
		done, err := p.Quarantine.Remove(id)
		f.Quarantined += done.Messages
		errs = append(errs, err)
	}
	if p.Purged != nil && len(all) > 0 {
		p.Purged()
	}
	return errors.Join(errs...)
}

// lists tells which lists have the address. What they held before is kept too, and goes with its generation.
func (p *Places) lists(f *Forgotten, a addr.Addr) error {
	if p.Serving == nil {
		return nil
	}
	ix, err := p.Serving()
	if err != nil || ix == nil {
		return err
	}
	matches, err := ix.Lookup(nil, a, time.Now())
	for _, m := range matches {
		source := ix.Lists()[m.Row].Source
		if m.Kind != lists.Addr || m.Scope != lists.Exact || source.List == live.ListName {
			continue
		}
		f.remains("list "+source.List, 1, "%s:%d has it: what a list says is its maintainer's. What the list held before is kept too, for index.keep generations", source.Path, m.Line)
	}
	return err
}

// mostLines bounds what is read of the journal, in pages.
const mostLines = 100

// journal counts the lines of the journal that name the person.
func (p *Places) journal(ctx context.Context, f *Forgotten, who *person) error {
	if p.Audit == "" {
		return nil
	}
	n, q := 0, audit.Query{Text: who.address.String()}
	for range mostLines {
		found, err := audit.Search(ctx, p.Audit, q)
		if err != nil {
			return err
		}
		n += len(found.Lines)
		if q.Cursor = found.Next; q.Cursor == "" {
			break
		}
	}
	f.remains("audit", n, "lines of the journal of changes, which forgets nobody; they go after audit.keep")
	return nil
}
