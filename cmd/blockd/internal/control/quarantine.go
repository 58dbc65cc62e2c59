package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
	"blockd/records/audit"
	"blockd/records/quarantine"
)

var errNoQuarantine = errors.New("smtp.quarantine names no folder; what the milter and the policy service set aside is in the mail server's own queue (postqueue -p)")

// quarantineOf is the folder of c.
func quarantineOf(c config.Config) (quarantine.Folder, error) {
	if !c.SMTP.Open() || c.SMTP.Quarantine == "" {
		return "", errNoQuarantine
	}
	return quarantine.Folder(c.SMTP.Quarantine), nil
}

// elsewhere asks the daemon, or does it by the folder itself where none runs.
func elsewhere(ctx context.Context, c config.Config, method, path string, values url.Values, answer any, alone func(quarantine.Folder) error) error {
	folder, err := quarantineOf(c)
	if err != nil {
		return err
	}
	err = Ask(ctx, c, method, path+"?"+query(values), nil, answer)
	if errors.Is(err, ErrNoDaemon) && alone != nil {
		err = alone(folder)
	}
	return err
}

// Quarantined finds messages in quarantine by parameters of /v1/quarantine. Where no daemon runs the limits in the answer are 0.
func Quarantined(ctx context.Context, c config.Config, ask url.Values) (all httpapi.QuarantineList, err error) {
	q, err := httpapi.ParseQuarantineQuery(ask)
	if err != nil {
		return all, err
	}
	err = elsewhere(ctx, c, http.MethodGet, "/v1/quarantine", ask, &all, func(folder quarantine.Folder) error {
		found, err := folder.List(ctx, q)
		all = httpapi.NewQuarantineList(found, httpapi.QuarantineFill{})
		return err
	})
	return all, err
}

// QuarantinedText is what a message in quarantine says.
func QuarantinedText(ctx context.Context, c config.Config, id string) (text quarantine.Content, err error) {
	err = elsewhere(ctx, c, http.MethodGet, "/v1/quarantine/message", url.Values{"id": {id}}, &text, func(folder quarantine.Folder) (err error) {
		text, err = folder.Show(id)
		return err
	})
	return text, err
}

// CopyQuarantined writes a message in quarantine as it is.
func CopyQuarantined(ctx context.Context, c config.Config, id string, to io.Writer) error {
	folder, err := quarantineOf(c)
	if err != nil {
		return err
	}
	answer, err := sendWith(ctx, c, http.MethodGet, "/v1/quarantine/message?"+query(url.Values{"id": {id}}), nil, http.Header{"Accept": {"message/rfc822"}})
	if errors.Is(err, ErrNoDaemon) {
		file, err := folder.Open(id)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(to, file)
		return err
	}
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return refusal(c, answer, json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)))
	}
	_, err = io.Copy(to, answer.Body)
	return err
}

// Release has the daemon send a message in quarantine on: without it nobody knows the next server.
func Release(ctx context.Context, c config.Config, id, author string, again bool) (done quarantine.Released, err error) {
	ask := url.Values{"id": {id}, "author": {author}}
	if again {
		ask.Set("again", "1")
	}
	err = elsewhere(ctx, c, http.MethodPost, "/v1/quarantine/release", ask, &done, nil)
	if errors.Is(err, ErrNoDaemon) {
		err = fmt.Errorf("%w: it releases mail, so start it", err)
	}
	return done, err
}

// Purge removes one message from quarantine, or with "" as id all that were set aside before a time.
func Purge(ctx context.Context, c config.Config, id string, before time.Time, author string) (done quarantine.Removed, err error) {
	ask := url.Values{"author": {author}}
	if id != "" {
		ask.Set("id", id)
	} else {
		ask.Set("before", before.UTC().Format(time.RFC3339))
	}
	err = elsewhere(ctx, c, http.MethodDelete, "/v1/quarantine", ask, &done, func(folder quarantine.Folder) (err error) {
		about := cmp.Or(id, "all before "+before.UTC().Format(time.RFC3339))
		if err = c.Journal().Add(audit.Line{By: author, Action: audit.QuarantineRemove, Subject: about}); err != nil {
			return err
		}
		if id != "" {
			done, err = folder.Remove(id)
		} else {
			done, err = folder.Purge(ctx, before)
		}
		return err
	})
	return done, err
}
