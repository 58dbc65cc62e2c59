package pattern_test

import (
	"fmt"

	"blockd/lists/pattern"
)

func Example() {
	var patterns []*pattern.Pattern
	for _, text := range []string{`^newsletter[0-9]*@`, `\.bulk-[0-9]+\.example$`} {
		p, err := pattern.Parse(pattern.Regexp, text)
		if err != nil {
			fmt.Println(err)
			return
		}
		patterns = append(patterns, p)
	}
	var stored []pattern.Stored
	for i, need := range pattern.Choose(patterns) {
		stored = append(stored, pattern.Stored{Kind: patterns[i].Kind(), Text: patterns[i].Text(), Need: need})
	}
	set := pattern.NewSet(stored)
	for _, sender := range []string{"newsletter7@mx.bulk-12.example", "anna@firm.example"} {
		matched, err := set.Match(nil, sender)
		fmt.Println(sender, matched, err)
	}
	// Output:
	// newsletter7@mx.bulk-12.example [0 1] <nil>
	// anna@firm.example [] <nil>
}
