package lists_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

func TestCSV(t *testing.T) {
	for _, tt := range []struct{ name, format, text, want string }{
		{"no header", "csv", "bulk.test,x\nshop.test,y\n", "domain bulk.test tree block + domain shop.test tree block"},
		{"header names the column", "csv", "reason,Sender\nx,promo@bulk.test\n", "skip header + addr promo@bulk.test exact block"},
		{"PowerShell's first line", "csv", "#TYPE Deserialized.Message\n\"Recipient\",\"Sender\"\n\"anna@here.test\",\"promo@bulk.test\"\n", "skip header + skip header + addr promo@bulk.test exact block"},
		{"Excel's first line", "csv", "sep=;\nRecipient;Sender\nanna@here.test;promo@bulk.test\n", "skip header + skip header + addr promo@bulk.test exact block"},
		{"a separator that lines do not show", "csv:2", "sep=|\na, b, c|promo@bulk.test\n", "skip header + addr promo@bulk.test exact block"},
		{"titles and blank lines", "csv", "Quarantine of here.test, \"November\"\n\nRecipient,Sender\nanna@here.test,promo@bulk.test\n",
			"skip header + skip blank + skip header + addr promo@bulk.test exact block"},
		{"comments", "csv", "# of 2026, by ip\n# anna@here.test\nRecipient,Sender Address\nanna@here.test,promo@bulk.test\n",
			"skip header + skip header + skip header + addr promo@bulk.test exact block"},
		{"many comments", "csv", strings.Repeat("# x\n", 200) + "to,sender\nanna@here.test,promo@bulk.test\n", strings.Repeat("skip header + ", 201) + "addr promo@bulk.test exact block"},
		{"number below a title", "csv:1", "Block list\nsender,action\na@b.test,allow\n", "skip header + skip header + addr a@b.test exact allow"},
		{"words of nobody below a title", "csv", "Sperrliste\nAbsenderin,action\na@b.test,Allow\n", "skip header + skip header + addr a@b.test exact allow"},
		{"number below a comment", "csv:2", "# made by x, do not edit\nname,sender,action\nx,a@b.test,allow\n", "skip header + skip header + addr a@b.test exact allow"},
		{"header with a colon", "csv", "Sender:,action\na@b.test,allow\n", "skip header + addr a@b.test exact allow"},
		{"no header, and a first entry that cannot be read", "csv", "a..b.test,domain\nc.test,domain\n", "err syntax + domain c.test tree block"},
		{"the same with words for other kinds", "csv", "a..b.test,domain,x\n198.51.100.7,ip,y\nc.test,host,z\n", "err syntax + ip 198.51.100.7 exact block + domain c.test tree block"},
		{"the same by number", "csv:1", "a..b.test,domain\nc.test,domain\n", "err syntax + domain c.test tree block"},
		{"a header for kinds", "csv", "indicator,type\na..b.test,domain\nc.test,domain\n", "skip header + err syntax + domain c.test tree block"},
		{"a header that comes twice", "csv", "sender,action\na@b.test,allow\nsender,action\nc@d.test,allow\n", "skip header + addr a@b.test exact allow + err unsupported-action + addr c@d.test exact allow"},
		{"a header that comes twice, by number", "csv:1", "who,action\na@b.test,allow\nwho,action\nc@d.test,allow\n", "skip header + addr a@b.test exact allow + err unsupported-action + addr c@d.test exact allow"},
		{"a comment below the header", "csv:1", "who,action\n# made by x\na@b.test,allow\n", "skip header + err syntax + addr a@b.test exact allow"},
		{"a name without dots below a header with an action", "csv", "who,action\nlocalhost,allow\nfriend.test,allow\n",
			"skip header + domain localhost tree allow + domain friend.test tree allow"},
		{"the same by number", "csv:1", "who,action\nlocalhost,allow\nfriend.test,allow\n", "skip header + domain localhost tree allow + domain friend.test tree allow"},
		{"a word, a dash and a text there", "csv", "who,action\npartner,allow\n-,allow\n\"my friend\",allow\nfriend.test,allow\n",
			"skip header + domain partner tree allow + err syntax + err syntax + domain friend.test tree allow"},
		{"the same behind the action", "csv", "action,who\nallow,localhost\nallow,friend.test\n", "skip header + domain localhost tree allow + domain friend.test tree allow"},
		{"the same below a title", "csv", "Our friends\nwho,action\nlocalhost,allow\n\nfriend.test,allow\n",
			"skip header + skip header + domain localhost tree allow + skip blank + domain friend.test tree allow"},
		{"a cell with the text action", "csv:1", "a.test,x\nspam,action\nb.test,y\n", "domain a.test tree block + domain spam tree block + domain b.test tree block"},
		{"the same without a number", "csv", "a.test,x\nspam,action\nb.test,y\n", "domain a.test tree block + domain spam tree block + domain b.test tree block"},
		{"domains of the top level", "csv", "domain,registrar_url\nde,bulk.test\ncom,bulk2.test\n", "skip header + domain de tree block + domain com tree block"},
		{"domains of the top level, of any script", "csv", "tld,domain,url\n1,\u0440\u0444,bulk.test\n2,XN--QXAM,c.test\n3,ORG,d.test\n4,local,e.test\n",
			"skip header + domain xn--p1ai tree block + domain xn--qxam tree block + domain org tree block + domain local tree block"},
		{"header in a comment", "csv", "# first_seen,dst_ip,port\n2026-11-01,198.51.100.7,25\n", "skip header + ip 198.51.100.7 exact block"},
		{"named column below a title", "csv:absender", "Bericht\nEmpf\u00e4nger;Absender\nanna@here.test;promo@bulk.test\n", "skip header + skip header + addr promo@bulk.test exact block"},
		{"named column, with other marks", "csv:sender address", "to,Sender_Address\nanna@here.test,promo@bulk.test\n", "skip header + addr promo@bulk.test exact block"},
		{"the only column with entries", "csv", "id,wer\n1,bulk.test\n2,shop.test\n", "skip header + domain bulk.test tree block + domain shop.test tree block"},
		{"header of several lines", "csv", "title\n\"why\nso\",sender\nx,promo@bulk.test\n", "skip header + skip header + skip header + addr promo@bulk.test exact block"},
		{"action", "csv", "sender,Action\npress@bulk.test,ALLOW\nbulk.test,block\nshop.test,\nlast.test,perhaps\nmail.test,TempFail\n",
			"skip header + addr press@bulk.test exact allow + domain bulk.test tree block + domain shop.test tree block + err unsupported-action + domain mail.test tree tempfail"},
		{"action with a numbered column", "csv:2", "action,who\nallow,press@bulk.test\n", "skip header + addr press@bulk.test exact allow"},
		{"UTF-16", "csv", testkit.Octets("\u00ff\u00fes\x00e\x00n\x00d\x00e\x00r\x00,\x00x\x00\n\x00a\x00@\x00b\x00.\x00t\x00e\x00s\x00t\x00,\x00x\x00\n\x00"), "skip header + addr a@b.test exact block"},
		{"header that names nothing", "csv", "who,why\nbulk.test,x\n", "skip header + domain bulk.test tree block"},
		{"column by number", "csv:2", "x,bulk.test\ny,198.51.100.0/24\n", "domain bulk.test tree block + cidr 198.51.100.0/24 tree block"},
		{"column by number under a header", "csv:2", "why,who\ny,bulk.test\n", "skip header + domain bulk.test tree block"},
		{"column by name", "csv:who", "why,WHO\ny,bulk.test\n", "skip header + domain bulk.test tree block"},
		{"only records with the score", "csv:1,2>=3", "a.test\t10\nb.test\t2\nc.test\t3\n", "domain a.test tree block + skip below-score + domain c.test tree block"},
		{"score by name", "csv:who,count>=2.5", "count,who\n2,a.test\n2.5,b.test\n", "skip header + skip below-score + domain b.test tree block"},
		{"score and the column that a header names", "csv:,3>=1", "x,domain,score\ny,a.test,0\ny,b.test,1\n", "skip header + skip below-score + domain b.test tree block"},
		{"score that is no number", "csv:1,2>=3", "a.test,10\nb.test,many\nc.test,NaN\n", "domain a.test tree block + err syntax + err syntax"},
		{"records before the first one with a score", "csv:1,2>=3", "# a.test and others\na.test\t10\n", "err syntax + domain a.test tree block"},
		{"record without its score", "csv:1,2>=3", "a.test,10\nb.test\n", "domain a.test tree block + err syntax"},
		{"what is below the score is not looked at", "csv:1,2>=3", "a.test,10\nno name,2\n", "domain a.test tree block + skip below-score"},
		{"semicolon", "csv:2", "x;bulk.test\ny;shop.test\n", "domain bulk.test tree block + domain shop.test tree block"},
		{"tab", "csv:2", "x\tbulk.test\ny\tshop.test\n", "domain bulk.test tree block + domain shop.test tree block"},
		{"bar", "csv:2", "x|bulk.test\ny|shop.test\n", "domain bulk.test tree block + domain shop.test tree block"},
		{"commas in the text of another separator", "csv", "address;reason\na@bulk.test;one, two, three\nb@bulk.test;one\n",
			"skip header + addr a@bulk.test exact block + addr b@bulk.test exact block"},
		{"one column", "csv", "address\na@bulk.test\nb@bulk.test", "skip header + addr a@bulk.test exact block + addr b@bulk.test exact block"},
		{"CRLF", "csv", "address,reason\r\na@bulk.test,\"x, y\"\r\n", "skip header + addr a@bulk.test exact block"},
		{"byte order mark before a quote", "csv", "\ufeff\"address\",\"reason\"\n\"a@bulk.test\",x\n", "skip header + addr a@bulk.test exact block"},
		{"quotes in quotes", "csv", "\"\"\"a b\"\"@bulk.test\",x\n", `addr "a b"@bulk.test exact block`},
		{"blank lines", "csv", "bulk.test,x\n\n  \nshop.test,y\n", "domain bulk.test tree block + skip blank + skip blank + domain shop.test tree block"},
		{"record over two lines", "csv:2", "\"x\ny\",bulk.test\nz,shop.test\n", "skip continuation + domain bulk.test tree block + domain shop.test tree block"},
		{"text over two lines behind the cell", "csv", "bulk.test,\"x\ny\"\n", "domain bulk.test tree block + skip continuation"},
		{"no exception mark", "csv", "!bulk.test,x\nlast.test,x\n", "err syntax + domain last.test tree block"},
		{"! in an address", "csv", "!a@bulk.test,x\n", "addr !a@bulk.test exact block"},
		{"no exact mark", "csv", "=bulk.test,x\nlast.test,x\n", "err syntax + domain last.test tree block"},
		{"no comments", "csv", "a.test,x\n# bulk.test,x\n", "domain a.test tree block + err syntax"},
		{"no trailing comments", "csv", "a.test,x\nbulk.test # x,x\n", "domain a.test tree block + err syntax"},
		{"empty cell", "csv", "a.test,x\n,y\n", "domain a.test tree block + err syntax"},
		{"missing cell", "csv:2", "x,a.test\ny\n", "domain a.test tree block + err syntax"},
		{"no entry", "csv", "a.test,x\nnot an entry,x\n", "domain a.test tree block + err syntax"},
		{"broken octets in another cell", "csv", "a.test,\xe9\n", "domain a.test tree block"},
		{"broken octets in the cell", "csv", "a.test,x\nb\xfclk.test,x\n", "domain a.test tree block + err bad-utf8"},
		{"control anywhere", "csv", "a.test,x\nbulk.test,\x01\n", "domain a.test tree block + err control"},
		{"quote inside a cell", "csv", "a.test,x\nbulk.test,a\"b\n", "domain a.test tree block + err syntax"},
		{"text behind a quote", "csv", "a.test,x\n\"bulk.test\"x,\n", "domain a.test tree block + err syntax"},
		{"a quote that is not closed costs its line", "csv", "a.test,x\nb.test,\"x\nc.test,y\nd.test,z\n",
			"domain a.test tree block + err syntax + domain c.test tree block + domain d.test tree block"},
		{"two of them", "csv", "a.test,\"x\nb.test,y\nc.test,\"z\nd.test,z\n",
			"err syntax + domain b.test tree block + err syntax + domain d.test tree block"},
		{"a record of too many lines", "csv", "a.test,\"x\n" + strings.Repeat("y.test\n", 1000) + "\"\nb.test,\n",
			"err syntax" + strings.Repeat(" + domain y.test tree block", 1000) + " + err syntax + domain b.test tree block"},
		{"a record of too many octets", "csv", "a.test,\"x\nb.test," + strings.Repeat("y", 65000) + "\nc.test," + strings.Repeat("z", 600) + "\"\"\n\"\nd.test,\n",
			"err syntax + domain b.test tree block + err syntax + err syntax + domain d.test tree block"},
		{"a long line inside quotes", "csv", "a.test,\"x\n" + strings.Repeat("y", 70000) + "\"\nb.test,\n",
			"err syntax + err too-long + domain b.test tree block"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			equal(t, taken(t, tt.text, lists.Settings{Format: tt.format}), strings.Split(tt.want, " + "))
		})
	}
}

