package dialogue

import (
	"net"
	"strings"
	"testing"
)

func TestParseRefusesWhatItDoesNotKnow(t *testing.T) {
	tests := []struct{ line, want string }{
		{"X: what", `x.txt:1: what is "X:"`},
		{"list bad", "x.txt:1: list wants NAME: ENTRIES"},
		{"list a b c: d", "x.txt:1: list wants NAME: ENTRIES"},
		{"set reject_at", "x.txt:1: set wants KEY VALUE"},
		{"C= unquoted", "x.txt:1: invalid syntax"},
		{"wait long", `x.txt:1: time: invalid duration "long"`},
		{" C: indented", `x.txt:1: what is " C: indented"`},
	}
	for _, tt := range tests {
		if _, err := Parse("x", tt.line); err == nil || err.Error() != tt.want {
			t.Errorf("Parse(%q) = %v, want %s", tt.line, err, tt.want)
		}
	}
}

func TestMatches(t *testing.T) {
	tests := []struct {
		pattern, text string
		want          bool
	}{
		{"250 Ok", "250 Ok", true},
		{"250 Ok", "250 Okay", false},
		{"250 *", "250 ", true},
		{"550 * (ref *)", "550 5.7.1 <a@b>: no (ref 12)", true},
		{"550 * (ref *)", "550 5.7.1 <a@b>: no (ref 12", false},
		{"*a*b", "xaxaxb", true},
		{"*a*b", "xbxa", false},
	}
	for _, tt := range tests {
		if got := matches(tt.pattern, tt.text); got != tt.want {
			t.Errorf("matches(%q, %q) = %v, want %v", tt.pattern, tt.text, got, tt.want)
		}
	}
}

// TestPlayCanFail: a runner that finds nothing wrong proves nothing.
func TestPlayCanFail(t *testing.T) {
	tests := []struct{ name, says, want string }{
		{"as written", "220 x\r\n250 y\r\n", ""},
		{"another code", "220 x\r\n550 y\r\n", `x.txt:3: got "550 y", want 250`},
		{"another text", "221 x\r\n250 y\r\n", `x.txt:1: got "221 x", want "220 *"`},
		{"bare LF", "220 x\n", `x.txt:1: reply "220 x\n" does not end with CRLF`},
		{"one reply more", "220 x\r\n250 y\r\n250 z\r\n", `x.txt:4: server says "250 z\r\n", want the end of the connection`},
		{"one reply less", "220 x\r\n", `x.txt:3: connection closed (EOF), want "250"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := Parse("x", "S: 220 *\nC: NOOP\nS: 250\nclosed\n")
			if err != nil {
				t.Fatal(err)
			}
			near, far := net.Pipe()
			go func() {
				far.Write([]byte(tt.says))
				if strings.Contains(tt.says, "\r\n") {
					far.Read(make([]byte, 100)) // NOOP
				}
				far.Close()
			}()
			got := ""
			if err := d.Play(near, Hooks{}); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("Play = %q, want %q", got, tt.want)
			}
		})
	}
}
