package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a log tells about a person is known by a load, and no file has it in clear after it was forgotten.
func TestLearnAndForgetWithoutADaemon(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "lists/a.txt", "bulk.example\n")
	file := writeFile(t, dir, "config.toml", anyPorts)
	log := strings.ReplaceAll(`HEAD postfix/smtpd[1]: 4ABC123: client=pc[192.0.2.1], sasl_method=PLAIN, sasl_username=anna
HEAD postfix/qmgr[1]: 4ABC123: from=<anna@here.example>, size=1, nrcpt=1 (queue active)
HEAD postfix/smtp[1]: 4ABC123: to=<bob@there.example>, relay=x, dsn=2.0.0, status=sent (250)
`, "HEAD", "Nov  3 10:00:00 mail")
	for _, tt := range []struct {
		args  string
		stdin string
		code  int
		out   string // or stderr
	}{
		{"learn", "", exitUsage, "want --maillog"},
		{"learn --maillog /nowhere", "", exitFault, "no such file"},
		{"learn --maillog -", log, 0, "learned from 1 message of users to 1 recipient; 1 correspondent known; 3 lines read, 0 of no mail server"},
		{"forget", "", exitUsage, "want one ADDRESS"},
		{"forget there.example", "", exitUsage, "want an address with a domain"},
		{"forget --json bob@there.example", "", 0, `{"correspondent":true,"recent":false,"held":0,"decisions":0,"requests":0,"proposals":0,"hits":0,"report":0,"sessions":0,"own":0,"entries":0,"quarantined":0,"remains":[]}`},
		{"forget bob@there.example", "", 0, "nothing was kept about this address"},
	} {
		words := strings.Fields(tt.args)
		code, out, stderr := blockd(t, tt.stdin, append([]string{words[0], "-c", file}, words[1:]...)...)
		if code != tt.code || !strings.Contains(out+stderr, tt.out) {
			t.Errorf("%s: %d, %q, %q; want %d, %q", tt.args, code, out, stderr, tt.code, tt.out)
		}
	}
	filepath.WalkDir(dir, func(path string, f fs.DirEntry, err error) error {
		if text, _ := os.ReadFile(path); strings.Contains(string(text), "bob") {
			t.Errorf("%s names the person:\n%s", path, text)
		}
		return err
	})
}
