package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/records/audit"
)

const subscriptionsPath = "/v1/subscriptions"

// maxSubscription bounds the body of a change: an address has 2,000 octets.
const maxSubscription = 16 << 10

// Subscriptions are lists that are fetched from elsewhere, and how they are changed.
type Subscriptions struct {
	// All are those of the configuration in force.
	All func() (SubscriptionList, error)
	// Change returns when the change is in force, or was taken back. before is called when the change would be good and nothing is
	// written yet, with all lists as they are; its error changes nothing, and is returned. Other errors are *SubscriptionFault.
	Change func(ctx context.Context, c SubscriptionChange, before func(all SubscriptionList, list, detail string) error) (SubscriptionChanged, error)
}

// The kinds of SubscriptionChange.
const (
	Subscribe   = "add"
	Enforce     = "enforce"
	Unsubscribe = "remove"
)

// SubscriptionChange is what is asked for.
type SubscriptionChange struct {
	Do   string
	What string // to add: a name of the catalogue, or an https address
	List string // else its name
	By   string
}

// SubscriptionFault is why a list is not changed.
type SubscriptionFault struct {
	Status int // of HTTP
	Text   string
}

func (f *SubscriptionFault) Error() string { return f.Text }

// SubscriptionList is the answer to GET /v1/subscriptions.
type SubscriptionList struct {
	Open  bool           `json:"open" doc:"lists may be added here by a token of scope admin"`
	Why   string         `json:"why" doc:"why not; empty if they may"`
	Most  int            `json:"most" doc:"how many lists may be added so"`
	Lists []Subscription `json:"lists"`
}

// Subscription is a list that was added by blockd subscribe, in the console or over HTTP.
type Subscription struct {
	List    string  `json:"list"`
	Address string  `json:"address" doc:"without a password and what stands behind a question mark"`
	Mode    string  `json:"mode" enum:"shadow,enforce"`
	Since   *string `json:"since" doc:"the day, UTC; null: its lines were changed by hand"`
	Changes bool    `json:"changes" doc:"it stands in http.lists_file, so that it can be changed over HTTP; else blockd subscribe changes it, in the configuration"`
}

// NewSubscription is the body of POST /v1/subscriptions.
type NewSubscription struct {
	What   string `json:"what" doc:"a name of /v1/catalogue, or an https address"`
	Why    string `json:"why,omitempty" doc:"a line, for the audit journal"`
	Author string `json:"author,omitempty" doc:"who asks"`
}

// SubscriptionWhy is the body of POST /v1/subscriptions/{list}/enforce.
type SubscriptionWhy struct {
	Why    string `json:"why,omitempty" doc:"a line, for the audit journal"`
	Author string `json:"author,omitempty" doc:"who asks"`
}

// SubscriptionChanged is the answer to a change.
type SubscriptionChanged struct {
	List       string   `json:"list"`
	Mode       string   `json:"mode" enum:"shadow,enforce,gone"`
	Generation string   `json:"generation" doc:"that serves"`
	Problems   []string `json:"problems" doc:"what is wrong with lists and others, as /readyz has it: a list that was added has not been fetched yet"`
}

func (s *Server) subscriptions(w http.ResponseWriter, r *http.Request) {
	if s.settings.Successor != nil {
		if next := s.settings.Successor(r.Context()); next != nil { // it has the configuration in force
			w.Header().Set("Connection", "close")
			next.ServeHTTP(w, r)
			return
		}
	}
	all, err := s.settings.Subscriptions.All()
	if err != nil {
		s.subscriptionFault(w, "", err)
		return
	}
	sendTagged(w, r, all)
}

func (s *Server) subscribe(w http.ResponseWriter, r *http.Request) {
	var q NewSubscription
	if !s.subscribing(w, r, &q, true) {
		return
	}
	s.changeSubscription(w, r, SubscriptionChange{Do: Subscribe, What: q.What, By: s.callerOf(r).author(q.Author, r)}, audit.ListAdd, q.Why)
}

func (s *Server) enforce(w http.ResponseWriter, r *http.Request) {
	var q SubscriptionWhy
	if !s.subscribing(w, r, &q, false) {
		return
	}
	s.changeSubscription(w, r, SubscriptionChange{Do: Enforce, List: r.PathValue("list"), By: s.callerOf(r).author(q.Author, r)}, audit.ListEnforce, q.Why)
}

