package session

import (
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"blockd/internal/testkit"
	"blockd/internal/testkit/dialogue"
	"blockd/internal/testkit/script"
	"blockd/policy"
)

// TestOneLineADecision: a refusal and a finished message have one line each, with
// everything that an operator is asked for later.
func TestOneLineADecision(t *testing.T) {
	d := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{
		{Name: "bad", Entries: []string{"other.example", "bad.example"}},
		{Name: "trial", Kind: "shadow", Entries: []string{"trial.example"}},
		{Name: "good", Kind: "allow", Entries: []string{"friend@bad.example"}},
	}}
	checker := d.Checker(t)
	synctest.Test(t, func(t *testing.T) {
		server := &script.Server{}
		server.On("RCPT", "250 fine")
		server.On("RCPT", "550 5.1.1 no such user")
		r := newRig(server, checker, Settings{})
		r.logTo(slog.New(slog.NewJSONHandler(r.log, nil)))
		c := connect(t, r, t.Context())
		c.hello()
		c.want("MAIL FROM:<a@mx.bad.example>", "250")
		c.send("RCPT TO:<bob@here.example>\r\n")
		refusal := strings.TrimSuffix(c.reply(), "\r\n")
		c.want("RCPT TO:<abuse@here.example>", "250")
		c.want("RSET", "250")
		c.want("MAIL FROM:<a@trial.example>", "250")
		c.want("RCPT TO:<bob@here.example>", "550 5.1.1")
		c.want("RSET", "250")
		c.mail("friend@bad.example")
		c.want("DATA", "354")
		c.want("hello\r\n.", "250")
		c.quit()
		server.Wait()

		generation := checker.Ask(policy.Question{}).Generation
		want := []map[string]any{
			{"msg": "sender blocked", "door": "smtp", "client": "192.0.2.7", "port": 40000.0, "helo": "client.example", "sender": "a@mx.bad.example",
				"recipient": "bob@here.example", "list": "bad", "line": 2.0, "entry": "bad.example",
				"verdict": "blocked", "reply": refusal, "generation": generation},
			{"msg": "recipient exempt", "recipient": "abuse@here.example", "list": "bad", "entry": "bad.example"},
			{"msg": "sender would be blocked", "list": "trial", "line": 1.0},
			{"msg": "recipient refused upstream", "recipient": "bob@here.example", "upstream_reply": "550 5.1.1 no such user"},
			{"msg": "sender allowed", "list": "good", "entry": "friend@bad.example"},
			{"msg": "mail accepted", "client": "192.0.2.7", "port": 40000.0, "sender": "friend@bad.example", "recipients": 1.0, "octets": 10.0, "verdict": "allowed",
				"upstream_reply": "250 2.0.0 Ok: queued as SCRIPT", "generation": generation},
		}
		lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
		if len(lines) != len(want) {
			t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), r.log)
		}
		for i, line := range lines {
			var got map[string]any
			testkit.Must(t, json.Unmarshal([]byte(line), &got))
			for key, value := range want[i] {
				if got[key] != value {
					t.Errorf("line %d: %s = %v, want %v", i+1, key, got[key], value)
				}
			}
			if got["id"] != nil {
				continue // about the message, which has no reference
			}
			if ref, _ := got["ref"].(string); ref == "" || i == 0 && !strings.Contains(refusal, "(ref "+ref+")") {
				t.Errorf("line %d: ref = %q, reply %q", i+1, ref, refusal)
			}
		}
		for label, want := range map[string]float64{"refused": 1, "exempt": 1, "upstream-refused": 1, "accepted": 1} {
			if got := r.count(t, "blockd_smtp_recipients_total", label); got != want {
				t.Errorf("recipients{%s} = %v, want %v", label, got, want)
			}
		}
		if got := r.count(t, "blockd_smtp_messages_total", "accepted"); got != 1 {
			t.Errorf("messages{accepted} = %v, want 1", got)
		}
	})
}

