//go:build !linux

package keptfilter

import "errors"

// gentle fails: other systems have no priorities of threads.
func gentle() error { return errors.ErrUnsupported }
