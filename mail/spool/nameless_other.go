//go:build !linux

package spool

import (
	"errors"
	"os"
)

// withoutName fails: other systems know no such files.
func withoutName(string) (*os.File, error) { return nil, errors.ErrUnsupported }
