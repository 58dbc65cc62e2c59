// Package setup makes the first configuration, and knows what the mail server is to be told.
package setup

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"blockd/docs"
)

// Server is a mail server that blockd can filter for, or none.
type Server struct {
	Name string
	Ways []Way // how it can ask, the one to take first

	files []string // of an installed one, below /
}

// Way is how a mail server comes to ask blockd.
type Way struct {
	Name, What string

	client string // smtp.client_info
	group  string // of the mail server's user, who opens a Unix socket
	recipe string // its block of docs/cookbook.md
	place  string // where that goes, and what to do then
}

// Ways are named alike for all servers.
const (
	milter = "milter"
	policy = "policy"
	front  = "front"
	http   = "http"
)

const (
	knowsMost = "it knows most of a mail"
	takes25   = "blockd takes port 25"
)

// servers are all of them, those that one finds on a machine first.
var servers = []Server{
	{Name: "postfix", files: []string{"etc/postfix/main.cf"}, Ways: []Way{
		{Name: milter, What: knowsMost, group: "postfix", recipe: "main.cf milter", place: "At the end of /etc/postfix/main.cf; then: postfix reload"},
		{Name: policy, What: "beside a milter that must stay alone", group: "postfix", recipe: "main.cf policy", place: "In /etc/postfix/main.cf; then: postfix reload"},
		{Name: front, What: takes25, client: "xclient", recipe: "sh front", place: "Typed as root, which moves Postfix to 127.0.0.1:10025"},
	}},
	{Name: "exim", files: []string{"etc/exim4/exim4.conf.template", "etc/exim4/exim4.conf", "etc/exim/exim.conf"}, Ways: []Way{
		{Name: policy, What: "Exim's ACL asks", group: "Debian-exim", recipe: "exim4 acl", place: "As /etc/exim4/blockd, which CHECK_RCPT_LOCAL_ACL_FILE or .include names (docs/cookbook.md)"},
		{Name: front, What: takes25, client: "proxy-v2", recipe: "exim4 front", place: "In Exim's configuration, Debian's heavy build (docs/cookbook.md)"},
	}},
	{Name: "sendmail", files: []string{"etc/mail/sendmail.mc"}, Ways: []Way{
		{Name: milter, What: knowsMost, group: "smmsp", recipe: "sendmail.mc milter", place: "In /etc/mail/sendmail.mc; then: make -C /etc/mail, and restart Sendmail"},
	}},
	{Name: "opensmtpd", files: []string{"etc/smtpd.conf", "etc/mail/smtpd.conf"}, Ways: []Way{
		{Name: front, What: takes25, client: "proxy-v2", recipe: "smtpd.conf front", place: "In smtpd.conf, in place of \"listen on\" for port 25"},
	}},
	{Name: "other", Ways: []Way{
		{Name: front, What: takes25, client: "none", place: "Your server leaves port 25 to blockd and listens on 127.0.0.1:10025, where it relays for nobody without a login (docs/servers.md)"},
	}},
	{Name: "none", Ways: []Way{
		{Name: http, What: "programs ask blockd", place: "Programs ask: curl '127.0.0.1:8025/v1/check?sender=someone@bulk.example' (docs/http.md)"},
	}},
}

// Servers are the ones there are, in a good order to show.
func Servers() []Server { return slices.Clone(servers) }

// ServerNamed finds one; ok is false if there is none of that name.
func ServerNamed(name string) (s Server, ok bool) {
	i := slices.IndexFunc(servers, func(s Server) bool { return s.Name == name })
	if i < 0 {
		return Server{}, false
	}
	return servers[i], true
}

// Installed is the mail server of the machine whose root is given; "other" if none is known there.
func Installed(root fs.FS) Server {
	for _, s := range servers {
		for _, file := range s.files {
			if _, err := fs.Stat(root, file); err == nil {
				return s
			}
		}
	}
	other, _ := ServerNamed("other")
	return other
}