// TestWhySessionsEndByAnEntry: the metric names the list, at RCPT as at the end of a
// message, whose own reply ends a session.
func TestWhySessionsEndByAnEntry(t *testing.T) {
	d := dialogue.Dialogue{Name: t.Name(), Match: map[string][]string{"bad": {"envelope", "from"}},
		Lists: []dialogue.List{{Name: "bad", Kind: "postfix", Entries: []string{"bulk.example 521 5.7.1 go away"}}}}
	for sender, dialogue := range map[string][]string{
		"a@bulk.example": {"RCPT TO:<bob@here.example>", "521"},
		"a@good.example": {"RCPT TO:<bob@here.example>", "250", "DATA", "354", "From: a@bulk.example\r\n\r\nhello\r\n.", "521"},
	} {
		r, c := begin(t, &script.Server{}, d.Checker(t), Settings{})
		c.want("MAIL FROM:<"+sender+">", "250")
		for i := 0; i < len(dialogue); i += 2 {
			c.want(dialogue[i], dialogue[i+1])
		}
		<-c.ended
		if got := r.count(t, "blockd_smtp_sessions_ended_total", "list"); got != 1 {
			t.Errorf("%s: sessions ended{list} = %v, want 1", sender, got)
		}
	}
}

// TestLogHasTheReplyThatTheClientHeard: also where one answer is for several recipients,
// and where the greeting is what refuses.
func TestLogHasTheReplyThatTheClientHeard(t *testing.T) {
	replies := func(r *rig) (all []string) {
		for line := range strings.Lines(r.log.String()) {
			var got struct{ Msg, Reply string }
			testkit.Must(t, json.Unmarshal([]byte(line), &got))
			if got.Msg == "sender blocked" {
				all = append(all, got.Reply)
			}
		}
		return all
	}
	d := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{{Name: "bad", Entries: []string{"[192.0.2.7]"}}}}
	r := newRig(&script.Server{}, d.Checker(t), Settings{ClientRejectAt: "connect"})
	r.logTo(slog.New(slog.NewJSONHandler(r.log, nil)))
	c := connect(t, r, t.Context())
	heard := strings.TrimSpace(c.reply())
	c.close()
	if got := replies(r); len(got) != 1 || got[0] != heard {
		t.Errorf("greeting %q, in the log %q", heard, got)
	}

	r = newRig(&script.Server{}, newPost(t, "x.example", "x.example", "dkim").checker, Settings{})
	r.logTo(slog.New(slog.NewJSONHandler(r.log, nil)))
	c = connect(t, r, t.Context())
	c.hello()
	c.mail("a@x.example")
	c.want("RCPT TO:<carol@here.example>", "250")
	heard = strings.TrimSpace(c.data(letter(t, "a@x.example", "", 10)))
	c.close()
	if got := replies(r); len(got) != 2 || got[0] != heard || got[1] != heard {
		t.Errorf("answer %q, in the log %q", heard, got)
	}
}

// TestLogHasWhatARecipientIsAnsweredForOtherReasons than a list's: it has that one line.
func TestLogHasWhatARecipientIsAnsweredForOtherReasons(t *testing.T) {
	d := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{{Name: "watch", Kind: "tag", Entries: []string{"watch.example"}}}}
	r, c := begin(t, &script.Server{}, d.Checker(t), Settings{Helo: "valid"})
	c.mail("a@watch.example")
	c.want("RCPT TO:<postmaster@here.example>", "452 4.5.3")
	c.want("EHLO -", "250")
	c.want("MAIL FROM:<a@good.example>", "250")
	c.want("RCPT TO:<carol@here.example>", "550 5.7.1 Helo")
	c.close()
	for recipient, want := range map[string]string{
		"postmaster": `msg="recipient put off" door=smtp .* recipient=postmaster@here.example .* reply="452 4.5.3 `,
		"carol":      `msg="recipient not taken" door=smtp .* recipient=carol@here.example reply="550 5.7.1 Helo `,
	} {
		if lines := regexp.MustCompile(`.* recipient=`+recipient+`@.*`).FindAllString(r.log.String(), -1); len(lines) != 1 || !regexp.MustCompile(want).MatchString(lines[0]) {
			t.Errorf("lines about %s: %q, want one like %s", recipient, lines, want)
		}
	}
}