func TestCSVWithoutTheColumnIsRefused(t *testing.T) {
	for _, format := range []string{"csv:4", "csv:who"} {
		_, sum, err := items(t, "address,reason\nbulk.test,x\n", lists.Settings{Format: format})
		if fe, ok := errors.AsType[*lists.FileError](err); !ok || fe.Class != lists.NoColumn || sum.Verdict != lists.Refused {
			t.Errorf("%s: %v, %s", format, err, sum.Verdict)
		}
	}
}

// TestCSVThatCanBeReadTwice: which column is meant is asked, and never guessed.
func TestCSVThatCanBeReadTwice(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"ip,domain,email\n198.51.100.7,shop.test,noc@shop.test\n", "which of 3 columns is the list? Declare csv:ip or csv:domain or csv:email"},
		{"a@bulk.test,b@bulk.test,c@bulk.test\n", "which of 3 columns is the list? Declare csv:1 or csv:2 or csv:3"},
		{"Empf\u00e4nger;Absender\nanna@here.test;promo@bulk.test\n", "which of 2 columns is the list? Declare csv:Empf\u00e4nger or csv:Absender"},
		{"domain,kind\nurl,a.test\nurl,b.test\n", "line 1 reads as the header, and column 1 below it has no entry; declare csv:2 or csv:1"},
		{"domain,kind\nlink,a.test\nlink,b.test\nname,c.test\nname,d.test\n", "line 1 reads as the header, and column 1 below it has no entry; declare csv:2 or csv:1"},
		{"a.test,x\nb.test,y\nsender,z\n", "line 3 reads as the header, and line 1 above it has an entry in column 1; declare csv:1"},
	} {
		_, sum, err := items(t, tt.text, lists.Settings{Format: "csv"})
		if fe, ok := errors.AsType[*lists.FileError](err); !ok || fe.Class != lists.Ambiguous || !strings.Contains(sum.Why, tt.want) {
			t.Errorf("%q: %s, want %s", tt.text, sum.Why, tt.want)
		}
	}
	_, sum, err := items(t, "a@b.test,x\nwho,action\nc@d.test,allow\n", lists.Settings{Format: "csv:1"})
	if err == nil || !strings.Contains(sum.Why, "line 2 reads as the header, and line 1 above it has an entry in column 1; put the header first") {
		t.Error(sum.Why)
	}
	if _, sum, err = items(t, "a@b.test,x,y\nsender,action,reason\n", lists.Settings{Format: "csv:1"}); err == nil {
		t.Error(sum.Entries)
	}
	_, sum, err = items(t, "x,y\nbulk.test,why\n", lists.Settings{Format: "csv:sender"})
	if err == nil || sum.Why != `no-column: no header among the first lines has "sender"; line 1 has x, y` {
		t.Error(sum.Why)
	}
}

