// Package slapdserver starts servers of OpenLDAP for tests, as Debian has them.
package slapdserver

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-ldap/ldap/v3"

	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
)

// The account that may read, and its password, which a URL has to escape.
const (
	Reader = "cn=reader,dc=test"
	Secret = "s3cret %/@:?"
)

// Server is a directory of suffix dc=test that runs until the test ends, in a folder of its own.
type Server struct {
	Address         string // HOST:PORT of ldap://, which knows StartTLS
	Secured         string // HOST:PORT of ldaps://
	Socket          string // path of ldapi://
	CertificateFile string // of TLS, for both addresses
	Admin           *ldap.Conn
}

// Start starts a server whose accounts get no more than 500 objects, apart from Reader. more is LDIF behind dc=test.
func Start(t testing.TB, more string) *Server {
	t.Helper()
	program, add := testkit.Peer(t, "slapd"), testkit.Peer(t, "slapadd")
	dir, err := os.MkdirTemp("", "slapd-") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &Server{Address: testkit.Unused(t), Secured: testkit.Unused(t), Socket: filepath.Join(dir, "ldapi"), CertificateFile: filepath.Join(dir, "cert.pem")}
	host, _, _ := strings.Cut(s.Address, ":")
	other, _, _ := strings.Cut(s.Secured, ":")
	cert := selfsigned.New(t, host, other, "localhost")
	testkit.Write(t, s.CertificateFile, cert.CertPEM)
	testkit.Write(t, filepath.Join(dir, "key.pem"), cert.KeyPEM)
	if err := os.Mkdir(filepath.Join(dir, "db"), 0o700); err != nil {
		t.Fatal(err)
	}
	schemas, modules := "/etc/ldap/schema", "/usr/lib/ldap"
	conf := testkit.Write(t, filepath.Join(dir, "slapd.conf"), fmt.Sprintf(`include %[1]s/core.schema
include %[1]s/cosine.schema
include %[1]s/inetorgperson.schema
attributetype ( 1.3.6.1.4.1.99999.1 NAME 'blockdExpires' EQUALITY generalizedTimeMatch ORDERING generalizedTimeOrderingMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.24 SINGLE-VALUE )
attributetype ( 1.3.6.1.4.1.99999.2 NAME 'blockdAction' EQUALITY caseIgnoreMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 SINGLE-VALUE )
attributetype ( 1.3.6.1.4.1.99999.3 NAME 'blockdOctets' EQUALITY octetStringMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )
attributetype ( 1.3.6.1.4.1.99999.4 NAME 'blockdActive' EQUALITY booleanMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.7 SINGLE-VALUE )
objectclass ( 1.3.6.1.4.1.99999.5 NAME 'blockedSender' SUP top AUXILIARY MAY ( mail $ blockdExpires $ blockdAction $ blockdOctets $ blockdActive ) )
modulepath %[2]s
moduleload back_mdb
sizelimit 500
TLSCertificateFile %[3]s/cert.pem
TLSCertificateKeyFile %[3]s/key.pem
database mdb
maxsize 1073741824
suffix dc=test
rootdn cn=admin,dc=test
rootpw admin
directory %[3]s/db
dbnosync
index objectClass,mail,entryUUID,modifyTimestamp eq
limits dn.exact=%[4]s size.prtotal=unlimited
access to attrs=userPassword by anonymous auth by * none
access to dn.subtree=ou=hidden,dc=test by dn.exact=%[4]s none by * none
access to * by dn.exact=%[4]s read by dn.exact=cn=limited,dc=test read by anonymous read
`, schemas, modules, dir, Reader))
	ldif := testkit.Write(t, filepath.Join(dir, "base.ldif"), `dn: dc=test
objectClass: dcObject
objectClass: organization
o: test

`+account(Reader)+account("cn=limited,dc=test")+more)
	if out, err := exec.Command(add, "-q", "-f", conf, "-l", ldif).CombinedOutput(); err != nil {
		t.Fatalf("slapadd: %v: %s", err, out)
	}
	urls := fmt.Sprintf("ldap://%s ldaps://%s ldapi://%s", s.Address, s.Secured, url.QueryEscape(s.Socket))
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(program, "-f", conf, "-h", urls, "-d", "0")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	testkit.Eventually(t, "slapd", func() bool {
		select {
		case <-ended:
			t.Fatalf("slapd has ended: %s", testkit.Read(t, log.Name()))
		default:
		}
		s.Admin, err = ldap.DialURL("ldapi://" + url.QueryEscape(s.Socket))
		return err == nil
	})
	t.Cleanup(func() { s.Admin.Close() })
	if err := s.Admin.Bind("cn=admin,dc=test", "admin"); err != nil {
		t.Fatal(err)
	}
	return s
}

func account(dn string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(dn, "cn="), ",")
	return fmt.Sprintf("dn: %s\nobjectClass: person\ncn: %s\nsn: %s\nuserPassword: %s\n\n", dn, name, name, Secret)
}

// Folder adds a base of a test's own.
func (s *Server) Folder(t testing.TB, name string) (dn string) {
	t.Helper()
	dn = "ou=" + name + ",dc=test"
	s.Add(t, dn, "objectClass", "organizationalUnit", "ou", name)
	return dn
}

// Add adds an object: its attributes by name and value.
func (s *Server) Add(t testing.TB, dn string, pairs ...string) {
	t.Helper()
	r := ldap.NewAddRequest(dn, nil)
	all := map[string][]string{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = append(all[pairs[i]], pairs[i+1])
	}
	for name, values := range all {
		r.Attribute(name, values)
	}
	if err := s.Admin.Add(r); err != nil {
		t.Fatal(err)
	}
}

// Sender adds a blocked sender.
func (s *Server) Sender(t testing.TB, base, name string, pairs ...string) (dn string) {
	t.Helper()
	dn = "cn=" + name + "," + base
	s.Add(t, dn, append([]string{"objectClass", "person", "objectClass", "blockedSender", "cn", name, "sn", name}, pairs...)...)
	return dn
}

// Set replaces an attribute of an object; without values it goes.
func (s *Server) Set(t testing.TB, dn, attribute string, values ...string) {
	t.Helper()
	r := ldap.NewModifyRequest(dn, nil)
	r.Replace(attribute, values)
	if err := s.Admin.Modify(r); err != nil {
		t.Fatal(err)
	}
}

// Remove takes an object away.
func (s *Server) Remove(t testing.TB, dn string) {
	t.Helper()
	if err := s.Admin.Del(ldap.NewDelRequest(dn, nil)); err != nil {
		t.Fatal(err)
	}
}

// URL is that of the directory as the reader sees it: what behind the host, such as "ou=x,dc=test?mail".
func (s *Server) URL(what string) string {
	return "ldap://" + Escape(Reader) + ":" + Escape(Secret) + "@" + s.Address + "/" + what
}

// Escape is a text as a URL has it before the host.
func Escape(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }
