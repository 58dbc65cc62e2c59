package ldap

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/go-ldap/ldap/v3"

	"blockd/sources/mirror"
)

// classes are those of the result codes that are no fault of the query.
var classes = map[uint16]mirror.Class{
	ldap.LDAPResultTimeLimitExceeded:           mirror.ClassTruncated,
	ldap.LDAPResultSizeLimitExceeded:           mirror.ClassTruncated,
	ldap.LDAPResultAdminLimitExceeded:          mirror.ClassTruncated,
	ldap.LDAPResultAuthMethodNotSupported:      mirror.ClassAuth,
	ldap.LDAPResultStrongAuthRequired:          mirror.ClassAuth,
	ldap.LDAPResultConfidentialityRequired:     mirror.ClassAuth,
	ldap.LDAPResultInappropriateAuthentication: mirror.ClassAuth,
	ldap.LDAPResultInvalidCredentials:          mirror.ClassAuth,
	ldap.LDAPResultInsufficientAccessRights:    mirror.ClassAuth,
	ldap.LDAPResultAuthorizationDenied:         mirror.ClassAuth,
	ldap.LDAPResultNoSuchAttribute:             mirror.ClassSchema,
	ldap.LDAPResultUndefinedAttributeType:      mirror.ClassSchema,
	ldap.LDAPResultNoSuchObject:                mirror.ClassSchema,
	ldap.LDAPResultReferral:                    mirror.ClassRefused,
	ldap.LDAPResultBusy:                        mirror.ClassRefused,
	ldap.LDAPResultUnavailable:                 mirror.ClassRefused,
	ldap.LDAPResultUnwillingToPerform:          mirror.ClassRefused,
	ldap.LDAPResultLoopDetect:                  mirror.ClassRefused,
	ldap.LDAPResultOther:                       mirror.ClassRefused,
}

// hints say what may help.
var hints = map[uint16]string{
	ldap.LDAPResultTimeLimitExceeded:        "raise the time limit of this account, or index what the filter asks for",
	ldap.LDAPResultSizeLimitExceeded:        "raise the size limit of this account; of OpenLDAP, limits … size.prtotal=unlimited",
	ldap.LDAPResultAdminLimitExceeded:       "raise the limits of this account, or index what the filter asks for",
	ldap.LDAPResultStrongAuthRequired:       "want ldaps://, or the extension starttls",
	ldap.LDAPResultConfidentialityRequired:  "want ldaps://, or the extension starttls",
	ldap.LDAPResultInvalidCredentials:       "look at the name and the password of the URL; in a URL, % is written %25, and @ is %40",
	ldap.LDAPResultInsufficientAccessRights: "the account wants read and search on the base and on the attributes",
	ldap.LDAPResultNoSuchObject:             "there is no such base, or this account may not see it",
	ldap.LDAPResultReferral:                 "referrals are not followed: name the server that has the base",
}

// fault gives an error its class. w is the connection, nil if there is none. Texts of the server are shown, but never the password.
func (s *Source) fault(ctx context.Context, w *wire, doing string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	class, text := s.judge(w, doing, err)
	return &mirror.Error{Class: class, Err: fmt.Errorf("%s: %s", doing, text)}
}

func (s *Source) judge(w *wire, doing string, err error) (mirror.Class, string) {
	why := err
	if w != nil && w.why() != nil {
		why = w.why()
	}
	failed, coded := errors.AsType[*ldap.Error](err)
	_, unknown := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case coded && failed.ResultCode < ldap.ErrorNetwork:
		return s.judgeResult(failed)
	case errors.Is(why, os.ErrDeadlineExceeded):
		return mirror.ClassTimeout, fmt.Sprintf("no answer from %s in %v", s.where.address, s.timeout)
	case errors.Is(why, errTooLong), errors.Is(why, errTooMany):
		return mirror.ClassTruncated, why.Error()
	case unknown || strings.Contains(err.Error(), "x509: "):
		return mirror.ClassAuth, s.said(err.Error()) + "; hint: tls_ca=FILE names the authority"
	case doing == "search" && w != nil && w.why() != nil:
		return mirror.ClassTruncated, "the connection was cut: " + s.said(reason(why))
	case doing != "search" && isClosed(failed):
		return mirror.ClassUnreachable, "the server closed it"
	case coded || doing == "search":
		return mirror.ClassRefused, "the answer cannot be read: " + s.said(err.Error())
	}
	return mirror.ClassUnreachable, s.said(reason(why))
}

// isClosed reports whether the library says of its connection that the other side has closed it. It has no value of its own for that.
func isClosed(err *ldap.Error) bool {
	return err != nil && err.ResultCode == ldap.ErrorNetwork && err.Err != nil &&
		(err.Err.Error() == "ldap: connection closed" || err.Err.Error() == "ldap: response channel closed")
}

// reason is an error of a connection in words.
func reason(err error) string {
	if isEnd(err) {
		return "the server closed it"
	}
	return err.Error()
}

// judgeResult is about what the server has answered.
func (s *Source) judgeResult(failed *ldap.Error) (mirror.Class, string) {
	class, known := classes[failed.ResultCode]
	if !known {
		class = mirror.ClassQuery
	}
	text := fmt.Sprintf("%s (%d)", strings.ToLower(ldap.LDAPResultCodeMap[failed.ResultCode]), failed.ResultCode)
	if failed.Err != nil && failed.Err.Error() != "" {
		text += ": " + s.said(failed.Err.Error())
	}
	if hint := hints[failed.ResultCode]; hint != "" {
		text += "; hint: " + hint
	}
	return class, text
}

func (s *Source) said(text string) string { return mirror.Said(text, s.where.password) }
