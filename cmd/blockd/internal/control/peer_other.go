//go:build !linux

package control

import (
	"errors"

	"blockd/internal/access"
)

// peerOf fails: other systems do not name the process in one way.
func peerOf(int) (access.User, int, error) { return access.User{}, 0, errors.ErrUnsupported }
