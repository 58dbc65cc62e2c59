package redisclient

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"redis://h":                           "redis://h:6379",
		"redis://u:secret@h:1/2":              "redis://h:1/2",
		"rediss://:secret@[::1]":              "rediss://[::1]:6379",
		"unix:///run/redis.sock?db=2":         "unix:///run/redis.sock?db=2",
		"redis-sentinel://:secret@a,b:1/m/2":  "redis-sentinel://a:26379,b:1/m/2",
		"rediss-sentinel://a/m":               "rediss-sentinel://a:26379/m",
		"http://h":                            "error: want a URL that begins with",
		"redis://":                            "error: the URL cannot be read",
		"redis://:secret/x@h":                 "error: the URL cannot be read",
		"redis://:secret%@h":                  "error: the URL cannot be read",
		"redis://:secret#x@h":                 "error: the URL cannot be read",
		"redis://:secret?x@h":                 "error: the URL cannot be read",
		"redis://h/secret":                    "error: want a number as the database",
		"redis://a,b:1,[::1]":                 "redis://a:6379,b:1,[::1]:6379",
		"redis://u:secret@a,b/1":              "error: a Cluster has the database 0 alone",
		"redis://a,,b":                        "error: the URL cannot be read",
		"redis://a,secret@b/c@d":              "error: want a number as the database",
		"redis://a,u:secret/b@c":              "error: the URL cannot be read",
		"rediss://h?tls=skip-verify":          "rediss://h:6379",
		"rediss://h/1?tls=secret":             "error: a parameter of the URL is not known",
		"rediss://h/1?tls_ca=a&tls_ca=secret": "error: a parameter of the URL is not known",
		"redis://u:secret@h/?tls=skip-verify": "error: certificates go with TLS",
		"redis://secret?a@h":                  "error: a parameter of the URL is not known",
		"redis://1?secret@h":                  "error: a parameter of the URL is not known",
		"redis-sentinel://a":                  "error: want redis-sentinel://HOST:PORT/MASTER",
		"unix://run/redis.sock":               "error: want unix:///PATH",
		"redis://h:port":                      "error: the URL cannot be read",
	} {
		_, shown, err := Options{URL: url}.parse()
		if err != nil {
			shown = "error: " + err.Error()
		}
		if !strings.HasPrefix(shown, want) || err == nil && shown != want || strings.Contains(shown, "secret") {
			t.Errorf("%s: %s, want %s", url, shown, want)
		}
	}
	if _, _, err := (Options{URL: "redis://h", CAFile: "x"}).parse(); err == nil {
		t.Error("a CA without TLS")
	}
	if _, _, err := (Options{URL: "rediss://h", CAFile: filepath.Join(t.TempDir(), "gone")}).parse(); err == nil {
		t.Error("a CA that is not there")
	}
}
