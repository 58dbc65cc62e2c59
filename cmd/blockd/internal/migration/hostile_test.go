package migration_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/internal/migration"
	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// repeat joins n texts.
func repeat(n int, each func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(each(i))
	}
	return b.String()
}

// okOrReject ends every second line of a table with the one and the other.
func okOrReject(i int) string { return [...]string{"OK\n", "REJECT\n"}[i%2] }

// What a configuration can hold is read in seconds or refused, however it is written.
// Each of these took half a minute or more, if it ended at all.
func TestNoConfigurationTakesForever(t *testing.T) {
	race.Skip(t)
	const senders = "smtpd_sender_restrictions = check_sender_access "
	for _, tt := range []struct {
		name   string
		files  map[string]string
		tooBig bool
	}{
		{"an entry of many lines", map[string]string{
			"main.cf": senders + "hash:$config_directory/t\n", "t": "a.example REJECT x\n" + strings.Repeat(" y\n", 400_000)}, false},
		{"a pattern with a long text", map[string]string{
			"main.cf": senders + "pcre:$config_directory/t\n", "t": "/foo@/ REJECT " + strings.Repeat("x", 1_000_000) + "\n"}, false},
		{"many networks", map[string]string{
			"main.cf": "smtpd_client_restrictions = check_client_access cidr:$config_directory/t\n",
			"t":       repeat(40_000, func(i int) string { return fmt.Sprintf("10.%d.%d.1 %s", i>>8, i&255, okOrReject(i)) })}, false},
		{"many local-parts", map[string]string{
			"main.cf": senders + "hash:$config_directory/t\n",
			"t":       repeat(40_000, func(i int) string { return fmt.Sprintf("l%d@ %s", i, okOrReject(i)) })}, false},
		{"many exceptions that free from all of many blocks", map[string]string{
			"main.cf": senders + "hash:$config_directory/t\n",
			"t":       repeat(6_000, func(i int) string { return fmt.Sprintf("l%d@ OK\nd%d.example REJECT\n", i, i) })}, false},
		{"a block that many exceptions free from", map[string]string{
			"main.cf": senders + "hash:$config_directory/ok\nsmtpd_data_restrictions = check_sender_access hash:$config_directory/no\n",
			"ok":      repeat(20_000, func(i int) string { return fmt.Sprintf("u%d@x.example OK\n", i) }),
			"no":      "x.example REJECT\nb@y.example REJECT\n" + repeat(20_000, func(i int) string { return fmt.Sprintf("u%d@z.example REJECT\n", i) })}, false},
		{"classes that name one another", map[string]string{
			"main.cf": "smtpd_restriction_classes = " + repeat(60, func(i int) string { return fmt.Sprintf("c%d ", i) }) + "\nsmtpd_sender_restrictions = c0\n" +
				repeat(59, func(i int) string { return fmt.Sprintf("c%d = c%d c%d\n", i, i+1, i+1) }) + "c59 = permit_mynetworks\n"}, true},
		{"a condition turned around many times", map[string]string{"local.cf": "if foo\n" + strings.Repeat("else\n", 500_000)}, false},
		{"many odd lines", map[string]string{"local.cf": strings.Repeat("else\n", 500_000)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, main := t.TempDir(), "main.cf"
			for name, text := range tt.files {
				testkit.Write(t, filepath.Join(dir, name), text)
				if name == "local.cf" {
					main = name
				}
			}
			began := time.Now()
			r, err := migration.Read(t, filepath.Join(dir, main))
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			if errors.Is(err, migration.ErrTooBig) != tt.tooBig || !tt.tooBig && err != nil {
				t.Fatalf("error %v, want one of size: %t", err, tt.tooBig)
			}
			if err != nil {
				return
			}
			for _, f := range r.Findings {
				if len(f.Now) > 2000 {
					t.Fatalf("%s: %d octets are said of it: %.200s", f.Place, len(f.Now), f.Now)
				}
			}
		})
	}
}
