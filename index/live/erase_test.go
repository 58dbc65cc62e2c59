package live

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What was removed, or has ended, is in no file after Erase, and the journal of changes does not name it; what is there stays.
func TestErase(t *testing.T) {
	set, _, said := journalled(t)
	folder := set.folder
	if _, err := set.Apply(Change{Entry: "bob@there.example"}, Change{Entry: "carl@there.example"}, Change{Owner: "anna@here.example", Entry: "dora@there.example"},
		Change{Entry: "emil@there.example"}); err != nil {
		t.Fatal(err)
	}
	if _, err := set.Fold(context.Background()); err != nil {
		t.Fatal(err)
	}
	set.stale = true
	if err := set.rewrite(true); err != nil { // into the snapshot
		t.Fatal(err)
	}
	if _, err := set.Apply(Change{Entry: "bob@there.example", Remove: true, Author: "op", Journal: "person 17"},
		Change{Owner: "anna@here.example", Entry: "dora@there.example", Remove: true, Author: "op", Journal: "person 18"},
		Change{Entry: "emil@there.example", Remove: true, Author: "op"}); err != nil {
		t.Fatal(err)
	}
	if err := set.Erase(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := set.Apply(Change{Entry: "frank@there.example"}); err != nil {
		t.Fatal(err)
	}
	all := ""
	err := filepath.WalkDir(folder, func(path string, f os.DirEntry, err error) error {
		if err != nil || f.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all += string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"bob@", "dora@", "anna@", "emil@"} {
		if strings.Contains(all, gone) {
			t.Errorf("a file has %s", gone)
		}
	}
	lines := strings.Join(said(), "\n")
	if !strings.Contains(lines, "op|entry.remove|person 17||\nop|entry.remove|person 18||\nop|entry.remove|block emil@there.example|") {
		t.Errorf("the journal:\n%s", lines)
	}
	if err := set.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(Settings{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	var left []string
	for e := range again.All() {
		left = append(left, e.Text)
	}
	if got := strings.Join(left, " "); got != "frank@there.example carl@there.example" {
		t.Errorf("left: %s", got)
	}
}
