package resp

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/internal/testkit/race"
	"blockd/lists"
	"blockd/policy/verdict"
)

// A clear sender allocates nothing, alone or among others.
func TestClearSenderAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	r := newRig(t)
	c := newConn(r.open(t), nil)
	for name, input := range map[string][]byte{
		"SISMEMBER":        encode("SISMEMBER", "spam", "someone@clear.example"),
		"100 of SISMEMBER": bytes.Repeat(encode("SISMEMBER", "senders", "someone@clear.example"), 100),
		"SMISMEMBER":       encode("SMISMEMBER", "senders", "someone@clear.example", "x@clear.example", "y@clear.example"),
		"HGET":             encode("HGET", "senders", "someone@clear.example"),
	} {
		once := func() {
			c.in, c.r, c.out = append(c.in[:0], input...), 0, c.out[:0]
			if _, err := c.answerAll(); err != nil || len(c.out) == 0 {
				t.Fatalf("%q, %v", c.out, err)
			}
		}
		once()
		testkit.Equal(t, name, testing.AllocsPerRun(100, once), 0)
	}
}

// However the octets of commands are cut, the answers are the same, and in order.
func TestAnswersDoNotDependOnPackets(t *testing.T) {
	r := newRig(t)
	address, _ := r.serve(t)
	var input, want bytes.Buffer
	one := dial(t, address)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 600 {
		command := [][]string{
			{"SISMEMBER", "spam", "x@bad.example"}, {"SISMEMBER", "senders", "x@clear.example"}, {"PING"}, {"ECHO", strings.Repeat("x", rng.IntN(3000))},
			{"HMGET", "senders", "x@bad.example", "192.0.2.8", "a b@clear.example", "192.0.2.0/24"}, {"SISMEMBER", "spam", "a b"}, {"FOO"}, {"EXISTS", "spam", "spam:x@bad.example"},
			{"TYPE", "nothing"}, {"SCARD", "spam"}, {"GET", "nothing:x"}, {"SISMEMBER", "x"},
		}[rng.IntN(12)]
		input.Write(encode(command...))
		want.WriteString(one.ask(t, command...))
	}
	for _, cut := range []int{1, 7, 1000, 40_000, input.Len()} {
		p := dial(t, address)
		go func() {
			for rest := input.Bytes(); len(rest) > 0; {
				n := min(cut, len(rest))
				p.Write(rest[:n])
				rest = rest[n:]
			}
		}()
		got := make([]byte, want.Len())
		if _, err := io.ReadFull(p.r, got); err != nil {
			t.Fatalf("cut into %d: %v after %q", cut, err, got)
		}
		if !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("cut into %d: other answers", cut)
		}
	}
}

func TestBoundsOfOneCommand(t *testing.T) {
	r := newRig(t)
	address, _ := r.serve(t)
	bulk := strings.Repeat("x", 64<<10)
	for _, tt := range []struct{ name, input, want, fault string }{
		{"as many arguments as there may be", "*1024\r\n$4\r\nPING\r\n" + strings.Repeat("$1\r\nx\r\n", 1023), "-ERR wrong number", ""},
		{"one more", "*1025\r\n", "-ERR Protocol error: too big", "too-long"},
		{"the largest argument", string(encode("ECHO", bulk)), "$65536\r\n", ""},
		{"one octet more", "*2\r\n$4\r\nECHO\r\n$65537\r\n", "-ERR Protocol error: too big", "too-long"},
		{"many large arguments", "*20\r\n" + strings.Repeat("$65536\r\n"+bulk+"\r\n", 16), "-ERR Protocol error: too big", "too-long"},
		{"a huge number", "*99999999999999999999\r\n", "-ERR Protocol error: want", "malformed"},
		{"a negative length", "*1\r\n$-5\r\n", "-ERR Protocol error: want", "malformed"},
		{"minus without end", "*" + strings.Repeat("-", 100_000), "-ERR Protocol error: want", "malformed"},
		{"no line end behind an argument", "*1\r\n$4\r\nPINGxx", "-ERR Protocol error: want", "malformed"},
		{"no length", "*1\r\nPING\r\n", "-ERR Protocol error: want", "malformed"},
		{"a bare line feed", "*1\n$4\nPING\n", "-ERR Protocol error: want", "malformed"},
		{"another protocol of the library", "$4 PING\r\n", "-ERR Protocol error: want", "malformed"},
		{"a long line", strings.Repeat("x ", 600), "-ERR Protocol error: too big", "too-long"},
		{"a line", "PING\r\n", "+PONG", ""},
		{"a line with quotes", "ECHO \"a b\"\r\n", "$3\r\na b", ""},
		{"an open quote", "ECHO \"a b\r\n", "-ERR Protocol error: want", "malformed"},
		{"empty lines and arrays of nothing", "\r\n*0\r\n*-1\r\nPING\r\n", "+PONG", ""},
		{"a web browser", "POST / HTTP/1.1\r\nHost: x\r\n\r\n", "", "http"},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 2000), "-ERR Protocol error: too big", "too-long"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := r.count(t, "blockd_resp_faults_total", cmp.Or(tt.fault, "panic"))
			p := dial(t, address)
			go io.WriteString(p, tt.input)
			var got []byte
			if tt.fault == "" {
				got = make([]byte, len(tt.want))
				io.ReadFull(p.r, got)
			} else {
				got, _ = io.ReadAll(p.r)
			}
			testkit.Begins(t, "the answer", string(got), tt.want)
			if tt.fault != "" && r.count(t, "blockd_resp_faults_total", tt.fault) != before+1 {
				t.Errorf("not counted as %s", tt.fault)
			}
		})
	}
}