func (s *Server) unsubscribe(w http.ResponseWriter, r *http.Request) {
	values, err := parseQuery(r.URL.RawQuery)
	var v map[string]string
	if err == nil {
		v, err = onlyOnce(values, []string{"why", "author"})
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	s.changeSubscription(w, r, SubscriptionChange{Do: Unsubscribe, List: r.PathValue("list"), By: s.callerOf(r).author(v["author"], r)}, audit.ListRemove, v["why"])
}

// subscribing reads the body of a change. If it is wrong, subscribing has answered.
func (s *Server) subscribing(w http.ResponseWriter, r *http.Request, q any, needed bool) bool {
	body, ok := s.body(w, r, maxSubscription)
	if !ok || len(body) == 0 && !needed {
		return ok
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != typeJSON[0] {
		w.Header().Set("Accept-Post", typeJSON[0])
		fail(w, http.StatusUnsupportedMediaType, "want Content-Type application/json")
		return false
	}
	if err := decodeWith(body, q, true); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return false
	}
	return true
}

var errOthers = errors.New("the lists have changed meanwhile")

// changeSubscription has c made, and answers when it is in force. That may take a build, and another process.
func (s *Server) changeSubscription(w http.ResponseWriter, r *http.Request, c SubscriptionChange, action, why string) {
	tag, ok := ifMatch(r)
	if !ok {
		fail(w, http.StatusBadRequest, "If-Match: want the ETag of an answer")
		return
	}
	if err := checkWhy(why); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{})
	answered, noted := false, false
	// A change that was begun is made or taken back, whether or not the caller waits for it.
	done, err := s.settings.Subscriptions.Change(context.WithoutCancel(r.Context()), c, func(all SubscriptionList, list, detail string) error {
		if c.List = list; tag != "" && `"`+tag+`"` != tagOfAll(all) {
			return errOthers
		}
		if answered = !s.record(w, audit.Line{By: c.By, Action: action, Subject: list, Why: why, Detail: detail}); answered {
			return errAnswered
		}
		noted = true
		return nil
	})
	_ = control.SetWriteDeadline(time.Now().Add(requestTimeout))
	w.Header().Set("Connection", "close") // another process may answer by now
	switch {
	case answered:
	case errors.Is(err, errOthers):
		fail(w, http.StatusPreconditionFailed, err.Error()+"; ask again, and send the new ETag")
	case err != nil:
		if noted && s.settings.Audit != nil {
			_ = s.settings.Audit.Log.Add(audit.Line{By: c.By, Action: audit.Failed, Subject: action + " " + c.List, Detail: err.Error()}) // if not even that is written, Problem says so
		}
		s.subscriptionFault(w, c.List, err)
	default:
		s.log.Warn("list changed", slog.String("list", done.List), slog.String("mode", done.Mode), slog.String("by", c.By), slog.String("why", why))
		send(w, http.StatusOK, typeJSON, done)
	}
}

func tagOfAll(all SubscriptionList) string {
	var b bytes.Buffer
	encoder(&b).Encode(all) // as sendTagged does
	return entityTag(b.Bytes())
}

func (s *Server) subscriptionFault(w http.ResponseWriter, list string, err error) {
	status := http.StatusInsufficientStorage
	if fault, ok := errors.AsType[*SubscriptionFault](err); ok {
		status = fault.Status
	}
	if status >= 500 {
		s.log.Error("list not changed", slog.String("list", list), slog.Any("error", err))
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	fail(w, status, err.Error())
}

func describeSubscriptions(d *document) *huma.Operation {
	return &huma.Operation{OperationID: "subscriptions", Summary: "Lists that are fetched from elsewhere", Description: "Those that blockd subscribe, the console or this resource has added.", Responses: d.tagged(SubscriptionList{})}
}

// changesList describes a change, all of which are alike.
func (d *document) changesList(id, summary, text string, statuses ...int) *huma.Operation {
	op := &huma.Operation{OperationID: id, Summary: summary,
		Description: text + " It wants the scope admin. The answer comes when the change is in force, which may take a build of the lists. What cannot be taken up is not changed at all.",
		Parameters:  []*huma.Param{{Name: "If-Match", In: "header", Description: "the ETag of GET: nothing is changed if the lists are no longer those", Schema: &huma.Schema{Type: huma.TypeString}}},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, SubscriptionChanged{})}}}
	d.problems(op, append(statuses, http.StatusBadRequest, http.StatusConflict, http.StatusPreconditionFailed, http.StatusServiceUnavailable, http.StatusInsufficientStorage)...)
	return op
}

func describeSubscribe(d *document) *huma.Operation {
	op := d.changesList("subscribe", "Add a list, which only watches",
		"A list of the catalogue, or one at an https address, goes into the file of http.lists_file in shadow mode: it refuses nobody.",
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	op.RequestBody = &huma.RequestBody{Required: true, Content: d.content(typeJSON, NewSubscription{})}
	return op
}

func describeEnforce(d *document) *huma.Operation {
	op := d.changesList("enforceSubscription", "Let a list count that was added so", "From then on it refuses.",
		http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	op.Parameters = append(op.Parameters, listParam())
	op.RequestBody = &huma.RequestBody{Content: d.content(typeJSON, SubscriptionWhy{})}
	return op
}

func describeUnsubscribe(d *document) *huma.Operation {
	op := d.changesList("unsubscribe", "Take a list away that was added so", "Its copy goes too.", http.StatusNotFound)
	op.Parameters = append(op.Parameters, listParam(), parameter("why", "a line, for the audit journal", ""), parameter("author", "who asks", ""))
	return op
}

// NoSubscription is the fault of a name that no list has.
func NoSubscription(list string) *SubscriptionFault {
	return &SubscriptionFault{http.StatusNotFound, fmt.Sprintf("no list %.80q: %s has all that were added so", list, subscriptionsPath)}
}
