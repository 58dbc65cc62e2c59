//go:build !linux

package daemon

import "errors"

// adopt fails: no process can take over without it, and the one that serves says so.
func adopt() error { return errors.ErrUnsupported }
