package setup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pelletier/go-toml/v2"

	"blockd/docs"
	"blockd/internal/testkit"
)

// What is written for a way says what the recipes of docs/cookbook.md say, which are tried with real servers.
func TestConfigAgreesWithTheCookbook(t *testing.T) {
	base := docs.Recipe("toml")
	for _, tt := range []struct{ server, way, cookbook, client string }{
		{"postfix", milter, base + docs.Recipe("toml milter"), ""},
		{"postfix", policy, base + docs.Recipe("toml policy"), ""},
		{"postfix", front, docs.Recipe("toml front"), "xclient"},
		{"exim", policy, base + docs.Recipe("toml exim"), ""},
		{"exim", front, docs.Recipe("toml front"), "proxy-v2"},
		{"sendmail", milter, base + docs.Recipe("toml sendmail"), ""},
		{"opensmtpd", front, docs.Recipe("toml front"), "proxy-v2"},
		{"other", front, docs.Recipe("toml front"), "none"},
	} {
		t.Run(tt.server+"/"+tt.way, func(t *testing.T) {
			s, ok := ServerNamed(tt.server)
			w, ok2 := s.Way(tt.way)
			testkit.MustGot(ok, ok2)(t, "ways", true, true)
			got, want := tables(t, Config(s, w, "/etc/blockd")), tables(t, []byte(tt.cookbook))
			if tt.client != "" {
				want["smtp"].(map[string]any)["client_info"] = tt.client
			}
			delete(want["smtp"].(map[string]any), "hostname") // the machine's own here
			shut := map[string]any{"milter": map[string]any{"listen": ""}, "postfix": map[string]any{"policy_listen": ""}}
			for _, name := range []string{"index", "smtp", "milter", "postfix"} {
				if want[name] == nil {
					want[name] = shut[name] // nobody asked for it
				}
				if !reflect.DeepEqual(got[name], want[name]) {
					t.Errorf("[%s]: %v, the cookbook has %v", name, got[name], want[name])
				}
			}
			place, lines := w.Recipe()
			if place == "" || lines == "" && tt.server != "other" {
				t.Errorf("the mail server is told %q, %q", place, lines)
			}
		})
	}
}

func tables(t *testing.T, text []byte) map[string]any {
	t.Helper()
	var all map[string]any
	if err := toml.Unmarshal(text, &all); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return all
}

// README has the commands that move Postfix too, for who reads only that.
func TestReadmeMovesPostfixAlike(t *testing.T) {
	readme := string(testkit.Read(t, testkit.Root(t)+"/README.md"))
	var typed strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^# (post(?:conf|fix) .*)$`).FindAllStringSubmatch(readme, -1) {
		typed.WriteString(m[1] + "\n")
	}
	testkit.Equal(t, "README.md", typed.String(), docs.Recipe("sh front"))
}

func TestInstalled(t *testing.T) {
	for file, want := range map[string]string{
		"etc/postfix/main.cf":            "postfix",
		"etc/exim4/exim4.conf.template":  "exim",
		"etc/mail/sendmail.mc":           "sendmail",
		"etc/smtpd.conf":                 "opensmtpd",
		"etc/something/else/smtpd.conf~": "other",
	} {
		testkit.Equal(t, fmt.Sprintf("with %s", file), Installed(fstest.MapFS{file: {}}).Name, want)
	}
}

func TestAddList(t *testing.T) {
	dir := t.TempDir()
	testkit.Write(t, filepath.Join(dir, "lists/My Spam.hosts.txt"), "0.0.0.0 a.example\n0.0.0.0 b.example\n")
	testkit.Write(t, filepath.Join(dir, "prose.txt"), "This is\nno list at all, only\nwords of somebody.\n")
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct{ what, name, text string }{
		{filepath.Join(dir, "lists/My Spam.hosts.txt"), "my-spam.hosts", "path = \"lists/My Spam.hosts.txt\"\nformat = \"hosts\"\n"},
		{"https://lists.example/a/Bad.txt.gz?key=x", "bad", "url = \"https://lists.example/a/Bad.txt.gz?key=x\"\npath = \"/copies/bad\"\n"},
		{"https://lists.example/", "lists", "path = \"/copies/lists\"\n"},
		{"https://lists.example/senders.txt", "senders-2", "name = \"senders-2\"\n"},
		{"ipsum-4", "ipsum-4", "# subscribed: ipsum-4, 2026-11-24."},
	} {
		text, name, _, err := AddList(context.Background(), []byte("[index]\n"), tt.what, dir, "/copies", []string{"senders"}, now)
		if err != nil || name != tt.name || !strings.Contains(string(text), tt.text) || !bytes.HasPrefix(text, []byte("[index]\n\n")) {
			t.Errorf("%s: %q, %v\n%s", tt.what, name, err, text)
		}
		tables(t, text)
	}
	for _, what := range []string{"http://lists.example/a", "https://", "ftp://x/y", filepath.Join(dir, "none.txt"), filepath.Join(dir, "prose.txt"), dir, "a\"b\n[smtp]"} {
		if text, _, _, err := AddList(context.Background(), nil, what, dir, "/copies", nil, now); err == nil {
			t.Errorf("%q: no error, but\n%s", what, text)
		}
	}
}

