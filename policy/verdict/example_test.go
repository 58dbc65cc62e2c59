package verdict_test

import (
	"fmt"

	"blockd/index"
	"blockd/lists"
	"blockd/policy/verdict"
)

// The blocking entry decides, until the sender has proved what the exception asks for.
func Example() {
	v := verdict.New(nil)
	v.Lists = []index.ListInfo{{Source: index.Source{List: "bad"}}, {Source: index.Source{List: "friends", Exceptions: index.AllExceptions}}}
	v.Matches = []index.Match{
		{Kind: lists.Domain, Scope: lists.Tree, Action: lists.Block, Row: 0},
		{Kind: lists.Domain, Scope: lists.Tree, Action: lists.Allow, Row: 1},
	}
	v.Requirements = &verdict.Requirements{Require: map[string]verdict.Proof{"friends": verdict.SPFProof}}

	v.Decide(nil)
	fmt.Println(v.Kind, "by", v.ListName(v.Decider)+", wants:", v.Wants)
	v.Evidence = verdict.Evidence{Tried: verdict.SPFProof, Found: verdict.SPFProof}
	v.Decide(nil)
	fmt.Println(v.Kind, "by", v.ListName(v.Decider))
	// Output:
	// blocked by bad, wants: spf
	// allowed by friends
}
