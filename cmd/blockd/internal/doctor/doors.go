package doctor

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/textproto"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/internal/access"
	"blockd/internal/term"
)

// doorTimeout is how long a door may take to speak, beside smtp.greet_wait.
const doorTimeout = 5 * time.Second

// seeUpstream is the hint of a door that takes no mail because of the next server.
const seeUpstream = "see upstream and upstream-relay: without the next server it takes no mail"

// doorChecks are the checks of each configured door: whether it can be reached and
// speaks, its certificate, and the access to its socket.
func (d *doctor) doorChecks() (checks []examination) {
	door := func(name, listen string, speak func(*doctor, net.Conn, *report) error) {
		if listen != "" {
			checks = append(checks, examination{"door-" + name, func(d *doctor, ctx context.Context, r *report) { d.checkDoor(ctx, r, listen, speak) }})
		}
	}
	// guarded is a door that turns clients away which are in none of the networks.
	guarded := func(name, key, listen string, networks []string, speak func(*doctor, net.Conn, *report) error) {
		if kept := keptOut(listen, networks); kept != "" {
			checks = append(checks, examination{"door-" + name, func(_ *doctor, _ context.Context, r *report) {
				r.ok("%s is not asked: %s keeps this machine out", kept, key)
			}})
		} else {
			door(name, listen, speak)
		}
	}
	socket := func(name, listen, group string) {
		if path, ok := strings.CutPrefix(listen, config.UnixPrefix); ok {
			checks = append(checks, examination{"socket-" + name, func(d *doctor, _ context.Context, r *report) {
				d.checkSocket(r, path, group, name != "http" && name != "resp")
			}})
		}
	}
	door("smtp", d.SMTP.Listen, (*doctor).speakSMTP)
	door("smtps", d.SMTP.TLSListen, (*doctor).speakSMTPS)
	if d.SMTP.Open() {
		checks = append(checks, examination{"tls-smtp", (*doctor).checkSMTPCertificate})
	}
	guarded("milter", "milter.allow_from", d.Milter.Listen, d.Milter.AllowFrom, (*doctor).speakMilter)
	socket("milter", d.Milter.Listen, d.Milter.SocketGroup)
	for _, service := range []struct {
		name, listen string
		speak        func(*doctor, net.Conn, *report) error
	}{{"policy", d.Postfix.PolicyListen, (*doctor).speakPolicy}, {"socketmap", d.Postfix.SocketmapListen, nil}, {"tcp", d.Postfix.TCPListen, nil}} {
		guarded(service.name, "postfix.allow_from", service.listen, d.Postfix.AllowFrom, service.speak)
		socket(service.name, service.listen, d.Postfix.SocketGroup)
	}
	if d.DNS.Open() {
		checks = append(checks, examination{"door-dns", (*doctor).checkZones})
	}
	guarded("resp", "resp.allow_from", d.RESP.Listen, d.RESP.AllowFrom, (*doctor).speakRESP)
	socket("resp", d.RESP.Listen, d.RESP.SocketGroup)
	if d.HTTP.Listen != "" {
		checks = append(checks, examination{"door-http", (*doctor).checkHTTP})
	}
	if d.Health.Listen != "" {
		checks = append(checks, examination{"door-health", (*doctor).checkHealth})
	}
	if path := d.HTTPSocket(); path != "" && len(path) <= config.MaxSocketPath {
		socket("http", config.UnixPrefix+path, d.HTTP.SocketGroup)
	}
	if d.HTTP.TLSCert != "" {
		checks = append(checks, examination{"tls-http", func(d *doctor, _ context.Context, r *report) {
			d.checkCertificateFiles(r, d.HTTP.TLSCert, d.HTTP.TLSKey)
		}})
	}
	return checks
}

// keptOut is where this machine would ask a door that turns it away, "" if it would not. An own address is asked from itself.
func keptOut(listen string, networks []string) string {
	at, err := netip.ParseAddrPort(control.Reachable(listen))
	if err != nil || slices.ContainsFunc(config.Networks(networks), func(n netip.Prefix) bool { return n.Contains(at.Addr().Unmap()) }) {
		return ""
	}
	return at.String()
}

// checkHealth asks the health door whether the daemon hangs. Whether it is ready, checkDaemon says.
func (d *doctor) checkHealth(ctx context.Context, r *report) {
	ctx, cancel := context.WithTimeout(ctx, doorTimeout)
	defer cancel()
	address := control.Reachable(d.Health.Listen)
	switch alive, err := control.Alive(ctx, d.Config); {
	case err != nil && !d.running: // which one line says, and not one for each door
		return
	case err != nil:
		r.fault("is the daemon running with this configuration?", "%v", err)
	case !alive:
		r.fault("restart it, and report it with its log: it hangs", "%s: /livez answers 503", address)
	default:
		r.ok("%s answers", address)
	}
}

