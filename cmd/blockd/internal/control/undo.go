package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
	"blockd/index/kept"
)

// Generations asks the daemon what was served, or reads its files if none answers.
func Generations(ctx context.Context, c config.Config) (found httpapi.Generations, err error) {
	if err = Ask(ctx, c, http.MethodGet, "/v1/generations", nil, &found); !errors.Is(err, ErrNoDaemon) {
		return found, err
	}
	all, err := c.Kept().Generations()
	return httpapi.NewGenerations(all), keptError(err)
}

// Diff gives the answer of /v1/lists/LIST/diff to use as it comes. Where no daemon runs, what it has kept is read.
func Diff(ctx context.Context, c config.Config, list, since string, use func(io.Reader) error) error {
	query := url.Values{}
	if since != "" {
		query.Set("since", since)
	}
	resp, err := send(ctx, c, http.MethodGet, "/v1/lists/"+url.PathEscape(list)+"/diff?"+query.Encode(), nil)
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return refusal(c, resp, json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)))
		}
		return use(resp.Body)
	}
	if !errors.Is(err, ErrNoDaemon) {
		return err
	}
	from, to, waits, err := Sides(c, list, since)
	if err != nil {
		return err
	}
	store := c.Kept()
	r, w := io.Pipe()
	go func() { w.CloseWithError(httpapi.WriteDiff(ctx, w, store, list, from, to, waits, math.MaxInt)) }()
	defer r.Close()
	return keptError(use(r))
}

// Sides are the two contents that blockd diff compares, of a list that can be taken back, from the files of the daemon.
func Sides(c config.Config, list, since string) (from, to kept.Point, waits bool, err error) {
	if err := undoable(c, list); err != nil {
		return from, to, false, err
	}
	from, to, waits, err = c.Kept().Sides(list, since, time.Now())
	return from, to, waits, keptError(err)
}

// Rollback has a list serve what it had before. running tells whether a daemon was there to be asked; where none is, the next
// one keeps to it.
func Rollback(ctx context.Context, c config.Config, list string, q httpapi.UndoQuestion) (done httpapi.ListUndone, running bool, err error) {
	err = Ask(ctx, c, http.MethodPost, "/v1/lists/"+url.PathEscape(list)+"/rollback", q, &done)
	if !errors.Is(err, ErrNoDaemon) {
		return done, true, err
	}
	if err := cmp.Or(undoable(c, list), httpapi.CheckWhy(q.Why)); err != nil {
		return done, false, err
	}
	store := c.Kept()
	pin, err := store.Rollback(ctx, list, q.To, kept.Who{By: q.Author, Why: q.Why}, time.Now(), func(p kept.Point) error {
		return c.Journal().Add(httpapi.RollbackLine(list, q, p))
	})
	return undone(store, list, pin), false, keptError(err)
}

// Adopt lets in what waits of a list.
func Adopt(ctx context.Context, c config.Config, list string, q httpapi.UndoQuestion) (done httpapi.ListUndone, running bool, err error) {
	err = Ask(ctx, c, http.MethodPost, "/v1/lists/"+url.PathEscape(list)+"/adopt", q, &done)
	if !errors.Is(err, ErrNoDaemon) {
		return done, true, err
	}
	if err := cmp.Or(undoable(c, list), httpapi.CheckWhy(q.Why)); err != nil {
		return done, false, err
	}
	store := c.Kept()
	pin, err := store.Adopt(ctx, list, q.If, c.Reviews(list), kept.Who{By: q.Author, Why: q.Why}, time.Now(), func(id string) error {
		if err := config.Adoptable(ctx, c, list); err != nil {
			return err
		}
		return c.Journal().Add(httpapi.AdoptLine(list, q, id))
	})
	return undone(store, list, pin), false, keptError(err)
}

func undone(store *kept.Store, list string, pin kept.Pin) httpapi.ListUndone {
	pins, _ := store.Pins()
	return httpapi.ListUndone{List: list, Served: pin.Served, Held: httpapi.NewPinned(pins, list)}
}

// undoable says why a list has nothing to go back to.
func undoable(c config.Config, list string) error {
	if !slices.Contains(c.Undoable(), list) {
		return fmt.Errorf("no list %q can be taken back: live entries and lists that are asked have no earlier content", list)
	}
	return nil
}

func keptError(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w; run it as the user of the daemon, or as root", err)
	}
	return err
}