// TestJSONActionAround: an action is said of what is below it, some of which is read by then. Nothing becomes another
// one in silence.
func TestJSONActionAround(t *testing.T) {
	for text, format := range map[string]string{
		`{"domains":["friend.test"],"action":"allow"}`:                                              "json",
		`{"action":"Allow","domains":["friend.test"]}`:                                              "json",
		`[{"sender":{"email":"a@b.test"},"action":"allow"}]`:                                        "json:[].sender.email",
		`{"data":[{"action":"allow","iocs":[{"v":"a@b.test"}]}]}`:                                   "json:data[].iocs[].v",
		`{"action":"allow","1":[{"ioc":"a@b.test"}]}`:                                               "json:*[].ioc",
		`{"1":[{"ioc":"a@b.test"}],"ACTION":"allow"}`:                                               "json:*[].ioc",
		`{"ips":{"domains":["a.test"],"action":"allow"}}`:                                           "json:ips",
		`{"ips":{"domains":["a.test"],"action":"block"},"action":"allow"}`:                          "json:ips",
		`{"domains":["a.test"],"action":"tempfail"}`:                                                "json",
		`{"ips":{"domains":["a.test"],"action":"allow"},"action":"export"}`:                         "json:ips",
		`{"a":{"action":"block","domains":["a.test"]},"b":{"action":"allow","domains":["b.test"]}}`: "json:*",
		`{"allow":{"action":"block","domains":["a.test"]}}`:                                         "json",
		`{"data":[{"action":"Discard","iocs":[{"v":"a.test"}]}]}`:                                   "json:data[].iocs[].v",
	} {
		all, sum, err := items(t, text, lists.Settings{Format: format})
		if fe, ok := errors.AsType[*lists.FileError](err); !ok || fe.Class != lists.JSON || !strings.Contains(sum.Why, "of what is below it") {
			t.Errorf("%s: %s, %+v", text, sum.Why, all)
		}
	}
	if all, sum, err := items(t, `{"domains":["friend.test"],"action":"block"}`, lists.Settings{Format: "json", Action: lists.Allow}); err == nil {
		t.Errorf("a refusal in a list of exceptions: %s, %+v", sum.Why, all)
	}
	for text, format := range map[string]string{`{"domains":["bulk.test"],"action":"block"}`: "json", `{"data":[{"action":"export","iocs":[{"v":"a@b.test"}]}]}`: "json:data[].iocs[].v"} {
		if _, sum, err := items(t, text, lists.Settings{Format: format}); err != nil || sum.Entries != 1 {
			t.Errorf("%s: %d entries, %v", text, sum.Entries, err)
		}
	}
}

