package servers

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// oddPaths are paths of senders at bulk.example and of promo@shop.example, many of which
// Postfix takes and blockd's strict grammar does not.
var oddPaths = []string{
	`<x@bulk.example>`, `<x@bulk.example@>`, `<x@bulk.example@@>`, `<"x@bulk.example"@>`, `<x@@bulk.example>`, `<@@bulk.example>`, `<@bulk.example>`,
	`<""@bulk.example>`, `<x@bulk.example.>`, `<x@bulk.example..>`, `<x@.bulk.example>`, `<x@a..bulk.example>`, `<x@-a.bulk.example>`,
	"<\x01x@bulk.example>", "<x\x01@bulk.example>", "<x@\x01.bulk.example>", "<x\x7f@bulk.example>", "<\"\x01\"@bulk.example>", "<\x01@bulk.example@>",
	"<x\t@bulk.example>", `<x@ bulk.example>`, `<x @bulk.example>`, `<x y@bulk.example>`, `< x@bulk.example >`, `<x\ y@bulk.example>`,
	`<x@xn--zz.bulk.example>`, `<x@xn--zz.xn--zz.bulk.example>`, `<x@a.xn--zz.bulk.example>`, `<x@XN--ZZ.bulk.example>`, `<x@xn--a.bulk.example>`, `<x@xn--zz.bulk.example@>`,
	`<x@xn--zz.bulk.example.>`, `<x@a_b.bulk.example>`, `<x@12.bulk.example>`, `<x@12.xn--zz.bulk.example>`, `<x@a--b.bulk.example>`, `<x@ab--.bulk.example>`,
	`<x@(c)bulk.example>`, `<x@bulk(c).example>`, `<x@bulk.example(c)>`, `<(c)x@bulk.example>`, `<(x@bulk.example>`, `<x@bulk.example)>`, `<)x@bulk.example>`,
	`x@bulk.example`, `x@bulk.example@`, `<x@bulk.example`, `x@bulk.example>`, `<<x@bulk.example>>`, `<foo <x@bulk.example>>`, `<x@bulk.example>>`,
	`<g:x@bulk.example;>`, `<,x@bulk.example>`, `<;x@bulk.example>`, `<:x@bulk.example>`, `<x:y@bulk.example>`, `<x@bulk.example,>`, `<x@bulk.example;>`, `<x@bulk.example:>`,
	`<@r.example:x@bulk.example>`, `<@r.example,@s.example:x@bulk.example@>`, `<@r.example:@bulk.example>`, `<@bulk.example:x@there.example>`,
	`<"x".y@bulk.example>`, `<y."x"@bulk.example>`, `<"x"y@bulk.example>`, `<"x" "y"@bulk.example>`, `<"x\"y"@bulk.example>`, `<x\@y@bulk.example>`, `<x\>y@bulk.example>`,
	`<x@"bulk.example">`, `<x@"bulk".example>`, `<x@\bulk.example>`, `<x@bu\lk.example>`, `<x@bulk.example\>`, `<"x@bulk.example">`, `<"x@bulk.example>`,
	`<x@y@bulk.example>`, `<"x@y"@bulk.example>`, `<x@bulk.example@there.example>`, `<"x@bulk.example"@there.example>`, "<\"x@bulk.example\x01\"@there.example>",
	`<x%bulk.example>`, `<x%bulk.example@>`, `<x%bulk.example%>`, `<x%y%bulk.example>`, `<"x%bulk.example">`, `<"x"%bulk.example>`, `<x%bulk.example@there.example>`, `<x%bulk.example.>`,
	`<bulk.example!x>`, `<bulk.example!x@>`, `<"bulk.example!x">`, `<bulk.example!a!x>`, `<a!b@bulk.example>`, `<bulk.example!x@there.example>`, `<bulk.example!x%there.example>`,
	`<..x@bulk.example>`, `<x.@bulk.example>`, `<.x@bulk.example>`, `<x..y@bulk.example>`, `<.@bulk.example>`, `<..@bulk.example@>`, `<[x]@bulk.example>`, `<]x@bulk.example>`,
	"<x\u00AD@bulk.example>", "<x\u200B@bulk.example>", "<x@\u200Bbulk.example>", "<x@bu\u00ADlk.example>", "<x\uFF20bulk.example>", "<x\u00A0@bulk.example>", "<x\xFF@bulk.example>",
	"<x@\u00FC.bulk.example>", "<x@\u00DF.bulk.example>", "<x@\u2603.bulk.example>", "<x@1\u05D0.bulk.example>", "<x@\u0660a.bulk.example>", "<x@bulk\u3002example>",
	`<x@` + strings.Repeat("a", 64) + `.bulk.example>`, `<x@` + strings.Repeat("a", 63) + `.bulk.example>`,
	`<x@` + strings.Repeat("a.", 120) + `bulk.example>`, `<x@` + strings.Repeat("a.", 120) + `a.bulk.example>`, `<x@` + strings.Repeat("a.", 121) + `a.bulk.example>`,
	`<` + strings.Repeat("x", 300) + `@bulk.example>`, `<` + strings.Repeat("x", 300) + `@bulk.example@>`,
	`<promo@shop.example>`, `<promo@shop.example@>`, `<"promo"@shop.example@@>`, `<promo@shop.example.>`, `<pro\mo@shop.example>`, `<promo%shop.example>`, `<shop.example!promo>`,
	`<promo @ shop.example>`, `<promo@(x)shop.example>`, `<promo@"shop.example">`, "<\x01promo@shop.example>", `<promo@mx.shop.example>`, `<x@shop.example@>`,
}

