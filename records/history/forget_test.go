package history

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

func TestForget(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "history")
	s := Settings{Folder: folder, Max: MinMax, Keep: 24 * time.Hour}
	l, err := Open(s)
	testkit.Must(t, err)
	add := func(sender, recipient string) {
		l.Add(Record{Time: time.Now(), Door: "smtp", Outcome: "accept", Verdict: "clear", Sender: sender, Recipient: recipient})
	}
	about := func(r *Record) bool { return r.Sender == "bob@there.example" || r.Recipient == "bob@there.example" }
	add("bob@there.example", "anna@here.example")
	add("eve@there.example", "anna@here.example")
	l.Flush()
	add("eve@there.example", "bob@there.example") // waits for the disk
	if n, err := l.Forget(t.Context(), about); n != 2 || err != nil {
		t.Fatalf("Forget = %d, %v", n, err)
	}
	add("carl@there.example", "anna@here.example")
	testkit.Must(t, l.Close())
	all := ""
	files, _ := os.ReadDir(folder)
	for _, f := range files {
		text, _ := os.ReadFile(filepath.Join(folder, f.Name()))
		all += string(text)
	}
	if strings.Contains(all, "bob@") || !strings.Contains(all, "eve@there.example") || !strings.Contains(all, "carl@there.example") {
		t.Errorf("on disk:\n%s", all)
	}
	if n, err := ForgetIn(t.Context(), s, func(r *Record) bool { return r.Sender == "eve@there.example" }); n != 1 || err != nil {
		t.Errorf("ForgetIn = %d, %v", n, err)
	}
}
