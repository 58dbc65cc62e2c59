package ldap

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	ber "github.com/go-asn1-ber/asn1-ber"
	"github.com/go-ldap/ldap/v3"

	"blockd/internal/testkit"
	"blockd/internal/testkit/slapdserver"
	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
)

// message is an LDAP message: the operation, with children.
func message(id int64, op ber.Tag, children ...*ber.Packet) []byte {
	p := ber.Encode(ber.ClassUniversal, ber.TypeConstructed, ber.TagSequence, nil, "")
	p.AppendChild(ber.NewInteger(ber.ClassUniversal, ber.TypePrimitive, ber.TagInteger, id, ""))
	o := ber.Encode(ber.ClassApplication, ber.TypeConstructed, op, nil, "")
	for _, c := range children {
		o.AppendChild(c)
	}
	p.AppendChild(o)
	return p.Bytes()
}

func text(s string) *ber.Packet {
	return ber.NewString(ber.ClassUniversal, ber.TypePrimitive, ber.TagOctetString, s, "")
}

// result is a message that ends an operation.
func result(id int64, op ber.Tag, code int64, diagnostic string) []byte {
	return message(id, op, ber.NewInteger(ber.ClassUniversal, ber.TypePrimitive, ber.TagEnumerated, code, ""), text(""), text(diagnostic))
}

// object is a message with an object that has one attribute.
func object(id int64, attribute, value string) []byte {
	set := ber.Encode(ber.ClassUniversal, ber.TypeConstructed, ber.TagSet, nil, "")
	set.AppendChild(text(value))
	a := ber.Encode(ber.ClassUniversal, ber.TypeConstructed, ber.TagSequence, nil, "")
	a.AppendChild(text(attribute))
	a.AppendChild(set)
	all := ber.Encode(ber.ClassUniversal, ber.TypeConstructed, ber.TagSequence, nil, "")
	all.AppendChild(a)
	return message(id, ldap.ApplicationSearchResultEntry, text("cn=x"), all)
}

// A server that accepts the account, and then answers whatever it likes.
func TestWhateverAServerAnswers(t *testing.T) {
	says := func(parts ...[]byte) func(net.Conn) {
		return func(c net.Conn) {
			for _, p := range parts {
				c.Write(p)
			}
		}
	}
	hangs := func(c net.Conn) { io.Copy(io.Discard, c) }
	staying := func(parts ...[]byte) func(net.Conn) { return func(c net.Conn) { says(parts...)(c); hangs(c) } }
	searched := ber.Tag(ldap.ApplicationSearchResultDone)
	for _, tt := range []struct {
		name   string
		bind   []byte // nil: it is accepted
		search func(net.Conn)
		class  mirror.Class
		want   string
	}{
		{"closes", nil, says(), mirror.ClassTruncated, "the connection was cut: the server closed it"},
		{"closes after an object", nil, says(object(2, "mail", "a@b.test")), mirror.ClassTruncated, "the connection was cut"},
		{"closes within an object", nil, says(object(2, "mail", "a@b.test")[:20]), mirror.ClassTruncated, "the connection was cut"},
		{"hangs", nil, hangs, mirror.ClassTimeout, "no answer from"},
		{"hangs after an object", nil, staying(object(2, "mail", "a@b.test")), mirror.ClassTimeout, "no answer from"},
		{"rubbish", nil, says([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")), mirror.ClassTruncated, "the connection was cut"},
		{"a message of 2 GiB", nil, says([]byte("\x30\x84\x7f\xff\xff\xff\x02\x01\x02")), mirror.ClassTruncated, "the connection was cut"},
		{"an object that never ends", nil, func(c net.Conn) {
			c.Write([]byte("\x30\x84\x7f\xff\xff\xff\x02\x01\x02\x64\x84\x7f\xff\xff\xf0\x04\x84\x7f\xff\xff\xe0"))
			block := make([]byte, 1<<20)
			for {
				if _, err := c.Write(block); err != nil {
					return
				}
			}
		}, mirror.ClassTruncated, "more than 16 MiB"},
		{"a part of the values", nil, says(object(2, "mail;range=0-1499", "a@b.test"), result(2, searched, 0, "")), mirror.ClassTruncated, "only some values of an attribute, as mail;range=0-1499"},
		{"no attributes", nil, staying(message(2, ldap.ApplicationSearchResultEntry, text("cn=x")), result(2, searched, 0, "")), mirror.ClassRefused, "cannot be read"},
		{"time limit", nil, says(object(2, "mail", "a@b.test"), result(2, searched, 3, "")), mirror.ClassTruncated, "time limit exceeded (3)"},
		{"an administrator's limit", nil, says(result(2, searched, 11, "")), mirror.ClassTruncated, "admin limit exceeded (11)"},
		{"unknown attribute", nil, says(result(2, searched, 17, "")), mirror.ClassSchema, "(17)"},
		{"no right", nil, says(result(2, searched, 50, "")), mirror.ClassAuth, "(50)"},
		{"busy", nil, says(result(2, searched, 51, "try\r\nlater\x00")), mirror.ClassRefused, "busy (51): try  later"},
		{"unavailable", nil, says(result(2, searched, 52, "")), mirror.ClassRefused, "(52)"},
		{"a referral", nil, says(result(2, searched, 10, "")), mirror.ClassRefused, "referrals are not followed"},
		{"operations error", nil, says(result(2, searched, 1, "")), mirror.ClassQuery, "(1)"},
		{"a code of its own", nil, staying(result(2, searched, 12345, "")), mirror.ClassRefused, "cannot be read"},
		{"repeats the password", result(1, ldap.ApplicationBindResponse, 49, "not "+slapdserver.Secret+"!"), nil, mirror.ClassAuth, "not …!"},
		{"a long text", result(1, ldap.ApplicationBindResponse, 53, strings.Repeat("é", 10_000)), nil, mirror.ClassRefused, "é…"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := testkit.Listen(t)
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if _, err := ber.ReadPacket(c); err != nil {
					return
				}
				if tt.bind != nil {
					c.Write(tt.bind)
					return
				}
				c.Write(result(1, ldap.ApplicationBindResponse, 0, ""))
				if _, err := ber.ReadPacket(c); err == nil {
					tt.search(c)
				}
			}()
			timeout := time.Minute
			if tt.class == mirror.ClassTimeout {
				timeout = time.Second
			}
			wantFault(t, Options{DSN: "ldap://cn=a:" + slapdserver.Escape(slapdserver.Secret) + "@" + l.Addr().String() + "/dc=test?mail", Timeout: timeout}, tt.class, tt.want)
		})
	}
}

func TestServerIsAway(t *testing.T) {
	wantFault(t, Options{DSN: "ldap://cn=a:" + slapdserver.Escape(slapdserver.Secret) + "@" + testkit.Refusing(t) + "/dc=test?mail"}, mirror.ClassUnreachable, "connection refused")
}

// A read ends with its context, also while the server says nothing.
func TestReadEndsWithItsContext(t *testing.T) {
	l := testkit.Listen(t)
	s := mustOpen(t, Options{DSN: "ldap://cn=a:" + slapdserver.Escape(slapdserver.Secret) + "@" + l.Addr().String() + "/dc=test?mail"})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if c, err := l.Accept(); err == nil {
			defer c.Close()
			ber.ReadPacket(c)
			cancel()
			io.Copy(io.Discard, c)
		}
	}()
	if _, err := s.All(ctx, mirrortest.Skip); err != context.Canceled {
		t.Error(err)
	}
}
