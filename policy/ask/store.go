// Package ask looks senders up in a list that may not leave its store. A local filter says "surely not" about nearly
// every sender. For "perhaps" the store is asked: one round trip for all keys of a sender.
//
// Only the store says no to mail. A store that is away, slow, or answers anything but what was asked refuses no sender:
// the list has then not been asked, which verdicts tell apart from a list that does not have the sender.
package ask

import (
	"context"
	"errors"

	"blockd/sources/mirror"
)

// Store is the exact half of a list. Any number of goroutines may use it.
type Store interface {
	// Ask asks for texts as a plain list writes entries, such as "ann@b.example", "b.example" and ".b.example", all in
	// one round trip. It returns an answer for each of them, in their order. Any doubt about one of them, such as
	// an answer of another type, is an error: an entry counts as absent only if the store has said so.
	// It returns soon after the end of the context.
	Ask(ctx context.Context, texts []string) ([]Answer, error)
	Close() error
}

// Answer is what a store has for a text.
type Answer struct {
	Text string
	Rows []mirror.Row // none: it is not in the list
}

// Why a list was not asked. A question whose answer is away has an error that wraps one of these.
var (
	ErrNoFilter = errors.New("it has no filter, and is not asked without one")
	ErrPaused   = errors.New("its store has failed lately, and is not asked for a moment")
	ErrBusy     = errors.New("too many questions wait for its store")
	ErrTimeout  = errors.New("its store has not answered in time")
	ErrAway     = errors.New("its store has not answered")
	ErrWrong    = errors.New("its store has answered something else")
)
