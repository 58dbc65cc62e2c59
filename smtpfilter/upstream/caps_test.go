package upstream

import (
	"bufio"
	"slices"
	"strings"
	"testing"

	"blockd/smtpfilter/wire"
)

func TestParseCaps(t *testing.T) {
	tests := []struct {
		name  string
		reply []string
		lines []string
		size  int64
	}{
		{"greeting alone", []string{"250 SIZE"}, nil, 0},
		{"in small letters", []string{"250-x", "250 size 10"}, []string{"size 10"}, 10},
		{"SIZE without a limit", []string{"250-x", "250 SIZE"}, []string{"SIZE"}, 0},
		{"SIZE 0", []string{"250-x", "250 SIZE 0"}, []string{"SIZE 0"}, 0},
		{"SIZE of 20 digits", []string{"250-x", "250 SIZE 99999999999999999999"}, []string{"SIZE 99999999999999999999"}, 0},
		{"SIZE that is no number", []string{"250-x", "250 SIZE big"}, []string{"SIZE big"}, 0},
		{"SIZE below zero", []string{"250-x", "250 SIZE -5"}, []string{"SIZE -5"}, 0},
		{"a bare code", []string{"250-x", "250-", "250"}, nil, 0},
		{"lines without a keyword", []string{"250-x", "250- DSN", "250-=DSN", "250--DSN", "250-AUTH=LOGIN", "250-D\u00fcN", "250 DSN"}, []string{"DSN"}, 0},
		{"parameters out of grammar", []string{"250-x", "250-DSN  a", "250-DSN\ta", "250-DSN ", "250-DSN \u00fc", "250 X-Y a=b c"}, []string{"X-Y a=b c"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := parseCaps([]byte(strings.Join(tt.reply, "\r\n") + "\r\n"))
			if !slices.Equal(got.Lines, tt.lines) || got.Size != tt.size {
				t.Errorf("parseCaps(%q) = %v, want %q, Size %d", tt.reply, got, tt.lines, tt.size)
			}
		})
	}
}

func TestHasComparesWholeKeywords(t *testing.T) {
	c := Caps{Lines: []string{"8bitmime", "SIZE 10", "XCLIENT-FOO ADDR"}}
	for keyword, want := range map[string]bool{"8BITMIME": true, "SIZE": true, "XCLIENT": false, "10": false, "": false, "SIZE 10": false} {
		if got := c.Has(keyword); got != want {
			t.Errorf("Has(%q) = %v, want %v", keyword, got, want)
		}
	}
}

// A line that is kept can be sent on as it is, and its keyword is found.
func FuzzCaps(f *testing.F) {
	f.Add([]byte("250-x\r\n250-SIZE 10\r\n250 DSN\r\n"))
	f.Add([]byte("250-x\r\n250-SIZE 9223372036854775807\r\n250-\t\r\n250\r\n"))
	f.Add([]byte("250-x\r\n250 AUTH=LOGIN PLAIN\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		reply, err := wire.ReadReply(bufio.NewReaderSize(strings.NewReader(string(raw)), wire.MaxReplyLine))
		if err != nil {
			return
		}
		c := parseCaps(reply.Raw)
		if c.Size < 0 {
			t.Errorf("Size = %d", c.Size)
		}
		for _, line := range c.Lines {
			if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) || !strings.Contains(string(raw), "250-"+line+"\r\n") && !strings.Contains(string(raw), "250 "+line+"\r\n") && reply.Code == 250 {
				t.Errorf("line %q of %q", line, raw)
			}
			keyword, _, _ := strings.Cut(line, " ")
			if keyword == "" || !c.Has(strings.ToUpper(keyword)) {
				t.Errorf("keyword of %q is not found", line)
			}
		}
	})
}