// TestCSVSaysWhatWasRead in the summary.
func TestCSVSaysWhatWasRead(t *testing.T) {
	for text, want := range map[string]string{
		"title\nsep=,\n# x\nDate,Sender,Recipient,Subject,Size\n1,promo@bulk.test,anna@here.test,hi,3\n": "column 2, Sender, of 5; 3 lines above the header",
		"title\nsender,action\nbulk.test,allow\n":                                                        "column 1, sender, of 2; column 2 says the action; 1 line above the header",
		"bulk.test,x\n": "column 1 of 2",
		"bulk.test\n":   "column 1 of 1",
	} {
		_, sum, err := items(t, text, lists.Settings{Format: "csv"})
		testkit.Got(sum.Read, err)(t, text, want, nil)
	}
}

// TestCSVTriesEachCellOnce: names of columns on every line, and cells that are dear to read, cost what they are long.
func TestCSVTriesEachCellOnce(t *testing.T) {
	line := strings.Repeat("ip,", 985) + strings.TrimSuffix(strings.Repeat(strings.Repeat("\u00fc.", 400)+",", 15), ",") + "\n"
	_, sum, err := items(t, strings.Repeat(line, 60), lists.Settings{Format: "csv"})
	if err == nil || !strings.Contains(sum.Why, "which of 985 columns is the list?") {
		t.Error(sum.Why)
	}
}

