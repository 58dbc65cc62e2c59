package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

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
	changesLists
	What   string `json:"what" doc:"a name of /v1/catalogue, or an https address"`
	Why    string `json:"why,omitempty" doc:"a line, for the audit journal"`
	Author string `json:"author,omitempty" doc:"who asks"`
}

// SubscriptionWhy is the body of POST /v1/subscriptions/{list}/enforce.
type SubscriptionWhy struct {
	changesLists
	List   string `path:"list" json:"-" doc:"the list's name"`
	Why    string `json:"why,omitempty" doc:"a line, for the audit journal"`
	Author string `json:"author,omitempty" doc:"who asks"`
}

// changesLists is what every change has.
type changesLists struct {
	IfMatch string `header:"If-Match" json:"-" doc:"the ETag of GET: nothing is changed if the lists are no longer those"`
}

// SubscriptionChanged is the answer to a change.
type SubscriptionChanged struct {
	List       string   `json:"list"`
	Mode       string   `json:"mode" enum:"shadow,enforce,gone"`
	Generation string   `json:"generation" doc:"that serves"`
	Problems   []string `json:"problems" doc:"what is wrong with lists and others, as /readyz has it: a list that was added has not been fetched yet"`
}

func (s *Server) subscriptions() method {
	return operate(s, operation{method: http.MethodGet, id: "subscriptions", summary: "Lists that are fetched from elsewhere", about: "Those that blockd subscribe, the console or this resource has added.",
		right: privately, tagged: true,
	}, func(c call, _ struct{}) (all SubscriptionList, err error) {
		if s.settings.Successor != nil {
			if next := s.settings.Successor(c.Context()); next != nil { // it has the configuration in force
				c.w.Header().Set("Connection", "close")
				next.ServeHTTP(c.w, c.Request)
				return all, errAnswered
			}
		}
		if all, err = s.settings.Subscriptions.All(); err != nil {
			err = s.subscriptionFault("", err)
		}
		return all, err
	})
}

// listChange is what the changes of lists have in common.
func listChange(method, id, summary, about string) operation {
	return operation{method: method, id: id, summary: summary, right: admin, typed: method == http.MethodPost,
		about: about + " The answer comes when the change is in force, which may take a build of the lists. What cannot be taken up is not changed at all.",
		also:  []int{http.StatusConflict, http.StatusPreconditionFailed, http.StatusServiceUnavailable}}
}

func (s *Server) subscribe() method {
	o := listChange(http.MethodPost, "subscribe", "Add a list, which only watches", " A list of the catalogue, or one at an https address, goes into the file of http.lists_file in shadow mode: it refuses nobody.")
	o.body = maxSubscription
	return operate(s, o, func(c call, q NewSubscription) (SubscriptionChanged, error) {
		return s.changeSubscription(c, SubscriptionChange{Do: Subscribe, What: q.What, By: c.by(q.Author)}, audit.ListAdd, q.Why)
	})
}

func (s *Server) enforce() method {
	o := listChange(http.MethodPost, "enforceSubscription", "Let a list count that was added so", " From then on it refuses.")
	o.body, o.optional, o.also = maxSubscription, true, append(o.also, http.StatusNotFound)
	return operate(s, o, func(c call, q SubscriptionWhy) (SubscriptionChanged, error) {
		return s.changeSubscription(c, SubscriptionChange{Do: Enforce, List: q.List, By: c.by(q.Author)}, audit.ListEnforce, q.Why)
	})
}

func (s *Server) unsubscribe() method {
	o := listChange(http.MethodDelete, "unsubscribe", "Take a list away that was added so", " Its copy goes too.")
	o.also = append(o.also, http.StatusNotFound)
	return operate(s, o, func(c call, q struct {
		changesLists
		List   string `path:"list" doc:"the list's name"`
		Why    string `query:"why" doc:"a line, for the audit journal"`
		Author string `query:"author" doc:"who asks"`
	}) (SubscriptionChanged, error) {
		return s.changeSubscription(c, SubscriptionChange{Do: Unsubscribe, List: q.List, By: c.by(q.Author)}, audit.ListRemove, q.Why)
	})
}

var errOthers = errors.New("the lists have changed meanwhile")

// changeSubscription has a change made, and answers when it is in force. That may take a build, and another process.
func (s *Server) changeSubscription(c call, change SubscriptionChange, action, why string) (done SubscriptionChanged, err error) {
	tag, ok := ifMatch(c.Request)
	if !ok {
		return done, badf("If-Match: want the ETag of an answer")
	}
	if err := checkWhy(why); err != nil {
		return done, badf("%v", err)
	}
	control := http.NewResponseController(c.w)
	_ = control.SetWriteDeadline(time.Time{})
	noted := false
	// A change that was begun is made or taken back, whether or not the caller waits for it.
	done, err = s.settings.Subscriptions.Change(context.WithoutCancel(c.Context()), change, func(all SubscriptionList, list, detail string) error {
		if change.List = list; tag != "" && `"`+tag+`"` != tagOfAll(all) {
			return errOthers
		}
		if err := c.record(audit.Line{By: change.By, Action: action, Subject: list, Why: why, Detail: detail}); err != nil {
			return err
		}
		noted = true
		return nil
	})
	_ = control.SetWriteDeadline(time.Now().Add(requestTimeout))
	c.w.Header().Set("Connection", "close") // another process may answer by now
	switch {
	case errors.Is(err, errAnswered):
	case errors.Is(err, errOthers):
		err = faultf(http.StatusPreconditionFailed, "%v; ask again, and send the new ETag", err)
	case err != nil:
		if noted && s.settings.Audit != nil {
			_ = s.settings.Audit.Log.Add(audit.Line{By: change.By, Action: audit.Failed, Subject: action + " " + change.List, Detail: err.Error()}) // if not even that is written, Problem says so
		}
		err = s.subscriptionFault(change.List, err)
	default:
		s.log.Warn("list changed", slog.String("list", done.List), slog.String("mode", done.Mode), slog.String("by", change.By), slog.String("why", why))
	}
	return done, err
}

func tagOfAll(all SubscriptionList) string {
	var b bytes.Buffer
	encoder(&b).Encode(all) // as sendTagged does
	return entityTag(b.Bytes())
}

func (s *Server) subscriptionFault(list string, err error) error {
	f := fault{status: http.StatusInsufficientStorage, text: err.Error()}
	if said, ok := errors.AsType[*SubscriptionFault](err); ok {
		f.status = said.Status
	}
	if f.status >= 500 {
		s.log.Error("list not changed", slog.String("list", list), slog.Any("error", err))
	}
	if f.status == http.StatusServiceUnavailable {
		f.after = 5
	}
	return f
}

// NoSubscription is the fault of a name that no list has.
func NoSubscription(list string) *SubscriptionFault {
	return &SubscriptionFault{http.StatusNotFound, fmt.Sprintf("no list %.80q: %s has all that were added so", list, subscriptionsPath)}
}
