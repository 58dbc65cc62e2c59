package reply_test

import (
	"fmt"

	"blockd/policy/reply"
)

func ExampleReply() {
	r := reply.Reply{Code: 550, Enhanced: "5.7.1", Subject: "<x@bad.example>: Sender address rejected: ",
		Text: "listed in bad (ref 0123456789)", Contact: "https://here.example/r/0123456789"}
	fmt.Println(r)
	fmt.Println(r.Ends())
	// Output:
	// 550 5.7.1 <x@bad.example>: Sender address rejected: listed in bad (ref 0123456789) https://here.example/r/0123456789
	// false
}

func ExampleTag() {
	fmt.Println(reply.Tag{List: "odd; name", Ref: "0123456789"})
	// Output: list=odd??name ref=0123456789
}
