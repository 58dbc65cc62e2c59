package msgauth

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
)

// vectors is a folder of test vectors that others made: NAME.msg with the DNS
// records in NAME.dns and what came of each signature in NAME.result. A file that
// holds another one's name stands for it.
const vectors = "dkim/vectors"

// stricter are the signatures, by vector and place, that hold by the vector and
// not here, and why.
var stricter = map[string]string{
	"07-algo_mismatch 0": "two key records under one name: RFC 6376, section 3.6.2.2, leaves it open",
	"09-limited_body 0":  "l= leaves a part of the body unsigned",
}

func readVector(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testkit.Shared(t, vectors), name))
	if os.IsNotExist(err) {
		return nil
	}
	testkit.Must(t, err)
	if target := string(bytes.TrimSpace(b)); filepath.Ext(target) == filepath.Ext(name) && !strings.ContainsAny(target, " \n") {
		return readVector(t, target)
	}
	return b
}

// vectorZone reads "NAME: TEXT", with lines that go on after a backslash.
func vectorZone(text string) zone {
	z := zone{}
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", "")) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		switch value = strings.TrimSpace(value); value {
		case "TEMPERROR":
			z["TXT "+name] = []string{"!SERVFAIL"}
		case "PERMERROR":
		default:
			z["TXT "+name] = append(z["TXT "+name], value)
		}
	}
	return z
}

func TestVectors(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(testkit.Shared(t, vectors), "*.msg"))
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".msg")
		t.Run(name, func(t *testing.T) {
			s := nameserver.Serve(t, vectorZone(string(readVector(t, name+".dns"))))
			message := bytes.ReplaceAll(bytes.ReplaceAll(readVector(t, name+".msg"), []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
			m := testkit.Value(resolverOf(t, s).Message(t.Context(), netip.Addr{}, bytes.NewReader(message)))(t)
			var want struct {
				Results []struct{ Domain, State string }
			}
			if data := readVector(t, name+".result"); data != nil {
				testkit.Must(t, json.Unmarshal(data, &want))
			} else if m.Fault == "" {
				t.Errorf("no fault, and the vector has no result: %+v", m)
			}
			if len(m.Signatures) != len(want.Results) {
				t.Fatalf("%d signatures, want %d", len(m.Signatures), len(want.Results))
			}
			for i, s := range m.Signatures {
				wanted := map[string]State{"SUCCESS": Pass, "TEMPFAIL": Unknown, "PERMFAIL": No}[want.Results[i].State]
				if why := stricter[name+" "+string(rune('0'+i))]; why != "" {
					if s.Proof == Pass {
						t.Errorf("signature %d passes, and should not: %s", i, why)
					}
					t.Logf("signature %d: stricter than the vector: %s (%s)", i, why, s.Reason)
				} else if s.Proof != wanted {
					t.Errorf("signature %d: %s (%s), want %s", i, s.Proof, s.Reason, wanted)
				}
			}
		})
	}
}
