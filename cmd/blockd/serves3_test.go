//go:build !nosql

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// versitygw begins an S3 server that others have made, on a folder, and returns its address. A folder of the folder is a bucket.
func versitygw(t *testing.T, key, secret string) (address, folder string) {
	t.Helper()
	out := testkit.Value(exec.Command(testkit.Root(t)+"/cmd/blockd/e2e/versitygw.sh", "--where").Output())(t)
	program := strings.TrimSpace(string(out))
	if _, err := os.Stat(program); err != nil {
		testkit.Missing(t, "versitygw is not built (cmd/blockd/e2e/versitygw.sh, or make peers)")
	}
	address, folder = testkit.Unused(t), t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "--access", key, "--secret", secret, "--port", address, "--quiet", "posix", "--sidecar", t.TempDir(), folder)
	cmd.Stdout, cmd.Stderr = &said, &said
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		cmd.Wait()
		if t.Failed() {
			t.Logf("versitygw said:\n%s", said.Bytes())
		}
	})
	testkit.Eventually(t, "versitygw answers", func() bool {
		resp, err := http.Get("http://" + address + "/")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	return address, folder
}

// A publisher writes into a real S3 store and nodes read from it: whole, by differences, after a halt and without what is no longer kept.
func TestPublishToARealStore(t *testing.T) {
	const key, secret = "AKIAPUBLISHER", "s3cret/+key"
	address, folder := versitygw(t, key, secret)
	testkit.Must(t, os.MkdirAll(filepath.Join(folder, "blocklists"), 0o755))
	dsn := fmt.Sprintf("s3://%s:s3cret%%2F%%2Bkey@%s/blocklists/prod", key, address)
	dir := t.TempDir()
	runs(t, "publish", "keygen", filepath.Join(dir, "publish.key"))
	private := func(path, text string) {
		testkit.Write(t, path, text)
		testkit.Must(t, os.Chmod(path, 0o600))
	}
	private(filepath.Join(dir, "store"), dsn+"\n")
	var text strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&text, "x%d@bulk%d.example\n", i, i%97)
	}
	list := filepath.Join(dir, "lists", "bad.txt")
	testkit.Write(t, list, text.String()+"bad.example\n")
	config := filepath.Join(dir, "config.toml")
	testkit.Write(t, config, anyPorts+"[publish]\nto_file = \"store\"\nkey_file = \"publish.key\"\nkeep = 2\n")
	publish := func(args ...string) string {
		t.Helper()
		code, out, errs := blockd(t, "", append(append([]string{"publish"}, args...), "-c", config)...)
		testkit.MustEqual(t, fmt.Sprintf("publish %q: %s", args, errs), code, 0)
		return out
	}
	testkit.Has(t, publish(), "sequence  1 of")

	public := strings.TrimSpace(string(testkit.Read(t, filepath.Join(dir, "publish.key.pub"))))
	public = public[strings.LastIndex(public, "\n")+1:]
	follower := t.TempDir()
	private(filepath.Join(follower, "store"), dsn+"\n")
	base, _, _ := strings.Cut(anyPorts, "[[list]]")
	testkit.Write(t, filepath.Join(follower, "config.toml"), base+fmt.Sprintf("[fleet]\nfrom_file = \"store\"\nkeys = [\"minisign:%s\"]\nevery = \"1s\"\nnode = \"real\"\n", public))
	node := serveIn(t, follower, "http")
	node.waitBlocked(t, "x@bad.example", true)
	node.waitBlocked(t, "x17@bulk17.example", true)

	testkit.Write(t, list, text.String()+"bad.example\nworse.example\n")
	publish()
	node.waitBlocked(t, "x@worse.example", true)
	_, metrics := node.get(t, "/metrics")
	testkit.Has(t, metrics, "blockd_snapshot_fetched_bytes_total{kind=\"delta\"}")
	testkit.Lacks(t, metrics, "blockd_snapshot_fetched_bytes_total{kind=\"delta\"} 0\n")
	testkit.Has(t, publish("halt"), "stays at sequence 1")
	node.waitBlocked(t, "x@worse.example", false)
	publish("--again", "2", "--now")
	node.waitBlocked(t, "x@worse.example", true)

	// What only old sequences had is deleted, nothing else.
	for i := range 4 {
		testkit.Write(t, list, text.String()+fmt.Sprintf("bad.example\nworse.example\nnew%d.example\n", i))
		publish()
	}
	node.waitBlocked(t, "x@new3.example", true)
	manifests, err := filepath.Glob(filepath.Join(folder, "blocklists", "prod", "manifests", "*.json"))
	if err != nil || len(manifests) == 0 || len(manifests) > 3 {
		t.Errorf("%d manifests are kept, %v", len(manifests), err)
	}
	// A store whose answers are refused is told of without its secret, and the node serves on.
	private(filepath.Join(follower, "store"), strings.Replace(dsn, "s3cret", "wrong", 1)+"\n")
	begun := time.Now()
	testkit.Equal(t, "ended with", node.end(t), 0)
	node = serveIn(t, follower, "http")
	node.waitBlocked(t, "x@new3.example", true)
	code, out, errs := blockd(t, "", "doctor", "-c", filepath.Join(follower, "config.toml"))
	t.Logf("doctor after %s: %d %s", time.Since(begun), code, out)
	testkit.Lacks(t, out+errs, "s3cret", "%2Bkey")
}
