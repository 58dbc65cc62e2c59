package lists_test

import (
	"testing"

	"blockd/lists"
)

func TestDnsmasq(t *testing.T) {
	rows{
		{"a name of address covers all below", "address=/bulk.test/0.0.0.0", "domain bulk.test tree block"},
		{"several names", "address=/bulk.test/ads.test/::", "domain bulk.test tree block + domain ads.test tree block"},
		{"sink of this machine", "address=/bulk.test/127.0.0.1", "domain bulk.test tree block"},
		{"# is the null address", "address=/bulk.test/#", "domain bulk.test tree block"},
		{"nothing is no such domain", "address=/bulk.test/", "domain bulk.test tree block"},
		{"server without a server", "server=/bulk.test/", "domain bulk.test tree block"},
		{"local", "local=/bulk.test/", "domain bulk.test tree block"},
		{"server that is none", "server=/bulk.test/0.0.0.0", "domain bulk.test tree block"},
		{"blanks around =", "address = /bulk.test/#", "domain bulk.test tree block"},
		{"names below", "address=/*.bulk.test/#", "domain bulk.test sub block"},
		{"dnsmasq reads over a leading dot", "address=/.bulk.test/#", "domain bulk.test tree block"},
		{"comment behind", "address=/bulk.test/# # spam", "domain bulk.test tree block"},
		{"comment", "# address=/bulk.test/#", "skip comment"},
		{"other option", "cache-size=1000", "skip directive"},
		{"option without a value", "bogus-priv", "skip directive"},
		{"options that change where a name is asked", "rev-server=198.51.100.0/24,198.51.100.1", "skip directive"},
		{"files are not included", "conf-file=/etc/passwd", "skip directive"},
		{"server for all names", "server=198.51.100.1", "skip directive"},
		{"a real address", "address=/bulk.test/198.51.100.7", "err not-a-sink"},
		{"a server", "server=/bulk.test/198.51.100.7#53", "err not-a-sink"},
		{"a server of this machine answers", "server=/bulk.test/127.0.0.1#8600", "err not-a-sink"},
		{"# of server is the usual servers", "server=/bulk.test/#", "err not-a-sink"},
		{"every name", "address=/#/0.0.0.0", "err too-broad"},
		{"every name, without slashes", "address=0.0.0.0", "err too-broad"},
		{"names without a dot", "local=//", "err too-broad"},
		{"one empty name refuses the line", "address=/bulk.test//0.0.0.0", "err too-broad"},
		{"a lone dot", "address=/./0.0.0.0", "err too-broad"},
		{"a lone star", "address=/*/0.0.0.0", "err too-broad"},
		{"prefix of names", "address=/*bulk.test/#", "err unsupported"},
		{"one bad name refuses the line", "address=/bulk.test/bad..test/#", "err syntax"},
		{"sender as name", "address=/promo@bulk.test/#", "err syntax"},
		{"names that are not closed", "address=/bulk.test", "err syntax"},
		{"garbage behind the names", "address=/bulk.test/x", "err syntax"},
		{"no option", "bulk.test", "err syntax"},
		{"line of a hosts file", "0.0.0.0 bulk.test", "err syntax"},
		{"broken octets", "address=/b\xfclk.test/#", "err bad-utf8"},
		{"broken octets in another option", "txt-record=d\xe9sol\xe9", "skip directive"},
	}.run(t, lists.Settings{Format: "dnsmasq"})
	no := false
	rows{
		{"bare name", "address=/bulk.test/#", "domain bulk.test exact block"},
		{"names below stay so", "address=/*.bulk.test/#", "domain bulk.test sub block"},
	}.run(t, lists.Settings{Format: "dnsmasq", Subdomains: &no})
}

func TestUnbound(t *testing.T) {
	rows{
		{"refusing type", `local-zone: "bulk.test" always_nxdomain`, "domain bulk.test tree block"},
		{"trailing dot", `local-zone: "bulk.test." refuse`, "domain bulk.test tree block"},
		{"without quotes", "local-zone: bulk.test deny", "domain bulk.test tree block"},
		{"single quotes, no blank", "local-zone:'bulk.test' static", "domain bulk.test tree block"},
		{"redirect", `local-zone: "bulk.test" redirect`, "domain bulk.test tree block"},
		{"inform_deny", `local-zone: "bulk.test" inform_deny`, "domain bulk.test tree block"},
		{"type in quotes and capitals", `local-zone: "bulk.test" "Always_Null"`, "domain bulk.test tree block"},
		{"comment behind", `local-zone: "bulk.test" refuse # spam`, "domain bulk.test tree block"},
		{"clause on the same line", `server: local-zone: "bulk.test" refuse`, "domain bulk.test tree block"},
		{"data with a sink", `local-data: "bulk.test A 0.0.0.0"`, "domain bulk.test exact block"},
		{"data with TTL and class", `local-data: "bulk.test. 3600 IN AAAA ::1"`, "domain bulk.test exact block"},
		{"clause", "server:", "skip directive"},
		{"other option", "verbosity: 1", "skip directive"},
		{"files are not included", `include: "/etc/passwd"`, "skip directive"},
		{"transparent", `local-zone: "bulk.test" transparent`, "skip directive"},
		{"always_transparent", `local-zone: "bulk.test" always_transparent`, "skip directive"},
		{"nodefault", `local-zone: "10.in-addr.arpa" nodefault`, "skip directive"},
		{"data of another type", `local-data: 'bulk.test TXT "x"'`, "skip directive"},
		{"reverse data", `local-data-ptr: "198.51.100.7 bulk.test"`, "skip directive"},
		{"data with a real address", `local-data: "bulk.test A 198.51.100.7"`, "err not-a-sink"},
		{"the root", `local-zone: "." refuse`, "err too-broad"},
		{"unknown type", `local-zone: "bulk.test" refused`, "err syntax"},
		{"no type", `local-zone: "bulk.test"`, "err syntax"},
		{"no name", "local-zone:", "err syntax"},
		{"open quote", `local-zone: "bulk.test refuse`, "err syntax"},
		{"more behind the type", `local-zone: "bulk.test" refuse deny`, "err syntax"},
		{"data without quotes", "local-data: bulk.test A 0.0.0.0", "err syntax"},
		{"data without an address", `local-data: "bulk.test A"`, "err syntax"},
		{"data without a type", `local-data: "bulk.test"`, "err syntax"},
		{"bad name", `local-zone: "bulk..test" refuse`, "err syntax"},
		{"name with *", `local-zone: "*.bulk.test" refuse`, "err unsupported"},
		{"no option", "bulk.test", "err syntax"},
		{"an address is no option", "2001:db8::1", "err syntax"},
		{"broken octets", "local-zone: \"b\xfclk.test\" refuse", "err bad-utf8"},
	}.run(t, lists.Settings{Format: "unbound"})
}
