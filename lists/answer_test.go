package lists

import (
	"context"
	"fmt"
	"testing"

	"blockd/internal/testkit"
)

func TestParseAnswer(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Answer
	}{
		{"", Answer{}},
		{"no bulk mail", Answer{0, "", "no bulk mail"}},
		{"550 5.7.9 no bulk mail", Answer{550, "5.7.9", "no bulk mail"}},
		{"550 no", Answer{550, "", "no"}},
		{"5.7.9 no", Answer{0, "5.7.9", "no"}},
		{"521 5.7.1", Answer{521, "5.7.1", ""}},
		{"450 5.7.1 later", Answer{450, "4.7.1", "later"}}, // the code has the say
		{"550", Answer{0, "", "550"}},                      // which access(5) takes for OK
		{"250 fine", Answer{0, "", "250 fine"}},
		{"5500 fine", Answer{0, "", "5500 fine"}},
		{"550 5.7 no", Answer{550, "", "5.7 no"}},
		{"550 5.7.1234 no", Answer{550, "", "5.7.1234 no"}},
		{"550 5.7.1: no", Answer{550, "", "5.7.1: no"}},
		{"550\t5.7.1  two  blanks", Answer{550, "5.7.1", "two  blanks"}},
		{"550 551 no", Answer{550, "", "551 no"}},
	} {
		testkit.Equal(t, fmt.Sprintf("ParseAnswer(%q)", tt.text), ParseAnswer(tt.text), tt.want)
	}
}

// What an entry of each format asks for is what a reader of its reason finds.
func TestAnswersOfFormats(t *testing.T) {
	for _, tt := range []struct {
		format, line string
		want         Answer
	}{
		{"postfix", "bulk.test REJECT no bulk mail", Answer{0, "", "no bulk mail"}},
		{"postfix", "bulk.test REJECT 5.7.9 no bulk mail", Answer{0, "5.7.9", "no bulk mail"}},
		{"postfix", "bulk.test REJECT 550 roses", Answer{550, "5.7.1", "550 roses"}}, // no code there, so it is text
		{"postfix", "bulk.test DEFER 550 roses", Answer{450, "4.7.1", "550 roses"}},
		{"postfix", "bulk.test 521 5.7.1 go away", Answer{521, "5.7.1", "go away"}},
		{"postfix", "bulk.test 450 later", Answer{450, "", "later"}},
		{"sendmail", "From:bulk.test 550 no", Answer{550, "", "no"}},
		{"sendmail", `From:bulk.test ERROR:5.7.9:"550 no"`, Answer{550, "5.7.9", "no"}},
		{"sendmail", `From:bulk.test ERROR:4.7.9:later`, Answer{0, "4.7.9", "later"}},
		{"lsearch", "bulk.test: 550 5.7.9 no", Answer{550, "5.7.9", "no"}},
		{"lsearch", "bulk.test: no bulk mail", Answer{0, "", "no bulk mail"}},
	} {
		path := testkit.File(t, "list", tt.line+"\n")
		var got []Answer
		sum, err := ReadFile(context.Background(), path, Settings{Format: tt.format}, func(it *Item) error {
			got = append(got, ParseAnswer(it.Reason))
			return nil
		})
		if err != nil || len(got) != 1 || got[0] != tt.want || !Answers(sum.Format) {
			t.Errorf("%s: %q: %+v, %v, want %+v", tt.format, tt.line, got, err, tt.want)
		}
	}
	for _, f := range Formats() {
		if want := f.Name == "postfix" || f.Name == "sendmail" || f.Name == "lsearch"; Answers(f.Name) != want {
			t.Errorf("Answers(%q) = %v", f.Name, !want)
		}
	}
}