// Without a generation, or with a defect, the answer is an error that clients know.
func TestFaultOfOursIsAnError(t *testing.T) {
	r := newRig(t)
	address, _ := r.serve(t)
	ix := r.live.Swap(nil)
	for _, words := range [][]string{{"SISMEMBER", "spam", "x@bad.example"}, {"SMISMEMBER", "senders", "x@bad.example", "y@clear.example"}, {"HGET", "spam", "x"},
		{"GET", "spam:x"}, {"BF.EXISTS", "spam", "x"}, {"EXISTS", "spam:x"}} {
		got := dial(t, address).ask(t, words...)
		if !strings.HasPrefix(got, "-LOADING blockd: ") && !strings.HasPrefix(got, "-TRYAGAIN blockd: ") {
			t.Errorf("%q: %q", words, got)
		}
	}
	r.live.Store(ix)
	dial(t, address).wants(t, ":1\r\n", "SISMEMBER", "spam", "x@bad.example")
}

// Nothing is said of a list that was never read, whether its file is refused or not there at all. The other lists
// answer, and so do those without which blockd may do.
func TestUnreadListIsAnError(t *testing.T) {
	r := newRig(t)
	read := r.live.Load()
	refused := indexes.Source(t, "spam", "bad.example\n")
	testkit.Must(t, os.Remove(refused.Path))
	keepGoing := index.Options{KeepGoing: true}
	none := indexes.BuildWith(t, filepath.Join(t.TempDir(), "none.bdx"), keepGoing, refused)
	some := indexes.BuildWith(t, filepath.Join(t.TempDir(), "some.bdx"), keepGoing, refused, indexes.Source(t, "trial", "trial.example\n"))
	r.settings.Required = []string{"spam", "access", "trial"} // friends is optional
	address, _ := r.serve(t)
	p := dial(t, address)
	const spam, all = `-LOADING blockd: the list "spam" was never read: see blockd lists`, "-LOADING blockd: none of the lists was ever read: see blockd lists"
	for _, tt := range []struct {
		ask              string
		none, some, read string
	}{
		{"SISMEMBER spam x@bad.example", spam, spam, ":1"},
		{"SISMEMBER raw:spam bad.example", spam, spam, ":1"},
		{"SMISMEMBER spam x@bad.example x@clear.example", spam, spam, "*2"},
		{"HGET spam x@clear.example", spam, spam, "$-1"},
		{"HMGET spam x@clear.example", spam, spam, "*1"},
		{"GET spam:x@clear.example", spam, spam, "$-1"},
		{"MGET trial:x@clear.example spam:x@clear.example", "-LOADING", spam, "*2"},
		{"EXISTS spam spam:x@clear.example", spam, spam, ":1"},
		{"TYPE spam:x@clear.example", spam, spam, "+none"},
		{"BF.EXISTS spam x@clear.example", spam, spam, ":0"},
		{"BF.MEXISTS spam x@clear.example", spam, spam, "*1"},
		{"SCARD spam", spam, spam, ":6"},
		{"BF.INFO spam", spam, spam, "*10"},
		{"SISMEMBER access x@clear.example", `-LOADING blockd: the list "access"`, `-LOADING blockd: the list "access"`, ":0"},
		{"SISMEMBER friends x@clear.example", ":0", ":0", ":0"},
		{"SISMEMBER trial x@clear.example", "-LOADING", ":0", ":0"},
		{"SISMEMBER senders x@clear.example", all, ":0", ":0"},
		{"HGET senders x@clear.example", all, "$-1", "$-1"},
		{"SCARD senders", all, ":1", ":10"},
		{"EXISTS spam", ":1", ":1", ":1"},
	} {
		for _, g := range []struct {
			name string
			ix   *index.Index
			want string
		}{{"none", none, tt.none}, {"some", some, tt.some}, {"all", read, tt.read}} {
			r.live.Store(g.ix)
			testkit.Begins(t, fmt.Sprintf("%s, of %s lists", tt.ask, g.name), p.ask(t, strings.Fields(tt.ask)...), g.want)
		}
	}
	if n := r.count(t, "blockd_resp_answers_total", "error"); n == 0 {
		t.Error("not counted as errors")
	}
}

