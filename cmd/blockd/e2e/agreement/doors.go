package agreement

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/d--j/go-milter"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/transaction"
)

// AskSMTP sends the case as a message through the filter, and looks where it went.
func (a *Agreement) AskSMTP(t *testing.T, c *transaction.Case, d *e2e.Daemon, text string) (got []transaction.Outcome) {
	conn, r := e2e.DialRaw(t, d.SMTP)
	s := &e2e.Client{T: t, Conn: conn, R: r}
	family, self := "TCP4", "127.0.0.1"
	if c.Client.Is6() {
		family, self = "TCP6", "::1"
	}
	s.Write(fmt.Appendf(nil, "PROXY %s %s %s 40000 25\r\n", family, c.Client, self))
	s.Reply()
	s.Command("EHLO %s", c.Helo)
	if c.Login != "" {
		e2e.MustBegin(t, "STARTTLS", s.Command("STARTTLS"), "220")
		s.Conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // the certificate is the test's own
		s.R = bufio.NewReader(s.Conn)
		s.Command("EHLO %s", c.Helo)
		e2e.MustBegin(t, "AUTH", s.Command("AUTH PLAIN %s", base64.StdEncoding.EncodeToString([]byte("\x00"+c.Login+"\x00secret"))), "235")
	}
	if got, ok := SayEnvelope(s, c); !ok {
		return got
	} else {
		if Taken(got) {
			e2e.MustBegin(t, "DATA", s.Command("DATA"), "354")
			s.Write(e2e.Stuffed([]byte(text)))
			reply := s.Command(".")
			if o := OutcomeOf(reply); o.Word != "accept" {
				return AtTheEnd(got, o)
			}
		}
		s.Command("QUIT")
		for i := range got {
			if got[i].Word == "accept" {
				got[i] = a.wentTo(t, c.Recipients[i].Address, d.Path("aside"))
			}
		}
		return got
	}
}

// SayEnvelope says MAIL and each RCPT. It reports false if MAIL was refused, and
// so every recipient.
func SayEnvelope(s *e2e.Client, c *transaction.Case) (got []transaction.Outcome, ok bool) {
	parameter := ""
	if !IsASCII(c.Sender) {
		parameter = " SMTPUTF8"
	}
	if reply := s.Command("%s", "MAIL FROM:<"+c.Sender+">"+parameter); !strings.HasPrefix(reply, "250") {
		for range c.Recipients {
			got = append(got, OutcomeOf(reply))
		}
		return got, false
	}
	for _, r := range c.Recipients {
		got = append(got, OutcomeOf(s.Command("%s", "RCPT TO:<"+r.Address+">")))
	}
	return got, true
}

func IsASCII(s string) bool { return utf8.RuneCountInString(s) == len(s) }

func Taken(all []transaction.Outcome) bool {
	for _, o := range all {
		if o.Word == "accept" {
			return true
		}
	}
	return false
}

// wentTo finds the message of a recipient: upstream, with a tag or without one, or
// in quarantine.
func (a *Agreement) wentTo(t *testing.T, recipient, aside string) transaction.Outcome {
	for _, m := range a.Upstream.Load().Messages() {
		for _, line := range m.Rcpt {
			if !strings.Contains(line, "<"+recipient+">") {
				continue
			}
			if tag := Tagged.FindSubmatch(m.Data); bytes.Contains(m.Data, []byte("X-Blockd: ")) && tag != nil {
				return transaction.Outcome{Word: "tag", List: string(tag[1])}
			}
			return transaction.Outcome{Word: "accept"}
		}
	}
	for _, path := range e2e.Messages(t, aside) {
		text := testkit.Read(t, path)
		if tag := Tagged.FindSubmatch(text); tag != nil && bytes.Contains(text, []byte(recipient)) {
			return transaction.Outcome{Word: "quarantine", List: string(tag[1])}
		}
	}
	return transaction.Outcome{Word: "?", List: "250, and nowhere"}
}

// AskPolicy asks as Postfix does, once for each recipient on one connection.
func (a *Agreement) AskPolicy(t *testing.T, c *transaction.Case) (got []transaction.Outcome) {
	conn, r := e2e.DialRaw(t, a.Policy)
	tag := transaction.Outcome{}
	for _, to := range c.Recipients {
		fmt.Fprintf(conn, "request=smtpd_access_policy\nprotocol_state=RCPT\nprotocol_name=ESMTP\nhelo_name=%s\nqueue_id=\nsender=%s\n"+
			"recipient=%s\nclient_address=%s\nsasl_username=%s\ninstance=1.2.3\n\n",
			c.Helo, transaction.Internal(c.Sender), transaction.Internal(to.Address), c.Client, c.Login)
		line, err := r.ReadString('\n')
		if empty, err2 := r.ReadString('\n'); err != nil || err2 != nil || empty != "\n" {
			t.Fatalf("policy: %q, %q, %v", line, empty, err)
		}
		o := outcomeOfAction(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "action="))
		switch {
		case o.Word == "tag":
			tag = o
		case o.Word == "accept" && tag.Word != "":
			o = tag // the field is in the message, and once is enough
		}
		got = append(got, o)
	}
	return got
}

