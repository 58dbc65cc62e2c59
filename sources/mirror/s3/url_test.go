package s3

import (
	"reflect"
	"strings"
	"testing"

	"blockd/lists"
	"blockd/sources/mirror/mirrortest"
)

func TestURL(t *testing.T) {
	for text, want := range map[string]location{
		"s3://s3.test/lists": {address: "s3.test", tls: true, bucket: "lists"},
		"s3://K:a%2Fb%40%3Ac+d@s3.test:9000/lists/a%20b/?region=eu": {address: "s3.test:9000", tls: true, key: "K", secret: "a/b@:c+d", bucket: "lists", prefix: "a b/", region: "eu"},
		"s3://localhost:9000/lists/a":                               {address: "localhost:9000", bucket: "lists", prefix: "a"},
		"s3://127.0.0.3/lists/a?tls=true&tls_ca=/x":                 {address: "127.0.0.3", tls: true, authorities: "/x", bucket: "lists", prefix: "a"},
		"s3://[2001:db8::1]:9000/lists/a?tls=false":                 {address: "[2001:db8::1]:9000", bucket: "lists", prefix: "a"},
		"s3://s3.test/lists/a?tls=skip-verify":                      {address: "s3.test", tls: true, unverified: true, bucket: "lists", prefix: "a"},
	} {
		got, err := parseURL(text)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
			continue
		}
		if _, err := Open(Options{DSN: text}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestBadOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"dsn: want s3://HOST/BUCKET/PREFIX":                                 {DSN: "https://a:hunter2@s3.test/lists"},
		"dsn: want HOST or HOST:PORT":                                       {DSN: "s3:///lists"},
		"dsn: want HOST or HOST:PORT; in a key or secret, / is written %2F": {DSN: "s3://KEY:hunter2/x@s3.test/lists"},
		"dsn: the key or secret: a %":                                       {DSN: "s3://KEY:hunter2%@s3.test/lists"},
		"dsn: want KEY:SECRET before the @":                                 {DSN: "s3://hunter2@s3.test/lists"},
		`dsn: want a bucket behind the host, have ""`:                       {DSN: "s3://a:hunter2@s3.test"},
		"dsn: the prefix: a %":                                              {DSN: "s3://a:hunter2@s3.test/lists/%"},
		`dsn: tls: want "true"`:                                             {DSN: "s3://a:hunter2@s3.test/lists/?tls=maybe"},
		`dsn: unknown parameter "secret"`:                                   {DSN: "s3://s3.test/lists/?secret=hunter2"},
		"dsn: the parameters behind ? cannot":                               {DSN: "s3://s3.test/lists/?secret=hunter2%"},
		"dsn: tls_ca is about TLS":                                          {DSN: "s3://localhost/lists/?tls_ca=/x"},
		"dsn: a control character":                                          {DSN: "s3://a:hunter2@s3.test/lists/\n"},
		`format: unknown format "html"`:                                     {DSN: "s3://s3.test/lists/", Settings: lists.Settings{Format: "html"}},
	} {
		_, err := Open(o)
		mirrortest.WantRefused(t, o.DSN, err, want, "hunter2")
	}
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		prefix, key string
		want        bool
	}{
		{"", "any", true}, {"a", "a", true}, {"a", "a/b", true}, {"a", "a.old", false}, {"a/", "a/b", true}, {"a/", "a/b/c", true}, {"a/", "b/a", false},
	} {
		if got := (&location{prefix: tt.prefix}).covers(tt.key); got != tt.want {
			t.Errorf("%q covers %q: %v", tt.prefix, tt.key, got)
		}
	}
}

func FuzzURL(f *testing.F) {
	f.Add("s3://K:S@s3.test:9000/lists/prefix/?region=eu&tls=false")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := Open(Options{DSN: text}); err == nil {
			s.Close()
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %q", text, err)
		}
	})
}
