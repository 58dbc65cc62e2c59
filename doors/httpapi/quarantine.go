package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/records/audit"
	"blockd/records/quarantine"
)

// Quarantine is what /v1/quarantine shows and changes.
type Quarantine struct {
	Folder  quarantine.Folder
	Fill    func() QuarantineFill
	Changed func()             // something was removed
	Deliver quarantine.Deliver // to the next server
}

// QuarantineFill is how much is in quarantine, and how much may be.
type QuarantineFill struct {
	Count      int   `json:"count"` // of messages
	MaxCount   int   `json:"max_count"`
	Octets     int64 `json:"octets"`
	MaxOctets  int64 `json:"max_octets"`
	NearlyFull bool  `json:"nearly_full"` // four fifths of either
}

// QuarantineList is the answer to GET.
type QuarantineList struct {
	Messages []quarantine.Message `json:"messages"`       // the newest first, never null
	Next     string               `json:"next,omitempty"` // the cursor of the next page; absent at the end
	QuarantineFill
}

// DefaultQuarantined is how many messages an answer has unless "limit" says otherwise.
const DefaultQuarantined = 100

// How long a release may take: the next server may look at the message for minutes.
const releaseTimeout = 10 * time.Minute

// quarantineFaults are those of package quarantine.
var quarantineFaults = []faultKind{{quarantine.ErrNotThere, http.StatusNotFound}, {quarantine.ErrAmbiguous, http.StatusBadRequest},
	{quarantine.ErrBusy, http.StatusConflict}, {quarantine.ErrForeign, http.StatusConflict}}

const quarantineLost = "quarantine cannot be read or changed"

// onlyOnce are the values of parameters that are known, each there once.
func onlyOnce(values map[string][]string, known []string) (map[string]string, error) {
	once := map[string]string{}
	for name, all := range values {
		switch {
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("%s: no such parameter", name)
		case len(all) > 1:
			return nil, fmt.Errorf("%s: want it once", name)
		}
		once[name] = all[0]
	}
	return once, nil
}

// listQuarantine answers GET. A search reads the header of many files, so few run at a time.
func (s *Server) listQuarantine() method {
	return operate(s, operation{method: http.MethodGet, id: "quarantined", summary: "The mail that was set aside, the newest first",
		about: "Sender, From and Subject are as strangers wrote them, decoded, with any character.", right: privately, large: true, lost: quarantineLost,
	}, func(c call, q struct {
		Sender    string    `query:"sender" doc:"a part of the envelope sender or of From, in any case"`
		Recipient string    `query:"recipient" doc:"a part of a recipient"`
		List      string    `query:"list" doc:"a part of the name of a list"`
		Since     time.Time `query:"since" doc:"set aside then or later"`
		Before    time.Time `query:"before" doc:"set aside before"`
		Cursor    string    "query:\"cursor\" doc:\"`next` of the page before\""
		Limit     int       `query:"limit" doc:"how many messages at most" minimum:"1" maximum:"1000" default:"100"`
	}) (l QuarantineList, err error) {
		select {
		case s.searches <- struct{}{}:
			defer func() { <-s.searches }()
		default:
			return l, fault{http.StatusTooManyRequests, "other searches are under way; try again in a second", 1}
		}
		found, err := s.settings.Quarantine.Folder.List(c.Context(), quarantine.Query{Sender: q.Sender, Recipient: q.Recipient, List: q.List, Since: q.Since, Before: q.Before, After: q.Cursor, Limit: q.Limit})
		if err != nil {
			return l, err
		}
		l = QuarantineList{Messages: found.Messages, QuarantineFill: s.settings.Quarantine.Fill()}
		if found.More {
			l.Next = found.Messages[len(found.Messages)-1].ID
		}
		return l, nil
	})
}

