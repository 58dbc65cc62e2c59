package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/subscription"
	"blockd/doors/httpapi"
	"blockd/sources/catalogue"
	"blockd/sources/remote"
)

// subscriptions are the lists of the configuration in force that are fetched from elsewhere.
func (d *daemon) subscriptions() (httpapi.SubscriptionList, error) {
	c := *d.setup.now.Load()
	files, err := subscription.Open(d.setup.path, c)
	if err != nil {
		return httpapi.SubscriptionList{}, err
	}
	return listSubscriptions(c, files), nil
}

func listSubscriptions(c config.Config, files *subscription.Files) httpapi.SubscriptionList {
	all := httpapi.SubscriptionList{Why: noSubscriptions(c), Most: subscription.Most, Lists: []httpapi.Subscription{}}
	all.Open = all.Why == ""
	for _, l := range c.Lists {
		p, there, err := files.Of(l.Name)
		if err == nil && !there && !l.InListsFile() {
			continue // somebody has written it into the configuration
		}
		row := httpapi.Subscription{List: l.Name, Address: remote.Shown(l.URL), Mode: l.Mode, Changes: l.InListsFile() && there}
		if there {
			day := p.Since.Format(time.DateOnly)
			row.Since = &day
		}
		all.Lists = append(all.Lists, row)
	}
	return all
}

// noSubscriptions is why no list may be added over HTTP; "" if it may.
func noSubscriptions(c config.Config) string {
	switch {
	case c.Fleet.On():
		return "this machine takes its lists from a publisher (fleet.from): add them there"
	case c.HTTP.ListsFile == "":
		return "lists are added by the owner of the configuration here: blockd subscribe, or set http.lists_file"
	}
	return ""
}

// changeSubscription is httpapi.Subscriptions.Change.
func (d *daemon) changeSubscription(ctx context.Context, c httpapi.SubscriptionChange, before func(httpapi.SubscriptionList, string, string) error) (done httpapi.SubscriptionChanged, err error) {
	if !d.setup.turn.TryLock() {
		return done, fault(http.StatusServiceUnavailable, "another change of the configuration is under way; try again in some seconds")
	}
	defer d.setup.turn.Unlock()
	if undecided, to := d.upgrade.hasYielded(); undecided != nil || to != nil {
		return done, fault(http.StatusServiceUnavailable, "another process has just taken over; ask again")
	}
	running := *d.setup.now.Load()
	if why := noSubscriptions(running); why != "" {
		return done, conflict("%s", why)
	}
	// Edits of the owner that wait for blockd reload must not come into force because somebody else changes a list.
	_, changes, err := config.Reread(d.setup.path, running)
	if err != nil {
		return done, conflict("the configuration has faults, and nothing is changed before its owner mends them: %v", err)
	}
	if !changes.None() {
		return done, conflict("the files of the configuration have changes that are not taken up yet (%s), and nothing is changed before: blockd reload", strings.Join(changes.Keys, ", "))
	}
	files, err := subscription.Open(d.setup.path, running)
	if err != nil {
		return done, err
	}
	change, detail, err := planned(running, files, c)
	if err == nil {
		err = change.Make(func() error { return before(listSubscriptions(running, files), change.List, detail) })
	}
	if err != nil {
		return done, faultOf(err)
	}
	answer := d.takeUp(ctx, c.By)
	if len(answer.Faults) > 0 {
		text := strings.Join(answer.Faults, "\n")
		if err := change.TakeBack(); err != nil {
			return done, fault(http.StatusInsufficientStorage, "%s: and the file could not be put back, so that the next start has the change: %v", text, err)
		}
		d.setup.faults.Store(nil) // the files are again what is in force
		return done, fault(http.StatusServiceUnavailable, "nothing is changed, because the change could not be taken up: %s", text)
	}
	done = httpapi.SubscriptionChanged{List: change.List, Mode: "shadow", Generation: answer.Generation, Problems: append([]string{}, answer.Problems...)}
	switch c.Do {
	case httpapi.Enforce:
		done.Mode = "enforce"
	case httpapi.Unsubscribe:
		done.Mode = "gone"
		if err := os.Remove(filepath.Join(running.SubscribedFolder(), change.List)); err != nil && !errors.Is(err, os.ErrNotExist) {
			d.log.Error("the copy of a list that was taken away stays", slog.String("list", change.List), slog.Any("error", err))
		}
	}
	return done, nil
}

// planned is the change that is asked for, and what the journal is told of it.
func planned(running config.Config, files *subscription.Files, c httpapi.SubscriptionChange) (change *subscription.Change, detail string, err error) {
	if c.Do == httpapi.Subscribe {
		change, err = files.Add(c.What, time.Now())
		return change, "from " + fromOf(c.What) + ", in shadow mode", err
	}
	at := slices.IndexFunc(running.Lists, func(l config.List) bool { return l.Name == c.List })
	if at < 0 {
		return nil, "", httpapi.NoSubscription(c.List)
	}
	p, there, err := files.Of(c.List)
	switch {
	case err != nil:
		return nil, "", err
	case !running.Lists[at].InListsFile() && there:
		return nil, "", conflict("the list stands in the configuration, which its owner changes: blockd subscribe --%s %s", c.Do, c.List)
	case !running.Lists[at].InListsFile():
		return nil, "", conflict("somebody has written the list into the configuration, and changes it there")
	case !there:
		return nil, "", conflict("somebody has written the list into http.lists_file by hand, and changes it there")
	case c.Do == httpapi.Enforce && p.Enforced:
		return nil, "", conflict("the list counts already")
	}
	detail = "added " + p.Since.Format(time.DateOnly)
	if c.Do == httpapi.Enforce {
		change, err = files.Enforce(c.List)
	} else {
		change, err = files.Remove(c.List)
		detail += ", mode " + running.Lists[at].Mode + ", from " + remote.Shown(running.Lists[at].URL)
	}
	return change, detail, err
}

// fromOf is where a list comes from that is about to be added.
func fromOf(what string) string {
	if l, err := catalogue.Named(what); err == nil {
		return l.URL
	}
	return remote.Shown(what)
}

func conflict(format string, args ...any) error { return fault(http.StatusConflict, format, args...) }

func fault(status int, format string, args ...any) error {
	return &httpapi.SubscriptionFault{Status: status, Text: fmt.Sprintf(format, args...)}
}

// faultOf gives an error of package subscription its status. What it does not know is a fault of the disk.
func faultOf(err error) error {
	for status, kinds := range map[int][]error{
		http.StatusBadRequest: {subscription.ErrWhat},
		http.StatusConflict:   {subscription.ErrRefused, subscription.ErrUnwanted, catalogue.ErrSubscribed, catalogue.ErrNotSubscribed, catalogue.ErrChanged},
	} {
		if slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) }) {
			return &httpapi.SubscriptionFault{Status: status, Text: err.Error()}
		}
	}
	return err
}
