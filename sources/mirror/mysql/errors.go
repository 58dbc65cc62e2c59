package mysql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"

	client "github.com/go-sql-driver/mysql"

	"blockd/sources/mirror"
)

// numbers are the classes of errors that servers send. Others are mirror.ClassQuery.
var numbers = map[uint16]mirror.Class{
	1044: mirror.ClassAuth, // no right to the database
	1045: mirror.ClassAuth, // user or password
	1130: mirror.ClassAuth, // not from this host
	1142: mirror.ClassAuth, // no right to the table
	1143: mirror.ClassAuth, // no right to the column
	1227: mirror.ClassAuth,
	1251: mirror.ClassAuth, // a way to log in that the server does not have
	1370: mirror.ClassAuth,
	1698: mirror.ClassAuth,
	1820: mirror.ClassAuth, // the password has expired
	1862: mirror.ClassAuth,
	3118: mirror.ClassAuth, // the account is locked
	3159: mirror.ClassAuth, // only with TLS
	4151: mirror.ClassAuth, // MariaDB: the account is locked

	1049: mirror.ClassSchema, // no such database
	1051: mirror.ClassSchema,
	1054: mirror.ClassSchema, // no such column
	1146: mirror.ClassSchema, // no such table
	1356: mirror.ClassSchema, // a view of what is not there
	1412: mirror.ClassSchema, // the table was altered, or truncated, while it was read
	1615: mirror.ClassSchema,

	1205: mirror.ClassTimeout, // for a lock
	1969: mirror.ClassTimeout, // MariaDB: max_statement_time
	3024: mirror.ClassTimeout, // MySQL: max_execution_time

	1040: mirror.ClassRefused, // too many connections
	1129: mirror.ClassRefused, // too many errors of this host
	1203: mirror.ClassRefused,
	1226: mirror.ClassRefused,
	1317: mirror.ClassRefused, // KILL QUERY

	1053: mirror.ClassUnreachable, // it stops
	1077: mirror.ClassUnreachable,
	1080: mirror.ClassUnreachable,
	1152: mirror.ClassUnreachable,
	1927: mirror.ClassUnreachable, // MariaDB: KILL
	3169: mirror.ClassUnreachable,
}

// class gives an error of a server, or of the way to it, its class.
func class(err error) error {
	if e, ok := errors.AsType[*mirror.Error](err); ok {
		return e
	}
	word, hint := mirror.ClassUnreachable, ""
	if e, ok := errors.AsType[*client.MySQLError](err); ok {
		if word, ok = numbers[e.Number]; !ok {
			word = mirror.ClassQuery
		}
	} else if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		word = mirror.ClassTimeout
	} else if errors.Is(err, client.ErrNoTLS) {
		word, hint = mirror.ClassAuth, "; hint: let it have a certificate, or say ?tls=false in the DSN"
	} else if isCertificate(err) {
		word, hint = mirror.ClassAuth, "; hint: ?tls_ca=FILE in the DSN names the authority that signed it"
	} else if errors.Is(err, client.ErrInvalidConn) {
		hint = "; the server has ended the connection"
	}
	return &mirror.Error{Class: word, Err: errors.New(strings.Join(strings.Fields(err.Error()), " ") + hint)}
}

func isCertificate(err error) bool {
	_, verify := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	return verify || authority
}