// quarantinedMessage answers with one message: for people, or as it is for who accepts message/rfc822.
func (s *Server) quarantinedMessage(w http.ResponseWriter, r *http.Request) {
	values, err := parseQuery(r.URL.RawQuery)
	var v map[string]string
	if err == nil {
		v, err = onlyOnce(values, []string{"id"})
	}
	id := v["id"]
	if err == nil && id == "" {
		err = errors.New("id: want one")
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	w.Header().Set("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), typeMail) {
		file, err := s.settings.Quarantine.Folder.Open(id)
		if err != nil {
			operation{faults: quarantineFaults, lost: quarantineLost}.fail(call{r, w, s}, err)
			return
		}
		defer file.Close()
		w.Header().Set("Content-Type", typeMail)
		w.Header().Set("Content-Disposition", `attachment; filename="message.eml"`)
		io.Copy(w, file) // it fails only if the client has gone, or the disk: the length is not promised
		return
	}
	text, err := s.settings.Quarantine.Folder.Show(id)
	if err != nil {
		operation{faults: quarantineFaults, lost: quarantineLost}.fail(call{r, w, s}, err)
		return
	}
	send(w, http.StatusOK, typeJSON, text)
}

// release sends a message on. It goes on when the caller goes away: to stop in the midst could leave it unsure.
func (s *Server) release() method {
	return operate(s, operation{method: http.MethodPost, id: "release", summary: "Send a message in quarantine on to its recipients",
		about: "The next server gets it from its own sender. What that takes is removed here; for recipients that it refuses the message stays. " +
			"A release that was cut off when the next server may have had the message is not repeated by itself: 409.",
		right: writing, faults: quarantineFaults, lost: quarantineLost, also: []int{http.StatusBadGateway},
	}, func(c call, q struct {
		ID     string `query:"id" required:"true" doc:"of the message, or a beginning that no other has"`
		Again  bool   `query:"again" doc:"send it once more although the next server may have it"`
		Author string `query:"author" doc:"who releases it"`
	}) (done quarantine.Released, err error) {
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(releaseTimeout + requestTimeout)) // where there is none, nothing ends the wait but the caller
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), releaseTimeout)
		defer cancel()
		line := audit.Line{By: c.by(q.Author), Action: audit.QuarantineRelease, Subject: q.ID}
		if q.Again {
			line.Detail = "again"
		}
		if err := c.record(line); err != nil {
			return done, err
		}
		done, err = s.settings.Quarantine.Folder.Release(ctx, q.ID, line.By, q.Again, s.settings.Quarantine.Deliver)
		s.settings.Quarantine.Changed()
		fields := []any{slog.String("by", line.By), slog.String("quarantine", done.ID), slog.String("sender", done.Sender), slog.Any("deliveries", done.Deliveries), slog.Bool("left", done.Left)}
		switch {
		case err == nil:
			s.log.Info("mail released", fields...)
		case errors.Is(err, quarantine.ErrUnsure) && done.ID == "":
			err = faultf(http.StatusConflict, "%v; look there, and if it is to be sent once more, say again=1", err)
		case done.ID != "": // it has begun
			s.log.Warn("mail not released", append(fields, slog.Any("error", err))...)
			err = faultf(http.StatusBadGateway, "%v", err)
		}
		return done, err
	})
}

// removeQuarantined removes one message, or all that were set aside before a time.
func (s *Server) removeQuarantined() method {
	return operate(s, operation{method: http.MethodDelete, id: "removeQuarantined", summary: "Remove mail from quarantine, for good", right: writing, faults: quarantineFaults, lost: quarantineLost}, func(c call, q struct {
		ID     string    `query:"id" doc:"one message"`
		Before time.Time `query:"before" doc:"in its place: all that were set aside before this time"`
		Author string    `query:"author" doc:"who removes it"`
	}) (done quarantine.Removed, err error) {
		if (q.ID == "") == q.Before.IsZero() {
			return done, badf("want id or before, and not both")
		}
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(releaseTimeout))
		by, about := c.by(q.Author), q.ID
		if about == "" {
			about = "all before " + q.Before.UTC().Format(time.RFC3339)
		}
		if err := c.record(audit.Line{By: by, Action: audit.QuarantineRemove, Subject: about}); err != nil {
			return done, err
		}
		if q.ID != "" {
			done, err = s.settings.Quarantine.Folder.Remove(q.ID)
		} else {
			done, err = s.settings.Quarantine.Folder.Purge(c.Context(), q.Before)
		}
		if done.Messages > 0 {
			s.settings.Quarantine.Changed()
			s.log.Info("mail removed from quarantine", slog.String("by", by), slog.String("quarantine", q.ID), slog.Int("messages", done.Messages), slog.Int64("octets", done.Octets))
		}
		return done, err
	})
}

func idParam(about string) *huma.Param {
	p := parameter("id", about, "")
	p.Required = true
	return p
}

func describeQuarantinedMessage(d *document) *huma.Operation {
	content := d.content(typeJSON, quarantine.Content{})
	content[typeMail] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	op := &huma.Operation{OperationID: "quarantinedMessage", Summary: "What a message in quarantine says",
		Description: "It needs a token of scope write: who may read other people's mail may release it too. With Accept: message/rfc822 it is the file as it is.",
		Parameters:  []*huma.Param{idParam("of the message, or a beginning that no other has")},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: content}}}
	d.problems(op, http.StatusBadRequest, http.StatusNotFound, http.StatusInsufficientStorage)
	return op
}
