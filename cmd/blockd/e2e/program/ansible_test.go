package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// The role of packaging/ansible is one that ansible-lint has nothing to say against, and that Ansible can read.
func TestAnsibleRole(t *testing.T) {
	testkit.Peer(t, "ansible-lint")
	testkit.Peer(t, "ansible-playbook")
	roles := testkit.Value(filepath.Abs(filepath.Join(e2e.Root, "packaging/ansible")))(t)
	dir := t.TempDir()
	play := filepath.Join(dir, "play.yml")
	testkit.Write(t, play, `---
- name: Filter mail
  hosts: localhost
  roles:
    - role: blockd
      vars:
        blockd_package: blockd.deb
        blockd_lists: [{name: senders.txt, content: "bulk.example\n"}]
        blockd_postfix_milter: true
`)
	for _, args := range [][]string{
		{"ansible-lint", "--offline", "--nocolor", "--strict", "blockd"},
		{"ansible-playbook", "--syntax-check", "-i", "localhost,", play},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = roles
		cmd.Env = append(os.Environ(), "HOME="+dir, "ANSIBLE_ROLES_PATH="+roles, "ANSIBLE_LOCAL_TEMP="+dir, "LC_ALL=C.UTF-8")
		e2e.Ran(t, cmd)
	}
}
