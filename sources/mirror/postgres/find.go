package postgres

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"blockd/sources/mirror"
)

// maxFound bounds the rows that Find returns.
const maxFound = 4096

// Connected reports whether there is a connection, as far as is known without a question to the server.
func (s *Source) Connected() bool { return s.conn != nil && !s.conn.IsClosed() }

// Connect makes sure that there is a connection, on which Find takes one round trip.
func (s *Source) Connect(ctx context.Context) error {
	if s.Connected() {
		return nil
	}
	err := s.prepare(ctx)
	if err != nil {
		s.conn = hangUp(s.conn)
	}
	return s.classed(err)
}

func (s *Source) prepare(ctx context.Context) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	fields, err := s.describe(ctx)
	if err != nil {
		return err
	}
	columns, err := s.columns(fields)
	if err != nil {
		return err
	}
	s.fields = fields
	sql := "select * from " + s.inner() + " where " + s.among(fields[columns.Columns[0]], "$1")
	// Behind a pooler that forgets whose statement is whose, one of this name is at least the same statement.
	s.finding = fmt.Sprintf("blockd_%x", sha256.Sum256([]byte(sql)))[:32]
	_, err = s.conn.Prepare(ctx, s.finding, sql, nil)
	return err
}

// Find returns all rows of some entries. It needs Connect. An error says nothing about any of the entries; an answer
// that is cut short, or has other columns than the connection began with, is an error. After one Connect makes a new
// connection.
func (s *Source) Find(ctx context.Context, entries []string) ([]mirror.Row, error) {
	found, err := s.find(ctx, entries)
	if err != nil && s.Connected() {
		go hangUp(s.conn) // a server that hangs is not waited for
		s.conn = nil
	}
	return found, s.classed(err)
}

func (s *Source) find(ctx context.Context, entries []string) (found []mirror.Row, err error) {
	columns, err := s.columns(s.fields)
	if err != nil {
		return nil, err
	}
	result := s.conn.ExecPrepared(ctx, s.finding, [][]byte{[]byte(array(entries))}, nil, nil)
	came := int64(0)
	fields, tag, err := read(result, len(s.fields), func(values []string) error {
		if came++; came > maxFound {
			return &mirror.Error{Class: mirror.ClassRows, Err: fmt.Errorf("more than %d rows for %d entries", maxFound, len(entries))}
		}
		if !columns.Gone(values) {
			found = append(found, columns.Row(values))
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case !slices.Equal(fields, s.fields):
		return nil, &mirror.Error{Class: mirror.ClassSchema, Err: errors.New("the columns of the query have changed")}
	case !tag.Select() || tag.RowsAffected() != came:
		return nil, &mirror.Error{Class: mirror.ClassQuery, Err: fmt.Errorf("the server has sent %d rows, and does not say that these are all", came)}
	}
	return found, nil
}
