package control

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
)

// Reload asks the daemon of the configuration at path to read it and all lists again, and waits until they are taken
// up. Where the file does not lead to a daemon, because it is faulty or names another socket than the one in force, the
// daemon that serves by that file is looked for. The error is ErrNoDaemon where there is none.
func Reload(ctx context.Context, path, author string) (answer httpapi.Reloaded, err error) {
	c, faults := config.Load(path)
	if faults == nil {
		if err = Ask(ctx, c, http.MethodPost, "/v1/reload?"+query(url.Values{"author": {author}}), nil, &answer); !errors.Is(err, ErrNoDaemon) {
			return answer, err
		}
	} else {
		err = ErrNoDaemon
	}
	for _, socket := range sockets(path) {
		there := config.Default()
		there.HTTP.Listen, there.HTTP.Socket = "", socket
		if failed := Ask(ctx, there, http.MethodPost, "/v1/reload?"+query(url.Values{"author": {author}}), nil, &answer); failed == nil {
			return answer, nil
		}
	}
	if faults != nil {
		return answer, errors.Join(err, faults)
	}
	return answer, err
}
