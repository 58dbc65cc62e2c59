package migration

import "strings"

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

// checks are the restrictions that ask a table about what blockd does not look at.
var checks = map[string]string{
	"check_ccert_access":                      "the client's certificate",
	"check_client_a_access":                   "the addresses of the client's name, by DNS",
	"check_client_mx_access":                  "the mail servers of the client's name, by DNS",
	"check_client_ns_access":                  "the name servers of the client's name, by DNS",
	"check_etrn_access":                       "ETRN",
	"check_helo_a_access":                     "the addresses of the HELO name, by DNS",
	"check_helo_access":                       "the HELO name, which blockd has no lists for (smtp.helo = \"valid\" refuses names that are none)",
	"check_helo_mx_access":                    "the mail servers of the HELO name, by DNS",
	"check_helo_ns_access":                    "the name servers of the HELO name, by DNS",
	"check_policy_service":                    "another program",
	"check_recipient_a_access":                "the addresses of the recipient's domain, by DNS",
	"check_recipient_mx_access":               "the mail servers of the recipient's domain, by DNS",
	"check_recipient_ns_access":               "the name servers of the recipient's domain, by DNS",
	"check_reverse_client_hostname_a_access":  "the addresses of the client's name, by DNS",
	"check_reverse_client_hostname_access":    "the client's name, by DNS",
	"check_reverse_client_hostname_mx_access": "the mail servers of the client's name, by DNS",
	"check_reverse_client_hostname_ns_access": "the name servers of the client's name, by DNS",
	"check_sasl_access":                       "the login name",
	"check_sender_a_access":                   "the addresses of the sender's domain, by DNS",
	"check_sender_mx_access":                  "the mail servers of the sender's domain, by DNS",
	"check_sender_ns_access":                  "the name servers of the sender's domain, by DNS",
}

// argued are the restrictions that take a word besides those of checks: a zone of a
// DNS list, a time.
var argued = map[string]bool{
	"reject_rbl_client": true, "reject_rhsbl_client": true, "reject_rhsbl_helo": true, "reject_rhsbl_recipient": true,
	"reject_rhsbl_reverse_client": true, "reject_rhsbl_sender": true, "permit_dnswl_client": true, "permit_rhswl_client": true, "sleep": true,
}

// plain are the restrictions without an argument that stay what they are: Postfix's.
var plain = map[string]bool{
	"defer_if_permit": true, "defer_if_reject": true, "defer_unauth_destination": true,
	"permit_inet_interfaces": true, "permit_mx_backup": true, "permit_naked_ip_address": true,
	"permit_tls_all_clientcerts": true, "permit_tls_clientcerts": true,
	"reject_invalid_helo_hostname": true, "reject_invalid_hostname": true, "reject_maps_rbl": true, "reject_multi_recipient_bounce": true,
	"reject_non_fqdn_helo_hostname": true, "reject_non_fqdn_hostname": true, "reject_non_fqdn_recipient": true, "reject_non_fqdn_sender": true,
	"reject_plaintext_session": true, "reject_sender_login_mismatch": true, "reject_authenticated_sender_login_mismatch": true,
	"reject_known_sender_login_mismatch": true, "reject_unauthenticated_sender_login_mismatch": true,
	"reject_unauth_destination": true, "reject_unauth_pipelining": true, "reject_unknown_address": true, "reject_unknown_client": true,
	"reject_unknown_client_hostname": true, "reject_unknown_forward_client_hostname": true, "reject_unknown_helo_hostname": true,
	"reject_unknown_hostname": true, "reject_unknown_recipient_domain": true, "reject_unknown_reverse_client_hostname": true,
	"reject_unknown_sender_domain": true, "reject_unlisted_recipient": true, "reject_unlisted_sender": true,
	"reject_unverified_recipient": true, "reject_unverified_sender": true,
}

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
