package control

import (
	"context"
	"net/http"
	"net/url"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
)

// Pause has a list not count for a while. alone: no daemon runs, and the next one learns it from the file.
func Pause(ctx context.Context, c config.Config, list string, q httpapi.PauseQuestion) (done httpapi.ListPaused, alone bool, err error) {
	alone, err = Do(ctx, c, http.MethodPost, "/v1/lists/"+url.PathEscape(list)+"/pause", q, &done)
	return done, alone, err
}

// Resume has a paused list count again.
func Resume(ctx context.Context, c config.Config, list string, q httpapi.PauseQuestion) (alone bool, err error) {
	return Do(ctx, c, http.MethodPost, "/v1/lists/"+url.PathEscape(list)+"/resume", q, &httpapi.ListPaused{})
}
