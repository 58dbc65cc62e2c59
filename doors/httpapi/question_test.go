package httpapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/policy"
)

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
		sender, ok := plainSender(string(b))
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

// FuzzPlainBatch holds the short way through a batch against encoding/json: what it
// reads, that reads alike.
func FuzzPlainBatch(f *testing.F) {
	for _, text := range []string{
		`{"senders":["a@b"]}`, `{"senders":["a@b",""]}`, ` {"senders": [ "a@b" , {"sender":"c"},{"sender": "d"} ]}` + "\n",
		`{"senders":[]}`, `{"senders":["a",]}`, `{"senders":[,"a"]}`, `{"senders":["a" "b"]}`, `{"senders":["a"],"x":["b"]}`, `{"senders":["a\u0040b"]}`,
		`{"senders":["a]}"]}`, `{"senders":[{"sender":"a}"}]}`, `{"senders":[{"sender":"a"]}`, `{"senders":["]}`, `{"senders":[{"ip":"100::2"}]}`, `{"senders":[""]}`,
		`{"senders":["a"]}]}`, `{"senders":["a"]]}`, "{\"senders\":[\"a\",\f\"b\"]}", "{\"senders\":[\"a\x7f\"]}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, ok := plainBatch(body)
		if !ok {
			return
		}
		if want, err := decodeAnyBatch(body); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("plainBatch(%q) = %v, encoding/json says %v, %v", body, got, want, err)
		}
	})
}

// TestPlainBatch holds that batches as programs write them go the short way, to the last
// sender that there may be.
func TestPlainBatch(t *testing.T) {
	senders := func(n int) string { return strings.TrimPrefix(strings.Repeat(`,"a@b.example"`, n), ",") }
	for _, tt := range []struct {
		name, body string
		want       int // -1: not the short way
	}{
		{"compact", `{"senders":["a@b.example",""]}`, 2},
		{"with blanks", "{\"senders\": [\n  \"a@b.example\",\n  {\"sender\": \"c@d.example\"}\n]}\n", 2},
		{"as many as there may be", `{"senders":[` + senders(maxSenders) + `]}`, maxSenders},
		{"one more", `{"senders":[` + senders(maxSenders+1) + `]}`, -1},
		{"an escape", `{"senders":["a@b.example","\u0061@b.example"]}`, -1},
		{"a client", `{"senders":[{"sender":"a@b.example","client":"192.0.2.1"}]}`, -1},
	} {
		got, ok := plainBatch([]byte(tt.body))
		if ok != (tt.want >= 0) || ok && len(got) != tt.want {
			t.Errorf("%s: %d questions, %v; want %d", tt.name, len(got), ok, tt.want)
		}
	}
}

func BenchmarkBatch(b *testing.B) {
	var senders []string
	for i := range maxSenders {
		senders = append(senders, fmt.Sprintf("someone%d@mail.clear.example", i))
	}
	body := testkit.Value(json.Marshal(map[string][]string{"senders": senders}))(b)
	for name, read := range map[string]func([]byte) ([]policy.Question, error){"plain": decodeBatch, "any": decodeAnyBatch} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				testkit.Value(read(body))(b)
			}
		})
	}
}
