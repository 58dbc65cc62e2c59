package reply_test

import (
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/policy/reply"
)

func TestCheckText(t *testing.T) {
	for text, want := range map[string]string{
		"no":                     "",
		"554 5.7.9 no":           "",
		"100%% of %list":         "",
		"ask %contact, %reason":  "",
		"100% sure":              "% is no placeholder; want %sender, %list, %reason, %ref, %contact, and %% for a percent sign",
		"%name":                  "%name is no placeholder; want %sender, %list, %reason, %ref, %contact, and %% for a percent sign",
		"a\r\nb":                 "control characters have no place in a reply",
		"a\u202eb":               "control characters have no place in a reply",
		strings.Repeat("x", 511): "511 octets; a reply has at most 510",
	} {
		got := ""
		if err := reply.CheckText(text); err != nil {
			got = err.Error()
		}
		testkit.Equal(t, fmt.Sprintf("CheckText(%q)", text), got, want)
	}
	for contact, want := range map[string]string{
		"":                                "",
		"https://here.example/%20/%ref":   "",
		"téléphone":                       "want printable ASCII without a blank at either end",
		"a\nb":                            "want printable ASCII without a blank at either end",
		strings.Repeat("x", 150):          "150 octets or more with the placeholders filled; want fewer than 150",
		strings.Repeat("x", 141) + "%ref": "150 octets or more with the placeholders filled; want fewer than 150",
	} {
		got := ""
		if err := reply.CheckContact(contact); err != nil {
			got = err.Error()
		}
		testkit.Equal(t, fmt.Sprintf("CheckContact(%q)", contact), got, want)
	}
}
