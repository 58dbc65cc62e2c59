package httpapi

import "testing"

// FuzzQuestion holds the short way to a sender against encoding/json: where it
// finds one, that finds the same.
func FuzzQuestion(f *testing.F) {
	for _, text := range []string{
		`"promo@bulk.test"`, `""`, `{"sender":"promo@bulk.test"}`, `{"sender": "a@b"}`, `{"sender":"a@b","client":"192.0.2.1"}`,
		`{"sender":"a\u0040b"}`, `"a"b"`, `"`, `{"sender":"}`, `{"sender":""}`, `{"sender":"a"}}`, "\"a\x7f\"", `{"sender":  "a"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		sender, ok := plainSender(b)
		if !ok {
			return
		}
		var want *string
		if b[0] == '"' {
			if err := decode(b, &want); err != nil || want == nil || *want != sender {
				t.Fatalf("plainSender(%q) = %q, encoding/json says %v, %v", b, sender, want, err)
			}
			return
		}
		var object map[string]*string
		if err := decode(b, &object); err != nil || len(object) != 1 || object["sender"] == nil || *object["sender"] != sender {
			t.Fatalf("plainSender(%q) = %q, encoding/json says %v, %v", b, sender, object, err)
		}
	})
}