func TestPasswords(t *testing.T) {
	r := newRig(t)
	r.settings.Users = map[string]string{"rspamd": testkit.File(t, "rspamd", "open sesame\n"), "default": testkit.File(t, "default", "other")}
	address, _ := r.serve(t)
	// Tests come from loopback, which need not log in: this session is one of another machine.
	p, c, _ := r.session(t, func(c *conn) { c.trusted = false })
	for _, tt := range []struct {
		words []string
		want  string
	}{
		{[]string{"PING"}, "-NOAUTH Authentication required.\r\n"},
		{[]string{"SISMEMBER", "spam", "x@bad.example"}, "-NOAUTH Authentication required.\r\n"},
		{[]string{"HELLO", "3"}, "-NOAUTH HELLO must be"},
		{[]string{"AUTH", "rspamd", "wrong"}, "-WRONGPASS"},
		{[]string{"AUTH", "nobody", "open sesame"}, "-WRONGPASS"},
		{[]string{"AUTH", "other"}, "+OK"},
		{[]string{"SISMEMBER", "spam", "x@bad.example"}, ":1\r\n"},
		{[]string{"RESET"}, "+RESET"},
	} {
		testkit.Begins(t, fmt.Sprintf("%q", tt.words), p.ask(t, tt.words...), tt.want)
	}
	c.Stop()
	one := dial(t, address)
	testkit.Begins(t, "HELLO", one.ask(t, "HELLO", "3", "AUTH", "rspamd", "open sesame", "SETNAME", "me"), "%7")
	for range maxWrong {
		testkit.Value(one.Write(encode("AUTH", "x")))(t)
	}
	if rest, _ := io.ReadAll(one.r); !strings.HasSuffix(string(rest), "-ERR too many wrong passwords\r\n") {
		t.Errorf("%q behind wrong passwords", rest)
	}
}

