package policy

import (
	"testing"

	"blockd/mail/addr"
	"blockd/policy/verdict"
)

// Whoever may not see an owner's entry does not learn which list it is in.
func TestVeilHidesTheListOfWhatIsHidden(t *testing.T) {
	e := Explanation{Decider: -1, Shadow: -1, Lists: []ListOrigin{{List: "theirs", Homepage: "https://list.example/"}}}
	e.Veil(verdict.Verdict{Decider: -1, Shadow: -1}, func(addr.Key) bool { return true })
	if len(e.Lists) != 0 {
		t.Errorf("shown: %+v", e.Lists)
	}
}
