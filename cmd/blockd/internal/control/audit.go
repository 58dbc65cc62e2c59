package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
	"blockd/records/audit"
)

var errNoAudit = errors.New(`no journal is kept: audit.folder is "none"`)

// Audit asks the daemon for lines of the journal, by parameters of /v1/audit, or reads its files if none answers.
func Audit(ctx context.Context, c config.Config, ask url.Values) (found httpapi.AuditList, err error) {
	if c.Audit.Folder == config.None {
		return found, errNoAudit
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	_, err = Do(ctx, c, http.MethodGet, "/v1/audit?"+query(ask), nil, &found)
	return found, err
}

// VerifyAudit looks through the whole journal, by its files. known is a hash that it is to have, or "".
func VerifyAudit(ctx context.Context, c config.Config, known string) (audit.Chain, error) {
	if c.Audit.Folder == config.None {
		return audit.Chain{}, errNoAudit
	}
	chain, err := audit.Verify(ctx, c.AuditFolder(), known)
	return chain, auditError(err)
}

func auditError(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w; run it as the user of the daemon, or as root", err)
	}
	return err
}
