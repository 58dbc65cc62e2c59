package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	_, err = Do(ctx, c, http.MethodGet, "/v1/generations", nil, &found)
	return found, err
}

// Diff gives the answer of /v1/lists/LIST/diff to use as it comes. Where no daemon runs, what it has kept is read.
func Diff(ctx context.Context, c config.Config, list, since string, use func(io.Reader) error) error {
	query := url.Values{}
	if since != "" {
		query.Set("since", since)
	}
	resp, _, err := do(ctx, c, question{method: http.MethodGet, path: "/v1/lists/" + url.PathEscape(list) + "/diff?" + query.Encode()}, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusal(c, resp, json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)))
	}
	return use(resp.Body)
}

// Sides are the two contents that blockd diff compares, of a list that can be taken back, from the files of the daemon.
func Sides(c config.Config, list, since string) (from, to kept.Point, waits bool, err error) {
	if err := undoable(c, list); err != nil {
		return from, to, false, err
	}
	from, to, waits, err = c.Kept().Sides(list, since, time.Now())
	return from, to, waits, keptError(err)
}

// Rollback has a list serve what it had before. alone: no daemon runs, and the next one keeps to it.
func Rollback(ctx context.Context, c config.Config, list string, q httpapi.UndoQuestion) (done httpapi.ListUndone, alone bool, err error) {
	alone, err = Do(ctx, c, http.MethodPost, "/v1/lists/"+url.PathEscape(list)+"/rollback", q, &done)
	return done, alone, err
}

// Adopt lets in what waits of a list.
func Adopt(ctx context.Context, c config.Config, list string, q httpapi.UndoQuestion) (done httpapi.ListUndone, alone bool, err error) {
	alone, err = Do(ctx, c, http.MethodPost, "/v1/lists/"+url.PathEscape(list)+"/adopt", q, &done)
	return done, alone, err
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
