package migration

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"blockd/internal/testkit"
)

// askedOfRspamd imports a multimap.conf beside some files, and asks rspamd.
func askedOfRspamd(t *testing.T, rules string, files map[string]string) *Result {
	t.Helper()
	testkit.Peer(t, "rspamd")
	dir := t.TempDir()
	for name, text := range files {
		testkit.Write(t, filepath.Join(dir, name), text)
	}
	r := testkit.Value(Rspamd(t.Context(), testkit.Write(t, filepath.Join(dir, "multimap.conf"), rules), Options{}))(t)
	testkit.Must(t, r.Ask(t.Context(), nobodyRefuses, func(int) {}))
	return r
}

// Nobody but its own user and root reads what rspamd is given, and nobody but root may change it: root runs it.
func TestFolderOfRspamdIsShut(t *testing.T) {
	testkit.Peer(t, "rspamd")
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	dir := t.TempDir()
	testkit.Write(t, filepath.Join(dir, "m"), "a@bulk.test\n")
	r := testkit.Value(Rspamd(t.Context(), testkit.Write(t, filepath.Join(dir, "multimap.conf"), "A { type = from; action = reject; map = \"$LOCAL_CONFDIR/m\"; }\n"), Options{}))(t)
	answers := testkit.Value(r.There(t.Context(), []Mail{Mail{Sender: "a@bulk.test"}.complete()}))(t)
	testkit.Equal(t, "the answer", answers[0].Fate, Refused)
	seen := 0
	testkit.Must(t, filepath.WalkDir(temp, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == temp {
			return err
		}
		seen++
		info := testkit.Value(d.Info())(t)
		own := strings.Contains(path, "/run")
		if mode := info.Mode(); mode.Perm()&0o027 != 0 || own && mode.Perm()&0o070 != 0 {
			t.Errorf("%s: %s", path, mode)
		}
		if owner := info.Sys().(*syscall.Stat_t).Uid; !own && int(owner) != os.Geteuid() {
			t.Errorf("%s is of user %d", path, owner)
		}
		return nil
	}))
	if seen < 5 {
		t.Errorf("only %d files in the folder", seen)
	}
	r.Close()
	if left := testkit.Value(os.ReadDir(temp))(t); len(left) > 0 {
		t.Errorf("%s is left", left[0].Name())
	}
}

// Where no user of rspamd's is there, root does not run it.
func TestUserOfRspamd(t *testing.T) {
	for _, tt := range []struct {
		there      []string
		name, fail string
	}{
		{[]string{"_rspamd", "rspamd"}, "_rspamd", ""},
		{[]string{"rspamd"}, "rspamd", ""},
		{nil, "", "start the import as another user"},
	} {
		u, err := rspamdUser(func(name string) (*user.User, error) {
			for _, n := range tt.there {
				if n == name {
					return &user.User{Username: n, Uid: "1", Gid: "2"}, nil
				}
			}
			return nil, errors.New("unknown user")
		})
		if tt.fail == "" {
			testkit.MustGot(err)(t, "error", nil)
			testkit.Equal(t, "user", u.Username, tt.name)
		} else {
			testkit.Got(err)(t, "error", "…"+tt.fail+"…")
		}
	}
}

