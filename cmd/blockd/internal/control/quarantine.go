package control

import (
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
	"blockd/records/quarantine"
)

var errNoQuarantine = errors.New("smtp.quarantine names no folder; what the milter and the policy service set aside is in the mail server's own queue (postqueue -p)")

// inQuarantine asks about messages in quarantine. Where no daemon runs the limits in an answer are 0.
func inQuarantine(ctx context.Context, c config.Config, method, path string, ask url.Values, answer any) error {
	if err := hasQuarantine(c); err != nil {
		return err
	}
	_, err := Do(ctx, c, method, "/v1/quarantine"+path+"?"+query(ask), nil, answer)
	return err
}

func hasQuarantine(c config.Config) error {
	if !c.SMTP.Open() || c.SMTP.Quarantine == "" {
		return errNoQuarantine
	}
	return nil
}

// Quarantined finds messages in quarantine by parameters of /v1/quarantine.
func Quarantined(ctx context.Context, c config.Config, ask url.Values) (all httpapi.QuarantineList, err error) {
	return all, inQuarantine(ctx, c, http.MethodGet, "", ask, &all)
}

// QuarantinedText is what a message in quarantine says.
func QuarantinedText(ctx context.Context, c config.Config, id string) (text quarantine.Content, err error) {
	return text, inQuarantine(ctx, c, http.MethodGet, "/message", url.Values{"id": {id}}, &text)
}

// CopyQuarantined writes a message in quarantine as it is.
func CopyQuarantined(ctx context.Context, c config.Config, id string, to io.Writer) error {
	if err := hasQuarantine(c); err != nil {
		return err
	}
	q := question{method: http.MethodGet, path: "/v1/quarantine/message?" + query(url.Values{"id": {id}}), header: http.Header{"Accept": {"message/rfc822"}}}
	answer, _, err := do(ctx, c, q, nil)
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
	if err := hasQuarantine(c); err != nil {
		return done, err
	}
	err = Ask(ctx, c, http.MethodPost, "/v1/quarantine/release?"+query(ask), nil, &done)
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
	return done, inQuarantine(ctx, c, http.MethodDelete, "", ask, &done)
}
