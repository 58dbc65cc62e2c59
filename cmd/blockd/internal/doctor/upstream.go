package doctor

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/smtpfilter/upstream"
)

// The time that the next server has for each step, within that of a check. It includes the
// server's own DNS at RCPT.
const (
	upstreamDial  = 4 * time.Second
	upstreamReply = 6 * time.Second
)

// upstreamChecks are the checks of the next server; none if blockd is only asked by the
// mail server.
func (d *doctor) upstreamChecks() []examination {
	if !d.SMTP.Open() {
		return nil
	}
	return []examination{{"upstream", (*doctor).checkUpstream}, {"upstream-relay", (*doctor).checkRelay}}
}

// nextServer is the daemon's own way to the next server, with shorter deadlines.
func (d *doctor) nextServer() (*upstream.Dialer, config.Upstream, error) {
	up, err := config.ParseUpstream(d.SMTP.Upstream)
	if err != nil || up.Scheme == "maildir" {
		return nil, up, err
	}
	set, err := d.SMTP.UpstreamSettings(up, cmp.Or(d.SMTP.Hostname, config.MachineName()))
	if err != nil {
		return nil, up, err
	}
	set.DialTimeout, set.TLSTimeout, set.ReplyTimeout = upstreamDial, upstreamReply, upstreamReply
	return upstream.New(set), up, nil
}

// checkUpstream opens a session with the next server, as the daemon's probe does, with TLS, EHLO
// and the client's identity.
func (d *doctor) checkUpstream(ctx context.Context, r *report) {
	next, up, err := d.nextServer()
	if err != nil {
		r.fault("", "smtp.upstream: %v", err)
		return
	}
	if next == nil {
		r.ok("%s: the daemon's own mailbox", d.SMTP.Upstream)
		return
	}
	if err := next.Probe(ctx); err != nil {
		r.fault(d.upstreamHint(err), "%s: %v", up.Address, dialled(err))
		return
	}
	caps, _ := next.Caps()
	r.ok("%s answers%s", up.Address, map[bool]string{true: " within TLS"}[caps.TLS])
	switch {
	case up.Scheme != "smtp":
	case d.SMTP.ClientInfo == upstream.ClientInfoXCLIENT:
		r.add(OK, "", "it takes XCLIENT: it knows who the client is")
	case d.SMTP.ClientInfo == upstream.ClientInfoPROXY:
		r.add(OK, "", "it takes a PROXY header: it knows who the client is")
	}
}

// dialled is the system's error of a failed connection, without the address, which the text
// already has.
func dialled(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return op.Err
	}
	return err
}

// upstreamHint returns what to do about an error of Probe.
func (d *doctor) upstreamHint(err error) string {
	var refused *upstream.RefusedError
	switch {
	case errors.Is(err, upstream.ErrNoXCLIENT), errors.As(err, &refused) && refused.Stage == "XCLIENT":
		return "on Postfix: -o smtpd_authorized_xclient_hosts=ADDRESS in master.cf, with the address that blockd comes from (docs/postfix.md)"
	case d.SMTP.ClientInfo == upstream.ClientInfoPROXY:
		return "does it run, and does this port of it take a PROXY header (Postfix: -o smtpd_upstream_proxy_protocol=haproxy; Exim: hosts_proxy)?"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "it hangs, or waits for a PROXY header that client_info does not send: look at its log"
	case d.SMTP.UpstreamTLS != upstream.TLSNone:
		return "does it run, and do upstream_tls and its certificate fit? See its log"
	}
	return "does it run and listen there? See its log"
}

// checkRelay asks the next server now what the daemon asks it each minute.
func (d *doctor) checkRelay(ctx context.Context, r *report) {
	next, up, err := d.nextServer()
	switch {
	case err != nil:
		return // checkUpstream says so
	case next == nil || !next.CanRelay():
		r.ok("%s takes mail and relays none", d.SMTP.Upstream)
		return
	}
	err = next.SelfTest(ctx)
	var undecided *upstream.UndecidedError
	switch {
	case err == nil:
		r.ok("%s does not relay for strangers", up.Address)
	case errors.Is(err, upstream.ErrOpenRelay) && d.SMTP.AllowOpenUpstream:
		r.warning("take smtp.allow_open_upstream out unless this server is a sink", "%s takes mail for anybody, and smtp.allow_open_upstream allows it", up.Address)
		return
	case errors.Is(err, upstream.ErrOpenRelay):
		r.fault("make it distrust blockd's address, or set smtp.client_info (docs/postfix.md)", "%s is an open relay: it takes mail for anybody from blockd's clients", up.Address)
	case errors.As(err, &undecided):
		r.warning(undecided.Hint(), "%s may be an open relay: %s: %v", up.Address, undecided.Reason(), undecided.Refused)
	default:
		r.fault(d.upstreamHint(err), "%s cannot be asked: %v", up.Address, dialled(err))
	}
	if d.SMTP.AllowOpenUpstream {
		r.warning("take it out, so that the daemon looks for itself", "smtp.allow_open_upstream is true: the daemon does not test %s", up.Address)
	}
}
