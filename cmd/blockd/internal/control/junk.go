package control

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
	"blockd/index/live"
	"blockd/mail/addr"
	"blockd/policy/junk"
	"blockd/records/audit"
	"blockd/records/correspondents"
	"blockd/records/history"
)

var errNoProposals = errors.New("junk.agree is 0: nothing is proposed (docs/recipients.md)")

// Move says to a daemon that a user has moved a message to Junk, or back, as junk.Desk does; alone = no daemon runs, and the files were changed. life is
// as it is typed; "" = that of the configuration.
func Move(ctx context.Context, c config.Config, q junk.Question, life string, header []byte) (a httpapi.JunkAnswer, alone bool, err error) {
	ask := url.Values{}
	for name, set := range map[string]bool{"undo": q.Undo, "force": q.Force} {
		if set {
			ask.Set(name, "1")
		}
	}
	for name, text := range map[string]string{"for": life, "author": q.Author} {
		if text != "" {
			ask.Set(name, text)
		}
	}
	alone, err = change(ctx, c, func(set *live.Set) error {
		m, err := junk.Read(bytes.NewReader(header))
		var o live.Outcome
		if err == nil {
			desk, done := desk(c, set)
			defer done()
			now := time.Now()
			if life != "" {
				q.Life, err = live.ParseLife(life)
			}
			if err == nil {
				o, err = desk.Move(m, q, now)
			}
			if err == nil || q.Undo && errors.Is(err, junk.ErrOwn) {
				err = cmp.Or(err, desk.Note(m, q, now))
			}
		}
		a, err = httpapi.NewJunkAnswer(m, o, err)
		return err
	}, func() error {
		return AskMail(ctx, c, "/v1/owners/"+url.PathEscape(q.User.Text)+"/junk?"+query(ask), header, &a)
	})
	return a, alone, err
}

// desk is what the daemon has, with the files. done gives them back.
func desk(c config.Config, set *live.Set) (d *junk.Desk, done func()) {
	d = c.JunkDesk()
	d.Entries = set
	known, _, err := correspondents.Open(c.CorrespondentSettings())
	if err != nil {
		return d, func() {} // a guard less; the entry is this user's own
	}
	d.Correspondents = known
	return d, known.Close
}

// AskMail is Ask by POST with a body that is mail.
func AskMail(ctx context.Context, c config.Config, path string, mail []byte, answer any) error {
	resp, err := sendRaw(ctx, c, http.MethodPost, path, mail, http.Header{"Content-Type": {"message/rfc822"}})
	if err != nil {
		return err
	}
	return decodeAnswer(c, resp, answer)
}

// Complain hands in a complaint, to the daemon or else to the files.
func Complain(ctx context.Context, c config.Config, complaint []byte, author string) (a httpapi.ComplaintAnswer, err error) {
	box := c.JunkBox()
	switch {
	case box == nil:
		return a, errNoProposals
	case c.History.Folder == config.None:
		return a, fmt.Errorf("%w, so that no complaint can be proven", errNoHistory)
	}
	err = AskMail(ctx, c, "/v1/complaints?"+query(url.Values{"author": {author}}), complaint, &a)
	if !errors.Is(err, ErrNoDaemon) {
		return a, err
	}
	search := func(ctx context.Context, q history.Query) (history.Found, error) {
		found, err := history.Search(ctx, c.HistoryFolder(), q)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // nothing was decided yet
		}
		return found, err
	}
	owners := c.Policy().Owners // without aliases, which the daemon reads
	return httpapi.TakeComplaint(ctx, box, bytes.NewReader(complaint), owners.Mailbox, search, time.Now().Add(-time.Duration(c.Junk.For)), author,
		func(l audit.Line) error { return c.Journal().Add(l) })
}

// Proposals are those of a state, of all for "", by the daemon or else by the file.
func Proposals(ctx context.Context, c config.Config, state junk.State) (all httpapi.ProposalList, err error) {
	box := c.JunkBox()
	if box == nil {
		return all, errNoProposals
	}
	ask := url.Values{}
	if state != "" {
		ask.Set("state", string(state))
	}
	err = Ask(ctx, c, http.MethodGet, "/v1/proposals?"+query(ask), nil, &all)
	if errors.Is(err, ErrNoDaemon) {
		return httpapi.NewProposalList(box, nil, state, time.Now())
	}
	return all, err
}

// Adopt has the daemon block the sender of a proposal for everybody, for so long; "" is httpapi.DefaultAdoption.
func AdoptProposal(ctx context.Context, c config.Config, entry, life string, force bool, author string) (done httpapi.ProposalAdoption, err error) {
	ask := url.Values{"entry": {entry}, "author": {author}}
	if life != "" {
		ask.Set("for", life)
	}
	if force {
		ask.Set("force", "1")
	}
	return done, decideProposal(ctx, c, "/v1/proposals/adopt", ask, &done)
}

// DeclineProposal has the daemon decline one.
func DeclineProposal(ctx context.Context, c config.Config, entry, author string) (done httpapi.Proposal, err error) {
	return done, decideProposal(ctx, c, "/v1/proposals/decline", url.Values{"entry": {entry}, "author": {author}}, &done)
}

func decideProposal(ctx context.Context, c config.Config, path string, ask url.Values, answer any) error {
	if c.JunkPath() == "" {
		return errNoProposals
	}
	return decide(ctx, c, "proposals", path, ask, answer)
}

// Untagged is the mailbox of a user, as look-ups mean it.
func Untagged(c config.Config, owner addr.Key) addr.Key {
	if a, err := addr.Parse(owner.Text); err == nil {
		if k, ok := a.Untagged(c.Recipients.Subaddress).Key(); ok {
			return k
		}
	}
	return owner
}

// change changes the live entries: in their file if no daemon holds it, which it reports as alone, and else by the daemon.
func change(ctx context.Context, c config.Config, here func(*live.Set) error, ask func() error) (alone bool, err error) {
	if c.Live.Folder == config.None {
		return false, errNoEntries
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	for {
		set, err := live.Open(c.LiveSettings(c.Journal()))
		if err == nil {
			defer set.Close()
			node, err := shareAlone(c, set)
			if err != nil {
				return true, err
			}
			defer node.Close()
			if err := here(set); err != nil {
				return true, err
			}
			set.Tidy() // or the daemon's next start would read each change; the journal has all if it fails
			return true, nil
		}
		locked := errors.Is(err, live.ErrLocked)
		if !locked && !errors.Is(err, os.ErrPermission) {
			return false, err
		}
		if err = ask(); !locked || !errors.Is(err, ErrNoDaemon) {
			return false, err
		}
		select { // another blockd add holds the file for a moment, or the daemon is about to start
		case <-ctx.Done():
			return false, err
		case <-time.After(retryEvery):
		}
	}
}
