package lists

import (
	"encoding/csv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestRecordsAgreeWithEncodingCSV holds splitRecord against the standard library's
// strict reader, on random text of the characters that matter.
func TestRecordsAgreeWithEncodingCSV(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	agreed := 0
	for range 200_000 {
		var b strings.Builder
		for range 1 + rng.IntN(10) {
			b.WriteByte("\"\",,ab\n;"[rng.IntN(8)])
		}
		text := b.String()
		model := csv.NewReader(strings.NewReader(text))
		model.FieldsPerRecord = -1
		want, wantErr := model.Read()
		if strings.TrimLeft(text, "\n") != text || wantErr == nil && model.InputOffset() < int64(len(text)) {
			continue // blank lines before the record, or a second one behind it
		}
		cells, err := splitRecord(nil, strings.TrimSuffix(text, "\n"), ',')
		var got []string
		for _, c := range cells {
			got = append(got, c.text)
		}
		if (err == nil) != (wantErr == nil) || err == nil && !slices.Equal(got, want) {
			// Without a quote around it a line end ends the record: that is next's
			// work, and splitRecord never sees one.
			if strings.Contains(text, "\n") {
				continue
			}
			t.Fatalf("%q: %q, %v; encoding/csv: %q, %v", text, got, err, want, wantErr)
		}
		agreed++
	}
	if agreed < 100_000 {
		t.Errorf("only %d cases were compared", agreed)
	}
}
