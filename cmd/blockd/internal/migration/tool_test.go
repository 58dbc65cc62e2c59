package migration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

func TestToolThatIsMissing(t *testing.T) {
	_, _, err := tool{"blockd-has-no-such-tool", "postfix", time.Minute}.run(t.Context(), ".", "")
	const want = "blockd-has-no-such-tool, which says what the configuration means, is not installed: nothing can be asked; install the package postfix of Debian"
	testkit.Got(err)(t, "error", want)
}

// A tool that hangs, prints without end or fails ends the import with a word.
func TestToolThatFails(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		patience     time.Duration
		want         string
	}{
		{"hangs", "sleep 600", 50 * time.Millisecond, " has not ended within 50ms"},
		{"leaves another one with its output", "sleep 600 & exit 1", time.Minute, ": exit status 1"},
		{"prints without end", "yes", time.Minute, "too big for an import: it prints more than 64 MiB"},
		{"complains without end", "yes >&2", time.Minute, "too big for an import: it prints more than 64 MiB"},
		{"fails", "echo 'warning: x' >&2; echo 'fatal: main.cf, line 7: no' >&2; exit 1", time.Minute, ": fatal: main.cf, line 7: no"},
		{"fails in a macro", "echo 'warning: macro x' >&2; echo 'fatal: macro processing error' >&2; exit 1", time.Minute, ": warning: macro x"},
		{"fails without a word", "exit 3", time.Minute, ": exit status 3"},
		{"takes all memory", "until [ \"$(ulimit -v)\" != unlimited ]; do :; done; exec dd if=/dev/zero of=/dev/null bs=2000M count=1", time.Minute, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := testkit.File(t, "tool", "#!/bin/sh\n"+tt.script+"\n")
			testkit.Must(t, os.Chmod(path, 0o755))
			testkit.Got(tool{path, "", tt.patience}.run(t.Context(), ".", ""))(t, "error", "…", "…", "…"+tt.want)
		})
	}
}

// Sixty parameters that each name the next one twice are never put in, even if all are empty.
func TestParametersWithoutEnd(t *testing.T) {
	testkit.Peer(t, postconf.name)
	var main strings.Builder
	for i := range 60 {
		fmt.Fprintf(&main, "p%d = $p%d$p%d\n", i, i+1, i+1)
	}
	path := testkit.File(t, "main.cf", main.String()+"smtpd_sender_restrictions = $p0\n")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	testkit.Fails(Postfix(ctx, old(t, path), Options{}))(t, "error", context.DeadlineExceeded)
}

