package transaction

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"blockd/records/pause"
)

// SMTP are the case's lines of [smtp].
func (c *Case) SMTP() string { return lines(c.Settings) }

func lines(all []Setting) string {
	var b strings.Builder
	for _, s := range all {
		fmt.Fprintf(&b, "%s = %s\n", s.Key, s.Value)
	}
	return b.String()
}

// Proves reports whether somebody may ask the name server.
func (c *Case) Proves() bool {
	return slices.ContainsFunc(c.Lists, func(l List) bool { return l.Require != nil || l.Kind == "spamassassin" })
}

// Tables are the case's [auth], [[list]] and [[policy]] tables, and Files the texts of
// the lists, by the names that the tables give them. resolver is the name server.
func (c *Case) Tables(resolver string) (tables string, files map[string]string) {
	var b strings.Builder
	fmt.Fprintf(&b, "[auth]\nresolver = %q\n%s", resolver, lines(c.Auth))
	files = map[string]string{}
	if len(c.Owners)+len(c.Aliases) > 0 {
		fmt.Fprintf(&b, "[recipients]\n%s", lines(c.Owners))
	}
	if len(c.Aliases) > 0 {
		b.WriteString("aliases = { kind = \"file\", path = \"aliases.csv\" }\n")
		files["aliases.csv"] = strings.Join(c.Aliases, "\n") + "\n"
	}
	var paused []pause.Pause
	for _, l := range c.Lists {
		fmt.Fprintf(&b, "[[list]]\nname = %q\npath = %q\n", l.Name, l.Name+".txt")
		entries := strings.Join(l.Entries, "\n") + "\n"
		switch l.Kind {
		case "allow":
			b.WriteString("action = \"allow\"\n")
		case "all":
			b.WriteString("exceptions = \"all\"\n")
		case "forced":
			fmt.Fprintf(&b, "force = %s\n", array(l.Entries))
		case "fixed":
			b.WriteString("no_override = true\n")
		case "shadow":
			b.WriteString("mode = \"shadow\"\n")
		case "tenth":
			b.WriteString("percent = 10\n")
			files["blockd.bdx.percent.key"] = shareKey + "\n"
		case "paused":
			paused = append(paused, pause.Pause{List: l.Name, Since: time.Now(), Until: time.Now().Add(time.Hour)})
		case "tempfail", "tag", "quarantine":
			fmt.Fprintf(&b, "on_match = %q\n", l.Kind)
		}
		if l.Require != nil {
			fmt.Fprintf(&b, "require = %s\n", array(l.Require))
		}
		switch l.Kind {
		case "spamassassin":
			b.WriteString("format = \"spamassassin\"\nexceptions = \"all\"\n")
		case "owned":
			b.WriteString("format = \"csv:entry\"\nper_recipient = true\n")
			entries = owned(l.Entries)
		case "discard":
			b.WriteString("format = \"postfix\"\ndiscard = true\n")
			entries = strings.Join(l.Entries, " DISCARD\n") + " DISCARD\n"
		default:
			b.WriteString("format = \"plain\"\npatterns = true\n")
		}
		files[l.Name+".txt"] = entries
	}
	if len(paused) > 0 {
		text, _ := json.Marshal(paused)
		files["blockd.bdx.pauses"] = string(text)
	}
	for _, p := range c.Policies {
		fmt.Fprintf(&b, "[[policy]]\nrecipients = %s\nlists = %s\n", array(p.Recipients), array(p.Lists))
	}
	return b.String(), files
}

// owned are entries with owners as lines of CSV.
func owned(entries []string) string {
	var b strings.Builder
	b.WriteString("owner,entry,action,reason\n")
	for _, e := range entries {
		owner, entry, _ := strings.Cut(e, " ")
		action := "block"
		if rest, ok := strings.CutPrefix(entry, "!"); ok {
			entry, action = rest, "allow"
		}
		fmt.Fprintf(&b, "%s,%s,%s,\n", owner, entry, action)
	}
	return b.String()
}

// shareKey is the key that says which senders a tenth is. With it bulk.example is one of them for the list "tenth", and not for the
// list "out", of which 192.0.2.0/24 is one.
const shareKey = "000102030405060708090a0b0c0d0e0f"

func array(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = fmt.Sprintf("%q", text)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// Internal is a path's address as Postfix hands it to those it asks: without
// source route, and without quotes and backslashes in the local-part.
func Internal(path string) string {
	if strings.HasPrefix(path, "@") {
		_, path, _ = strings.Cut(path, ":")
	}
	if !strings.HasPrefix(path, `"`) {
		return strings.TrimSuffix(path, ".")
	}
	var b strings.Builder
	for i := 1; i < len(path); i++ {
		switch path[i] {
		case '"':
			return b.String() + strings.TrimSuffix(path[i+1:], ".")
		case '\\':
			i++
		}
		b.WriteByte(path[i])
	}
	return b.String()
}
