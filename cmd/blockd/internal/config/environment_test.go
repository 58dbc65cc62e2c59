package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"blockd/internal/testkit"
)

// No two keys have the same variable, and none has that of something else.
func TestEachVariableSetsOneKey(t *testing.T) {
	keys, n := variableKeys(), 0
	for table := range reflect.TypeFor[Config]().Fields() {
		if table.Type.Kind() == reflect.Struct {
			n += table.Type.NumField()
		}
	}
	if len(keys) != n-4 { // dns.zone and publish.stage stand several times, and recipients.aliases and http.oidc are tables
		t.Errorf("%d variables for %d keys: two have the same name", len(keys), n-4)
	}
	for name := range keys {
		if slices.Contains(otherVariables, name) || strings.HasPrefix(name, testVariables) || serviceVariables.MatchString(name+"=tcp://10.0.0.1:25") {
			t.Errorf("%s sets %s and means something else", name, keys[name])
		}
	}
}

// The environment sets every key to what the file would, in the short form and as TOML.
func TestVariablesSetAllKeys(t *testing.T) {
	want := fullConfig()
	want.Lists, want.Policies, want.Filters, want.DNS.Zones, want.Recipients.Aliases, want.HTTP.OIDC, want.Publish.Stages = nil, nil, nil, nil, nil, nil, nil
	text := testkit.Value(toml.Marshal(want))(t)
	var tree map[string]any
	testkit.Must(t, toml.Unmarshal(text, &tree))
	var short, long []string
	for table, values := range tree {
		for key, value := range values.(map[string]any) {
			name := variableOf(table + "." + key)
			switch v := value.(type) {
			case []any:
				var items, quoted []string
				for _, item := range v {
					items, quoted = append(items, item.(string)), append(quoted, fmt.Sprintf("%q", item))
				}
				short, long = append(short, name+"="+strings.Join(items, ", ")), append(long, name+"=["+strings.Join(quoted, ",")+"]")
			case map[string]any:
				var items, quoted []string
				for k, item := range v {
					items, quoted = append(items, k+"="+item.(string)), append(quoted, fmt.Sprintf("%s = %q", k, item))
				}
				short, long = append(short, name+"="+strings.Join(items, ",")), append(long, name+"={"+strings.Join(quoted, ",")+"}")
			default:
				line := fmt.Sprintf("%s=%v", name, v)
				short, long = append(short, line), append(long, line)
			}
		}
	}
	for form, environ := range map[string][]string{"short": short, "TOML": long} {
		// The file says otherwise, or nothing.
		got, from, faults := decode([]byte("[smtp]\nhostname = \"file.example\"\nmax_recipients = 3\n"), append(environ, "PATH=/bin", "BLOCKD_TOKEN=x"))
		if len(faults) > 0 {
			t.Fatalf("%s: %v", form, faults)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", form, got, want)
		}
		testkit.Equal(t, form, len(from.set), len(environ))
	}
}

