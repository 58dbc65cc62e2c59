package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/access"
)

// errStranger is in the chain of every error that says that another user's process listens at the daemon's address.
// Any local user can bind that address while the daemon is down.
var errStranger = errors.New("no token is sent there")

// proveListener fails unless the other end of a connection is the daemon's: all sockets there were made by root, by
// the daemon's user or by this command's own. Without TLS nothing else tells the daemon from a local user who has
// bound its address while it was down.
func proveListener(c config.Config, conn net.Conn) error {
	owners, err := socketOwners(conn.RemoteAddr(), conn.LocalAddr())
	if err != nil {
		return fmt.Errorf("%w: who listens cannot be told (%w); ask by http.socket, or set http.tls_cert", errStranger, err)
	}
	if len(owners) == 0 {
		return fmt.Errorf("%w: it is not of this machine; ask by http.socket, or set http.tls_cert", errStranger)
	}
	trusted := []int{0, os.Geteuid()}
	if u, err := folderOwner(c); err == nil {
		trusted = append(trusted, u.UID)
	}
	for _, uid := range owners {
		if !slices.Contains(trusted, uid) {
			return fmt.Errorf("%w: who listens is %s, not the daemon's user; end that program and start the daemon", errStranger, access.ByID(uid, 0))
		}
	}
	return nil
}
