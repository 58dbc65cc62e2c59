package milter_test

import (
	"testing"

	"blockd/internal/testkit"
	"blockd/milter"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// Which macros are asked for, by what the configuration needs: each stage's number and names, as
// libmilter writes them.
func TestMacrosByNeed(t *testing.T) {
	const (
		connect  = "\x00\x00\x00\x00j {client_addr}\x00"
		rcpt     = "\x00\x00\x00\x03{rcpt_addr}\x00"
		plain    = connect + "\x00\x00\x00\x02i {mail_addr}\x00" + rcpt
		andLogin = connect + "\x00\x00\x00\x02i {auth_authen} {mail_addr}\x00" + rcpt
	)
	requires := func(p verdict.Proof) map[string]rule.List { return map[string]rule.List{"allow": {Require: p}} }
	for name, tt := range map[string]struct {
		skip  bool
		rules map[string]rule.List
		want  string
	}{
		"who has logged in is asked as everybody": {false, nil, plain},
		"who has logged in is spared":             {true, nil, andLogin},
		"an exception requires auth":              {false, requires(verdict.AuthProof), andLogin},
		"an exception requires auth or spf":       {false, requires(verdict.AuthProof | verdict.SPFProof), andLogin},
		"an exception requires a network":         {false, requires(verdict.ClientProof), plain},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, setup{lists: map[string]string{"bad": "bad.example\n", "allow": "bad.example\n"}, rules: tt.rules,
				settings: milter.Settings{SkipAuthenticated: tt.skip}})
			testkit.Equal(t, "macros asked for", d.greet("192.0.2.1").macros, tt.want)
		})
	}
}

// A configuration that changes asks for its macros on the connections that begin from then on.
func TestMacrosAfterAReload(t *testing.T) {
	lists := map[string]string{"bad": "bad.example\n", "allow": "bad.example\n"}
	d := open(t, setup{lists: lists, rules: map[string]rule.List{"allow": {Require: verdict.ClientProof}}})
	before := d.greet("192.0.2.1")
	d.checker.Renew(policy.Settings{Lists: map[string]rule.List{"allow": {Require: verdict.AuthProof}}})
	testkit.Equal(t, "MAIL on the connection from before", before.mail("a@bad.example", "a@bad.example"), "c")
	if got := before.rcpt("bob@here.example"); !refused.MatchString(got) {
		t.Errorf("RCPT on the connection from before: %q", got)
	}
	after := d.greet("192.0.2.1")
	if after.macros == before.macros {
		t.Errorf("both connections were asked for %q", after.macros)
	}
	after.mail("a@bad.example", "a@bad.example", "{auth_authen}", "ann")
	testkit.Equal(t, "RCPT of who has logged in", after.rcpt("bob@here.example"), "c")
}