// Way finds one of the server's ways.
func (s Server) Way(name string) (w Way, ok bool) {
	i := slices.IndexFunc(s.Ways, func(w Way) bool { return w.Name == name })
	if i < 0 {
		return Way{}, false
	}
	return s.Ways[i], true
}

// Units are the socket units of packages that the way needs, and those of the doors that it shuts: systemd may hold no
// socket that no door takes.
func (w Way) Units() (opens, shuts []string) {
	for _, name := range []string{milter, policy} {
		unit := "blockd-" + name + ".socket"
		if name == w.Name {
			opens = append(opens, unit)
		} else {
			shuts = append(shuts, unit)
		}
	}
	return opens, shuts
}

// Recipe is what the mail server is to be told: where it goes, and the lines, which
// docs/cookbook.md has too. There may be none.
func (w Way) Recipe() (place, lines string) {
	if w.recipe != "" {
		lines = docs.Recipe(w.recipe)
	}
	return w.place, lines
}

// Config is the text of a first configuration in the given folder, without lists but
// the administrator's own.
func Config(s Server, w Way, folder string) []byte {
	index := "var/blockd.bdx"
	if filepath.Clean(folder) == "/etc/blockd" {
		index = "/var/lib/blockd/blockd.bdx"
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# Made by blockd init for %s, by %s. "blockd init --undo" takes it back.
# All keys, with their defaults: man 5 blockd.toml, or blockd config --defaults.
# Lists are watched; after a change here: systemctl reload blockd, or blockd reload.

[index]
path = %q
`, s.named(), w.Name, index)
	b.WriteString("\n" + w.doors() + ownList)
	return []byte(b.String())
}

func (s Server) named() string {
	switch s.Name {
	case "none":
		return "programs, with no mail server"
	case "other":
		return "a mail server"
	}
	return s.Name
}

// doors are the tables of what listens. A door that the way does not take is shut.
func (w Way) doors() string {
	const (
		nothing  = "[smtp]\nlisten = \"\"    # nothing in front of a mail server: it asks\n"
		noMilter = "\n[milter]\nlisten = \"\"\n"
		noPolicy = "\n[postfix]\npolicy_listen = \"\"\n"
	)
	switch w.Name {
	case front:
		return fmt.Sprintf(`[smtp]
listen = "0.0.0.0:25"
upstream = "smtp://127.0.0.1:10025"    # where the mail server is now
client_info = %q                # how it learns who the client is
# hostname = "mx.here.example"         # in greetings; without it the machine's own name

# The certificate that the mail server had on port 25. Without it your domain loses its TLS.
# tls_cert = "tls/cert.pem"
# tls_key = "tls/key.pem"
`, w.client) + noMilter + noPolicy
	case http:
		return "# No mail server asks; programs do, on 127.0.0.1:8025.\n[smtp]\nlisten = \"\"\n" + noMilter + noPolicy
	case milter:
		return nothing + fmt.Sprintf(`
# In Postfix's chroot this is /blockd/milter. The unit blockd-milter.socket makes it.
[milter]
listen = "unix:/var/spool/postfix/blockd/milter"
socket_group = %q
`, w.group) + noPolicy
	}
	return nothing + noMilter + fmt.Sprintf(`
# In Postfix's queue this is blockd/policy. The unit blockd-policy.socket makes it.
[postfix]
policy_listen = "unix:/var/spool/postfix/blockd/policy"
socket_group = %q
`, w.group)
}

// OwnListPath is where the administrator's own list is, from the configuration.
const OwnListPath = "lists/senders.txt"

const ownList = `
# Your own list. Its exceptions go before the blocks of every list, so that one line
# here ("!partner.example") lets a sender pass whom a list from elsewhere refuses.
[[list]]
name = "senders"
path = "` + OwnListPath + `"
format = "plain"
exceptions = "all"
`
