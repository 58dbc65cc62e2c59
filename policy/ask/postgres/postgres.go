// Package postgres asks a list in a PostgreSQL: the rows of a query. All of a question is one round trip, of a
// statement that each connection has prepared.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"blockd/policy/ask"
	"blockd/sources/mirror"
	"blockd/sources/mirror/postgres"
)

// Options say where a list is: as for package sources/mirror/postgres, of which DSN, Query and Watermark count.
type Options = postgres.Options

const (
	connections  = 8               // of a list; a question waits for one that is free
	connectLimit = 5 * time.Second // of a connection, which goes on when the question that began it has ended
)

// Store is a list in a PostgreSQL. Any number of goroutines may use it.
type Store struct {
	ready chan *postgres.Source // connections that are free
	fresh chan *postgres.Source // that are yet to be made
	ctx   context.Context       // of connections that are being made
	end   context.CancelFunc
	once  sync.Once
}

// Open judges the options. It does not connect. No error tells a password.
func Open(o Options) (*Store, error) {
	s := &Store{ready: make(chan *postgres.Source, connections), fresh: make(chan *postgres.Source, connections)}
	for range connections {
		source, err := postgres.Open(o)
		if err != nil {
			return nil, err
		}
		s.fresh <- source
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Close ends the connections, after the questions that are under way.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.end()
		var all sync.WaitGroup
		for range connections {
			select {
			case source := <-s.ready:
				all.Go(func() { source.Close() })
			case <-s.fresh:
			}
		}
		all.Wait()
	})
	return nil
}

// Ask asks for all texts. A connection that was lost since the last question says nothing about the server now: the
// question then goes to the next one.
func (s *Store) Ask(ctx context.Context, texts []string) ([]ask.Answer, error) {
	for {
		source, kept, err := s.take(ctx)
		if err != nil {
			return nil, err
		}
		rows, err := source.Find(ctx, texts)
		s.give(source)
		switch {
		case err == nil:
			return answers(texts, rows)
		case !kept || ctx.Err() != nil || !lost(err):
			return nil, err
		}
	}
}

// lost reports whether an error is of the connection, and not of the question.
func lost(err error) bool {
	e, ok := errors.AsType[*mirror.Error](err)
	return ok && e.Class == mirror.ClassUnreachable
}

var errClosed = errors.New("the store is closed")

// take takes a connection, kept from an earlier question if one is free.
func (s *Store) take(ctx context.Context) (_ *postgres.Source, kept bool, _ error) {
	select {
	case source := <-s.ready:
		return source, true, nil
	default:
	}
	var source *postgres.Source
	select {
	case source = <-s.ready:
		return source, true, nil
	case source = <-s.fresh:
	case <-ctx.Done():
		return nil, false, ctx.Err()
	case <-s.ctx.Done():
		return nil, false, errClosed
	}
	// To connect may take longer than a question may. The connection is then there for the next one.
	made := make(chan error)
	go func() {
		limited, cancel := context.WithTimeout(s.ctx, connectLimit)
		defer cancel()
		err := source.Connect(limited)
		select {
		case made <- err:
		case <-ctx.Done():
			s.give(source)
		}
	}()
	select {
	case err := <-made:
		if err != nil {
			s.give(source)
		}
		return source, false, err
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
}

// give takes a connection back.
func (s *Store) give(source *postgres.Source) {
	if source.Connected() {
		s.ready <- source
	} else {
		s.fresh <- source
	}
}

// answers gives each text its rows. A server may know entries by other capitals than blockd asks by, or fill them up
// with blanks. A row that belongs to none of the texts makes all of them doubtful.
func answers(texts []string, rows []mirror.Row) ([]ask.Answer, error) {
	all, places := make([]ask.Answer, len(texts)), make(map[string]int, len(texts))
	for i, text := range texts {
		all[i].Text, places[folded(text)] = text, i
	}
	for _, row := range rows {
		i, asked := places[folded(row.Entry)]
		if !asked {
			return nil, fmt.Errorf("%w: a row of another entry than was asked", ask.ErrWrong)
		}
		row.Entry = strings.TrimRight(row.Entry, " ")
		all[i].Rows = append(all[i].Rows, row)
	}
	return all, nil
}

func folded(text string) string { return strings.ToLower(strings.TrimRight(text, " ")) }
