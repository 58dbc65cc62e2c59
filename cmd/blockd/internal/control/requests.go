package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
	"blockd/doors/receipt"
)

var errNoReceipts = errors.New(`receipts.listen is "", so that nobody can ask to be let in (docs/receipts.md)`)

// Requests are those of refused people with a state, all of them for "". Where no daemon runs, the files are read.
func Requests(ctx context.Context, c config.Config, state receipt.State) (all httpapi.RequestList, err error) {
	if c.ReceiptsFolder() == "" {
		return all, errNoReceipts
	}
	ask := url.Values{}
	if state != "" {
		ask.Set("state", string(state))
	}
	_, err = Do(ctx, c, http.MethodGet, "/v1/requests?"+query(ask), nil, &all)
	return all, err
}

// Grant has the daemon let in whom a request is about, for so long; "" is httpapi.DefaultGrant. noProof: whatever SPF says of the refused mail.
func Grant(ctx context.Context, c config.Config, ref, life, author string, noProof bool) (done httpapi.RequestGrant, err error) {
	ask := url.Values{"ref": {ref}, "author": {author}}
	if life != "" {
		ask.Set("for", life)
	}
	if noProof {
		ask.Set("proof", string(receipt.NoProof))
	}
	return done, decideRequest(ctx, c, "/v1/requests/grant", ask, &done)
}

// Decline has the daemon decline a request.
func Decline(ctx context.Context, c config.Config, ref, author string) (done receipt.Request, err error) {
	return done, decideRequest(ctx, c, "/v1/requests/decline", url.Values{"ref": {ref}, "author": {author}}, &done)
}

func decideRequest(ctx context.Context, c config.Config, path string, ask url.Values, answer any) error {
	if c.ReceiptsFolder() == "" {
		return errNoReceipts
	}
	return decide(ctx, c, "requests", path, ask, answer)
}

// decide has the daemon decide about what waits for a person; it alone can.
func decide(ctx context.Context, c config.Config, what, path string, ask url.Values, answer any) error {
	err := Ask(ctx, c, http.MethodPost, path+"?"+query(ask), nil, answer)
	if errors.Is(err, ErrNoDaemon) {
		err = fmt.Errorf("%w: it decides about %s, so start it", err, what)
	}
	return err
}