func TestCSVArgument(t *testing.T) {
	for arg, good := range map[string]bool{
		"csv:3": true, "csv:sender": true, "csv:1,2>=3": true, "csv:ip,count>=0.5": true, "csv:,2>=3": true,
		"csv:0": false, "csv:10001": false, "csv:1,": false, "csv:1,2": false, "csv:1,2>3": false, "csv:1,2>=": false,
		"csv:1,2>=x": false, "csv:1,2>=nan": false, "csv:1,0>=3": false, "csv:1,>=3": false, "csv:": false,
	} {
		if err := lists.ParseFormat(arg); (err == nil) != good {
			t.Errorf("%s: %v", arg, err)
		}
	}
	for _, format := range []string{"csv:1,4>=1", "csv:1,count>=1"} {
		_, _, err := items(t, "address,reason\nbulk.test,x\n", lists.Settings{Format: format})
		if fe, ok := errors.AsType[*lists.FileError](err); !ok || fe.Class != lists.NoColumn {
			t.Errorf("%s: %v", format, err)
		}
	}
}

func TestCSVQuoteThatIsNeverClosedLosesNothing(t *testing.T) {
	var text strings.Builder
	text.WriteString("first.test,\"x\n")
	const n = 5000 // more lines than a record may have
	for i := range n {
		fmt.Fprintf(&text, "n%d.test,\"\"\n", i)
	}
	_, sum, err := items(t, text.String(), lists.Settings{Format: "csv"})
	if err != nil || sum.Entries != n || sum.Errors != 1 || sum.Lines != n+1 {
		t.Errorf("%+v, %v; want %d entries and one error", sum, err, n)
	}
}

