package header_test

import (
	"fmt"

	"blockd/mail/header"
)

func ExampleSenders() {
	var s header.Senders
	s.Add("From", `"Support" <help@bank.example>`)
	s.Add("Reply-To", "collect@elsewhere.example, second@elsewhere.example")
	addresses, ok := s.Addresses()
	if !ok {
		fmt.Println("too many of them")
	}
	for _, a := range addresses {
		fmt.Println(a.Name, a.Text)
	}
	// Output:
	// From help@bank.example
	// Reply-To collect@elsewhere.example
	// Reply-To second@elsewhere.example
}