// Install and Undo leave nothing behind, and touch nothing that somebody has written.
func TestInstallAndUndo(t *testing.T) {
	packaged, senders := []byte("packaged\n"), []byte("# nobody yet\n")
	good := func(string) error { return nil }
	file := func(t *testing.T, there string) string {
		path := filepath.Join(t.TempDir(), "config.toml")
		if there != "" {
			testkit.Write(t, path, there)
		}
		return path
	}
	install := func(path, text string, force bool) error {
		return Install(path, []byte(text), packaged, senders, force, good)
	}
	left := func(t *testing.T, path string) (names []string) {
		t.Helper()
		err := filepath.Walk(filepath.Dir(path), func(at string, info os.FileInfo, err error) error {
			if err == nil && !info.IsDir() {
				names = append(names, strings.TrimPrefix(at, filepath.Dir(path)+"/"))
			}
			return err
		})
		testkit.Must(t, err)
		return names
	}
	t.Run("nothing there", func(t *testing.T) {
		path := file(t, "")
		testkit.Must(t, install(path, "one\n", false))
		testkit.Must(t, install(path, "two\n", false)) // its own, unchanged
		testkit.Value(Undo(path))(t)
		testkit.Equal(t, "left", len(left(t, path)), 0)
		testkit.Fails(Undo(path))(t, "undone twice", ErrNothing)
	})
	t.Run("a package's", func(t *testing.T) {
		path := file(t, string(packaged))
		for _, text := range []string{"one\n", "two\n"} {
			testkit.Must(t, install(path, text, false))
		}
		testkit.Value(Undo(path))(t)
		testkit.Equal(t, "undone", string(testkit.Read(t, path)), string(packaged))
	})
	t.Run("somebody's", func(t *testing.T) {
		path := file(t, "mine\n")
		var exists ExistsError
		if err := install(path, "one\n", false); !errors.As(err, &exists) {
			t.Fatalf("%v, want %T", err, exists)
		}
		testkit.Equal(t, "left", len(left(t, path)), 1)
		testkit.Must(t, os.Chmod(path, 0o600))
		testkit.Must(t, install(path, "one\n", true))
		testkit.Equal(t, "mode", testkit.Value(os.Stat(path))(t).Mode().Perm(), 0o600)
		testkit.Value(Undo(path))(t)
		testkit.Equal(t, "undone", string(testkit.Read(t, path)), "mine\n")
	})
	t.Run("changed since", func(t *testing.T) {
		path := file(t, "")
		testkit.Must(t, install(path, "one\n", false))
		testkit.Write(t, filepath.Join(filepath.Dir(path), OwnListPath), "spam@x.example\n")
		testkit.Write(t, path, "one\nand more\n")
		testkit.Got(Undo(path))(t, "Undo", "…", "…was changed since…")
		if err := install(path, "two\n", false); err == nil {
			t.Error("replaced what somebody has changed")
		}
		testkit.Write(t, path, "one\n")
		testkit.Value(Undo(path))(t)
		testkit.EqualSlices(t, "left", left(t, path), []string{OwnListPath})
	})
	t.Run("not good", func(t *testing.T) {
		path := file(t, string(packaged))
		bad := errors.New("bad")
		testkit.IsError(t, "install", Install(path, []byte("one\n"), packaged, senders, false, func(string) error { return bad }), bad)
		testkit.Equal(t, "it", string(testkit.Read(t, path)), string(packaged))
	})
	t.Run("a note that is no note", func(t *testing.T) {
		path := file(t, "")
		testkit.Write(t, path+".init", "{")
		testkit.Got(install(path, "one\n", true))(t, "install", "…config.toml.init: no file of blockd…remove it…")
	})
}
