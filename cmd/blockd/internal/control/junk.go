package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
	"blockd/index/live"
	"blockd/mail/addr"
	"blockd/policy/junk"
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
	alone, err = change(ctx, c, mailQuestion("/v1/owners/"+url.PathEscape(q.User.Text)+"/junk?"+query(ask), header), &a, (*files).withDesk)
	return a, alone, err
}

// withDesk opens what a message in Junk needs: without the correspondents there is a guard less, and the entry is this user's own.
func (f *files) withDesk() error {
	if err := f.withEntries(); err != nil {
		return err
	}
	_ = f.withCorrespondents()
	return nil
}

// mailQuestion is a POST with a body that is mail.
func mailQuestion(path string, mail []byte) question {
	return question{method: http.MethodPost, path: path, body: mail, header: http.Header{"Content-Type": {"message/rfc822"}}}
}

// Complain hands in a complaint, to the daemon or else to the files.
func Complain(ctx context.Context, c config.Config, complaint []byte, author string) (a httpapi.ComplaintAnswer, err error) {
	switch {
	case c.JunkBox() == nil:
		return a, errNoProposals
	case c.History.Folder == config.None:
		return a, fmt.Errorf("%w, so that no complaint can be proven", errNoHistory)
	}
	resp, _, err := do(ctx, c, mailQuestion("/v1/complaints?"+query(url.Values{"author": {author}}), complaint), nil)
	if err != nil {
		return a, err
	}
	return a, decodeAnswer(c, resp, &a)
}

// Proposals are those of a state, of all for "", by the daemon or else by the file.
func Proposals(ctx context.Context, c config.Config, state junk.State) (all httpapi.ProposalList, err error) {
	if c.JunkBox() == nil {
		return all, errNoProposals
	}
	ask := url.Values{}
	if state != "" {
		ask.Set("state", string(state))
	}
	_, err = Do(ctx, c, http.MethodGet, "/v1/proposals?"+query(ask), nil, &all)
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

// change changes the live entries: over their file if no daemon holds it, which it reports as alone, and else by the daemon.
func change(ctx context.Context, c config.Config, q question, answer any, open func(*files) error) (alone bool, err error) {
	if c.Live.Folder == config.None {
		return false, errNoEntries
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	for {
		f := &files{config: c}
		var resp *http.Response
		if err = open(f); err == nil {
			resp, err = f.answer(ctx, q)
			if err != nil {
				return true, err
			}
			return true, decodeAnswer(c, resp, answer)
		}
		f.close()
		locked := errors.Is(err, live.ErrLocked)
		if !locked && !errors.Is(err, os.ErrPermission) {
			return false, err
		}
		if resp, err = q.ask(ctx, c); err == nil {
			return false, decodeAnswer(c, resp, answer)
		}
		if !locked || !errors.Is(err, ErrNoDaemon) {
			return false, err
		}
		select { // another blockd add holds the file for a moment, or the daemon is about to start
		case <-ctx.Done():
			return false, err
		case <-time.After(retryEvery):
		}
	}
}
