package ldap

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	ber "github.com/go-asn1-ber/asn1-ber"
	"github.com/go-ldap/ldap/v3"

	"blockd/internal/testkit"
	"blockd/internal/testkit/slapdserver"
	"blockd/lists"
	"blockd/sources/mirror"
	"blockd/sources/mirror/mirrortest"
)

func mustOpen(t testing.TB, o Options) *Source {
	t.Helper()
	s := testkit.Value(Open(o))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// rowsOf are the entries of everything, sorted.
func rowsOf(t testing.TB, s *Source) (entries []string) {
	t.Helper()
	rows, _ := mirrortest.Rows(t, s)
	for _, r := range rows {
		entries = append(entries, r.Entry)
	}
	slices.Sort(entries)
	return entries
}

// wantFault reads everything, which fails, and checks the error.
func wantFault(t testing.TB, o Options, class mirror.Class, want string) {
	t.Helper()
	mirrortest.WantFaultOf(t, mustOpen(t, o), class, want, slapdserver.Secret)
}

func TestDirectory(t *testing.T) {
	const many = 1200
	var more strings.Builder
	more.WriteString("dn: ou=many,dc=test\nobjectClass: organizationalUnit\nou: many\n\n")
	for i := range many {
		fmt.Fprintf(&more, "dn: cn=s%d,ou=many,dc=test\nobjectClass: person\nobjectClass: blockedSender\ncn: s%d\nsn: s\nmail: s%d@bulk.test\n\n", i, i, i)
	}
	server := slapdserver.Start(t, more.String())

	t.Run("driver", func(t *testing.T) {
		base, dns, n := server.Folder(t, "driver"), map[string]string{}, 0
		mirrortest.Run(t, mirrortest.Driver{
			Open: func(t testing.TB) mirror.Source {
				return mustOpen(t, Options{DSN: server.URL(base), Query: "entry=mail, action=blockdAction", Overlap: time.Hour})
			},
			Put: func(t testing.TB, entry, action string) {
				if dn := dns[entry]; dn != "" {
					server.Set(t, dn, "blockdAction", action)
					return
				}
				n++
				dns[entry] = server.Sender(t, base, fmt.Sprint("s", n), "mail", entry, "blockdAction", action)
			},
			Remove: func(t testing.TB, entry string) {
				server.Remove(t, dns[entry])
				delete(dns, entry)
			},
			Unseen: true,
		})
	})

	t.Run("columns", func(t *testing.T) {
		base := server.Folder(t, "columns")
		server.Sender(t, base, "ann", "mail", "Ann@bulk.test", "mail", "ann@other.test", "blockdExpires", "20300101000000Z", "blockdAction", "tempfail", "description", "why\nindeed")
		server.Sender(t, base, "bob", "description", "no address")
		server.Sender(t, base, "octets", "blockdOctets", "gr\xfcn\x00@bulk.test", "mail", strings.Repeat("x", 1<<20)+"@bulk.test")
		s := mustOpen(t, Options{DSN: server.URL(base), Query: "entry=MAIL, entry=blockdOctets, expires=blockdExpires, action=blockdAction, reason=description, id=cn"})
		var got []string
		mark, err := s.All(t.Context(), func(r mirror.Row) error {
			line, no := mirror.Say(r, lists.Settings{})
			if no != nil {
				line = no.ID + " " + string(no.Class)
			}
			got = append(got, line)
			return nil
		})
		slices.Sort(got)
		want := []string{"ann@bulk.test\tt\tx\t1893456000\tann\twhy indeed", "ann@other.test\tt\tx\t1893456000\tann\twhy indeed", "octets nul", "octets too-long"}
		if err != nil || mark == "" || !slices.Equal(got, want) {
			t.Errorf("%q, %q, %v", got, mark, err)
		}
	})

	t.Run("pages", func(t *testing.T) {
		testkit.Equal(t, "entries", len(rowsOf(t, mustOpen(t, Options{DSN: server.URL("ou=many,dc=test?mail")}))), many)
		testkit.EqualSlices(t, "a filter", rowsOf(t, mustOpen(t, Options{DSN: server.URL("ou=many,dc=test?mail?one?(|(cn=s7)(cn=s11))")})), []string{"s11@bulk.test", "s7@bulk.test"})
		testkit.EqualSlices(t, "one object", rowsOf(t, mustOpen(t, Options{DSN: server.URL("cn=s7,ou=many,dc=test?mail?base")})), []string{"s7@bulk.test"})
	})

	t.Run("size limit", func(t *testing.T) {
		o := Options{DSN: strings.Replace(server.URL("ou=many,dc=test?mail"), "reader", "limited", 1)}
		wantFault(t, o, mirror.ClassTruncated, "size limit exceeded (4)")
	})

	t.Run("connections", func(t *testing.T) {
		what := "ou=many,dc=test?mail??(cn=s7)"
		account := slapdserver.Escape(slapdserver.Reader) + ":" + slapdserver.Escape(slapdserver.Secret) + "@"
		for name, dsn := range map[string]string{
			"anonymous":                "ldap://" + server.Address + "/" + what,
			"account":                  server.URL(what),
			"socket":                   "ldapi://" + account + slapdserver.Escape(server.Socket) + "/" + what,
			"TLS":                      "ldaps://" + account + server.Secured + "/" + what + "?tls_ca=" + slapdserver.Escape(server.CertificateFile),
			"TLS that is not verified": "ldaps://" + account + server.Secured + "/" + what + "?tls=skip-verify",
			"StartTLS":                 server.URL(what) + "?!starttls,tls_ca=" + slapdserver.Escape(server.CertificateFile),
		} {
			testkit.EqualSlices(t, name, rowsOf(t, mustOpen(t, Options{DSN: dsn})), []string{"s7@bulk.test"})
		}
		for name, tt := range map[string]struct {
			dsn   string
			class mirror.Class
			want  string
		}{
			"password":                   {strings.Replace(server.URL(what), slapdserver.Escape(slapdserver.Secret), "wrong", 1), mirror.ClassAuth, "invalid credentials (49)"},
			"unknown signer":             {"ldaps://" + account + server.Secured + "/" + what, mirror.ClassAuth, "hint: tls_ca"},
			"unknown signer of StartTLS": {server.URL(what) + "?starttls", mirror.ClassAuth, "hint: tls_ca"},
			"no such file":               {server.URL(what) + "?starttls,tls_ca=/nowhere", mirror.ClassDisk, "tls_ca: open /nowhere"},
			"no TLS there":               {"ldaps://" + account + server.Address + "/" + what, mirror.ClassUnreachable, "TLS: "},
			"base":                       {server.URL("ou=nowhere,dc=test?mail"), mirror.ClassSchema, "no such object (32)"},
			"hidden base":                {server.URL("ou=hidden,dc=test?mail"), mirror.ClassSchema, "no such object (32)"},
			"another base":               {server.URL("dc=elsewhere?mail"), mirror.ClassSchema, "no such object (32)"},
		} {
			t.Run(name, func(t *testing.T) {
				wantFault(t, Options{DSN: tt.dsn}, tt.class, tt.want)
			})
		}
	})

	t.Run("changes", func(t *testing.T) {
		base := server.Folder(t, "changes")
		ann := server.Sender(t, base, "ann", "mail", "ann@bulk.test", "blockdActive", "TRUE")
		bob := server.Sender(t, base, "bob", "mail", "bob@bulk.test", "blockdActive", "TRUE")
		s := mustOpen(t, Options{DSN: server.URL(base + "??sub?(blockdActive=TRUE)"), Query: "entry=mail, action=blockdAction", Overlap: time.Hour})
		c := mirrortest.NewCopy(t, s, lists.Settings{})
		c.Read(t)
		c.Want(t, "at first", "ann@bulk.test b", "bob@bulk.test b")

		server.Sender(t, base, "eve", "mail", "Eve@bulk.test", "mail", "eve@(odd)*.test", "blockdActive", "TRUE")
		c.Follow(t)
		c.Want(t, "an object more", "ann@bulk.test b", "bob@bulk.test b", "eve@bulk.test b")

		server.Set(t, ann, "blockdAction", "allow")
		server.Set(t, bob, "blockdActive", "FALSE")
		c.Follow(t)
		c.Want(t, "an action, and an object that the filter stops", "ann@bulk.test a", "eve@bulk.test b")

		// A value at two objects: the entry stays while one of them has it.
		zoe := server.Sender(t, base, "zoe", "mail", "EVE@bulk.test", "blockdActive", "TRUE")
		c.Follow(t)
		server.Set(t, zoe, "blockdActive", "FALSE")
		c.Follow(t)
		c.Want(t, "one of two objects stopped", "ann@bulk.test a", "eve@bulk.test b")

		server.Set(t, bob, "blockdActive", "TRUE")
		c.Follow(t)
		server.Set(t, bob, "blockdActive", "FALSE") // within the same second
		c.Follow(t)
		c.Want(t, "on and off", "ann@bulk.test a", "eve@bulk.test b")

		// What is taken away is found by a full read.
		server.Remove(t, ann)
		server.Set(t, "cn=eve,"+base, "mail", "new@bulk.test")
		c.Follow(t)
		c.Want(t, "deleted", "ann@bulk.test a", "eve@bulk.test b", "new@bulk.test b")
		c.Read(t)
		c.Want(t, "read anew", "new@bulk.test b")

		// An object that comes from elsewhere.
		out := server.Folder(t, "elsewhere")
		server.Sender(t, out, "max", "mail", "max@bulk.test", "blockdActive", "TRUE")
		c.Follow(t)
		testkit.Must(t, server.Admin.ModifyDN(ldap.NewModifyDNRequest("cn=max,"+out, "cn=max", true, base)))
		c.Follow(t)
		c.Want(t, "moved in", "max@bulk.test b", "new@bulk.test b")
	})

	// What changes while everything is read is found by the next poll, at whichever page the read was.
	t.Run("changes during a read", func(t *testing.T) {
		s := mustOpen(t, Options{DSN: server.URL("ou=many,dc=test?mail"), Overlap: 0})
		seen, mark := 0, mirror.Mark("")
		mark, err := s.All(t.Context(), func(r mirror.Row) error {
			if seen++; seen == pageSize+1 {
				server.Set(t, "cn=s3,ou=many,dc=test", "mail", "early@bulk.test")
				server.Set(t, "cn=s1100,ou=many,dc=test", "mail", "late@bulk.test")
			}
			return nil
		})
		testkit.Must(t, err)
		got, _ := mirrortest.Changes(t, s, mark)
		testkit.Got(slices.Contains(got, "early@bulk.test "), slices.Contains(got, "late@bulk.test "))(t, fmt.Sprintf("%q", got), true, true)
	})

	t.Run("marks", func(t *testing.T) {
		s := mustOpen(t, Options{DSN: server.URL("ou=many,dc=test?mail"), Overlap: time.Minute})
		_, mark := mirrortest.Rows(t, s)
		for _, since := range []mirror.Mark{"", "nonsense", "20260101"} {
			mirrortest.WantTooOld(t, string(since), s, since)
		}
		if added, next := mirrortest.Changes(t, s, mark); len(added) == 0 || next == mark {
			t.Errorf("what was added within the overlap: %d changes, from %q to %q", len(added), mark, next)
		} else if again := mirrortest.WantChanges(t, s, next); again != next {
			t.Errorf("idle: from %q to %q", next, again)
		}
		if again, _ := mirrortest.Changes(t, s, mark); len(again) == 0 {
			t.Error("a batch that was not taken in does not come again")
		}
		mirrortest.WantTooOld(t, "none", mustOpen(t, Options{DSN: server.URL("ou=many,dc=test?mail"), Changes: "none"}), mark)
	})

	t.Run("plan", func(t *testing.T) {
		s := mustOpen(t, Options{DSN: server.URL("ou=many,dc=test?mail"), Overlap: time.Minute})
		text := testkit.Value(s.Plan(t.Context()))(t)
		testkit.Lacks(t, text, slapdserver.Secret)
		testkit.Has(t, text, "search ou=many,dc=test, scope sub, filter (objectClass=*), in pages of 500\ncolumns: entry=mail, id=entryUUID\n")
		testkit.Lacks(t, text, "no change will be found", "RFC 2696")
		s = mustOpen(t, Options{DSN: server.URL("ou=many,dc=test?telephoneNumber"), Overlap: time.Minute})
		testkit.Has(t, testkit.Value(s.Plan(t.Context()))(t), "no change will be found before reconcile")
	})

	t.Run("a connection that was lost between two reads", func(t *testing.T) {
		s := mustOpen(t, Options{DSN: server.URL("ou=many,dc=test?mail??(cn=s7)")})
		rowsOf(t, s)
		s.link.wire.Conn.Close()
		testkit.Eventually(t, "the end of the connection", s.link.IsClosing)
		rowsOf(t, s)
	})
}

// BenchmarkDirectory reads so many objects, and then takes changes in, one at a time. BLOCKD_TEST_ROWS gives their number.
func BenchmarkDirectory(b *testing.B) {
	n := mirrortest.BenchRows(10_000)
	var more strings.Builder
	more.WriteString("dn: ou=many,dc=test\nobjectClass: organizationalUnit\nou: many\n\n")
	for i := range n {
		fmt.Fprintf(&more, "dn: cn=s%d,ou=many,dc=test\nobjectClass: person\nobjectClass: blockedSender\ncn: s%d\nsn: s\nmail: user.%x@mail%d.bulk.example\nmodifyTimestamp: 20250101000000Z\n\n",
			i, i, uint32(i)*0x9E3779B9, i%1000)
	}
	server := slapdserver.Start(b, more.String())
	s := mustOpen(b, Options{DSN: server.URL("ou=many,dc=test?mail"), Overlap: time.Minute})
	mirrortest.Benchmark(b, s, n, func(i int) { server.Set(b, "cn=s7,ou=many,dc=test", "mail", fmt.Sprintf("new%d@bulk.example", i)) })
}

func TestURL(t *testing.T) {
	for text, want := range map[string]location{
		"ldap://dir.test/dc=test": {network: "tcp", address: "dir.test:389", host: "dir.test", base: "dc=test", scope: ldap.ScopeWholeSubtree, filter: "(objectClass=*)"},
		"LDAPS://cn=a%2Cdc=test:p%40%3a%2F@[2001:db8::1]:6/ou=x,dc=test?mail,alias?one?(a=b%3Fc)": {network: "tcp", address: "[2001:db8::1]:6", host: "2001:db8::1", tls: true,
			bindDN: "cn=a,dc=test", password: "p@:/", base: "ou=x,dc=test", attributes: []string{"mail", "alias"}, scope: ldap.ScopeSingleLevel, filter: "(a=b?c)"},
		"ldap://[2001:db8::1]/dc=test???a=b":       {network: "tcp", address: "[2001:db8::1]:389", host: "2001:db8::1", base: "dc=test", scope: ldap.ScopeWholeSubtree, filter: "(a=b)"},
		"ldapi://a:b@%2Frun%2Fldapi/dc=test??BASE": {network: "unix", address: "/run/ldapi", bindDN: "a", password: "b", base: "dc=test", filter: "(objectClass=*)"},
		"ldap://a:b@dir.test/dc=test????starttls,tls_ca=%2fca.pem,tls=skip-verify": {network: "tcp", address: "dir.test:389", host: "dir.test", startTLS: true, unverified: true,
			authorities: "/ca.pem", bindDN: "a", password: "b", base: "dc=test", scope: ldap.ScopeWholeSubtree, filter: "(objectClass=*)"},
		"ldap://a:b@127.0.0.2/dc=test": {network: "tcp", address: "127.0.0.2:389", host: "127.0.0.2", bindDN: "a", password: "b", base: "dc=test", scope: ldap.ScopeWholeSubtree, filter: "(objectClass=*)"},
	} {
		got := testkit.Value(parseURL(text))(t)
		testkit.EqualDeep(t, fmt.Sprintf("%s: %+v", text, got), *got, want)
	}
}

func TestBadOptions(t *testing.T) {
	const good = "ldap://dir.test/dc=test?mail"
	for want, o := range map[string]Options{
		"dsn: want an LDAP URL":                                      {DSN: "dir.test/dc=test"},
		"dsn: want ldap://, ldaps:// or ldapi://":                    {DSN: "http://a:hunter2@dir.test/dc=test"},
		"dsn: want HOST or HOST:PORT":                                {DSN: "ldap:///dc=test"},
		"dsn: want HOST or HOST:PORT ":                               {DSN: "ldap://dir.test:x/dc=test"},
		"dsn: a password over a connection without TLS":              {DSN: "ldap://cn=a:hunter2@dir.test/dc=test?mail"},
		"dsn: the name or password to bind with: a %":                {DSN: "ldaps://cn=a:hunter2%@dir.test/dc=test?mail"},
		"dsn: a password without the name":                           {DSN: "ldaps://:hunter2@dir.test/dc=test?mail"},
		"dsn: a name to bind with and no password":                   {DSN: "ldaps://cn=a@dir.test/dc=test?mail"},
		"dsn: ldapi: want the path of a socket":                      {DSN: "ldapi://cn=a:hunter2@dir.test/dc=test?mail"},
		"dsn: want the base of the search":                           {DSN: "ldap://dir.test"},
		"dsn: want the base of the search ":                          {DSN: "ldap://dir.test/hunter"},
		`dsn: want the scope "base", "one" or "sub"`:                 {DSN: "ldap://dir.test/dc=test?mail?all"},
		"dsn: the filter \"((a=b)\" cannot be read":                  {DSN: "ldap://dir.test/dc=test?mail?sub?((a=b)"},
		"dsn: the filter: a %":                                       {DSN: "ldap://dir.test/dc=test?mail?sub?(a=%zz)"},
		`dsn: want attributes such as mail, have "*"`:                {DSN: "ldap://dir.test/dc=test?*"},
		`dsn: unknown extension "x-tls"`:                             {DSN: good + "???x-tls"},
		"dsn: starttls goes with ldap://":                            {DSN: "ldaps://dir.test/dc=test????starttls"},
		"dsn: tls and tls_ca are about TLS":                          {DSN: good + "???tls=skip-verify"},
		"dsn: ldapi goes without extensions":                         {DSN: "ldapi://%2Frun/dc=test????starttls"},
		"dsn: a control character":                                   {DSN: good + "\n"},
		"query: missing":                                             {DSN: "ldap://dir.test/dc=test"},
		"query: the URL names attributes too":                        {DSN: good, Query: "entry=mail"},
		"query: want COLUMN=ATTRIBUTE":                               {DSN: "ldap://dir.test/dc=test", Query: "(mail=*)"},
		"query: no attribute for entry":                              {DSN: "ldap://dir.test/dc=test", Query: "id=cn"},
		`query: the query gives a column "address"`:                  {DSN: "ldap://dir.test/dc=test", Query: "entry=mail,address=mail"},
		`query: the query gives the column "id" twice`:               {DSN: "ldap://dir.test/dc=test", Query: "entry=mail,id=cn,id=uid"},
		`changes: a directory has "watermark" or "none", have "log"`: {DSN: good, Changes: "log"},
		`watermark: only with changes = "watermark"`:                 {DSN: good, Changes: "none", Watermark: "x"},
		"watermark: want an attribute":                               {DSN: good, Watermark: "a b"},
	} {
		_, err := Open(o)
		mirrortest.WantRefused(t, o, err, strings.TrimSpace(want), "hunter2")
	}
}

func FuzzURL(f *testing.F) {
	f.Add("ldap://cn=a:hunter2@dir.test:389/dc=test?mail?sub?(a=b)?starttls")
	f.Add("ldapi://%2Frun/dc=test")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := parseURL(text)
		if err == nil && (w.address == "" || w.base == "" || w.filter == "") {
			t.Errorf("%q: %+v", text, w)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %q", text, err)
		}
	})
}

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
		{"parts without end", nil, func(c net.Conn) {
			c.Write([]byte("\x30\x84\x7f\xff\xff\xff\x02\x01\x02\x64\x84\x7f\xff\xff\xf0"))
			for err := error(nil); err == nil; {
				_, err = io.WriteString(c, strings.Repeat("\x30\x00", 1<<16)) // two octets each
			}
		}, mirror.ClassTruncated, "more than 524288 parts"},
		{"parts of long tags without end", nil, func(c net.Conn) {
			c.Write([]byte("\x30\x80"))
			for err := error(nil); err == nil; {
				_, err = io.WriteString(c, strings.Repeat("\x1f\x81\x01\x81\x01x", 1<<16))
			}
		}, mirror.ClassTruncated, "more than 524288 parts"},
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