// checkDoor connects to a door and lets speak talk to it; nil: a connection is enough.
func (d *doctor) checkDoor(ctx context.Context, r *report, listen string, speak func(*doctor, net.Conn, *report) error) {
	network, address := "tcp", control.Reachable(listen)
	if path, ok := strings.CutPrefix(listen, config.UnixPrefix); ok {
		network, address = "unix", path
	}
	conn, err := d.dial(ctx, network, address)
	switch {
	case err != nil && !d.running: // which one line says, and not one for each door
		return
	case err != nil && errors.Is(err, syscall.EACCES):
		r.warning("run blockd doctor as root", "%s: %v", address, control.Cause(err))
		return
	case err != nil:
		r.fault("is the daemon running with this configuration? Does a firewall stand in between?", "%s cannot be reached: %v", address, control.Cause(err))
		return
	}
	defer conn.Close()
	if !d.running {
		r.fault("see ss -ltnp: is it another program, or systemd, which waits for the daemon to be started?", "%s: no daemon answers, and something listens there", address)
		return
	}
	if speak == nil {
		r.ok("%s can be reached", address)
		return
	}
	if err := speak(d, conn, r); err != nil {
		hint := "see the daemon's log; is it blockd that listens there?"
		if strings.Contains(err.Error(), "421 4.") {
			hint = seeUpstream
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			hint = "the daemon is stopped or hangs: systemctl restart blockd"
		}
		r.fault(hint, "%s: %v", address, control.Cause(err))
	}
}

// dial connects to a door, which has so long to greet and speak.
func (d *doctor) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: doorTimeout}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(min(doorTimeout+time.Duration(d.SMTP.GreetWait), patience)))
}

// speakSMTP reads the greeting and what EHLO offers.
func (d *doctor) speakSMTP(conn net.Conn, r *report) error {
	offers, err := d.greeted(conn)
	if err != nil {
		return err
	}
	starttls := slices.Contains(offers, "STARTTLS")
	switch {
	case starttls:
		r.ok("%s greets and offers STARTTLS", conn.RemoteAddr())
	case d.SMTP.TLSCert != "":
		r.fault("see the daemon's log, and restart it if smtp.tls_cert is new", "%s offers no STARTTLS, though smtp.tls_cert is set", conn.RemoteAddr())
	default:
		r.ok("%s greets", conn.RemoteAddr())
	}
	return nil
}

// greeted begins an SMTP session and returns what EHLO offers. If the door takes this
// machine for a load balancer, greeted first says that the connection is its own.
func (d *doctor) greeted(conn net.Conn) (offers []string, err error) {
	if err := d.sayPROXY(conn); err != nil {
		return nil, err
	}
	text := textproto.NewConn(conn)
	if _, line, err := text.ReadResponse(220); err != nil {
		return nil, spoken(err, "its greeting", line)
	}
	if err := text.PrintfLine("EHLO doctor.invalid"); err != nil {
		return nil, err
	}
	_, lines, err := text.ReadResponse(250)
	if err != nil {
		return nil, spoken(err, "its answer to EHLO", lines)
	}
	for line := range strings.Lines(lines) {
		word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		offers = append(offers, strings.ToUpper(word))
	}
	return offers[min(1, len(offers)):], nil
}

// spoken adds to an error of textproto what was expected.
func spoken(err error, what, line string) error {
	if reply := (*textproto.Error)(nil); errors.As(err, &reply) {
		return fmt.Errorf("%s is %q", what, fmt.Sprintf("%d %s", reply.Code, line))
	}
	return fmt.Errorf("no %s: %w", strings.TrimPrefix(what, "its "), err)
}

// sayPROXY writes the PROXY header, if smtp.proxy_from demands it of this machine.
func (d *doctor) sayPROXY(conn net.Conn) error {
	nets := config.Networks(d.SMTP.ProxyFrom)
	local, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return nil //nolint:nilerr // a Unix socket has no proxies
	}
	for _, n := range nets {
		if n.Contains(local.Addr().Unmap()) {
			_, err := io.WriteString(conn, "PROXY UNKNOWN\r\n")
			return err
		}
	}
	return nil
}

func (d *doctor) speakSMTPS(conn net.Conn, r *report) error {
	if err := d.sayPROXY(conn); err != nil {
		return err
	}
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // whether it speaks TLS; checkCertificate judges the certificate
	text := textproto.NewConn(secure)
	if _, line, err := text.ReadResponse(220); err != nil {
		return spoken(err, "its greeting", line)
	}
	r.ok("%s greets within TLS", conn.RemoteAddr())
	return nil
}