func TestFilesOfPasswords(t *testing.T) {
	for name, text := range map[string]string{"empty": "\n", "two lines": "a\nb\n", "too long": strings.Repeat("x", 2000)} {
		path := testkit.File(t, "password", text)
		testkit.Got(readUsers(map[string]string{"x": path}))(t, name, "…", "…"+path+"…")
	}
	path := testkit.File(t, "password", "one\r\n")
	u, err := readUsers(map[string]string{"x": path})
	if err != nil || !u.knows([]byte("x"), []byte("one")) || u.knows([]byte("y"), nil) || u.knows([]byte("x"), nil) {
		t.Fatalf("%v, or another password", err)
	}
	testkit.Write(t, path, "")
	if err := u.read(map[string]string{"x": path}); err == nil || !u.knows([]byte("x"), []byte("one")) {
		t.Errorf("%v, or the old password is gone", err)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	r := newRig(t)
	r.settings.MaxConnections = 1
	address, _ := r.serve(t)
	first := dial(t, address)
	first.ask(t, "PING")
	if got, _ := io.ReadAll(dial(t, address).r); string(got) != "-ERR max number of clients reached\r\n" {
		t.Errorf("%q for one too many", got)
	}
	first.ask(t, "PING")
	r.counts(t, 1, "blockd_resp_connections_refused_total", "total")
}

func TestPeersOfOtherNetworks(t *testing.T) {
	r := newRig(t)
	r.settings.AllowFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	address, _ := r.serve(t)
	if got, _ := io.ReadAll(dial(t, address).r); len(got) > 0 {
		t.Errorf("%q", got)
	}
	r.counts(t, 1, "blockd_resp_connections_refused_total", "peer")
}

// A stop answers what has come, waits for what has begun, and closes the idle.
func TestStop(t *testing.T) {
	r := newRig(t)
	address, stop := r.serve(t)
	idle, half := dial(t, address), dial(t, address)
	idle.ask(t, "PING")
	command := encode("SISMEMBER", "spam", "x@bad.example")
	half.Write(append(encode("PING"), command[:10]...)) // an answer to the first shows that the second was read
	half.answer(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		stop()
	}()
	testkit.Got(idle.r.ReadByte())(t, "idle connection", "…", io.EOF)
	half.Write(command[10:])
	if got, _ := io.ReadAll(half.r); string(got) != ":1\r\n" {
		t.Errorf("half a command: %q", got)
	}
	<-ended
}

// What connections hold while they wait is bounded for all of them.
func TestHeldMemoryIsBounded(t *testing.T) {
	r := newRig(t)
	address, _ := r.serve(t)
	r.server.held.Store(heldSize) // as if others held it
	p := dial(t, address)
	go p.Write([]byte("*20\r\n$65536\r\n" + strings.Repeat("x", 30_000)))
	if got, _ := io.ReadAll(p.r); !strings.HasPrefix(string(got), "-TRYAGAIN blockd: ") {
		t.Errorf("%q", got)
	}
	testkit.Eventually(t, "nothing to be held", func() bool { return r.server.held.Load() == heldSize })
	dial(t, address).wants(t, ":1\r\n", "SISMEMBER", "spam", "x@bad.example")
}

// A waiting connection has no buffer, and one with a little of a command has that.
func TestWaitingConnectionHoldsNothing(t *testing.T) {
	r := newRig(t)
	s := r.open(t)
	p, c, done := r.session(t, nil)
	p.Write(bytes.Repeat(encode("SISMEMBER", "spam", "x@bad.example"), 1000))
	for range 1000 {
		p.answer(t)
	}
	p.Write([]byte("*1\r\n$4"))
	p.Conn.(*net.UnixConn).CloseWrite()
	<-done
	if cap(c.in) > 16 || c.batch != nil || c.out != nil || c.args != nil || s.held.Load() != 0 {
		t.Errorf("in %d, out %d, arguments %d, held %d", cap(c.in), cap(c.out), cap(c.args), s.held.Load())
	}
}

// A stop in the middle of a pipeline answers what has come of it, also if the buffer ends with a command.
func TestStopWithinPipeline(t *testing.T) {
	r := newRig(t)
	s := r.open(t)
	near, far := socketPair(t)
	command := encode("ECHO", strings.Repeat("x", 43))
	testkit.MustEqual(t, "a command fits", inputSize%len(command), 0)
	testkit.Value(near.Write(bytes.Repeat(command, 2*inputSize/len(command))))(t)
	c := newConn(s, far)
	c.Stop()
	go c.Run()
	got, err := io.ReadAll(near)
	want := strings.Repeat("$43\r\n"+strings.Repeat("x", 43)+"\r\n", 2*inputSize/len(command))
	if err != nil || string(got) != want {
		t.Errorf("%v, %d octets of %d", err, len(got), len(want))
	}
}

// Commands after MULTI count with what all connections hold, and their answers are not kept until the last.
func TestTransactionIsBounded(t *testing.T) {
	r := newRig(t)
	s := r.open(t)
	p, _, done := r.session(t, nil)
	p.ask(t, "MULTI")
	p.ask(t, "ECHO", strings.Repeat("x", 2000))
	if n := s.held.Load(); n < 2000 {
		t.Errorf("%d octets are held", n)
	}
	p.ask(t, "DISCARD")
	testkit.Equal(t, "octets are held behind DISCARD", s.held.Load(), 0)
	p.ask(t, "MULTI")
	s.held.Add(heldSize) // as if others held it
	testkit.Begins(t, "the answer", p.ask(t, "ECHO", "x"), "-TRYAGAIN blockd: ")
	s.held.Add(-heldSize)
	testkit.Begins(t, "the answer", p.ask(t, "EXEC"), "-EXECABORT")
	p.ask(t, "MULTI")
	const n = 500
	for range n {
		p.Write(encode("COMMAND"))
		p.answer(t)
	}
	p.Write(encode("EXEC"))
	testkit.Eventually(t, "answers to wait for their reader", func() bool { return s.held.Load() > flushSize })
	if n := s.held.Load(); n > 1<<20 {
		t.Errorf("%d octets of answers are kept at once", n)
	}
	testkit.MustGot(p.r.ReadString('\n'))(t, "the head", fmt.Sprintf("*%d\r\n", n), "…")
	for range n {
		if one := p.answer(t); !strings.HasPrefix(one, "*") {
			t.Fatalf("%.100q", one)
		}
	}
	p.Close()
	<-done
	testkit.Equal(t, "octets are held at the end", s.held.Load(), 0)
}

// What is said of a defect stands in the place of the answer, and not within it.
func TestDefectWithinAnArray(t *testing.T) {
	r := newRig(t)
	c := newConn(r.open(t), nil)
	b := &batch{questions: []question{{in: c.sets["spam"]}, {}}}
	func() {
		defer func() {
			if recover() == nil {
				t.Fatal("no defect")
			}
		}()
		c.word("OK")
		c.reply(&lookup{form: formInts, n: 2}, b, 0, []verdict.Verdict{{Kind: verdict.Clear}, {Kind: verdict.Clear}})
	}()
	testkit.Equal(t, "the answer", string(c.out), "+OK\r\n")
}

// While the lists that are waited for are unread, what others list is listed all the same: mail is refused by it too.
func TestListedBeforeTheRequiredListsWereRead(t *testing.T) {
	r := newRig(t)
	r.settings.Required = []string{"spam"}
	missing := indexes.Source(t, "spam", "")
	missing.Path += ".missing"
	r.live.Store(indexes.BuildWith(t, filepath.Join(t.TempDir(), "some.bdx"), index.Options{KeepGoing: true}, missing,
		indexes.Source(t, "access", "new.example REJECT seen today\n")))
	address, _ := r.serve(t)
	p := dial(t, address)
	for ask, want := range map[string]string{
		"SISMEMBER senders x@new.example":                  ":1\r\n",
		"HGET senders x@new.example":                       "$12\r\n1 seen today\r\n",
		"SISMEMBER senders x@clear.example":                "-LOADING",
		"SMISMEMBER senders x@new.example x@clear.example": "-LOADING",
		"SISMEMBER spam x@new.example":                     "-LOADING",
	} {
		testkit.Begins(t, ask, p.ask(t, strings.Fields(ask)...), want)
	}
}

// The entries of a file that was refused are in no answer, and so in no number.
func TestSizeIsWithoutRefusedFiles(t *testing.T) {
	r := newRig(t)
	cut := indexes.Source(t, "spam", "[\"one.example\"")
	cut.Settings.Format = "json"
	ix := indexes.BuildWith(t, filepath.Join(t.TempDir(), "half.bdx"), index.Options{KeepGoing: true}, indexes.Source(t, "spam", "bad.example\nworse.example\n"), cut)
	if row := ix.Lists()[1]; row.Summary.Verdict != lists.Refused || row.Summary.Entries == 0 {
		t.Fatalf("the second file is %s, of %d entries; want it refused after one", row.Summary.Verdict, row.Summary.Entries)
	}
	r.live.Store(ix)
	address, _ := r.serve(t)
	p := dial(t, address)
	for _, name := range []string{"spam", Verdict} {
		p.wants(t, ":2\r\n", "SCARD", name)
	}
}
