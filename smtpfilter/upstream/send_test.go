package upstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestSend holds what goes out for a message of blockd's own, and what becomes of each recipient.
func TestSend(t *testing.T) {
	hello := script{"S: 220 hi", "C: EHLO us.example", "S: 250-them", "S: 250-SIZE 1000", "S: 250-8BITMIME", "S: 250-SMTPUTF8", "S: 250-CHUNKING", "S: 250 BINARYMIME"}
	plain := script{"S: 220 hi", "C: EHLO us.example", "S: 250 them"}
	lhlo := script{"S: 220 hi", "C: LHLO us.example", "S: 250 them"}
	quit := script{"C: QUIT", "S: 221 bye", "close"}
	text := "Subject: x\r\n\r\n.dot\r\n..\r\n"
	data := script{"C: DATA", "S: 354 go", "C: Subject: x", "C: ", "C: ..dot", "C: ...", "C: ."}
	one := []string{"a@here.example"}
	two := append(slices.Clone(one), "b@here.example")
	tests := []struct {
		name   string
		lmtp   bool
		mail   Mail
		script []script
		codes  []int
		ended  bool
		err    error
	}{
		{"taken", false, Mail{Sender: "s@there.example", Recipients: one},
			[]script{plain, {"C: MAIL FROM:<s@there.example>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok"}, data, {"S: 250 taken"}, quit}, []int{250}, true, nil},
		{"the null sender, and what was announced", false, Mail{Recipients: one, EightBit: true, UTF8: true},
			[]script{hello, {"C: MAIL FROM:<> SIZE=24 BODY=8BITMIME SMTPUTF8", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok"}, data, {"S: 250 taken"}, quit}, []int{250}, true, nil},
		{"one recipient refused", false, Mail{Recipients: two},
			[]script{plain, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 550 5.1.1 unknown", "C: RCPT TO:<b@here.example>", "S: 250 ok"}, data, {"S: 250 taken"}, quit}, []int{550, 250}, true, nil},
		{"all recipients refused", false, Mail{Recipients: two},
			[]script{plain, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 550 5.1.1 unknown", "C: RCPT TO:<b@here.example>", "S: 450 later"}, quit}, []int{550, 450}, false, nil},
		{"refused at its end", false, Mail{Recipients: two},
			[]script{plain, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok", "C: RCPT TO:<b@here.example>", "S: 250 ok"}, data, {"S: 554 spam"}, quit}, []int{554, 554}, true, nil},
		{"DATA refused", false, Mail{Recipients: two},
			[]script{plain, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok", "C: RCPT TO:<b@here.example>", "S: 550 no", "C: DATA", "S: 451 full"}, quit}, []int{451, 550}, false, nil},
		{"by LMTP each recipient by itself", true, Mail{Recipients: two},
			[]script{lhlo, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok", "C: RCPT TO:<b@here.example>", "S: 250 ok"}, data, {"S: 250 taken", "S: 452 4.2.2 full"}, quit}, []int{250, 452}, true, nil},
		{"by LMTP lost between two answers", true, Mail{Recipients: two},
			[]script{lhlo, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok", "C: RCPT TO:<b@here.example>", "S: 250 ok"}, data, {"S: 250 taken", "close"}}, nil, true, ErrUnsure},
		{"lost after its end", false, Mail{Recipients: one},
			[]script{plain, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok"}, data, {"close"}}, nil, true, ErrUnsure},
		{"lost before its end", false, Mail{Recipients: one},
			[]script{plain, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok", "C: DATA", "close"}}, nil, false, errAny},
		{"sender refused", false, Mail{Recipients: one}, []script{plain, {"C: MAIL FROM:<>", "S: 553 no", "close"}}, nil, false, errAny},
		{"it goes away", false, Mail{Recipients: one}, []script{plain, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 421 bye", "close"}}, nil, false, errAny},
		{"UTF-8 is not offered", false, Mail{Recipients: one, UTF8: true}, []script{plain, {"close"}}, nil, false, ErrCannotCarry},
		{"binary is not offered", false, Mail{Recipients: one, Binary: true}, []script{plain, {"close"}}, nil, false, ErrCannotCarry},
		{"binary", false, Mail{Recipients: one, Binary: true},
			[]script{hello, {"C: MAIL FROM:<> SIZE=24 BODY=BINARYMIME", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok", "C: BDAT 24", "C: Subject: x", "C: ", "C: .dot", "C: ..", "S: 250 so far", "C: BDAT 0 LAST", "S: 250 taken"}, quit}, []int{250}, true, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := Settings{Network: "tcp", Address: slices.Concat(tt.script...).listen(t), Hostname: "us.example"}
			if tt.lmtp {
				set.Protocol = LMTP
			}
			ended := false
			tt.mail.Message, tt.mail.Size = strings.NewReader(text), int64(len(text))
			tt.mail.End = func() error { ended = true; return nil }
			all, err := New(set).Send(t.Context(), tt.mail)
			switch {
			case tt.err == errAny && (err == nil || errors.Is(err, ErrUnsure)), tt.err != errAny && !errors.Is(err, tt.err):
				t.Errorf("error %v, want %v", err, tt.err)
			case ended != tt.ended:
				t.Errorf("End called: %v, want %v", ended, tt.ended)
			}
			var codes []int
			for i, o := range all {
				codes = append(codes, o.Reply.Code)
				if o.Recipient != tt.mail.Recipients[i] {
					t.Errorf("outcome %d is of %q", i, o.Recipient)
				}
			}
			if fmt.Sprint(codes) != fmt.Sprint(tt.codes) {
				t.Errorf("codes %v, want %v", codes, tt.codes)
			}
		})
	}
}

var errAny = errors.New("any but ErrUnsure")

// TestSendKeepsItsEnd holds that upstream does not get what would make the message its own when End fails.
func TestSendKeepsItsEnd(t *testing.T) {
	full := errors.New("no space left on device")
	s := script{"S: 220 hi", "C: EHLO us.example", "S: 250 them", "C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok",
		"C: DATA", "S: 354 go", "C: x: y"}
	d := New(Settings{Network: "tcp", Address: s.listen(t), Hostname: "us.example"})
	_, err := d.Send(t.Context(), Mail{Recipients: []string{"a@here.example"}, Message: strings.NewReader("x: y\r\n"), Size: 6, End: func() error { return full }})
	if !errors.Is(err, full) || errors.Is(err, ErrUnsure) {
		t.Errorf("error %v, want that of the disk alone", err)
	}
}
