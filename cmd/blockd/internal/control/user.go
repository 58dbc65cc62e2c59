package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/access"
)

// DaemonUser is the user that the daemon of this configuration runs as, with its process
// if one runs and has a Unix socket: the kernel says who listens there. Without one it is
// the owner of the index's folder, which the daemon must be able to write to.
func DaemonUser(ctx context.Context, c config.Config) (u access.User, pid int, err error) {
	if u, pid, err = listensAt(ctx, c.HTTPSocket()); err == nil {
		return u, pid, nil
	}
	u, err = folderOwner(c)
	return u, 0, err
}

// folderOwner is the owner of the index's folder, which the daemon writes to.
func folderOwner(c config.Config) (access.User, error) {
	folder := filepath.Dir(c.Index.Path)
	for { // one that is not made yet will be its maker's
		info, err := os.Stat(folder)
		if err == nil {
			owner, ok := info.Sys().(*syscall.Stat_t)
			if !ok {
				return access.Self(), nil
			}
			return access.ByID(int(owner.Uid), int(owner.Gid)), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || folder == filepath.Dir(folder) {
			return access.User{}, fmt.Errorf("index.path: %w", err)
		}
		folder = filepath.Dir(folder)
	}
}

// listensAt is the process that listens at a Unix socket.
func listensAt(ctx context.Context, socket string) (access.User, int, error) {
	conn, err := dialSocket(ctx, socket)
	if err != nil {
		return access.User{}, 0, err
	}
	defer conn.Close()
	uid, gid, pid, err := access.Peer(conn)
	if err != nil {
		return access.User{}, 0, err
	}
	u, err := access.Process(pid)
	if err != nil { // of another name space: the number stands
		return access.ByID(uid, gid), 0, nil
	}
	return u, pid, nil
}