func TestFaultsOfVariablesNameThem(t *testing.T) {
	file := testkit.Write(t, filepath.Join(t.TempDir(), "config.toml"), "[smtp]\nhostname = \"mx.example\"\nreject_at = \"never\"\n")
	for _, c := range []struct{ name, value, want string }{
		{"BLOCKD_SMTP_HOSTNAME", "a b", "BLOCKD_SMTP_HOSTNAME: smtp.hostname: want a domain name"},
		{"BLOCKD_SMTP_TRUSTED", "10.0.0.0/8,office", `BLOCKD_SMTP_TRUSTED: smtp.trusted: want a network such as "10.0.0.0/8", have "office"`},
		{"BLOCKD_SMTP_MAX_RECIPIENTS", "many", `BLOCKD_SMTP_MAX_RECIPIENTS: smtp.max_recipients: want a whole number, have "many"`},
		{"BLOCKD_SMTP_MAX_RECIPIENTS", "", `BLOCKD_SMTP_MAX_RECIPIENTS: smtp.max_recipients: want a whole number, have ""`},
		{"BLOCKD_SMTP_CHUNKING", "1", `BLOCKD_SMTP_CHUNKING: smtp.chunking: want true or false, have "1"`},
		{"BLOCKD_SMTP_DRAIN_TIMEOUT", "long", "BLOCKD_SMTP_DRAIN_TIMEOUT: smtp.drain_timeout: "},
		{"BLOCKD_SMTP_TRUSTED", "[\"10.0.0.0/8\"", `BLOCKD_SMTP_TRUSTED: smtp.trusted: want an array, have "[\"10.0.0.0/8\""`},
		{"BLOCKD_RESP_USERS", "someone", `BLOCKD_RESP_USERS: resp.users: want a table`},
		{"BLOCKD_HTTP_LISTEN", "\xff", "BLOCKD_HTTP_LISTEN: http.listen: want UTF-8"},
		{"BLOCKD_SMTP_HOSTNAM", "x", "BLOCKD_SMTP_HOSTNAM: sets no key, did you mean BLOCKD_SMTP_HOSTNAME?"},
		{"BLOCKD_HOSTNAME", "x", "BLOCKD_HOSTNAME: sets no key"},
		{"BLOCKD_SMTP_PORT", "25", "BLOCKD_SMTP_PORT: sets no key"},
		{"BLOCKD_SMTP_HOSTNAME_FILE", "x", "BLOCKD_SMTP_HOSTNAME_FILE: no variable names a file with the value of smtp.hostname"},
		{"BLOCKD_SMTP_SOFT_ERRORS", "7", "BLOCKD_SMTP_SOFT_ERRORS: sets what is no longer a key"},
		{"BLOCKD_LIST_PATH", "a.txt", "BLOCKD_LIST_PATH: no variable sets a [[list]]"},
		{"BLOCKD_DNS_ZONE_NAME", "a", "BLOCKD_DNS_ZONE_NAME: no variable sets a [[dns.zone]]"},
		{"BLOCKD_CONFIG", "a", "BLOCKD_CONFIG: the file is named on the command line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			_, err := Load(file)
			faults := Faults(nil)
			if !errors.As(err, &faults) || len(faults) != 2 {
				t.Fatalf("want that of the variable and that of the file, have %v", err)
			}
			if got := faults[0].Error(); !strings.HasPrefix(got, c.want) || strings.Contains(got, "\n") {
				t.Errorf("says %s\nwant %s", got, c.want)
			}
			testkit.Begins(t, "the fault of the file", faults[1].Error(), file+":3: smtp.reject_at: ")
		})
	}
}

// Kubernetes tells every container of a service that is called blockd, or blockd-milter; that must not keep it from starting.
func TestVariablesOfAServiceAreNone(t *testing.T) {
	var environ []string
	for _, name := range []string{"SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_SMTP", "PORT", "PORT_25_TCP", "PORT_25_TCP_PROTO", "PORT_53_UDP_ADDR", "PORT_25_TCP_PORT",
		"MILTER_SERVICE_HOST", "MILTER_PORT_8892_TCP_ADDR", "HTTP_SERVICE_PORT_HTTP"} {
		environ = append(environ, "BLOCKD_"+name+"=tcp://10.0.0.1:25")
	}
	if c, from, faults := decode(nil, environ); len(faults) > 0 || len(from.set) > 0 || !reflect.DeepEqual(c, Default()) {
		t.Errorf("%v, %v", from.set, faults)
	}
}

// A variable wins over the file again when the file is read again.
func TestVariablesOutliveAChange(t *testing.T) {
	t.Setenv("BLOCKD_REFUSAL_CONTACT", "mailto:env@here.example")
	file := testkit.Write(t, filepath.Join(t.TempDir(), "config.toml"), "[log]\nlevel = \"warn\"\n")
	running := testkit.Value(Load(file))(t)
	testkit.Write(t, file, "[refusal]\ncontact = \"mailto:file@here.example\"\n[log]\nlevel = \"error\"\n")
	c, changes, err := Reread(file, running)
	if err != nil || c.Refusal.Contact != "mailto:env@here.example" || !slices.Equal(changes.Keys, []string{"log.level"}) {
		t.Errorf("%q, %v, %v", c.Refusal.Contact, changes.Keys, err)
	}
	testkit.EqualSlices(t, "Variables", Variables(), []string{"BLOCKD_REFUSAL_CONTACT"})
}