// speakMilter begins a session as a mail server does.
func (d *doctor) speakMilter(conn net.Conn, r *report) error {
	options := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 13, 'O'}, 6)
	options = binary.BigEndian.AppendUint32(options, 0x1ff)
	options = binary.BigEndian.AppendUint32(options, 0x1fffff)
	if _, err := conn.Write(options); err != nil {
		return err
	}
	var answer [5]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return fmt.Errorf("no answer to a mail server's options (does milter.allow_from let %s in?): %w", conn.LocalAddr(), err)
	}
	if answer[4] != 'O' {
		return fmt.Errorf("no milter answers there: %q", answer[:])
	}
	// The rest, and a farewell, as a mail server has them: a connection that is closed with unread input is reset, of
	// which the daemon warns.
	io.CopyN(io.Discard, conn, min(int64(binary.BigEndian.Uint32(answer[:]))-1, 1<<10))
	io.WriteString(conn, "\x00\x00\x00\x01Q")
	r.ok("%s speaks the milter protocol", conn.RemoteAddr())
	return nil
}

// speakPolicy asks about a state in which nothing is decided.
func (d *doctor) speakPolicy(conn net.Conn, r *report) error {
	if _, err := io.WriteString(conn, "request=smtpd_access_policy\nprotocol_state=HELO\nprotocol_name=ESMTP\nclient_address=127.0.0.1\nhelo_name=doctor.invalid\n\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(io.LimitReader(conn, 4096)).ReadString('\n')
	if err != nil {
		return fmt.Errorf("no answer to a question of Postfix (does postfix.allow_from let %s in?): %w", conn.LocalAddr(), err)
	}
	if !strings.HasPrefix(line, "action=") {
		return fmt.Errorf("no policy service answers there: %q", line)
	}
	r.ok("%s answers as a policy service", conn.RemoteAddr())
	return nil
}

// checkHTTP asks at http.listen itself: other commands take the socket first.
func (d *doctor) checkHTTP(ctx context.Context, r *report) {
	byTCP := d.Config
	byTCP.HTTP.Socket = config.None
	ctx, cancel := context.WithTimeout(ctx, doorTimeout)
	defer cancel()
	address := control.Reachable(d.HTTP.Listen)
	status, _, err := control.Text(ctx, byTCP, "/healthz")
	switch {
	case err != nil && !d.running: // which one line says, and not one for each door
		return
	case err != nil:
		r.fault("is the daemon running with this configuration?", "%v", err)
	case status != http.StatusOK:
		r.fault("is it blockd that listens there?", "%s: /healthz answers %d", address, status)
	default:
		r.ok("%s answers", address)
	}
}

// checkSocket looks at the owner and mode of a Unix socket. mail says that a mail server
// is to open it.
func (d *doctor) checkSocket(r *report, path, group string, mail bool) {
	gid := -1
	if group != "" {
		var err error
		if gid, err = daemon.GroupID(group); err != nil {
			r.fault("make the group, or set socket_group to one that is there", "socket_group: %v", err)
			return
		}
		if d.user.UID != 0 && !slices.Contains(d.user.Groups, gid) && !heldFor(d.user, path) {
			r.fault(fmt.Sprintf("usermod -aG %s %s, and restart the daemon", group, d.user), "%s is not in the group %s, and can give it no socket", d.user, group)
			return
		}
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if d.running {
			r.fault("restart the daemon; who removes files there?", "%s is not there", term.Path(path))
		}
		return
	} else if err != nil {
		r.warning("run blockd doctor as root", "%v", err)
		return
	}
	owner, _ := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode().Type() != fs.ModeSocket:
		r.fault("remove it, and restart the daemon", "%s is no socket", term.Path(path))
	case info.Mode().Perm() != daemon.SocketMode:
		r.warning("restart the daemon", "%s has the mode %04o, and the daemon makes it with %04o", term.Path(path), info.Mode().Perm(), daemon.SocketMode)
	case owner != nil && gid >= 0 && int(owner.Gid) != gid:
		r.warning("restart the daemon", "%s is not of the group %s", term.Path(path), group)
	default:
		if mail && (group == "" || group == "postfix") && d.closedToPostfix(r, path) {
			return
		}
		r.ok("%s: mode %04o%s", term.Path(path), daemon.SocketMode, groupOf(owner))
	}
}

func groupOf(owner *syscall.Stat_t) string {
	if owner == nil {
		return ""
	}
	if g, err := user.LookupGroupId(strconv.Itoa(int(owner.Gid))); err == nil {
		return ", group " + g.Name
	}
	return fmt.Sprintf(", group %d", owner.Gid)
}

// closedToPostfix reports a Postfix of this machine that may not open a socket for
// mail servers.
func (d *doctor) closedToPostfix(r *report, path string) bool {
	mta, err := user.Lookup("postfix")
	if err != nil {
		return false // the mail server is another one
	}
	uid, _ := strconv.Atoi(mta.Uid)
	gid, _ := strconv.Atoi(mta.Gid)
	var denied *access.Denied
	if !errors.As(access.ByID(uid, gid).Check(path, access.Write), &denied) {
		return false
	}
	r.warning(`set socket_group = "postfix", and open the folders above to it`, "Postfix cannot connect: %v", denied)
	return true
}

