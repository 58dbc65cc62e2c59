package postfix

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func TestPolicyRequestLimits(t *testing.T) {
	attributes := func(n int) string { // with the one that says what it is
		var b strings.Builder
		b.WriteString("request=smtpd_access_policy\n")
		for i := range n - 1 {
			fmt.Fprintf(&b, "name%d=value\n", i)
		}
		return b.String() + "\n"
	}
	line := func(octets int) string {
		return "request=smtpd_access_policy\n" + "x=" + strings.Repeat("a", octets-2) + "\n\n"
	}
	whole := func(octets int) string { // of lines that may be
		text := "request=smtpd_access_policy\n"
		for len(text)+1 < octets {
			n := min(octets-len(text)-2, maxAttribute)
			text += "=" + strings.Repeat("a", n-1) + "\n"
		}
		return text + "\n"
	}
	for _, tt := range []struct {
		name, text string
		want       error
	}{
		{"the least", "request=smtpd_access_policy\n\n", nil},
		{"29 attributes, as Postfix sends them", attributes(29), nil},
		{"100 attributes", attributes(100), nil},
		{"101 attributes", attributes(101), errTooLong},
		{"1,000 attributes", attributes(1000), errTooLong},
		{"a line of 4 KiB", line(maxAttribute), nil},
		{"a line of 4 KiB and one", line(maxAttribute + 1), errTooLong},
		{"64 KiB in all", whole(maxRequest), nil},
		{"64 KiB and one in all", whole(maxRequest + 1), errTooLong},
		{"an empty request", "\n", errMalformed},
		{"no kind of request", "sender=a@there.example\n\n", errMalformed},
		{"another kind of request", "request=smtpd_other_policy\nsender=a@there.example\n\n", errMalformed},
		{"a line without a value", "request=smtpd_access_policy\nsender\n\n", errMalformed},
		{"a NUL in a value", "request=smtpd_access_policy\nsender=a\x00b@there.example\n\n", errMalformed},
		{"a NUL in a name", "request=smtpd_access_policy\nsend\x00er=a@there.example\n\n", errMalformed},
		{"an empty name", "request=smtpd_access_policy\n=x\n\n", nil},
		{"a value with = in it", "request=smtpd_access_policy\nsender=a=b@there.example\n\n", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, err := measurePolicyRequest([]byte(tt.text), 0)
			if err == nil {
				testkit.MustEqual(t, "measured", n, len(tt.text))
				_, err = parsePolicyRequest([]byte(tt.text))
			}
			testkit.IsError(t, "got", err, tt.want)
		})
	}
}

// FuzzPolicyRequest holds the reader against one that is slow and obvious, and
// whatever the borders at which the octets arrive.
func FuzzPolicyRequest(f *testing.F) {
	f.Add([]byte(request()), uint16(7))
	f.Fuzz(func(t *testing.T, data []byte, border uint16) {
		if len(data) == 0 {
			return
		}
		whole, wholeErr := measurePolicyRequest(data, 0)
		seen, n := 0, 0
		var err error
		for size := 1; size <= len(data); size = min(size+1+int(border), max(size+1, len(data))) {
			if n, err = measurePolicyRequest(data[:size], seen); n > 0 || err != nil {
				break
			}
			seen = size
		}
		if wholeErr == nil && (n != whole || err != nil) {
			t.Fatalf("measured %d, %v in pieces and %d at once", n, err, whole)
		}
		if n == 0 || err != nil {
			return
		}
		text := data[:n]
		if !bytes.HasSuffix(text, []byte("\n")) || bytes.Contains(text[:n-1], []byte("\n\n")) {
			t.Fatalf("%q is not one request", text)
		}
		got, err := parsePolicyRequest(text)
		want := map[string]string{}
		lines := strings.Split(strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\n"), "\n")
		valid := len(lines) <= maxAttributes && len(text) > 1
		for _, line := range lines {
			name, value, ok := strings.Cut(line, "=")
			valid = valid && ok && len(line) <= maxAttribute && !strings.Contains(line, "\x00")
			want[name] = value
		}
		valid = valid && want["request"] == accessPolicy
		testkit.MustEqual(t, "whether it is read", err == nil, valid)
		if !valid {
			return
		}
		for name, value := range map[string][]byte{
			"request": got.kind, "protocol_state": got.state, "sender": got.sender, "recipient": got.recipient, "client_address": got.client,
			"helo_name": got.helo, "sasl_username": got.login, "instance": got.instance, "queue_id": got.queueID,
		} {
			testkit.MustEqual(t, name, string(value), want[name])
		}
	})
}
