package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"blockd/access"
	"blockd/certificate"
	"blockd/httpapi"
	"blockd/internal/term"
	"blockd/machine"
	"blockd/smtpfilter/upstream"
)

func newConfig() *cobra.Command {
	var path string
	var check, effective, defaults bool
	cmd := &cobra.Command{
		Use:   "config [-c config.toml] --check | --effective | --defaults",
		Short: "check a configuration, or print the values in force",
		Long: `Check a configuration and report every fault in one go, each with its line, and
what is allowed but worth a second thought. Nothing is started and nothing is
changed. Ends with 0 when the file can be used, 1 when it has a fault.

--effective prints the values in force, what the file leaves out included, with
paths as blockd will open them. --defaults prints what an empty file means. Both
print TOML that can be loaded again.`,
		Example: `  blockd config --check -c /etc/blockd/config.toml
  blockd config --effective
  blockd config --defaults >config.toml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n := count(check, effective, defaults); n != 1 {
				return usagef("want one of --check, --effective and --defaults")
			}
			if defaults {
				if err := printConfig(cmd.OutOrStdout(), Default()); err != nil {
					return err
				}
				return printProtected(cmd.OutOrStdout(), nil)
			}
			if effective {
				c, err := load(path)
				if err != nil {
					return err
				}
				if err := printConfig(cmd.OutOrStdout(), c); err != nil {
					return err
				}
				return printProtected(cmd.OutOrStdout(), c.ownDomains())
			}
			c, err := loadToServe(path)
			if err != nil {
				return err
			}
			return printWarnings(cmd.OutOrStdout(), path, c, c.closedLists(cmd.Context()))
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().BoolVar(&check, "check", false, "report every fault and warning")
	cmd.Flags().BoolVar(&effective, "effective", false, "print the values in force")
	cmd.Flags().BoolVar(&defaults, "defaults", false, "print the values of an empty file")
	return cmd
}

func count(flags ...bool) int {
	n := 0
	for _, f := range flags {
		if f {
			n++
		}
	}
	return n
}

func printConfig(w io.Writer, c Config) error {
	enc := toml.NewEncoder(w)
	enc.SetIndentTables(false)
	return enc.Encode(c)
}

// closedLists are the lists that this user may read and the daemon's may not.
func (c Config) closedLists(ctx context.Context) (w []string) {
	u, _, err := c.daemonUser(ctx)
	if err != nil || u.UID == os.Geteuid() {
		return nil // warnings has said it
	}
	for _, l := range c.Lists {
		if closed := l.closedTo(u); closed != "" {
			w = append(w, fmt.Sprintf("list %q: closed to the daemon: %s", l.Name, closed))
		}
	}
	return w
}

func printWarnings(w io.Writer, path string, c Config, more []string) error {
	warnings := append(c.warnings(), more...)
	for _, text := range warnings {
		if _, err := fmt.Fprintf(w, "%s: warning: %s\n", path, text); err != nil {
			return err
		}
	}
	for _, text := range c.sampleReplies() {
		if _, err := fmt.Fprintf(w, "%s: %s\n", path, text); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s: good, %s, %s\n", path, term.Counted(len(c.Lists), "list"), term.Counted(len(warnings), "warning"))
	return err
}

// inspect looks at the machine for what would keep the daemon from starting.
func (c Config) inspect() Faults {
	var f Faults
	if own := c.HTTP.ownToken(); own != "" {
		if _, err := httpapi.ReadToken(own); err != nil {
			f.add("http.token_file", "%v", err)
		}
	}
	if c.SMTP.TLSCert != "" {
		if _, err := certificate.Open(c.SMTP.TLSCert, c.SMTP.TLSKey, slog.New(slog.DiscardHandler)); err != nil {
			f.add("smtp.tls_cert", "%v", err)
		}
	}
	if c.HTTP.TLSCert != "" {
		if _, err := certificate.Open(c.HTTP.TLSCert, c.HTTP.TLSKey, slog.New(slog.DiscardHandler)); err != nil {
			f.add("http.tls_cert", "%v", err)
		}
	}
	if _, err := c.SMTP.upstreamTrust(); err != nil {
		f.add("smtp.upstream_tls_ca", "%v", err)
	}
	return f
}

// settingWarnings are what c allows and its administrator may not mean, a line each.
func (c Config) settingWarnings() []string {
	var w []string
	warn := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }

	if c.SMTP.RejectAt == "mail" && len(c.SMTP.RecipientsExempt) > 0 {
		warn(`smtp.reject_at = "mail" refuses before a recipient is known: smtp.recipients_exempt has no effect`)
	}
	up, err := parseUpstream(c.SMTP.Upstream)
	if err != nil {
		return append(w, err.Error())
	}
	if up.scheme == "smtp" && c.SMTP.ClientInfo == "none" {
		warn("smtp.client_info = \"none\": %s sees every client as this machine; it must trust this machine with nothing", up.address)
	}
	if host, _, err := net.SplitHostPort(up.address); c.SMTP.UpstreamTLS != upstream.TLSNone && err == nil && c.SMTP.UpstreamTLSName == "" &&
		len(c.SMTP.UpstreamTLSPin) == 0 && net.ParseIP(host) != nil {
		warn("smtp.upstream_tls: the certificate of %s must name this address; else set smtp.upstream_tls_name or smtp.upstream_tls_pin", host)
	}
	if c.SMTP.AllowOpenUpstream {
		warn("smtp.allow_open_upstream: the open-relay test of the upstream is switched off")
	}
	for _, door := range []struct{ key, address string }{{"smtp.listen", c.SMTP.Listen}, {"smtp.tls_listen", c.SMTP.TLSListen}} {
		if up.scheme == "maildir" && door.address != "" && !onLoopback(door.address) {
			warn("%s %s with a maildir: upstream: whoever reaches it can fill %s", door.key, door.address, term.Path(up.address))
		}
	}
	if _, text := c.Index.Memory.within(machine.Memory()); text != "" {
		warn("%s", text)
	}
	w = append(w, c.clientWarnings()...)
	w = append(w, c.matchWarnings()...)
	w = append(w, c.authWarnings()...)
	w = append(w, c.milterWarnings()...)
	w = append(w, c.socketmapWarnings()...)
	w = append(w, c.HTTP.warnings()...)
	enforced := 0
	for _, l := range c.Lists {
		if l.Mode == "enforce" && l.Action == "block" {
			enforced++
		}
		if l.Discard {
			warn("list %q: discard = true: where a door can, its discard entries drop messages and nobody is told", l.Name)
		}
		w = append(w, l.gateWarnings()...)
	}
	if enforced == 0 {
		warn("no [[list]] blocks: nothing will be refused")
	}
	return w
}

// warnings are settingWarnings, and what is wrong with the files of lists.
func (c Config) warnings() []string {
	w := c.settingWarnings()
	for _, l := range c.Lists {
		if problem := l.lookAt(); problem != "" && !l.Optional {
			w = append(w, fmt.Sprintf("list %q: %s", l.Name, problem))
		}
	}
	return w
}

// lookAt says what is wrong with the files of l on this machine, "" if nothing is.
func (l List) lookAt() string {
	files, err := filepath.Glob(l.Path)
	if err != nil {
		return err.Error()
	}
	if len(files) == 0 {
		if closed := l.closedTo(access.Self()); closed != "" {
			return closed
		}
	}
	if len(files) == 0 && l.URL != "" {
		return term.Path(l.Path) + ": not fetched yet; until it is, the other lists filter"
	}
	if len(files) == 0 {
		return term.Path(l.Path) + ": no such file; until there is one, the other lists filter"
	}
	for _, path := range files {
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold us
		if err != nil {
			return err.Error()
		}
		info, err := f.Stat()
		f.Close()
		if err != nil {
			return err.Error()
		}
		if !info.Mode().IsRegular() {
			return term.Path(path) + ": not a regular file"
		}
	}
	return ""
}
