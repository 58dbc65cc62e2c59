package migration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
)

// Many rules of rspamd, or keys of one, are found in seconds: each of these took minutes, if it ended.
func TestManyRulesOfRspamd(t *testing.T) {
	race.Skip(t)
	for _, tt := range []struct {
		name string
		each func(i int) (symbol string, keys []string)
	}{
		{"symbols that begin alike", func(i int) (string, []string) {
			return fmt.Sprintf("%s_%d", strings.Repeat("A", 60), i), []string{"a@b.example"}
		}},
		{"symbols that no line begins with", func(i int) (string, []string) { return fmt.Sprintf("X Y_%d", i), []string{fmt.Sprintf("\"a%d", i)} }},
		{"keys of one rule", func(i int) (string, []string) {
			var keys []string
			for n := range 60_000 {
				keys = append(keys, fmt.Sprintf("%da@b.example", n))
			}
			return "A", keys
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			says := map[string]any{}
			var text strings.Builder
			for i := range 5_000 {
				symbol, keys := tt.each(i)
				says[symbol] = map[string]any{"type": "from", "action": "reject", "map": keys}
				text.WriteString(symbol + " { map = [\n  \"" + strings.Join(keys, "\",\n \"") + "\" ] }\n")
				if len(keys) > 1 {
					break
				}
			}
			data := testkit.Value(json.Marshal(says))(t)
			r := testkit.Value(ReadSaid(t.Context(), testkit.File(t, "multimap.conf", text.String()), string(data)))(t)
			last := r.Findings[len(r.Findings)-1]
			testkit.Equal(t, "whether the last one is found", last.Line > len(r.Findings) || strings.Contains(tt.name, "no line"), true)
		})
	}
}
