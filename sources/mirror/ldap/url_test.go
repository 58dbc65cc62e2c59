package ldap

import (
	"blockd/sources/mirror/mirrortest"
	"reflect"
	"strings"
	"testing"

	"github.com/go-ldap/ldap/v3"
)

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
		got, err := parseURL(text)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
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
