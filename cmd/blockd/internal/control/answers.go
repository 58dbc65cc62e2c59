package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
	"blockd/index"
	"blockd/index/kept"
	"blockd/index/live"
	"blockd/internal/term"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/policy/rule"
	"blockd/records/history"
	"blockd/reload"
)

// What follows is asked of the daemon, or else read from its files, or the other way round.

const (
	askTimeout    = 2 * time.Second
	changeTimeout = 10 * time.Second
	retryEvery    = 50 * time.Millisecond
)

var (
	errNoEntries = errors.New(`live.folder is "none": there are no live entries`)
	errNoHistory = errors.New(`history.folder is "none": no history is kept`)
)

// ReadLive returns the live entries as their file has them now; nil if there are to be
// none.
func ReadLive(c config.Config) (*live.Set, error) {
	if c.Live.Folder == config.None {
		return nil, nil
	}
	return live.Read(c.LiveFolder())
}

// Entries reads the live entries, or asks the daemon if this user may not.
func Entries(ctx context.Context, c config.Config) (all httpapi.EntryList, err error) {
	set, err := ReadLive(c)
	switch {
	case errors.Is(err, os.ErrPermission):
		err = Ask(ctx, c, http.MethodGet, "/v1/entries", nil, &all)
	case err == nil && set == nil:
		err = errNoEntries
	case err == nil:
		all = httpapi.NewEntryList(set)
	}
	return all, err
}

// OwnerEntries are those of one owner, by the file or by the daemon, as Entries has everybody's.
func OwnerEntries(ctx context.Context, c config.Config, owner addr.Key) (all httpapi.EntryList, err error) {
	set, err := ReadLive(c)
	switch {
	case errors.Is(err, os.ErrPermission):
		path, cursor := "/v1/owners/"+url.PathEscape(owner.Text)+"/entries?limit=1000", ""
		for {
			var page httpapi.OwnerEntries
			if err := Ask(ctx, c, http.MethodGet, path+cursor, nil, &page); err != nil {
				return all, err
			}
			if all.Entries = append(all.Entries, page.Entries...); page.Next == "" {
				return all, nil
			}
			cursor = "&cursor=" + page.Next
		}
	case err == nil && set == nil:
		err = errNoEntries
	case err == nil:
		entries, _ := set.Of(owner)
		for _, e := range entries {
			all.Entries = append(all.Entries, httpapi.NewLiveEntry(e))
		}
	}
	return all, err
}

// ChangeEntries adds live entries, or removes some of an owner ("" = everybody's) in the name of author, with why in the journal: in their file if
// no daemon holds it, which it reports as alone, and else by the daemon.
// Many are changed some at a time: so many as a question may have, each all or none.
func ChangeEntries(ctx context.Context, c config.Config, add []httpapi.EntryChange, remove []string, owner, why, author string) (answer httpapi.ChangeResults, alone bool, err error) {
	var questions []question
	for some := range slices.Chunk(add, mostAdded) {
		q, err := newQuestion(http.MethodPost, "/v1/entries", map[string]any{"entries": some})
		if err != nil {
			return answer, false, err
		}
		questions = append(questions, q)
	}
	for some := range slices.Chunk(remove, mostRemoved) {
		ask := url.Values{"entry": some, "author": {author}, "why": {why}}
		if owner != "" {
			ask.Set("owner", owner)
		}
		questions = append(questions, question{method: http.MethodDelete, path: "/v1/entries?" + query(ask)})
	}
	for _, q := range questions {
		var some httpapi.ChangeResults
		if alone, err = change(ctx, c, q, &some, (*files).withEntries); err != nil {
			return answer, alone, err
		}
		answer.Results, answer.Replicas = append(answer.Results, some.Results...), some.Replicas
	}
	return answer, alone, nil
}

// The bounds of one question: a removal stands in its address.
const (
	mostAdded   = 1000
	mostRemoved = 20
)

// query encodes values with a blank as %20: /v1 takes "+" for a plus.
func query(values url.Values) string { return strings.ReplaceAll(values.Encode(), "+", "%20") }

// Decisions asks the daemon for past decisions, or reads its files if none answers.
func Decisions(ctx context.Context, c config.Config, ask url.Values) (found httpapi.DecisionList, err error) {
	if c.History.Folder == config.None {
		return found, errNoHistory
	}
	asking, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	q, err := httpapi.ParseDecisionQuery(ask)
	if err != nil {
		return found, err
	}
	if found, err = askDecisions(asking, c, ask, q.Limit); !errors.Is(err, ErrNoDaemon) {
		return found, err
	}
	q.Since = keptSince(c, q.Since)
	past, err := history.Search(ctx, c.HistoryFolder(), q)
	if err != nil {
		return found, HistoryError(c, err)
	}
	found = httpapi.NewDecisionList(past)
	var rows []index.ListInfo // without an index the configuration alone knows
	if ix, err := reload.OpenIndex(c.Index.Path); err == nil {
		rows = ix.Lists()
	}
	rules := c.Policy().Lists
	found.Origins(func(list string) lists.About { return rules[list].Origin(list, rows) })
	return found, nil
}

// askDecisions asks until there are limit decisions, or no more: an answer may end before that.
func askDecisions(ctx context.Context, c config.Config, ask url.Values, limit int) (found httpapi.DecisionList, err error) {
	ask = maps.Clone(ask)
	for {
		ask.Set("limit", strconv.Itoa(limit-len(found.Decisions)))
		var page httpapi.DecisionList
		if err := Ask(ctx, c, http.MethodGet, "/v1/decisions?"+query(ask), nil, &page); err != nil {
			return found, err
		}
		page.Decisions, page.Damaged = append(found.Decisions, page.Decisions...), found.Damaged+page.Damaged
		if found = page; found.Next == "" || len(found.Decisions) >= limit {
			return found, nil
		}
		ask.Set("cursor", found.Next)
	}
}

// keptSince is since, or the time from which on decisions are kept, whichever is later.
func keptSince(c config.Config, since time.Time) time.Time {
	if oldest := time.Now().Add(-time.Duration(c.History.Keep)); since.Before(oldest) {
		return oldest
	}
	return since
}

// MostDecisions counts past decisions. It reads the files itself, also while the daemon
// runs: the count can take seconds and some 150 MB, which the daemon is not to spend. One that runs is
// asked before, so that it writes what it has still to write.
func MostDecisions(ctx context.Context, c config.Config, q history.TopQuery) (history.Top, error) {
	if c.History.Folder == config.None {
		return history.Top{}, errNoHistory
	}
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var newest httpapi.DecisionList
	Ask(asking, c, http.MethodGet, "/v1/decisions?limit=1", nil, &newest) // without an answer the last minute may lack repeated refusals
	q.Since = keptSince(c, q.Since)
	top, err := history.Most(ctx, c.HistoryFolder(), q)
	if err != nil {
		return top, HistoryError(c, err)
	}
	return top, nil
}

// HistoryError says in words why the history cannot be read.
func HistoryError(c config.Config, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w; run it as the user of the daemon, or as root", err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: no history yet: start the daemon", term.Path(c.HistoryFolder()))
	}
	return err
}

// Lists asks the daemon how its lists are. The error says why it does not answer.
func Lists(ctx context.Context, c config.Config, entries bool) (lists httpapi.ListTable, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	path := "/v1/lists"
	if entries {
		path += fmt.Sprintf("?entries=%d", httpapi.MaxEntryWorth)
	}
	err = Ask(ctx, c, http.MethodGet, path, nil, &lists)
	return lists, err
}

// OpenIndex opens an index file for a command that asks it. config is where the
// configuration is that names the file, "" if the command line does.
func OpenIndex(file, config string) (*index.Index, error) {
	ix, err := reload.OpenIndex(file)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return ix, err
	case config == "":
		return nil, fmt.Errorf("%s: no index yet; blockd compile -o makes one", term.Path(file))
	}
	return nil, fmt.Errorf("%s: no index yet: start the daemon, or run: blockd compile -c %s", term.Path(file), config)
}

// IndexLists is what an index file and the list files tell of lists, and c, the configuration at path; nil, and "", without one.
func IndexLists(file, path string, c *config.Config) (httpapi.ListTable, error) {
	ix, err := OpenIndex(file, path)
	if err != nil {
		return httpapi.ListTable{}, err
	}
	var all []reload.List
	if c != nil {
		all = c.Reload().Lists
	}
	status, err := reload.Stored(file, ix, all)
	if err != nil {
		return httpapi.ListTable{}, err
	}
	table := httpapi.NewListTable(status, nil)
	if c != nil {
		pins, err := c.Kept().Pins()
		if err != nil && !errors.Is(err, os.ErrPermission) {
			table.Problems = append(table.Problems, fmt.Sprintf("which lists are held cannot be read: %v", err))
		}
		known := c.Undoable()
		pins = slices.DeleteFunc(pins, func(p kept.Pin) bool { return !slices.Contains(known, p.List) })
		table.SetPins(pins)
		table.Remarks = append(reload.PinRemarks(pins), table.Remarks...)
	}
	var rules map[string]rule.List
	if c != nil {
		rules = c.Policy().Lists
	}
	for i := range table.Worth {
		w := &table.Worth[i]
		r := rules[w.List]
		w.Percent = cmp.Or(r.Percent, 100)
		w.SetAbout(r.Origin(w.List, status.Files))
	}
	return table, nil
}