// What a real Postfix takes from a client and its own access table refuses is refused
// by every door of blockd, and no door refuses a sender at a domain that is not listed.
func TestEveryDoorRefusesWhatPostfixsTableRefuses(t *testing.T) {
	milter := e2e.FreeAddress(t)
	a := configureAsked(t, e2e.Setup{
		Milter: fmt.Sprintf("listen = %q", milter),
		Lists:  "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", Files: map[string]string{"bad.txt": "bulk.example\npromo@shop.example\n"},
	})
	table := testkit.File(t, "access", "bulk.example REJECT\npromo@shop.example REJECT\n")
	patient := []string{"smtpd_error_sleep_time=0", "smtpd_soft_error_limit=1000000", "smtpd_hard_error_limit=1000000", "smtpd_junk_command_limit=1000000"}
	behind := func(option string) *e2e.Client {
		return e2e.DialSMTP(t, e2e.StartPostfix(t, e2e.FreeAddress(t), append(patient, option)...).SMTP)
	}
	sender := func(what string) string { return e2e.Restrictions("smtpd_sender_restrictions", what) }
	judge := behind(sender("check_sender_access texthash:" + table))
	a.Start(t)
	doors := map[string]*e2e.Client{"policy": behind(sender(a.senders("policy"))), "socketmap": behind(sender(a.senders("socketmap"))),
		"tcp": behind(sender(a.senders("tcp"))), "milter": behind("smtpd_milters=inet:" + milter)}
	say := func(c *e2e.Client, path string) string {
		reply := c.Command("%s", "MAIL FROM:"+path)
		if strings.HasPrefix(reply, "250") {
			reply = c.Command("RCPT TO:<bob@here.example>")
		}
		c.Command("RSET")
		return reply
	}
	const refusal = "Sender address rejected: "
	hold := func(path string) (refused bool) {
		if refused = strings.Contains(say(judge, path), refusal); !refused {
			return false
		}
		for door, c := range doors {
			if got := say(c, path); !strings.Contains(got, refusal+"listed in bad") {
				t.Errorf("%s: Postfix's own table refuses %q, and here it hears %q", door, path, got)
			}
		}
		inner := strings.TrimSuffix(strings.TrimPrefix(path, "<"), ">") // as a program has it
		if _, answer := a.Get("/v1/check?sender=" + strings.ReplaceAll(url.QueryEscape(inner), "+", "%20")); !strings.Contains(answer, `"verdict":"blocked"`) {
			t.Errorf("http: Postfix's own table refuses %q, and here it is %.200s", path, answer)
		}
		filter := e2e.DialSMTP(t, a.SMTP) // anew: it ends a session of too many errors
		defer filter.Conn.Close()
		testkit.Begins(t, fmt.Sprintf("smtp: Postfix's own table refuses %q", path), say(filter, path), "5")
		return true
	}
	passes := func(path string) {
		path = strings.ReplaceAll(path, "example", "test")
		for door, c := range doors {
			if got := say(c, path); strings.Contains(got, "listed in") {
				t.Errorf("%s: %q, which is in no list, hears %q", door, path, got)
			}
		}
	}

	n := 0
	for _, path := range oddPaths {
		if hold(path) {
			n++
		}
		passes(path)
	}
	if n < 60 {
		t.Errorf("Postfix's table refuses %d spellings, want 60 at least: the test asks the wrong ones", n)
	}
	// Every octet at every place.
	swept := 0
	for _, path := range []string{"<x@bulk.example>", "<promo@shop.example>", "<x@a.bulk.example@>"} {
		for at := 1; at < len(path); at++ {
			for c := 1; c < 0x80; c++ {
				if c == '\r' || c == '\n' || c >= 'b' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '1' && c <= '9' {
					continue
				}
				if hold(path[:at] + string(rune(c)) + path[at:]) {
					swept++
				}
			}
		}
	}
	t.Logf("%d of %d spellings, and %d of a sweep, are refused by Postfix's own table", n, len(oddPaths), swept)
}