// Nothing that a configuration says is executed, and no name in it is looked up.
func TestHostileConfigurations(t *testing.T) {
	for _, rules := range []string{
		"lua = \"@/evil.lua\";\n",
		"} lua = \"@/evil.lua\"; x {\n",
		"} lua = \"@/evil.lua\"; /*\n",
		".include(key=\"lua\") \"@/evil.lua\"\n",
		"a = \"{= os.execute('touch @/executed') =}\";\n",
		".include \"http://127.0.0.1:1/\"\n",
		".include(prefix=true,key=\"k\",target=\"object\") \"@/two\"\n",
		".include \"@/one\"\n",
		"A { type = from; action = reject; message = \"{= os.execute('touch @/executed') =}\"; map = [ \"{= os.execute('touch @/executed') =}\", \"a@b.example\" ]; }\n",
		"A { type = from; action = reject; message_func = \"return function() os.execute('touch @/executed') end\"; map = [ \"a@b.example\" ]; }\n",
		"\"A {= os.execute('touch @/executed') =}\" { type = from; action = reject; map = [ \"a@b.example\", \"http://127.0.0.1:1/\" ]; }\n",
		"A { type = from; filter = \"regexp:(a*)*b\"; action = reject; regexp = true; map = [ \"(a*)*$\", \"a@b.example\" ]; }\n",
	} {
		testkit.Peer(t, rspamadm.name)
		dir := t.TempDir()
		put := func(name, text string) string {
			return testkit.Write(t, filepath.Join(dir, name), strings.ReplaceAll(text, "@", dir))
		}
		put("one", ".include(prefix=true,key=\"k\",target=\"object\") \"@/two\"\n")
		put("two", "}\n}\nlua = \"@/evil.lua\";\n")
		put("evil.lua", "os.execute('touch @/executed')\n")
		r, err := Rspamd(t.Context(), put("multimap.conf", rules), Options{})
		if err == nil {
			testkit.Must(t, r.Ask(t.Context(), nobodyRefuses, func(int) {}))
		}
		if _, found := os.Stat(filepath.Join(dir, "executed")); found == nil {
			t.Errorf("%q is executed", rules)
		}
		if t.Logf("%q: %v", rules, err); err != nil && strings.Contains(err.Error(), "signal") {
			t.Errorf("%q: %v", rules, err)
		}
	}
	testkit.Peer(t, postconf.name)
	// postconf would end with an error if it asked for these names.
	main := testkit.File(t, "main.cf", "inet_interfaces = none.invalid\nproxy_interfaces = none.invalid\nx = $mynetworks\nsmtpd_sender_restrictions = $x, permit_mynetworks\n")
	testkit.Write(t, filepath.Join(filepath.Dir(main), "master.cf"), "smtp inet n - y - - smtpd -o inet_interfaces=none.invalid -o x=`id`\n")
	r := testkit.Value(Postfix(t.Context(), old(t, main), Options{}))(t)
	testkit.Equal(t, "the finding", r.Findings[0].Text, "`id`")
	// The client file of a table is opened by postconf: nothing in it is shown.
	secret := testkit.File(t, "secret", "hunter2\n")
	main = testkit.File(t, "main.cf", "smtpd_sender_restrictions = check_sender_access ldap:"+secret+"\n")
	if r, err := Postfix(t.Context(), old(t, main), Options{}); err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v, %v", r, err)
	} else {
		t.Logf("%v, %v", r, err)
	}
}

func nobodyRefuses(_ context.Context, mails []Mail) ([]Answer, error) {
	return slices.Repeat([]Answer{{Fate: Passes}}, len(mails)), nil
}

// A folder may have any name.
func TestConfigurationsInFoldersOfAnyName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b,c\t{d} \"e' $HOME ${x} \\f =g *?")
	for _, tt := range []struct {
		tool, file, text string
		read             func(context.Context, string, Options) (*Result, error)
	}{
		{"postconf", "main.cf", "smtpd_sender_restrictions = check_sender_access hash:$config_directory/t\nmynetworks = $config_directory/n\n", Postfix},
		{"rspamadm", "multimap.conf", "A { type = from; action = reject; map = \"$LOCAL_CONFDIR/t\"; }\n.include \"${CURDIR}/more\"\n", Rspamd},
	} {
		testkit.Peer(t, tt.tool)
		for name, text := range map[string]string{tt.file: tt.text, "t": "a@bulk.test REJECT\n", "n": "192.0.2.0/24\n", "more": "B { type = ip; action = reject; map = \"t\"; }\n"} {
			old(t, testkit.Write(t, filepath.Join(dir, name), text))
		}
		r, err := tt.read(t.Context(), filepath.Join(dir, tt.file), Options{})
		if err != nil || len(r.Lists) != 1 || r.Lists[0].Entries != 1 {
			t.Errorf("%s: %v, %+v", tt.tool, err, r)
		} else if err := r.Ask(t.Context(), nobodyRefuses, func(int) {}); err != nil || r.Unasked != "" || r.Asked == 0 || r.Alike == r.Asked {
			t.Errorf("%s: asked about %d mails, %d refused: %v, %s", tt.tool, r.Asked, r.Asked-r.Alike, err, r.Unasked)
		}
	}
}

