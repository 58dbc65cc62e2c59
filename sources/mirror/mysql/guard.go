package mysql

import (
	"context"
	"database/sql/driver"
	"errors"

	"blockd/sources/mirror"
)

// The library takes parts of a server's answers on trust, and panics if they are too short: at the latest a program that is no MySQL
// at the end of a wrong port ends the daemon so. The types here make an error of that, at the only place where package
// database/sql holds no lock.

// connector makes connections that do not panic.
type connector struct{ driver.Connector }

func (c connector) Connect(ctx context.Context) (_ driver.Conn, err error) {
	w := &wire{}
	defer recovered(&err, &w)
	conn, err := c.Connector.Connect(context.WithValue(ctx, wireKey{}, &w))
	if err != nil {
		return nil, err
	}
	return connection{conn, w}, nil
}

// connection has what the library's connections have, as far as it is used here.
type connection struct {
	driver.Conn
	wire *wire
}

func (c connection) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (_ driver.Rows, err error) {
	defer recovered(&err, &c.wire)
	answer, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, text, args)
	if err != nil {
		return nil, err
	}
	return result{answer, c.wire}, nil
}

func (c connection) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (_ driver.Result, err error) {
	defer recovered(&err, &c.wire)
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, text, args)
}

func (c connection) CheckNamedValue(v *driver.NamedValue) error {
	return c.Conn.(driver.NamedValueChecker).CheckNamedValue(v)
}

func (c connection) ResetSession(ctx context.Context) error {
	return c.Conn.(driver.SessionResetter).ResetSession(ctx)
}

func (c connection) IsValid() bool { return c.Conn.(driver.Validator).IsValid() }

type result struct {
	driver.Rows
	wire *wire
}

func (r result) Next(values []driver.Value) (err error) {
	defer recovered(&err, &r.wire)
	r.wire.left = maxRow
	return r.Rows.Next(values)
}

func (r result) Close() (err error) {
	defer recovered(&err, &r.wire)
	return r.Rows.Close()
}

// recovered makes an error of a panic, and of what the library says where a wire has ended the connection, why.
func recovered(err *error, w **wire) {
	if recover() != nil {
		*err = &mirror.Error{Class: mirror.ClassUnreachable, Err: errors.New("what answers does not speak the protocol of MySQL")}
	}
	if *err != nil && (*w).wrong != nil {
		*err = (*w).wrong
	}
}
