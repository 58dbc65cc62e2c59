package migration

import (
	"regexp"
	"strings"
)

// The words of smtpd_*_restrictions (postconf(5)).

// phases are the restriction lists in the order in which Postfix asks them.
var phases = [...]string{
	"smtpd_client_restrictions", "smtpd_helo_restrictions", "smtpd_sender_restrictions", "smtpd_relay_restrictions",
	"smtpd_recipient_restrictions", "smtpd_data_restrictions", "smtpd_end_of_data_restrictions", "smtpd_etrn_restrictions",
}

// bare is what a table without a word before it is asked about, by the phase
// (compatibility with Postfix of before 2.0).
var bare = map[string]string{
	"smtpd_client_restrictions": "check_client_access", "smtpd_helo_restrictions": "check_helo_access",
	"smtpd_sender_restrictions": "check_sender_access", "smtpd_relay_restrictions": "check_recipient_access",
	"smtpd_recipient_restrictions": "check_recipient_access", "smtpd_etrn_restrictions": "check_etrn_access",
}

// checks are the restrictions that ask a table about what blockd does not look at, as far as
// checkedByDNS does not say it.
var checks = map[string]string{
	"check_ccert_access":                   "the client's certificate",
	"check_etrn_access":                    "ETRN",
	"check_helo_access":                    "the HELO name, which blockd has no lists for (smtp.helo = \"valid\" refuses names that are none)",
	"check_policy_service":                 "another program",
	"check_reverse_client_hostname_access": "the client's name, by DNS",
	"check_sasl_access":                    "the login name",
}

// checkedByDNS are the parts of check_WHOSE_WHAT_access: what DNS has for a name.
var (
	checkedByDNS = regexp.MustCompile(`^check_(client|reverse_client_hostname|helo|recipient|sender)_(a|mx|ns)_access$`)
	whose        = map[string]string{"client": "client's name", "reverse_client_hostname": "client's name", "helo": "HELO name",
		"recipient": "recipient's domain", "sender": "sender's domain"}
	served = map[string]string{"a": "addresses", "mx": "mail servers", "ns": "name servers"}
)

// asks says what else than senders, clients and recipients a restriction asks a table about,
// "" if it does not.
func asks(word string) string {
	if m := checkedByDNS.FindStringSubmatch(word); m != nil {
		return "the " + served[m[2]] + " of the " + whose[m[1]] + ", by DNS"
	}
	return checks[word]
}

// argued are the other restrictions that take a word: a zone of a DNS list, a time.
var argued = regexp.MustCompile(`^(reject_rbl_client|reject_rhsbl_(client|helo|recipient|reverse_client|sender)|permit_dnswl_client|permit_rhswl_client|sleep)$`)

// own are the restrictions that stay what they are: Postfix's. One that Postfix does not know
// either refuses, defers or lets pass as its name says.
var own = regexp.MustCompile(`^(reject|defer|permit)_|^sleep$`)

// ends tells the restrictions behind which nothing is asked, and why.
var ends = map[string]string{
	"permit": "lets pass whatever comes to it", "reject": "refuses whatever comes to it", "defer": "defers whatever comes to it",
	"permit_auth_destination": "lets pass all mail for this server's own recipients",
}

// stays says of a word of Postfix's own why it is not carried over.
func stays(word string) string {
	switch {
	case strings.Contains(word, "rbl") || strings.Contains(word, "dnswl") || strings.Contains(word, "rhswl"):
		return "blockd asks no DNS lists; it stays with Postfix"
	case strings.Contains(word, "_unknown_") || strings.Contains(word, "unverified"):
		return "blockd asks no DNS and calls nobody back; it stays with Postfix"
	case strings.HasSuffix(word, "unauth_destination"):
		return "who may relay is Postfix's to say, and blockd tests it at its start"
	}
	return "it is not about lists; it stays with Postfix"
}
