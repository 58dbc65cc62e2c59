package ldap

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-ldap/ldap/v3"

	"blockd/internal/selfsigned"
	"blockd/internal/testkit"
)

const (
	readerDN = "cn=reader,dc=test"
	secret   = "s3cret %/@:?"
)

// slapd is a directory that runs until the test ends: Debian's, in a folder of its own.
type slapd struct {
	address string // of ldap://
	secured string // of ldaps://
	socket  string
	ca      string // a file
	admin   *ldap.Conn
}

// startSlapd starts a server whose accounts get no more than 500 objects, apart from the reader. more is LDIF behind dc=test.
func startSlapd(t testing.TB, more string) *slapd {
	t.Helper()
	program, add := testkit.Peer(t, "slapd"), testkit.Peer(t, "slapadd")
	dir, err := os.MkdirTemp("", "slapd-") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &slapd{address: testkit.Unused(t), secured: testkit.Unused(t), socket: filepath.Join(dir, "ldapi"), ca: filepath.Join(dir, "cert.pem")}
	host, _, _ := strings.Cut(s.address, ":")
	other, _, _ := strings.Cut(s.secured, ":")
	cert := selfsigned.New(t, host, other, "localhost")
	testkit.Write(t, s.ca, cert.CertPEM)
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
`, schemas, modules, dir, readerDN))
	ldif := testkit.Write(t, filepath.Join(dir, "base.ldif"), `dn: dc=test
objectClass: dcObject
objectClass: organization
o: test

`+account(readerDN)+account("cn=limited,dc=test")+more)
	if out, err := exec.Command(add, "-q", "-f", conf, "-l", ldif).CombinedOutput(); err != nil {
		t.Fatalf("slapadd: %v: %s", err, out)
	}
	urls := fmt.Sprintf("ldap://%s ldaps://%s ldapi://%s", s.address, s.secured, url.QueryEscape(s.socket))
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
		s.admin, err = ldap.DialURL("ldapi://" + url.QueryEscape(s.socket))
		return err == nil
	})
	t.Cleanup(func() { s.admin.Close() })
	if err := s.admin.Bind("cn=admin,dc=test", "admin"); err != nil {
		t.Fatal(err)
	}
	return s
}

func account(dn string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(dn, "cn="), ",")
	return fmt.Sprintf("dn: %s\nobjectClass: person\ncn: %s\nsn: %s\nuserPassword: %s\n\n", dn, name, name, secret)
}

// folder adds a base of a test's own.
func (s *slapd) folder(t testing.TB, name string) (dn string) {
	t.Helper()
	dn = "ou=" + name + ",dc=test"
	s.add(t, dn, "objectClass", "organizationalUnit", "ou", name)
	return dn
}

// add adds an object: its attributes by name and value.
func (s *slapd) add(t testing.TB, dn string, pairs ...string) {
	t.Helper()
	r := ldap.NewAddRequest(dn, nil)
	all := map[string][]string{}
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = append(all[pairs[i]], pairs[i+1])
	}
	for name, values := range all {
		r.Attribute(name, values)
	}
	if err := s.admin.Add(r); err != nil {
		t.Fatal(err)
	}
}

// sender adds a blocked sender.
func (s *slapd) sender(t testing.TB, base, name string, pairs ...string) (dn string) {
	t.Helper()
	dn = "cn=" + name + "," + base
	s.add(t, dn, append([]string{"objectClass", "person", "objectClass", "blockedSender", "cn", name, "sn", name}, pairs...)...)
	return dn
}

// set replaces an attribute of an object; without values it goes.
func (s *slapd) set(t testing.TB, dn, attribute string, values ...string) {
	t.Helper()
	r := ldap.NewModifyRequest(dn, nil)
	r.Replace(attribute, values)
	if err := s.admin.Modify(r); err != nil {
		t.Fatal(err)
	}
}

func (s *slapd) remove(t testing.TB, dn string) {
	t.Helper()
	if err := s.admin.Del(ldap.NewDelRequest(dn, nil)); err != nil {
		t.Fatal(err)
	}
}

// url is that of the directory as the reader sees it: what behind the host, such as "ou=x,dc=test?mail".
func (s *slapd) url(what string) string {
	return "ldap://" + escape(readerDN) + ":" + escape(secret) + "@" + s.address + "/" + what
}

// escape is a text as a URL has it before the host.
func escape(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }
