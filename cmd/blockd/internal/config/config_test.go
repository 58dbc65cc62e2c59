package config

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"

	"blockd/internal/testkit"
)

var update = flag.Bool("update", false, "write the .want files anew; read them before they are committed")

// Each bad configuration has the words beside it that its operator will read.
func TestBadConfigurations(t *testing.T) {
	checkConfigurations(t, "bad", 28, func(t *testing.T, file string) (lines []string) {
		_, err := LoadToServe(file)
		var faults Faults
		if !errors.As(err, &faults) {
			t.Fatalf("LoadToServe: %v, want Faults", err)
		}
		return strings.Split(faults.Error(), "\n")
	})
}

// What is allowed and may not be meant is said, and is no fault.
func TestConfigurationsWithWarnings(t *testing.T) {
	checkConfigurations(t, "warned", 6, func(t *testing.T, file string) (lines []string) {
		c := testkit.Value(LoadToServe(file))(t)
		for _, text := range c.Warnings() {
			lines = append(lines, "config.toml: warning: "+text)
		}
		for _, text := range c.SampleReplies() {
			lines = append(lines, "config.toml: "+text)
		}
		return lines
	})
}

func checkConfigurations(t *testing.T, folder string, atLeast int, said func(*testing.T, string) []string) {
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.toml"))
	if err != nil || len(files) < atLeast {
		t.Fatalf("%d configurations in %s, %v", len(files), folder, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".toml")
		t.Run(name, func(t *testing.T) {
			got := strings.ReplaceAll(strings.Join(append(said(t, file), ""), "\n"), file, "config.toml")
			dir := testkit.Value(filepath.Abs(filepath.Dir(file)))(t)
			got = strings.ReplaceAll(got, dir, "DIR")
			want := strings.TrimSuffix(file, ".toml") + ".want"
			if *update {
				testkit.Write(t, want, got)
			}
			text := testkit.Read(t, want)
			testkit.Equal(t, file, got, string(text))
		})
	}
}

// The reference configuration has values of Default alone, so that it can be read in place of
// the code, and fits on three screens.
func TestReferenceConfigurationShowsTheDefaults(t *testing.T) {
	data := testkit.Read(t, testkit.Root(t)+"/config.toml")
	got, _, faults := decode(data, nil)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if len(got.Lists) == 0 {
		t.Error("the reference configuration has no [[list]]: it shall run as it is")
	}
	got.Lists = nil
	if want := Default(); !reflect.DeepEqual(got, want) {
		t.Errorf("config.toml has %+v, want Default: %+v", got, want)
	}
	const screens, lines, columns = 3, 50, 100
	if n := bytes.Count(data, []byte("\n")); n > screens*lines {
		t.Errorf("config.toml has %d lines, want %d screens of %d", n, screens, lines)
	}
	for line := range strings.Lines(string(data)) {
		if n := utf8.RuneCountInString(line) - 1; n > columns {
			t.Errorf("config.toml has a line of %d columns, want %d: %s", n, columns, line)
		}
	}
}

// fullConfig sets every key.
func fullConfig() Config {
	no, some, share, times, age := false, 7, 0.125, 2.5, Duration(30*day)
	full := Config{
		Index: Index{"/var/lib/blockd/a.bdx", Duration(time.Second), Duration(90 * time.Minute), 1 << 21,
			[]string{"sha1"}, []string{"here.example"}, 6, 0.5, 0.75, 12, true, Duration(36 * time.Hour), 7, 0.02, 0.3, 11, 1 << 31},
		SMTP: SMTP{
			Listen: "127.0.0.1:25", Hostname: "mx.here.example", Upstream: "smtp://127.0.0.1:10025", ClientInfo: "xclient",
			RejectAt: "mail", Mail: "strict", RecipientsExempt: []string{"postmaster", "help\"desk"}, OnError: "tempfail", AllowOpenUpstream: true, SelfTestRecipient: "you@elsewhere.example",
			TLSListen: "127.0.0.1:465", TLSCert: "/etc/blockd/cert.pem", TLSKey: "/etc/blockd/key.pem", ProxyFrom: []string{"10.0.0.0/8"},
			ClientRejectAt: "connect", Trusted: []string{"192.0.2.0/24"}, Helo: "valid", PTR: "confirmed", Auth: "forward", SkipAuthenticated: true,
			Chunking: true, Quarantine: "/var/quarantine", QuarantineMax: 1 << 21, QuarantineMaxMessages: 7000,
			UpstreamTLS: "starttls", UpstreamTLSName: "mail.here.example", UpstreamTLSCA: "/etc/blockd/ca.pem", UpstreamTLSPin: []string{"a", "b"},
			MaxConnections: 7, MaxConnectionsPerIP: 5, MaxRatePerIP: 4, MaxCommandRate: 9, MaxRecipients: 200, MaxMessageSize: 1 << 20,
			HardErrors: 6, GreetWait: 2, DrainTimeout: 13,
		},
		RESP:    RESP{Listen: "unix:/run/resp", AllowFrom: []string{"192.0.2.0/24"}, MaxConnections: 19, SocketGroup: "rspamd", Users: map[string]string{"default": "/etc/blockd/resp"}},
		Milter:  Milter{Listen: "unix:/run/milter", AllowFrom: []string{"192.0.2.0/24"}, MaxConnections: 15, SocketGroup: "postfix", AuthenticationResults: "mx.here.example"},
		Postfix: Postfix{"127.0.0.1:1", "unix:/run/socketmap", "127.0.0.1:3", []string{"192.0.2.0/24"}, 14, "postfix"},
		DNS: DNS{"127.0.0.1:53", []string{"192.0.2.0/24"}, Duration(time.Hour), 5, 6,
			[]DNSZone{{"dbl.here.example", "domain", []string{"b"}, "127.0.0.9", "md5"}, {"ip.here.example", "ip", []string{}, "127.0.0.2", ""}}},
		Auth:    Auth{"ignore", []string{"192.0.2.0/24"}, []string{"192.0.2.7"}, "tempfail", 1 << 20, Duration(time.Second), "127.0.0.1:53"},
		Refusal: Refusal{"https://lists.here.example/r/%ref", "554 5.7.1 not here: %list"},
		HTTP: HTTP{"0.0.0.0:80", "/etc/blockd/token", "/etc/blockd/tokens", "/var/lib/blockd/lists.toml", []string{"10.1.2.0/24"}, "/etc/blockd/h.pem", "/etc/blockd/h.key", "https://mail.example/blockd/", Duration(time.Minute), Duration(time.Hour), []string{"mail.example"}, 16, 18, true, "/run/http.sock", "mail",
			&OIDC{"https://id.example", "blockd", "/etc/blockd/oidc", "Example", []string{"groups"}, "roles", []string{"staff"}, []string{"postmasters"}, []string{"root"}, []string{"here.example"}}},
		Health: Health{":8026"},
		Fleet: Fleet{From: "https://lists.here.example/prod", FromFile: "/etc/blockd/from", Keys: []string{"minisign:RWRmiVOXZ1fYKcpc4VwsbNs61P0i0nHcdvDRFD15e4ARkRInafxgVULc"}, Every: Duration(30 * time.Second),
			Channel: "test", Node: "mx1", Canary: true, Pin: "7", MaxAge: Duration(time.Hour), Relays: []string{"http://mx2:8527"}, Ask: []string{"*.mx.example"}, RelayListen: ":8527", Report: "https://publisher/v1/fleet", Address: "https://mx1:8025", TokenFile: "/etc/blockd/fleet.token"},
		Publish: Publish{To: "file:///srv/www", ToFile: "/etc/blockd/to", KeyFile: "/etc/blockd/key", Channel: "test", Keep: 3, Brake: true, Lists: []string{"a"}, Stages: []PublishStage{{5, Duration(time.Minute)}}},
		Live:    Live{Folder: "/var/lib/live", Shared: "redis", DSNFile: "/etc/blockd/live.dsn", Name: "eu-mx", OnOutage: "local", Relays: []string{"https://mx1:8025"}, RelayTokenFile: "/etc/blockd/relay.token"},
		Log:     Log{"json", "debug"},
		Lists: []List{{
			Name: "a", Path: "/lists/a.txt", Format: "csv:sender", Action: "allow", Subdomains: &no, Mode: "shadow", Reason: "why — \"so\"",
			PerRecipient: true, NoOverride: true, Patterns: true, Optional: true, AllowEmpty: true, OnMatch: "tag", Match: []string{"envelope", "reply-to"}, Tarpit: Duration(time.Second), Discard: true, Exceptions: "all", Adopt: "review", Require: []string{"spf"},
			Text: "%sender: 100 %% no", Contact: "mailto:postmaster@here.example",
			Percent: new(12.5), Homepage: "https://list.example/", Complaints: "mailto:help@list.example", Licence: "CC BY 4.0",
			Force: []string{"gmail.com"}, Protected: []string{"there.example", "bücher.example"}, MaxProtected: &some,
			MaxBadRatio: &share, MaxShrink: &share, MaxGrow: &times, AllowPublicSuffix: &no, MaxAge: &age, MaxRecentBlocked: &share, MaxFreed: &share,
			URL: "https://lists.example/a", Every: &age, Checksum: "sha256:.sha256", InsecureHTTP: true,
			Signature: "minisign:RWRmiVOXZ1fYKcpc4VwsbNs61P0i0nHcdvDRFD15e4ARkRInafxgVULc",
			Source: &Source{"postgres", "ask", "postgres://db.example/mail", "/etc/blockd/dsn", "select entry from senders", "watermark", "updated_at", &age, "changed", &age,
				Duration(time.Hour), 1000, "their:set", 16, "redisbloom:bl", &age, &some, &age, &age, "tempfail", Breaker{7, Duration(time.Second), 2}},
		}, defaultList()},
		Recipients: Recipients{"domain", "+-", &Aliases{"postgres", "/etc/aliases.csv", "postgres://db.example/mail", "/etc/blockd/dsn", "select alias, owner from aliases", &age}, []string{"b"}, 70},
		Policies:   []Policy{{[]string{"example.org", "\"a b\"@example.org"}, []string{"a", "b"}}, {[]string{".example.org"}, []string{}}},
		Filters:    []KeptFilter{{"bl", "bitmap", "rediss://redis.example#bl", 0.001, []string{"domain"}, []string{"a"}, "/etc/blockd/redis", "/etc/blockd/ca.pem", 64}},
	}
	full.Lists[1].Name, full.Lists[1].Path = "b", "/lists/*.txt"
	return full
}

// Every field is set by its key, and printed under it again.
func TestPrintedConfigurationLoadsAgain(t *testing.T) {
	full := fullConfig()
	for _, table := range []any{full.Index, full.SMTP, full.Postfix, full.DNS, full.DNS.Zones[0], full.Auth, full.Refusal, full.HTTP, *full.HTTP.OIDC, full.Health, full.Fleet, full.Publish, full.Publish.Stages[0], full.Live, full.Log, full.Lists[0], *full.Lists[0].Source, full.Recipients, *full.Recipients.Aliases, full.Filters[0]} {
		for field, value := range reflect.ValueOf(table).Fields() {
			if field.IsExported() && value.IsZero() {
				t.Errorf("the test sets nothing in %T.%s", table, field.Name)
			}
		}
	}
	for name, c := range map[string]Config{"default": Default(), "full": full} {
		t.Run(name, func(t *testing.T) {
			text := testkit.Value(toml.Marshal(c))(t)
			got, _, faults := decode(text, nil)
			if len(faults) > 0 {
				t.Fatalf("%v in\n%s", faults, text)
			}
			if !reflect.DeepEqual(got, c) {
				t.Errorf("printed and loaded again:\n%+v, want\n%+v", got, c)
			}
		})
	}
}

// A file without an octet is one that is being written. What it means by itself would be another index, with other live entries.
func TestEmptyFile(t *testing.T) {
	path := testkit.Write(t, filepath.Join(t.TempDir(), "config.toml"), "")
	testkit.Got(Load(path))(t, "given", "…", path+": empty, …")
	testkit.Write(t, path, "# all as it is by default\n")
	testkit.Value(Load(path))(t)
	testkit.Write(t, path, "")
	t.Setenv("BLOCKD_SMTP_HOSTNAME", "mx.here.example") // as in a container
	testkit.Equal(t, "smtp.hostname", testkit.Value(Load(path))(t).SMTP.Hostname, "mx.here.example")
}

func TestDefaultHasNoFault(t *testing.T) {
	if faults := Default().Validate(); len(faults) > 0 {
		t.Error(faults)
	}
}

func TestPathsAreRelativeToTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	file := testkit.Write(t, filepath.Join(dir, "config.toml"), `
[index]
path = "var/a.bdx"
[smtp]
upstream = "maildir:mail"
[http]
token_file = "/etc/token"
[[list]]
name = "a"
path = "lists/*.txt"
`)
	c := testkit.Value(Load(file))(t)
	got := []string{c.Index.Path, c.SMTP.Upstream, c.HTTP.TokenFile, c.Lists[0].Path}
	want := []string{dir + "/var/a.bdx", "maildir:" + dir + "/mail", "/etc/token", dir + "/lists/*.txt"}
	testkit.EqualSlices(t, "paths", got, want)
}