// rspamadm is asked only if all files that it would include are known and hold plain includes.
func TestIncludesOfRspamd(t *testing.T) {
	const bad = ".include(prefix=true,key=k) \"x\"\n"
	asIs := map[string]string{"bad": "\n" + bad, "to-bad": ".include \"$CURDIR/bad\"\n", "sub/to-bad": ".include \"$CURDIR/../bad\"\n", "sub/bad.conf": bad,
		"loop": ".include \"$CURDIR/multimap.conf\"\n", "good": "A { type = from; }\n"}
	for _, tt := range []struct{ name, text, at string }{
		{"none", "A { type = from; }\n", ""},
		{"a plain one", ".include \"$CURDIR/good\"\n", ""},
		{"without quotes", ".include $CURDIR/good\n.include /nowhere/good;\n", ""},
		{"as rspamd is delivered", ".include(try=true,priority=5) \"${DBDIR}/dynamic/multimap.conf\"\n.include(try=true,priority=1,duplicate=merge) \"$LOCAL_CONFDIR/local.d/multimap.conf\"\n", ""},
		{"with parameters as statements", ".include(try=true; priority=-1; duplicate=merge;) \"$CURDIR/good\"\n", ""},
		{"that includes itself", ".include \"$CURDIR/loop\"\n.include \"$CURDIR/multimap.conf\"\n", ""},
		{"missing", ".include(try=true) \"$CURDIR/none\"\n", ""},
		{"with a prefix", bad, "multimap.conf:1"},
		{"with parameters over lines", "\n.include # (\n(try=true,\nprefix=true) \"x\"\n", "multimap.conf:2"},
		{"with an escaped parameter", ".include(\"\\u0070refix\"=true) \"x\"\n", "multimap.conf:1"},
		{"with an include for a parameter", ".include(.include \"$CURDIR/good\") \"x\"\n", "multimap.conf:1"},
		{"behind a vertical tab", ".include\v\"$CURDIR/to-bad\"\n", "multimap.conf:1"},
		{"behind a comment", ".include /* \"$CURDIR/good\" */ \"$CURDIR/bad\"\n", "multimap.conf:1"},
		{"behind a line of comment", ".include # \"$CURDIR/good\"\n \"$CURDIR/bad\"\n", "bad:2"},
		{"in braces", ".include { $CURDIR/bad }\n", "multimap.conf:1"},
		{"of another variable", ".include \"$HOSTNAME\"\n", "multimap.conf:1"},
		{"one level down", ".include \"$CURDIR/bad\"\n", "bad:2"},
		{"two levels down", ".include \"${CONFDIR}/to-bad\"\n", "bad:2"},
		{"from another folder", ".try_include \"$LOCAL_CONFDIR/sub/to-bad\"\n", "bad:2"},
		{"by a pattern", ".include(glob=true) \"$CURDIR/s?b/*.conf\"\n", "bad.conf:1"},
		{"by a class of octets", ".include(glob=true) \"$CURDIR/[!a]ad\"\n", "multimap.conf:1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, asked := t.TempDir(), false
			for name, text := range asIs {
				testkit.Write(t, filepath.Join(dir, name), text)
			}
			path := testkit.Write(t, filepath.Join(dir, "multimap.conf"), tt.text)
			_, err := readRspamd(t.Context(), path, Options{}, func(context.Context, string, string, ...string) (string, []string, error) {
				asked = true
				return "{}", nil, nil
			})
			if tt.at == "" && (err != nil || !asked) {
				t.Errorf("error = %v, want none", err)
			}
			if tt.at != "" && (err == nil || asked || !strings.Contains(err.Error(), "/"+tt.at+": only a plain .include is read")) {
				t.Errorf("error = %v, rspamadm asked: %t; want a refusal of %s", err, asked, tt.at)
			}
		})
	}
}

// Includes that go on without end, or are many, are bounded.
func TestIncludesAreBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		testkit.Write(t, filepath.Join(dir, fmt.Sprintf("%d.conf", i)), "#"+strings.Repeat("x", maxConfig/2)+"\n")
	}
	path := testkit.Write(t, filepath.Join(dir, "multimap.conf"), ".include(glob=true) \"$CURDIR/*.conf\"\n")
	testkit.Fails(Rspamd(t.Context(), path, Options{}))(t, "error", ErrTooBig)
	for i := range maxFiles {
		testkit.Write(t, filepath.Join(dir, fmt.Sprintf("%d.conf", i)), "\n")
	}
	testkit.Fails(Rspamd(t.Context(), path, Options{}))(t, "error", ErrTooBig)
}
