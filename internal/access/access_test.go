package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"blockd/internal/testkit"
)

// Each combination of owner, group and mode is asked of Check and of the kernel, by a
// process of that user.
func TestCheckAgreesWithTheKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("files of other users are root's to make")
	}
	const uid, gid, other = 4301, 4302, 4303
	dir, err := os.MkdirTemp("", "blockd-access-") // t.TempDir's parents are closed to others
	testkit.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	testkit.Must(t, os.Chmod(dir, 0o755))
	var script strings.Builder
	var want []string
	for i, owner := range [][2]int{{uid, gid}, {other, gid}, {other, other}} {
		for _, mode := range []fs.FileMode{0o000, 0o400, 0o040, 0o004, 0o600, 0o060, 0o006, 0o644, 0o077} {
			for _, above := range []fs.FileMode{0o755, 0o700, 0o711, 0o074} {
				folder := filepath.Join(dir, fmt.Sprintf("%d-%o-%o", i, mode, above))
				file := filepath.Join(folder, "file")
				testkit.Must(t, os.Mkdir(folder, 0o755))
				testkit.Must(t, os.WriteFile(file, nil, 0o644))
				testkit.Must(t, os.Symlink(file, folder+".link"))
				for path, mode := range map[string]fs.FileMode{file: mode, folder: above} {
					testkit.Must(t, os.Chown(path, owner[0], owner[1]))
					testkit.Must(t, os.Chmod(path, mode))
				}
				for _, path := range []string{file, folder + ".link"} {
					for _, w := range []Want{Read, Write} {
						err := User{uid, []int{gid}}.Check(path, w)
						if denied := (*Denied)(nil); err != nil && !errors.As(err, &denied) {
							t.Fatalf("%s: %v", path, err)
						}
						fmt.Fprintf(&script, "test -%c %s && echo yes || echo no\n", w.String()[0], path)
						want = append(want, map[bool]string{true: "yes", false: "no"}[err == nil])
					}
				}
			}
		}
	}
	sh := exec.Command("sh", "-c", script.String())
	sh.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	out := testkit.Value(sh.Output())(t)
	for i, got := range strings.Fields(string(out)) {
		testkit.Equal(t, fmt.Sprintf("%s: the kernel", strings.Split(script.String(), "\n")[i]), got, want[i])
	}
	testkit.Equal(t, "answers", len(strings.Fields(string(out))), len(want))
}

func TestDeniedNamesWhatIsClosed(t *testing.T) {
	dir := t.TempDir()
	testkit.Must(t, os.MkdirAll(dir+"/a/b", 0o755))
	testkit.Must(t, os.Chmod(dir+"/a", 0o700))
	u := User{UID: os.Geteuid() + 4301}
	err := u.Check(dir+"/a/b", Read)
	var denied *Denied
	if !errors.As(err, &denied) {
		t.Fatalf("Check: %v, want *Denied", err)
	}
	if !strings.HasPrefix(dir+"/a", denied.Path) || !strings.Contains(err.Error(), " may not search ") {
		t.Errorf("Check: %v", err)
	}
	testkit.IsError(t, "a file that is not there", Self().Check(dir+"/missing", Read), fs.ErrNotExist)
	if err := Self().Check("missing", Read); err == nil {
		t.Error("a relative path is taken")
	}
	testkit.Must(t, os.Symlink(dir+"/loop", dir+"/loop"))
	testkit.IsError(t, "a link to itself", Self().Check(dir+"/loop", Read), syscall.ELOOP)
}

func TestProcessIsSelf(t *testing.T) {
	u := testkit.Value(Process(os.Getpid()))(t)
	if self := Self(); u.UID != self.UID {
		t.Errorf("Process: %v, Self %v", u, self)
	}
}