func TestJSON(t *testing.T) {
	for _, tt := range []struct{ name, format, text, want string }{
		{"array", "json", `["bulk.test", "promo@bulk.test", "198.51.100.0/25"]`,
			"domain bulk.test tree block + addr promo@bulk.test exact block + cidr 198.51.100.0/25 tree block"},
		{"plain entries with marks", "json", `["!bulk.test", "=shop.test", ".x.test"]`,
			"domain bulk.test tree allow + domain shop.test exact block + domain x.test sub block"},
		{"escapes", "json", `["b\u00fccher.test", "\u0061.test"]`, "domain xn--bcher-kva.test tree block + domain a.test tree block"},
		{"members that block", "json", `{"blacklist":["a.test"],"blocklist":["b.test"],"block":["c.test"],"deny":["d.test"],"domains":["e.test"],"emails":["f@f.test"],"disposable":["g.test"]}`,
			"domain a.test tree block + domain b.test tree block + domain c.test tree block + domain d.test tree block + domain e.test tree block + addr f@f.test exact block + domain g.test tree block"},
		{"members that allow, by a star", "json:*", `{"allow":["a.test"],"block":["b.test"]}`, "domain a.test tree allow + domain b.test tree block"},
		{"members that allow, by a star and more", "json:*[].ioc", `{"allow":[{"ioc":"a.test"}],"block":[{"ioc":"b.test"}]}`, "domain a.test tree allow + domain b.test tree block"},
		{"action in capitals", "json:[].ip", `[{"ip":"a@b.test","Action":"Allow"}]`, "addr a@b.test exact allow"},
		{"an exception in between", "json:ips", `{"ips":["a.test"],"allow":["b.test"],"action":"tempfail"}`, "domain a.test tree tempfail + domain b.test tree allow"},
		{"an exception first", "json:ips", `{"allow":["b.test"],"ips":["a.test"],"action":"tempfail"}`, "domain b.test tree allow + domain a.test tree tempfail"},
		{"action first", "json:ips", `{"action":"tempfail","ips":["a.test"],"allow":["b.test"]}`, "domain a.test tree tempfail + domain b.test tree allow"},
		{"an exception in between, and a word of an API", "json:ips", `{"ips":["a.test"],"allow":["b.test"],"action":"export"}`, "domain a.test tree block + domain b.test tree allow"},
		{"action of an object at the end of the path", "json:ips", `{"ips":{"domains":["a.test"],"allow":["b.test"]},"action":"allow"}`, "domain a.test tree allow + domain b.test tree allow"},
		{"the same, first", "json:ips", `{"action":"allow","ips":{"domains":["a.test"]}}`, "domain a.test tree allow"},
		{"the same, with a member that blocks", "json:ips", `{"ips":{"block":["a.test"],"domains":["b.test"]},"action":"allow"}`, "err unsupported-action + domain b.test tree allow"},
		{"the same, which defers", "json:ips", `{"ips":{"block":["a.test"]},"action":"tempfail"}`, "domain a.test tree tempfail"},
		{"an object among exceptions", "json", `{"allow":{"domains":["a.test"]}}`, "domain a.test tree allow"},
		{"a star is no action", "json:*", `{"action":"block","ips":["a.test"]}`, "domain a.test tree block"},
		{"a star is no action, which allows", "json:*", `{"ips":["a.test"],"Action":"allow"}`, "domain a.test tree allow"},
		{"a star is no action, in an array", "json:[].*", `[{"action":"allow","ip":"a.test"},{"ip":"b.test","action":"tempfail"}]`, "domain a.test tree allow + domain b.test tree tempfail"},
		{"a list of the name action", "json:*", `{"action":["a.test"],"drama":["b.test"]}`, "domain a.test tree block + domain b.test tree block"},
		{"an explicit action", "json:[].action", `[{"action":"a.test"}]`, "domain a.test tree block"},
		{"a word that is no action in JSON lines", "json:ip", "{\"ip\":\"a.test\",\"action\":\"permit\"}\n{\"action\":\"pass\",\"ip\":\"b.test\"}\n{\"ip\":\"c.test\"}\n", "err unsupported-action + err unsupported-action + domain c.test tree block"},
		{"an action that is no word in JSON lines", "json:ip", "{\"ip\":\"a.test\",\"action\":7}\n{\"action\":null,\"ip\":\"b.test\"}\n", "err syntax + domain b.test tree block"},
		{"many, and an action that says nothing new", "json:ips", `{"ips":[` + strings.Repeat(`"",`, 1001) + `"a.test"],"action":"block"}`, strings.Repeat("err syntax + ", 1001) + "domain a.test tree block"},
		{"many, and an action of an API", "json:ips", `{"ips":[` + strings.Repeat(`"",`, 1001) + `"a.test"],"action":"export"}`, strings.Repeat("err syntax + ", 1001) + "domain a.test tree block"},
		{"arrays in arrays of a record", "json:ips", `{"ips":[["a.test"],"b.test"],"action":"allow"}`, "domain a.test tree allow + domain b.test tree allow"},
		{"action of an answer of an API", "json:data", `{"action":"export","data":["a.test"]}`, "domain a.test tree block"},
		{"members that allow", "json", `{"whitelist":["a.test"],"allowlist":["b.test"],"allow":["c.test"],"welcomelist":["d.test"]}`,
			"domain a.test tree allow + domain b.test tree allow + domain c.test tree allow + domain d.test tree allow"},
		{"other members, never their strings", "json", `{"name":"x.test","more":{"block":["y.test"]},"block":["a.test"],"z":["z.test",[1]]}`,
			"skip other-member + skip other-member + domain a.test tree block + skip other-member"},
		{"a member that is one string", "json", `{"block":"a.test"}`, "domain a.test tree block"},
		{"KEY instead of the members that block", "json:members", `{"block":["a.test"],"members":["b.test"],"allow":["c.test"]}`,
			"skip other-member + domain b.test tree block + domain c.test tree allow"},
		{"KEY of objects in an array", "json:host", `[{"id":1,"host":"a.test"},{"host":"b.test","tags":["c.test"]},"d.test"]`,
			"domain a.test tree block + domain b.test tree block + domain d.test tree block"},
		{"object without KEY", "json:host", `[{"id":1},{"host":"b.test"}]`, "err syntax + domain b.test tree block"},
		{"KEY that is no string", "json:host", `[{"host":{"a":"a.test"}},{"host":7},{"host":"b.test"}]`, "err syntax + err syntax + domain b.test tree block"},
		{"arrays in records", "json:host", `[{"host":["a.test","b.test"]},{"host":[]},{"host":"c.test"}]`, "domain a.test tree block + domain b.test tree block + domain c.test tree block"},
		{"a path", "json:data[].ip", `{"meta":{"n":2},"data":[{"ip":"198.51.100.7","hostnames":["x.test"]},{"ip":"198.51.100.8"},{"id":3}]}`,
			"skip other-member + ip 198.51.100.7 exact block + ip 198.51.100.8 exact block + err syntax"},
		{"a path without its arrays", "json:data.ip", `{"data":[{"ip":"198.51.100.7"}]}`, "ip 198.51.100.7 exact block"},
		{"a deeper path", "json:data[].attributes.names[]", `{"data":[{"attributes":{"names":["a.test","b.test"]}},{"attributes":{}}]}`,
			"domain a.test tree block + domain b.test tree block + err syntax"},
		{"a path from an array", "json:[].ip", `[{"ip":"198.51.100.7"}]`, "ip 198.51.100.7 exact block"},
		{"any member on the path", "json:*[].ioc", `{"1":[{"ioc":"a.test"}],"2":[{"ioc":"b.test"}]}`, "domain a.test tree block + domain b.test tree block"},
		{"a dot in a name", "json:data[].ip.v4", `{"data":[{"ip.v4":"198.51.100.7"}]}`, "ip 198.51.100.7 exact block"},
		{"a path to members that are known", "json:lists", `{"lists":{"block":["a.test"],"allow":["b.test"]}}`, "domain a.test tree block + domain b.test tree allow"},
		{"JSON lines", "json:ip", "{\"ip\":\"198.51.100.7\",\"asn\":\"AS64500\"}\n{\"id\":2}\n{\"ip\":\"198.51.100.8\",\"x\":{\"ip\":\"198.51.100.9\"}}\n",
			"ip 198.51.100.7 exact block + err syntax + ip 198.51.100.8 exact block"},
		{"JSON lines, of which the first has none", "json:ip", "{\"id\":1}\n{\"ip\":\"198.51.100.7\"}\n", "err syntax + ip 198.51.100.7 exact block"},
		{"JSON lines with members that are known", "json", "{\"block\":[\"a.test\"]}\n{\"allow\":\"b.test\"}\n", "domain a.test tree block + domain b.test tree allow"},
		{"action", "json:list[].name", `{"list":[{"name":"a.test","action":"Allow"},{"action":"BLOCK","name":"b.test"},{"name":"c.test","action":null},{"name":["d.test","e.test"],"action":"perhaps"},{"name":"f.test","action":7}]}`,
			"domain a.test tree allow + domain b.test tree block + domain c.test tree block + err unsupported-action + err unsupported-action + err syntax"},
		{"action in JSON lines", "json:entry", "{\"action\":\"allow\",\"entry\":\"a.test\"}\n{\"entry\":\"b.test\",\"action\":\"tempfail\"}\n", "domain a.test tree allow + domain b.test tree tempfail"},
		{"action of a list", "json:names", `{"names":["a.test","b.test"],"action":"allow"}`, "domain a.test tree allow + domain b.test tree allow"},
		{"empty and non-string elements", "json", `["", " ", 1, true, null, ["a.test"], {"a":"b.test"}, "c.test"]`,
			"err syntax + err syntax + err syntax + err syntax + err syntax + err syntax + err syntax + domain c.test tree block"},
		{"comment", "json", `["# a.test", "b.test # c"]`, "skip comment + domain b.test tree block"},
		{"control", "json", `["a\u0001.test", "b\u0000.test", "c\n.test", "d.test"]`, "err control + err nul + err control + domain d.test tree block"},
		{"broken octets", "json", "[\"b\xfclk@a.test\", \"d.test\"]", "err bad-utf8 + domain d.test tree block"},
		{"half a surrogate pair", "json", `["\ud800@a.test", "d.test"]`, "err bad-utf8 + domain d.test tree block"},
		{"long string", "json", `["` + strings.Repeat("a", 65537) + `", "d.test"]`, "err too-long + domain d.test tree block"},
		{"CR as line end", "json", "[\"a.test\",\r\"b.test\"]\r", "domain a.test tree block + domain b.test tree block"},
		{"empty array", "json", `[]`, ""},
		{"exceptions beside a long path", "json:data[].iocs[].v", `{"allow":["f.test"],"data":[{"iocs":[{"v":"a.test"}]}]}`, "domain f.test tree allow + domain a.test tree block"},
		{"exceptions in an object beside a path", "json:a.b", `{"whitelist":{"domains":["f.test"]},"a":{"b":["x.test"]}}`, "domain f.test tree allow + domain x.test tree block"},
		{"one exception beside a path", "json:a.b.c", `{"a":{"b":{"c":"x.test"}},"allowlist":"f.test"}`, "domain x.test tree block + domain f.test tree allow"},
		{"exceptions on the path", "json:allow.a", `{"allow":{"a":["f.test"]}}`, "domain f.test tree block"},
		{"an object that says what the list asks for", "json:ips", `{"ips":{"action":"block","domains":["a.test"]}}`, "domain a.test tree block"},
		{"one that says what is said around it", "json:ips", `{"ips":{"domains":["a.test"],"action":"tempfail"},"action":"tempfail"}`, "domain a.test tree tempfail"},
		{"the same, first", "json:ips", `{"action":"allow","ips":{"action":"allow","domains":["a.test"]}}`, "domain a.test tree allow"},
		{"exceptions that say so", "json", `{"allow":{"action":"allow","domains":["a.test"]}}`, "domain a.test tree allow"},
		{"other members before many entries", "json:ips", `{` + strings.Repeat(`"x":{},`, 1001) + `"ips":["a.test"],"action":"tempfail"}`,
			strings.Repeat("skip other-member + ", 1001) + "domain a.test tree tempfail"},
		{"many refusals", "json:ips", `{"ips":["a.test",` + strings.Repeat(`7,`, 2500) + `"b.test"],"action":"tempfail"}`,
			strings.Repeat("err syntax + ", 501) + "domain a.test tree tempfail + " + strings.Repeat("err syntax + ", 1999) + "domain b.test tree tempfail"},
		{"a list that allows", "json", `["a.test"]`, "domain a.test tree block"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := taken(t, tt.text, lists.Settings{Format: tt.format})
			testkit.Equal(t, tt.text, strings.Join(got, " + "), tt.want)
		})
	}
}