// What stands in a rule and looks like a file or a URL is neither opened nor fetched for it.
func TestMapsThatRspamdWouldOpen(t *testing.T) {
	listener := testkit.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
			t.Error("something was fetched")
		}
	}()
	url, secret := "http://"+listener.Addr().String(), testkit.File(t, "secret", "thief@bulk.test\n")
	for _, kind := range []string{`type = "from";`, `type = "from"; regexp = true;`, `type = "from"; glob = true; filter = "email";`, `type = "ip";`} {
		var rules strings.Builder
		for i, value := range []string{
			`["URL/;x"]`, `["URL/;x", "a@b.test"]`, `["re;URL/;x"]`, `["set;URL/x"]`, `["regexp;URL/x"]`, `["glob;URL/x"]`, `["hash;URL/x"]`, `["plain;URL/x"]`, `["radix;URL/x"]`,
			`["SECRET ;x"]`, `["re;SECRET;x"]`, `["cdb:/SECRET"]`, `["cdb;SECRET"]`, `"cdb:/SECRET"`, `["key=aaaa+URL/x"]`, `["sign+URL/x"]`, `["sign+SECRET"]`, `"sign+SECRET"`, `"key=k4nz984k36xmcynm1hr9kdbn6jhcxf4ggbrb1quay7f88rpm9kay+SECRET"`,
			`["fallback+URL/x"]`, `"fallback+URL/x"`, `"sign+fallback+URL/x"`, `"re;sign+URL/x"`, `"Sign+SECRET"`, `["fallback+sign+SECRET"]`, `"HTTP://127.0.0.1:1/x"`,
			`{ url = "static"; data = ["URL/x"]; }`, `{ url = "static"; data = ["SECRET", "a@b.test"]; }`, `{ url = "Static"; data = ["re;URL/x"]; }`, `{ url = ["URL/x"]; }`, `{ url = "sign+SECRET"; }`, `{ data = ["URL/x"]; }`,
		} {
			fmt.Fprintf(&rules, "R%d { %s action = \"reject\"; map = %s; }\n", i, kind, strings.NewReplacer("URL", url, "SECRET", secret).Replace(value))
		}
		r := askedOfRspamd(t, rules.String(), nil)
		testkit.Equal(t, "why nothing was asked", r.Unasked, "")
		for _, f := range r.Findings {
			if key := strings.Contains(f.Text, "a@b.test"); f.Outcome != Lost && f.Outcome != Same && !key {
				t.Errorf("%s: %s: %s", kind, f.Text, f.Outcome)
			}
		}
		for _, l := range r.Lists {
			if l.URL != "" || strings.Contains(string(l.Text), "thief") {
				t.Errorf("%s: %s has %s%s", kind, l.Name, l.URL, l.Text)
			}
		}
	}
}

// A rule that stands twice is none for rspamd, and no setting of a rule but plain words is handed on.
func TestRulesThatRspamdDoesNotHave(t *testing.T) {
	r := askedOfRspamd(t, "A { type = from; action = reject; map = [ \"a@bulk.test\" ]; }\nA { type = from; action = reject; map = [ \"b@bulk.test\" ]; }\n"+
		"B { type = from; action = reject; filter = [ \"email\", { x = \"y\" } ]; header { a = 1; } map = [ \"c@bulk.test\" ]; }\n", nil)
	testkit.Equal(t, "why nothing was asked", r.Unasked, "")
	for _, f := range r.Findings[:2] {
		testkit.Got(f.Outcome, f.Now)(t, f.Text, Lost, "…stands more than once…")
	}
	if len(r.Differences) == 0 || strings.Contains(r.Differences[0].Mail, "a@bulk.test") {
		t.Errorf("differences: %v", r.Differences)
	}
}

// Each key is asked together with what rules about senders and about clients refuse, however many there are.
func TestRulesAreAskedTogether(t *testing.T) {
	var rules strings.Builder
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		rules.WriteString("R_" + name + " { type = from; action = reject; map = [ \"" + name + "@bulk.test\" ]; }\n")
	}
	r := askedOfRspamd(t, rules.String()+"IP { type = ip; action = reject; map = [ \"192.0.2.7\" ]; }\nOK { type = from; action = accept; map = [ \"dear@bulk.test\" ]; }\n"+
		"AUTHOR { type = from; extract_from = mime; action = reject; map = [ \"boss@bulk.test\" ]; }\n", nil)
	var all []string
	for m := range r.Mails {
		all = append(all, m.complete().String())
	}
	for _, want := range []string{"dear@bulk.test by 192.0.2.7", "a@bulk.test by 192.0.2.7", "g@bulk.test by 192.0.2.7", "a@bulk.test by 192.0.2.7", "someone@blockd-import.example, From: boss@bulk.test"} {
		testkit.Equal(t, "whether is asked: "+want, slices.Contains(all, want), true)
	}
}