func TestDurationText(t *testing.T) {
	for text, want := range map[string]string{
		"500ms": "500ms", "60s": "1m", "90s": "1m30s", "1h": "1h", "90m": "1h30m", "3600s": "1h", "1h0m5s": "1h0m5s", "0s": "0s",
	} {
		var d Duration
		testkit.Must(t, d.UnmarshalText([]byte(text)))
		got := testkit.Value(d.MarshalText())(t)
		testkit.Equal(t, text, string(got), want)
	}
}

func TestUpstream(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Upstream
		ok   bool
	}{
		{"maildir:var/mail", Upstream{"maildir", "", "var/mail"}, true},
		{"smtp://127.0.0.1:10025", Upstream{"smtp", "tcp", "127.0.0.1:10025"}, true},
		{"smtp://[::1]:25", Upstream{"smtp", "tcp", "[::1]:25"}, true},
		{"lmtp://mail.here.example:24", Upstream{"lmtp", "tcp", "mail.here.example:24"}, true},
		{"lmtp+unix:/run/lmtp.sock", Upstream{"lmtp+unix", "unix", "/run/lmtp.sock"}, true},
		{"", Upstream{}, false},
		{"maildir:", Upstream{}, false},
		{"smtp:127.0.0.1:25", Upstream{}, false},
		{"smtp://127.0.0.1", Upstream{}, false},
		{"smtp://:25", Upstream{}, false},
		{"smtp://127.0.0.1:0", Upstream{}, false},
		{"smtp://127.0.0.1:70000", Upstream{}, false},
		{"http://127.0.0.1:25", Upstream{}, false},
	} {
		got, err := ParseUpstream(tt.text)
		testkit.Got(got, (err == nil))(t, fmt.Sprintf("parseUpstream(%q)", tt.text), tt.want, tt.ok)
	}
}

func TestDoorThatLeadsBackHere(t *testing.T) {
	for _, tt := range []struct {
		listen, to string
		want       bool
	}{
		{"127.0.0.1:25", "127.0.0.1:25", true},
		{"0.0.0.0:25", "127.0.0.1:25", true},
		{":25", "localhost:25", true},
		{"127.0.0.1:25", "localhost:25", true},
		{"192.0.2.1:25", "192.0.2.1:25", true},
		{"192.0.2.1:25", "127.0.0.1:25", false},
		{"127.0.0.1:25", "127.0.0.2:25", false},
		{"127.0.0.2:25", "localhost:25", false},
		{"[::1]:25", "localhost:25", true},
		{"127.0.0.1:25", "[::ffff:127.0.0.1]:25", true},
		{"[::]:25", "127.0.0.2:25", true},
		{"127.0.0.1:25", "127.0.0.1:10025", false},
		{"0.0.0.0:25", "192.0.2.9:25", false},
		{"127.0.0.1:0", "127.0.0.1:0", false},
	} {
		testkit.Equal(t, fmt.Sprintf("sameDoor(%q, %q)", tt.listen, tt.to), sameDoor(tt.listen, tt.to), tt.want)
	}
}

// Whatever the bytes, decode ends, and says something of what it does not take.
func FuzzDecode(f *testing.F) {
	files := testkit.Value(filepath.Glob("testdata/*/*.toml"))(f)
	for _, file := range append(files, testkit.Root(f)+"/config.toml") {
		data := testkit.Read(f, file)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, from, faults := decode(data, nil)
		lines := from.lines
		if lines == nil && len(faults) == 0 {
			t.Fatal("no tree and no fault")
		}
		if lines == nil {
			return
		}
		end := bytes.Count(data, []byte("\n")) + 1
		for key, line := range lines {
			if line < 1 || line > end {
				t.Fatalf("%s on line %d of %d", key, line, end)
			}
		}
		faults = append(faults, c.Validate()...)
		faults.locate("f.toml", from)
		if len(faults) > 0 {
			return
		}
		text := testkit.Value(toml.Marshal(c))(t)
		again, _, faults := decode(text, nil)
		if len(faults) > 0 {
			t.Fatalf("printed again: %v\n%s", faults, text)
		}
		if second, err := toml.Marshal(again); err != nil || !bytes.Equal(text, second) {
			t.Fatalf("printed twice: %v\n%s\nwant\n%s", err, second, text)
		}
	})
}