// The time before the end of a certificate from which on it is reported.
const certificateNotice = 14 * 24 * time.Hour

// checkSMTPCertificate judges the certificate that clients are shown, or would be.
func (d *doctor) checkSMTPCertificate(ctx context.Context, r *report) {
	if d.SMTP.TLSCert == "" {
		if config.OnLoopback(d.SMTP.Listen) {
			r.ok("no TLS with clients: %s is loopback", d.SMTP.Listen)
		} else {
			r.warning("set smtp.tls_cert and smtp.tls_key", "%s offers no STARTTLS: mail comes as plain text", d.SMTP.Listen)
		}
		return
	}
	onDisk := d.checkCertificateFiles(r, d.SMTP.TLSCert, d.SMTP.TLSKey)
	if !d.running || onDisk == nil {
		return
	}
	shown, err := d.shownCertificate(ctx)
	switch {
	case err != nil && strings.Contains(err.Error(), "421 4."):
		r.fault(seeUpstream, "TLS with clients: %v", err)
	case err != nil:
		r.fault("see the daemon's log", "TLS with clients: %v", control.Cause(err))
	case !shown.Equal(onDisk):
		r.warning("the daemon looks at the files every 30 s; if this stays, see its log: certificate not taken up",
			"clients are shown another certificate than the file holds, until %s", shown.NotAfter.UTC().Format(time.DateOnly))
	default:
		r.ok("clients are shown the certificate of the file")
	}
}

// checkCertificateFiles judges a pair on disk, and returns its certificate.
func (d *doctor) checkCertificateFiles(r *report, cert, key string) *x509.Certificate {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		hint := "the certificate with its chain and its key, both PEM, must belong together"
		if errors.Is(err, fs.ErrPermission) {
			hint = "run blockd doctor as root or as the daemon's user"
		}
		r.fault(hint, "%v", err)
		return nil
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		r.fault("", "%s: %v", cert, err)
		return nil
	}
	if info, err := os.Stat(key); err == nil && info.Mode().Perm()&0o007 != 0 {
		r.warning("chmod o-rwx "+term.Path(key), "%s: all users of this machine may use the key (mode %04o)", term.Path(key), info.Mode().Perm())
	}
	judgeCertificate(r, term.Path(cert), leaf, d.now)
	return leaf
}

// judgeCertificate reports how long a certificate is valid.
func judgeCertificate(r *report, name string, leaf *x509.Certificate, now time.Time) {
	ends, left := leaf.NotAfter.UTC().Format(time.DateOnly), leaf.NotAfter.Sub(now)
	const renew = "renew it; the daemon takes the new files up by itself"
	switch {
	case left < 0:
		r.fault(renew, "%s: the certificate ended on %s", name, ends)
	case leaf.NotBefore.After(now):
		r.warning("is the clock of this machine right? Else wait, or take another one", "%s: the certificate does not hold before %s", name, leaf.NotBefore.UTC().Format(time.DateTime))
	case left < certificateNotice:
		r.warning(renew, "%s: the certificate ends on %s, in %s", name, ends, term.Span(left))
	default:
		r.ok("%s: the certificate ends on %s, in %s", name, ends, term.Span(left))
	}
}

// shownCertificate is the certificate that clients are shown, at the first door with TLS.
func (d *doctor) shownCertificate(ctx context.Context) (*x509.Certificate, error) {
	listen, implicit := d.SMTP.Listen, false
	if listen == "" {
		listen, implicit = d.SMTP.TLSListen, true
	}
	conn, err := d.dial(ctx, "tcp", control.Reachable(listen))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if implicit {
		err = d.sayPROXY(conn)
	} else {
		err = d.startTLS(conn)
	}
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // the certificate is what is asked for
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return secure.ConnectionState().PeerCertificates[0], nil
}

// startTLS says STARTTLS to a new connection.
func (d *doctor) startTLS(conn net.Conn) error {
	if _, err := d.greeted(conn); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "STARTTLS\r\n"); err != nil {
		return err
	}
	reply := make([]byte, 0, 512) // read octet by octet, because TLS follows
	for one := make([]byte, 1); len(reply) < cap(reply) && !strings.HasSuffix(string(reply), "\r\n"); reply = append(reply, one...) {
		if _, err := conn.Read(one); err != nil {
			return err
		}
	}
	if !strings.HasPrefix(string(reply), "220 ") {
		return fmt.Errorf("STARTTLS is answered by %q", strings.TrimSpace(string(reply)))
	}
	return nil
}
