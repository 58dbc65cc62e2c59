//go:build !linux

package control

import (
	"errors"
	"net"
)

// socketOwners fails: other systems do not name the owner of a socket in one way.
func socketOwners(net.Addr, net.Addr) ([]int, error) { return nil, errors.ErrUnsupported }
