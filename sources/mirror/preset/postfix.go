package preset

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"blockd/lists"
	"blockd/sources/mirror"
)

// maxTable bounds the file of a Postfix table, in octets.
const maxTable = 64 << 10

// ofPostfix reads the file that says where a table of Postfix is and how it is asked: mysql_table(5), pgsql_table(5),
// sqlite_table(5) or ldap_table(5).
func ofPostfix(path, kind string) (*Preset, error) {
	if err := wantSQL("postfix:"+path, kind, "postgres", "mysql", "sqlite", "ldap"); err != nil {
		return nil, err
	}
	t, err := readTable(path)
	if err != nil {
		return nil, err
	}
	p, err := t.preset(kind)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// table is what a Postfix table's file says, by the names of its parameters.
type table map[string]string

// readTable reads the form of main.cf. As in Postfix, nothing in a value is expanded.
func readTable(path string) (table, error) {
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxTable) {
		return nil, fmt.Errorf("%s is no file of a Postfix table", path)
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%w; hint: such files belong to root and the group postfix: add blockd's user to that group", err)
	}
	if err != nil {
		return nil, err
	}
	t, name := table{}, ""
	for line := range strings.Lines(string(text)) {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || trimmed[0] == '#':
		case line[0] == ' ' || line[0] == '\t':
			t[name] = strings.TrimSpace(t[name] + " " + trimmed)
		default:
			var value string
			name, value, _ = strings.Cut(trimmed, "=")
			name = strings.TrimSpace(name)
			t[name] = strings.TrimSpace(value)
		}
	}
	return t, nil
}

func (t table) preset(kind string) (*Preset, error) {
	for _, name := range []string{"domain", "select_function", "special_result_attribute", "leaf_result_attribute", "terminal_result_attribute"} {
		if t[name] != "" {
			return nil, fmt.Errorf("%s makes answers depend on the address that is asked for, so that the table cannot be read as a whole%s", name, hint)
		}
	}
	format := t["result_format"]
	if format == "" {
		format = "%s"
	}
	result, ok := ofFormat(format)
	if !ok {
		return nil, fmt.Errorf("result_format %q: only %%s and %%%% can be read as a whole%s", format, hint)
	}
	p := &Preset{items: func(row *mirror.Row, subdomains *bool) []lists.Item {
		return accessItems(kind, row.Entry, row.Action, result, subdomains)
	}}
	var err error
	if kind == "ldap" {
		p.Query, p.DSN, err = t.directory()
		return p, err
	}
	if p.Query, err = t.query(kind); err == nil {
		p.DSN, err = t.dsn(kind)
	}
	return p, err
}

// ofFormat reads a result_format: what stands before and after the result.
func ofFormat(format string) (result func(string) string, ok bool) {
	parts := strings.Split(strings.ReplaceAll(format, "%%", "\x00"), "%s")
	for i, part := range parts {
		if strings.Contains(part, "%") {
			return nil, false
		}
		parts[i] = strings.ReplaceAll(part, "\x00", "%")
	}
	return func(value string) string { return strings.Join(parts, value) }, true
}

// accessItems reads a row as the line of an access(5) table that it stands for.
func accessItems(kind, key, value string, result func(string) string, subdomains *bool) []lists.Item {
	switch {
	case value == "": // to Postfix there is no such key
		return nil
	case key == "":
		return refused(key, lists.Syntax, "a key without a character")
	case strings.ContainsAny(key, " \t\r\n") || key[0] == '#':
		return refused(key, lists.Syntax, "Postfix never asks for such a key")
	case kind != "mysql" && kind != "ldap" && key != strings.ToLower(key):
		return refused(key, lists.Syntax, "Postfix asks in small letters, and never finds this key")
	}
	return lists.ParseLine("postfix", key+" "+result(value), lists.Settings{Subdomains: subdomains})
}

// query is the query that gives the whole table.
func (t table) query(kind string) (string, error) {
	q := t["query"]
	if q == "" && t["table"] != "" { // as before Postfix 2.2
		q = fmt.Sprintf("select %s from %s where %s = '%%s' %s", t["select_field"], t["table"], t["where_field"], t["additional_conditions"])
	}
	if q == "" {
		return "", errors.New("query: missing; want the file of a mysql, pgsql, sqlite or ldap table")
	}
	whole, err := enumerate(q, kind == "mysql")
	if err != nil {
		return "", fmt.Errorf("query: %w%s", err, hint)
	}
	return whole, nil
}

// dsn is the URL of the database.
func (t table) dsn(kind string) (string, error) {
	if kind == "sqlite" {
		path := t["dbpath"]
		if !filepath.IsAbs(path) {
			return "", fmt.Errorf("dbpath: want a path from the root, have %q", path)
		}
		return "sqlite:" + path, nil
	}
	if t["dbpath"] != "" {
		return "", fmt.Errorf(`dbpath: it is the file of an SQLite table; want kind = "sqlite", have %q`, kind)
	}
	if t["dbname"] == "" && !strings.Contains(t["hosts"], "://") {
		return "", errors.New("dbname: missing")
	}
	hosts := strings.FieldsFunc(t["hosts"], func(r rune) bool { return r == ' ' || r == ',' || r == '\t' })
	if len(hosts) == 0 {
		hosts = []string{"localhost"}
	}
	u := url.URL{Path: "/" + t["dbname"]}
	if t["user"] != "" {
		u.User = url.UserPassword(t["user"], t["password"])
	}
	if kind == "mysql" {
		return mysqlDSN(u, hosts, t)
	}
	return postgresDSN(u, hosts)
}

