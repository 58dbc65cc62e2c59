package control

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
)

// Report asks the daemon for the letter since a time. The error wraps ErrNoDaemon where none runs.
func Report(ctx context.Context, c config.Config, since time.Time) (answer httpapi.ReportAnswer, err error) {
	err = Ask(ctx, c, http.MethodGet, "/v1/report?"+sinceQuery(since), nil, &answer)
	return answer, err
}

// SendReport has the daemon send it, in the name of author. The error is that of Report.
func SendReport(ctx context.Context, c config.Config, since time.Time, author string) (sent httpapi.ReportSent, err error) {
	err = Ask(ctx, c, http.MethodPost, "/v1/report?"+query(url.Values{"since": {since.UTC().Format(time.RFC3339)}, "author": {author}}), nil, &sent)
	return sent, err
}

func sinceQuery(since time.Time) string {
	return query(url.Values{"since": {since.UTC().Format(time.RFC3339)}})
}