func TestJSONListOfExceptions(t *testing.T) {
	got, _, err := items(t, `{"domains":["a.test"],"allow":["b.test","!c.test"],"block":["d.test"]}`,
		lists.Settings{Format: "json", Action: lists.Allow})
	testkit.Must(t, err)
	equal(t, got, []string{"domain a.test tree allow", "domain b.test tree allow", "err unsupported-action", "err unsupported-action"})
}

func TestJSONIsRefused(t *testing.T) {
	for _, tt := range []struct{ name, format, text, want string }{
		{"unclosed array", "json", `["a.test"`, "json: the text ends in the middle"},
		{"unclosed string", "json", `["a.test`, "json: the text ends in the middle"},
		{"empty file", "json", ``, "json: the text ends in the middle"},
		{"trailing comma", "json", "[\"a.test\",\n]", ":2: json: invalid character"},
		{"two values", "json", `["a.test"] ["b.test"]`, ":1: json: more text behind"},
		{"garbage behind", "json", `["a.test"] x`, "json: invalid character 'x'"},
		{"a string", "json", `"a.test"`, ":1: json: neither an array nor an object"},
		{"no known member", "json", `{"foo":["a.test"]}`, "json: no member that is known to hold a list; declare json:foo[]"},
		{"nested", "json", `{"data":[{"ipAddress":"198.51.100.7","when":"2026-11-28T10:00:00Z"}]}`, "declare json:data[].ipAddress"},
		{"JSON lines without a path", "auto", "{\"ip\":\"198.51.100.7\",\"asn\":\"AS64500\"}\n{\"ip\":\"198.51.100.8\"}\n", "no member that is known to hold a list; declare json:ip"},
		{"a path that leads nowhere", "json:data[].address", `{"data":[{"ip":"198.51.100.7"}]}`, "declare"},
		{"an action behind a long list", "json:names", `{"names":[` + strings.Repeat(`"a.test",`, 1001) + `"b.test"],"action":"allow"}`, `json: "action" stands behind more than 1000 entries`},
		{"no such member", "json:bar", "{\"foo\":[\"a.test\"]\n}", `:2: json: no member "bar"`},
		{"too deep", "json", strings.Repeat("[", 1001), "json: more than 1000 arrays and objects in each other"},
		{"too deep in another member", "json", `{"x":` + strings.Repeat("[", 2000), "json: more than 1000 arrays and objects in each other"},
		{"a string without bounds", "json", `["` + strings.Repeat("a", 2<<20), "json: a string, a number or a gap of more than 1048576 octets"},
		{"a gap without bounds", "json", `[` + strings.Repeat(" ", 2<<20), "json: a string, a number or a gap of more than 1048576 octets"},
		{"a number without bounds", "json", `[` + strings.Repeat("1", 2<<20), "json: a string, a number or a gap of more than 1048576 octets"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, sum, err := items(t, tt.text, lists.Settings{Format: tt.format})
			fe, ok := errors.AsType[*lists.FileError](err)
			if !ok || fe.Class != lists.JSON || !strings.Contains(err.Error(), tt.want) || sum.Verdict != lists.Refused {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestJSONPaths that cannot be, and hostile ones.
func TestJSONPaths(t *testing.T) {
	for arg, good := range map[string]bool{
		"json:ip": true, "json:[].ip": true, "json:[]": true, "json:data[].ip": true, "json:a[][].b": true, "json:*.x": true, "json:a b": true,
		"json:.a": false, "json:a.": false, "json:a..b": false, "json:a.[]": false, "json:" + strings.Repeat("a.", 10000) + "a": false,
	} {
		if err := lists.ParseFormat(arg); (err == nil) != good {
			t.Errorf("%.40s: %v", arg, err)
		}
	}
	for _, text := range []string{strings.Repeat(`{"a":`, 1_000_000), strings.Repeat("[", 1_000_000), `{"a":` + strings.Repeat("[", 1_000_000),
		strings.Repeat("{\""+strings.Repeat("k", 100)+"\":", 1_000_000)} {
		for _, format := range []string{"json", "json:a.a.a", "json:[].a", "json:*"} {
			if _, sum, err := items(t, text, lists.Settings{Format: format}); err == nil || !strings.HasPrefix(sum.Why, "json: ") {
				t.Errorf("%s of %.20s: %s", format, text, sum.Why)
			}
		}
	}
	_, sum, _ := items(t, `[".bulk.test"]`, lists.Settings{})
	if !strings.HasPrefix(sum.Why, "ambiguous: names with a leading dot") {
		t.Error(sum.Why)
	}
}

func TestJSONLinesAreCounted(t *testing.T) {
	for _, text := range []string{
		"[\n\"a.test\",\n\n\"b.test\"\n]\n",
		"[\r\n\"a.test\",\r\n\r\n\"b.test\"\r\n]",
		"[\r\"a.test\",\r\r\"b.test\"\r]\r",
	} {
		var at []int
		sum, err := lists.ReadFile(t.Context(), testkit.File(t, "list", text), lists.Settings{Format: "json"}, func(it *lists.Item) error {
			at = append(at, it.Line)
			return nil
		})
		if err != nil || sum.Lines != 5 || len(at) != 2 || at[0] != 2 || at[1] != 4 {
			t.Errorf("%q: lines %v of %d, %v; want 2 and 4 of 5", text, at, sum.Lines, err)
		}
	}
}
