package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"blockd/sources/mirror"
)

// errStalled is the cause that ends a full read in which no row has come for too long.
var errStalled = errors.New("no row for too long")

// classed gives an error its class. What is not of the server, such as ErrTooOld, stays as it is.
func (s *Source) classed(err error) error {
	if err == nil || errors.Is(err, mirror.ErrTooOld) {
		return err
	}
	if _, done := errors.AsType[*mirror.Error](err); done {
		return err
	}
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		class, hint := ofState(answer.Code)
		return s.faulty(class, answer.Message+hint+" (SQLSTATE "+answer.Code+")")
	}
	if errors.Is(err, errStalled) {
		return s.faulty(mirror.ClassTimeout, fmt.Sprintf("no row within %v", s.stall))
	}
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	at := s.config.Host
	var network net.Error
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, long := errors.AsType[*pgproto3.ExceededMaxBodyLenErr](err)
	switch {
	case unverified:
		return s.faulty(mirror.ClassAuth, fmt.Sprintf("the certificate of %s: %s; name its authority by sslrootcert=FILE in the URL", at, inner(err)))
	case long:
		return s.faulty(mirror.ClassRows, fmt.Sprintf("a row of more than %d MiB", maxMessage>>20))
	case strings.Contains(inner(err), "server refused TLS"): // and not only the first attempt of sslmode=prefer
		return s.faulty(mirror.ClassRefused, at+" does not speak TLS; in a network that is trusted, sslmode=disable in the URL does without")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return s.faulty(mirror.ClassTimeout, "no answer of "+at+" in time")
	}
	return s.faulty(mirror.ClassUnreachable, at+": "+inner(err))
}

// ofState is the class of an SQLSTATE, and what an operator may do about it.
func ofState(code string) (mirror.Class, string) {
	switch code {
	case "42501":
		return mirror.ClassAuth, "; grant select to this role, see blockd source ddl"
	case "42P01", "42703", "42704", "42883", "3D000", "3F000", "0A000":
		return mirror.ClassSchema, ""
	case "57014", "55P03", "25P03":
		return mirror.ClassTimeout, ""
	case "22021", "22P05":
		return mirror.ClassEncoding, ""
	case "57P03":
		return mirror.ClassRefused, ""
	}
	switch code[:min(len(code), 2)] {
	case "28":
		return mirror.ClassAuth, ""
	case "53":
		return mirror.ClassRefused, ""
	case "08", "57":
		return mirror.ClassUnreachable, ""
	}
	return mirror.ClassQuery, ""
}

// inner is the text of the innermost error. What is around it has the user, the database, and each address once more.
func inner(err error) string {
	for {
		next := errors.Unwrap(err)
		if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) > 0 {
			next = joined.Unwrap()[len(joined.Unwrap())-1]
		}
		if _, isOp := err.(*net.OpError); next == nil || isOp {
			return err.Error()
		}
		err = next
	}
}

// faulty is an error of one line, without the password.
func (s *Source) faulty(class mirror.Class, text string) error {
	return &mirror.Error{Class: class, Err: errors.New(mirror.Said(text, s.config.Password))}
}
