package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
	"blockd/index/live"
	"blockd/records/audit"
	"blockd/records/pause"
)

// Pause has a list not count for a while. running tells whether a daemon was there to be asked; where none is, the file is
// written from which the next one learns it.
func Pause(ctx context.Context, c config.Config, list string, q httpapi.PauseQuestion) (done httpapi.ListPaused, running bool, err error) {
	err = askAboutPause(ctx, c, list, "pause", q, &done)
	if !errors.Is(err, ErrNoDaemon) {
		return done, true, err
	}
	row, err := configured(c, list)
	if err == nil {
		err = httpapi.MayPause(row)
	}
	if err != nil {
		return done, false, err
	}
	p, err := httpapi.NewPause(list, q, q.Author, time.Now())
	if err != nil {
		return done, false, err
	}
	if err := c.Journal().Add(audit.Line{By: p.By, Action: audit.ListPause, Subject: p.List, Why: p.Why, Detail: "until " + p.Until.UTC().Format(time.RFC3339)}); err != nil {
		return done, false, err
	}
	set, _ := pause.Open(c.PausesPath()) // what cannot be read is written anew
	if err := set.Start(p); err != nil {
		return done, false, err
	}
	return httpapi.ListPaused{List: list, Pause: &httpapi.ListPause{Since: p.Since, Until: p.Until, By: p.By, Why: p.Why}}, false, nil
}

// Resume has a paused list count again.
func Resume(ctx context.Context, c config.Config, list string, q httpapi.PauseQuestion) (running bool, err error) {
	err = askAboutPause(ctx, c, list, "resume", q, &httpapi.ListPaused{})
	if !errors.Is(err, ErrNoDaemon) {
		return true, err
	}
	set, err := pause.Open(c.PausesPath())
	if err != nil {
		return false, err
	}
	if _, paused := set.Of(list, time.Now()); !paused {
		return false, fmt.Errorf("list %q is not paused", list)
	}
	if err := c.Journal().Add(audit.Line{By: q.Author, Action: audit.ListResume, Subject: list, Why: q.Why}); err != nil {
		return false, err
	}
	_, _, err = set.End(list, time.Now())
	return false, err
}

func askAboutPause(ctx context.Context, c config.Config, list, what string, q httpapi.PauseQuestion, answer any) error {
	return Ask(ctx, c, http.MethodPost, "/v1/lists/"+url.PathEscape(list)+"/"+what, q, answer)
}

// configured is the row of a list as the configuration has it.
func configured(c config.Config, list string) (*httpapi.ListWorth, error) {
	if list == live.ListName && c.LiveFolder() != "" {
		return &httpapi.ListWorth{List: list}, nil
	}
	i := slices.IndexFunc(c.Lists, func(l config.List) bool { return l.Name == list })
	if i < 0 {
		return nil, fmt.Errorf("there is no list %q", list)
	}
	return &httpapi.ListWorth{List: list, Action: c.Lists[i].Action, Mode: c.Lists[i].Mode}, nil
}