// AskMilter plays the mail server's part with a client that is not ours.
func (a *Agreement) AskMilter(t *testing.T, c *transaction.Case, text string) (got []transaction.Outcome) {
	macros := milter.NewMacroBag()
	macros.Set(milter.MacroMTAFQDN, "mail.here.example")
	if c.Login != "" {
		macros.Set(milter.MacroAuthAuthen, c.Login)
	}
	s := testkit.Value(milter.NewClient("tcp", a.Milter).Session(macros))(t)
	defer s.Close()
	must := func(action *milter.Action, err error) *milter.Action {
		t.Helper()
		if err != nil {
			t.Fatalf("milter: %v", err)
		}
		return action
	}
	family := milter.FamilyInet
	if c.Client.Is6() {
		family = milter.FamilyInet6
	}
	must(s.Conn(c.Helo, family, 40000, c.Client.String()))
	must(s.Helo(c.Helo))
	_, address, routed := strings.Cut(c.Sender, ":")
	if !routed || !strings.HasPrefix(c.Sender, "@") {
		address = c.Sender
	}
	macros.Set(milter.MacroMailAddr, address)
	reply := func(action *milter.Action) transaction.Outcome {
		switch action.Type {
		case milter.ActionContinue, milter.ActionAccept:
			return transaction.Outcome{Word: "accept"}
		case milter.ActionRejectWithCode:
			return OutcomeOf(strings.TrimSpace(action.SMTPReply))
		}
		return transaction.Outcome{Word: "?", List: fmt.Sprint(action)}
	}
	if action := must(s.Mail(c.Sender, "")); action.Type != milter.ActionContinue {
		for range c.Recipients {
			got = append(got, reply(action))
		}
		return got
	}
	for _, r := range c.Recipients {
		macros.Set(milter.MacroRcptAddr, r.Address)
		got = append(got, reply(must(s.Rcpt(r.Address, ""))))
	}
	if !Taken(got) {
		return got
	}
	must(s.DataStart())
	header, body, _ := strings.Cut(text, "\r\n\r\n")
	for _, field := range regexp.MustCompile(`\r\n(?:\b)`).Split(header, -1) {
		name, value, _ := strings.Cut(field, ":")
		must(s.HeaderField(name, strings.ReplaceAll(value, "\r\n", "\n"), nil))
	}
	must(s.HeaderEnd())
	changes, action, err := s.BodyReadFrom(strings.NewReader(body))
	must(action, err)
	if action.Type == milter.ActionRejectWithCode {
		return AtTheEnd(got, reply(action))
	}
	how := transaction.Outcome{Word: "accept"}
	for _, change := range changes {
		if tag := Tagged.FindStringSubmatch(change.HeaderValue); tag != nil {
			how = transaction.Outcome{Word: "tag", List: tag[1]}
		}
		if change.Type == milter.ActionQuarantine {
			how = transaction.Outcome{Word: "quarantine"}
			if list := regexp.MustCompile(`(?:listed in |list=)([\w.-]+)`).FindStringSubmatch(change.Reason); list != nil {
				how.List = list[1]
			}
		}
	}
	if action.Type == milter.ActionDiscard { // says no more than that
		how = transaction.Outcome{Word: "discard", List: c.Lists[0].Name}
	}
	for i := range got {
		if got[i].Word == "accept" {
			got[i] = how
		}
	}
	return got
}

// key is the sender as Postfix looks it up.
func key(c *transaction.Case) string {
	if c.Sender == "" {
		return "<>"
	}
	return strings.ToLower(transaction.Internal(c.Sender))
}

func (a *Agreement) askSocketmap(t *testing.T, c *transaction.Case) transaction.Outcome {
	conn, r := e2e.DialRaw(t, a.Socketmap)
	request := "senders " + key(c)
	fmt.Fprintf(conn, "%d:%s,", len(request), request)
	length := 0
	if _, err := fmt.Fscanf(r, "%d:", &length); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, length+1)
	if _, err := io.ReadFull(r, text); err != nil {
		t.Fatal(err)
	}
	switch status, data, _ := strings.Cut(string(text[:length]), " "); status {
	case "NOTFOUND":
		return transaction.Outcome{Word: "accept"}
	case "OK":
		return outcomeOfAction(data)
	case "TEMP":
		return OutcomeOf("450 4.3.0 " + data)
	}
	return transaction.Outcome{Word: "?", List: string(text)}
}

func (a *Agreement) askTCP(t *testing.T, c *transaction.Case) transaction.Outcome {
	conn, r := e2e.DialRaw(t, a.TCP)
	fmt.Fprintf(conn, "get %s\n", url.PathEscape(key(c))) // encodes more than it must
	line := testkit.Value(r.ReadString('\n'))(t)
	code, encoded, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	data := testkit.Value(url.PathUnescape(encoded))(t)
	switch code {
	case "500":
		return transaction.Outcome{Word: "accept"}
	case "200":
		return outcomeOfAction(data)
	case "400":
		return OutcomeOf("450 4.3.0 " + data)
	}
	return transaction.Outcome{Word: "?", List: line}
}

// askHTTP compares the verdict, and the list of the entry that decided.
func askHTTP(t *testing.T, c *transaction.Case, d *e2e.Daemon) string {
	status, body := d.Get("/v1/check?sender=" + strings.ReplaceAll(url.QueryEscape(c.Sender), "+", "%20") + "&client=" + c.Client.String())
	var answer struct {
		Verdict string
		Matches []struct{ List, Action, Mode string }
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != 200 {
		t.Fatalf("http: %d %s", status, body)
	}
	got := answer.Verdict
	for _, m := range answer.Matches {
		if m.Mode == "" && strings.HasPrefix(m.Action, "allow") == (answer.Verdict == "allowed") {
			got += " " + m.List
			break
		}
	}
	if got != c.Verdict {
		t.Errorf("http: %s, want %s", got, c.Verdict)
	}
	return answer.Verdict
}