// debianSocket is where Debian's MySQL and MariaDB listen. Their library takes it for "localhost".
const debianSocket = "/run/mysqld/mysqld.sock"

// mysqlDSN names the host that Postfix would ask first: one by a socket, if there is any.
func mysqlDSN(u url.URL, hosts []string, t table) (string, error) {
	u.Scheme = "mysql"
	parameters := url.Values{}
	if file := t["tls_CAfile"]; file != "" {
		parameters.Set("tls_ca", file)
	}
	u.Host = strings.TrimPrefix(hosts[0], "inet:")
	for _, host := range hosts {
		socket, ok := strings.CutPrefix(host, "unix:")
		if !ok && strings.TrimPrefix(host, "inet:") == "localhost" {
			socket, ok = debianSocket, true
		}
		if ok {
			u.Host, parameters = "", url.Values{"socket": {socket}}
			break
		}
	}
	u.RawQuery = parameters.Encode()
	return u.String(), nil
}

// postgresDSN names all hosts. Each is tried.
func postgresDSN(u url.URL, hosts []string) (string, error) {
	u.Scheme = "postgres"
	parameters := url.Values{}
	var names, ports []string
	for _, host := range hosts {
		if strings.Contains(host, "://") {
			return host, nil
		}
		host = strings.TrimPrefix(strings.TrimPrefix(host, "inet:"), "unix:")
		port := "5432"
		if h, p, err := net.SplitHostPort(host); err == nil && !strings.HasPrefix(host, "/") {
			host, port = h, p
		}
		names, ports = append(names, host), append(ports, port)
	}
	parameters.Set("host", strings.Join(names, ","))
	parameters.Set("port", strings.Join(ports, ","))
	u.RawQuery = parameters.Encode()
	return u.String(), nil
}

// directory is what an ldap table says: which attributes are what, and the URL of the search.
func (t table) directory() (query, dsn string, err error) {
	filter, base, result := t["query_filter"], t["search_base"], t["result_attribute"]
	if strings.Contains(base, "%") {
		return "", "", errors.New("search_base: it depends on the address that is asked for" + hint)
	}
	key, filter, err := present(filter)
	if err != nil {
		return "", "", fmt.Errorf("query_filter: %w%s", err, hint)
	}
	if result == "" || strings.ContainsAny(result, ", \t") {
		return "", "", fmt.Errorf("result_attribute: want one attribute, have %q", result)
	}
	server, _, _ := strings.Cut(strings.TrimSpace(t["server_host"]), " ")
	server = strings.TrimSuffix(server, ",")
	scheme, host, has := strings.Cut(server, "://")
	if !has {
		scheme, host = "ldap", server
	}
	host = strings.TrimSuffix(host, "/")
	if host == "" {
		host = "localhost"
	}
	if port := t["server_port"]; port != "" && scheme == "ldap" && !strings.Contains(strings.Trim(host, "[]"), ":") {
		host = net.JoinHostPort(host, port)
	}
	scope := t["scope"]
	if scope == "" {
		scope = "sub"
	}
	who := ""
	switch strings.ToLower(t["bind"]) {
	case "sasl":
		return "", "", errors.New("bind: SASL is not among what blockd can do; name a DSN with a name and password of its own")
	case "no", "none":
	default:
		if t["bind_dn"] != "" {
			who = userinfo(t["bind_dn"]) + ":" + userinfo(t["bind_pw"]) + "@"
		}
	}
	var extensions []string
	if t["start_tls"] == "yes" {
		extensions = append(extensions, "starttls")
	}
	if file := t["tls_ca_cert_file"]; file != "" && (t["start_tls"] == "yes" || scheme == "ldaps") {
		extensions = append(extensions, "tls_ca="+url.PathEscape(file))
	}
	dsn = fmt.Sprintf("%s://%s%s/%s??%s?%s", scheme, who, host, url.PathEscape(base), scope, url.PathEscape(filter))
	if len(extensions) > 0 {
		dsn += "?" + strings.Join(extensions, ",")
	}
	return "entry=" + key + ", action=" + result, dsn, nil
}

// keyFilter is the part of a filter that asks for the key.
var keyFilter = regexp.MustCompile(`\(([A-Za-z0-9.;_-]+)=%s\)`)

// present makes a filter for one key into one for all objects that have a key. It returns the attribute of keys.
func present(filter string) (attribute, whole string, err error) {
	all := keyFilter.FindAllStringSubmatchIndex(filter, -1)
	if len(all) != 1 {
		if strings.Count(filter, "%s") == 1 && strings.HasSuffix(filter, "=%s") && !strings.ContainsAny(filter, "()") {
			return present("(" + filter + ")")
		}
		return "", "", errors.New("want one (ATTRIBUTE=%s), which every object has to meet")
	}
	at := all[0]
	before, rest := filter[:at[0]], filter[at[1]:]
	if strings.Contains(strings.ReplaceAll(before+rest, "%%", ""), "%") || strings.ContainsAny(before, "|!") {
		return "", "", errors.New("want one (ATTRIBUTE=%s), which every object has to meet")
	}
	attribute = filter[at[2]:at[3]]
	return attribute, strings.ReplaceAll(before, "%%", "%") + "(" + attribute + "=*)" + strings.ReplaceAll(rest, "%%", "%"), nil
}

// userinfo writes a text for the place before the host of a URL.
func userinfo(text string) string {
	return strings.NewReplacer(":", "%3A", "@", "%40").Replace(url.PathEscape(text))
}
