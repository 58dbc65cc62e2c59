package program

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/d--j/go-milter"
	"github.com/miekg/dns"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
)

// wish is a configuration by what random changes of it may touch.
type wish struct {
	at          map[string]string // doors and their addresses; a door without one is shut
	certificate string            // its folder; "" is none
	size        int               // max_message_size, in MiB
	mail        string            // the folder of upstream's Maildir
	upstream    string            // instead of that Maildir, if it is set
	lists       map[string]wishedList
	exempt      string
	contact     string
	policy      bool // desk@here.example has a policy of its own
}

type wishedList struct {
	file         int // which of its two files
	onMatch      string
	text, action string
}

// movable are the doors, and the addresses that each may have.
type movable map[string][]string

// clone returns a copy that may be changed.
func (w wish) clone() wish {
	w.at, w.lists = maps.Clone(w.at), maps.Clone(w.lists)
	return w
}

// text is w as config.toml. The files of lists are in shared.
func (w wish) text(shared string) string {
	var b strings.Builder
	upstream := w.upstream
	if upstream == "" {
		upstream = "maildir:" + w.mail
	}
	fmt.Fprintf(&b, "[index]\npath = \"blockd.bdx\"\nquiet = \"50ms\"\nrecent = 0\nmax_freed = 1.0\n\n")
	fmt.Fprintf(&b, "[smtp]\nlisten = %q\nhostname = \"filter.here.example\"\nupstream = %q\nclient_info = \"none\"\n%smax_connections_per_ip = 1000\n"+
		"drain_timeout = \"30s\"\nmax_message_size = \"%d MiB\"\nrecipients_exempt = [%q]\n", w.at["smtp"], upstream, e2e.ManyErrors, w.size, w.exempt)
	if w.certificate != "" {
		fmt.Fprintf(&b, "tls_cert = %q\ntls_key = %q\n", filepath.Join(w.certificate, "cert.pem"), filepath.Join(w.certificate, "key.pem"))
		fmt.Fprintf(&b, "tls_listen = %q\n", w.at["smtps"])
	}
	fmt.Fprintf(&b, "\n[milter]\nlisten = %q\n\n[postfix]\npolicy_listen = %q\n\n[http]\nlisten = %q\nmax_rate = 0\n\n[resp]\nlisten = %q\n\n", w.at["milter"], w.at["policy"], w.at["http"], w.at["resp"])
	fmt.Fprintf(&b, "[refusal]\ncontact = %q\n\n", w.contact)
	names := slices.Sorted(maps.Keys(w.lists))
	for _, name := range names {
		l := w.lists[name]
		fmt.Fprintf(&b, "[[list]]\nname = %q\npath = %q\naction = %q\n", name, filepath.Join(shared, fmt.Sprintf("%s.%d.txt", name, l.file)), l.action)
		if l.action == "block" {
			fmt.Fprintf(&b, "on_match = %q\ntext = %q\n", l.onMatch, l.text)
		} else {
			fmt.Fprintf(&b, "exceptions = \"all\"\n")
		}
		fmt.Fprintln(&b)
	}
	if w.policy {
		fmt.Fprintf(&b, "[[policy]]\nrecipients = [\"desk@here.example\"]\nlists = [%q]\n\n", names[0])
	}
	if address := w.at["dns"]; address != "" {
		fmt.Fprintf(&b, "[dns]\nlisten = %q\n[[dns.zone]]\nname = \"bl.here.example\"\nkind = \"domain\"\n\n", address)
	}
	return b.String()
}

// change changes one thing of w, and says which.
func (w *wish) change(r *rand.Rand, doors movable, certificates []string) string {
	other := func(all []string, now string) string {
		for {
			if next := all[r.IntN(len(all))]; next != now {
				return next
			}
		}
	}
	switch r.IntN(9) {
	case 0, 1, 2:
		door := slices.Sorted(maps.Keys(doors))[r.IntN(len(doors))]
		w.at[door] = other(doors[door], w.at[door])
		if door == "smtps" && w.at[door] != "" && w.certificate == "" {
			w.certificate = certificates[0]
		}
		return door
	case 3:
		if w.certificate = other(append([]string{""}, certificates...), w.certificate); w.certificate == "" {
			w.at["smtps"] = ""
		}
		return "certificate"
	case 4:
		w.size = 1 + w.size%40
		return "limit"
	case 5:
		w.mail = other([]string{"mail1", "mail2"}, w.mail)
		return "upstream"
	case 6:
		names := []string{"a", "b", "c"}
		name := names[r.IntN(3)]
		if _, there := w.lists[name]; there && len(w.lists) > 1 && r.IntN(2) == 0 {
			delete(w.lists, name)
			return "list removed"
		}
		w.lists[name] = wishedList{
			file: 1 + r.IntN(2), onMatch: []string{"refuse", "tempfail"}[r.IntN(2)], action: []string{"block", "block", "allow"}[r.IntN(3)],
			text: fmt.Sprintf("not from %%sender, says %s %d", name, r.IntN(100)),
		}
		return "list"
	case 7:
		w.policy = !w.policy
		return "policy"
	}
	w.exempt, w.contact = other([]string{"desk", "abuse"}, w.exempt), fmt.Sprintf("https://help.example/%d", r.IntN(100))
	return "texts"
}

// spoilt is w with one fault, what it is, and what is said of it.
func (w wish) spoilt(r *rand.Rand, shared, taken, badCertificate string) (text, what, want string) {
	line := func(text, after, key string) string {
		begin := strings.Index(text, after)
		return fmt.Sprintf(`config\.toml:%d: `, 1+strings.Count(text[:begin+strings.Index(text[begin:], key)], "\n"))
	}
	switch r.IntN(6) {
	case 0:
		text = w.text(shared)
		quotes := regexp.MustCompile(`"[^"\n]+"`).FindAllStringIndex(text, -1)
		at := quotes[r.IntN(len(quotes))]
		return text[:at[0]+1+r.IntN(at[1]-at[0]-1)], "torn", `config\.toml:[0-9]+: `
	case 1:
		return "", "empty", `config\.toml:1: the file is empty`
	case 2:
		door := []string{"smtp", "milter", "policy", "http", "resp", "dns"}[r.IntN(6)]
		w = w.clone()
		w.at[door] = taken
		key := map[string]string{"smtp": "smtp.listen", "milter": "milter.listen", "policy": "postfix.policy_listen", "http": "http.listen", "resp": "resp.listen", "dns": "dns.listen"}[door]
		table, name, _ := strings.Cut(key, ".")
		text = w.text(shared)
		return text, "address taken: " + door, line(text, "["+table+"]", name+" = ") + regexp.QuoteMeta(key+": "+taken+" is in use")
	case 3:
		w.certificate = badCertificate
		text = w.text(shared)
		return text, "certificate", line(text, "[smtp]", "tls_cert") + `smtp\.tls_cert: `
	case 4:
		text = w.text(shared) + "[log]\nlevel = \"loud\"\n"
		return text, "value", line(text, "[log]", "level") + `log\.level: `
	}
	text = w.text(shared) + "[log]\nlevle = \"info\"\n"
	return text, "unknown key", line(text, "[log]", "levle")
}

// question is what clients ask at a door; without a sender, at the filter, for the certificate.
type question struct{ door, sender, recipient string }

// questionsOf are all that is asked at a door.
func questionsOf(door string) (all []question) {
	if door == "smtp" {
		all = append(all, question{door: door})
	}
	for _, sender := range []string{"x@a.example", "x@b.example", "x@c.example", "friend@there.example"} {
		for _, recipient := range []string{"user@here.example", "desk@here.example"} {
			all = append(all, question{door, sender, recipient})
		}
	}
	return all
}

// talk is one connection at a door.
type talk struct {
	ask   func(q question, subject string) (answer string, err error) // subject: of the message, if one is sent; "" sends none
	close func()
}

// errGone is the error of a server that ends a connection in good order.
var errGone = errors.New("421")

const patient = time.Minute // what must be answered is, within this

// dialDoor connects to a door.
func dialDoor(door, address string) (*talk, error) {
	switch door {
	case "dns": // by UDP, and once: a question that is lost is not asked again
		asks := dns.Client{Timeout: patient / 3}
		return &talk{close: func() {}, ask: func(q question, _ string) (string, error) {
			_, domain, _ := strings.Cut(q.sender, "@")
			reply, _, err := asks.Exchange(new(dns.Msg).SetQuestion(domain+".bl.here.example.", dns.TypeA), address)
			if err != nil {
				return "", err
			}
			found := dns.RcodeToString[reply.Rcode]
			for _, rr := range reply.Answer {
				if a, ok := rr.(*dns.A); ok {
					found += " " + a.A.String()
				}
			}
			return found, nil
		}}, nil
	case "milter":
		network, where := e2e.NetworkOf(address)
		s, err := milter.NewClient(network, where, milter.WithReadTimeout(patient)).Session(milter.NewMacroBag())
		if err != nil {
			return nil, err
		}
		first := true
		return &talk{close: func() { s.Close() }, ask: func(q question, _ string) (string, error) { return askByMilter(s, &first, q) }}, nil
	}
	network, where := e2e.NetworkOf(address)
	conn, err := net.DialTimeout(network, where, patient)
	if err != nil {
		return nil, err
	}
	t := &talk{close: func() { conn.Close() }}
	r := bufio.NewReader(conn)
	bounded := func(ask func(question, string) (string, error)) {
		t.ask = func(q question, subject string) (string, error) {
			conn.SetDeadline(time.Now().Add(patient))
			return ask(q, subject)
		}
	}
	switch door {
	case "policy":
		bounded(func(q question, _ string) (string, error) {
			fmt.Fprintf(conn, "request=smtpd_access_policy\nprotocol_state=RCPT\nprotocol_name=ESMTP\nhelo_name=client.example\nqueue_id=\nsender=%s\n"+
				"recipient=%s\nclient_address=192.0.2.1\n\n", q.sender, q.recipient)
			line, err := r.ReadString('\n')
			if err == nil {
				_, err = r.ReadString('\n')
			}
			return e2e.Plain(line), err
		})
	case "resp":
		bounded(func(q question, _ string) (string, error) {
			fmt.Fprintf(conn, "*3\r\n$9\r\nSISMEMBER\r\n$7\r\nsenders\r\n$%d\r\n%s\r\n", len(q.sender), q.sender)
			return r.ReadString('\n')
		})
	case "http":
		bounded(func(q question, _ string) (string, error) {
			fmt.Fprintf(conn, "GET /v1/check?sender=%s HTTP/1.1\r\nHost: %s\r\n\r\n", q.sender, where)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			var answer struct {
				Verdict string
				Matches []struct{ List, Action string }
			}
			err = json.NewDecoder(resp.Body).Decode(&answer)
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
			}
			return fmt.Sprint(resp.StatusCode, answer), err
		})
	default: // "smtp", "smtps"
		shown := "no certificate"
		if door == "smtps" {
			secured := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
			conn.SetDeadline(time.Now().Add(patient))
			if err := secured.Handshake(); err != nil {
				conn.Close()
				return nil, err
			}
			shown = secured.ConnectionState().PeerCertificates[0].Subject.CommonName
			conn, r = secured, bufio.NewReader(secured)
		}
		x := &e2e.Exchange{Conn: conn, R: r}
		say := func(line string) (string, error) {
			if _, err := io.WriteString(x.Conn, line); err != nil {
				return "", err
			}
			got := x.HearFor(patient)
			if got == "" {
				return "", io.ErrUnexpectedEOF
			}
			if strings.HasPrefix(got, "421") {
				return "", fmt.Errorf("%w in answer to %.20q: %s", errGone, line, got)
			}
			return got, nil
		}
		hello := ""
		for _, line := range []string{"", "EHLO client.there.example\r\n"} {
			if hello, err = say(line); err != nil {
				conn.Close()
				return nil, err
			}
		}
		size := regexp.MustCompile(`SIZE \d+`).FindString(hello)
		bounded(func(q question, subject string) (string, error) {
			if q.sender == "" {
				if !strings.Contains(hello, "STARTTLS") {
					return shown, nil
				}
				if _, err := say("STARTTLS\r\n"); err != nil {
					return "", err
				}
				secured := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
				if err := secured.Handshake(); err != nil {
					return "", err
				}
				x.Conn, x.R, hello = secured, bufio.NewReader(secured), ""
				shown = secured.ConnectionState().PeerCertificates[0].Subject.CommonName
				return shown, nil
			}
			if got, err := say("MAIL FROM:<" + q.sender + ">\r\n"); err != nil || !strings.HasPrefix(got, "250") {
				return got, err
			}
			got, err := say("RCPT TO:<" + q.recipient + ">\r\n")
			answer := strings.Join([]string{door, size, e2e.Plain(got)}, "; ")
			if door == "smtps" {
				answer += "; " + shown
			}
			switch {
			case err != nil:
				return "", err
			case !strings.HasPrefix(got, "250") || subject == "":
				_, err = say("RSET\r\n")
				return answer, err
			}
			if _, err := say("DATA\r\n"); err != nil {
				return "", err
			}
			if got, err = say("Subject: " + subject + "\r\n\r\nHello.\r\n.\r\n"); err == nil && !strings.HasPrefix(got, "250") {
				return "the message: " + got, nil
			}
			return answer, err
		})
	}
	return t, nil
}

// askByMilter plays one message of an SMTP session, up to its recipient.
func askByMilter(s *milter.ClientSession, first *bool, q question) (string, error) {
	if *first {
		if _, err := s.Conn("client.example", milter.FamilyInet, 40000, "192.0.2.1"); err != nil {
			return "", err
		}
		if _, err := s.Helo("client.example"); err != nil {
			return "", err
		}
		*first = false
	}
	if _, err := s.Mail(q.sender, ""); err != nil {
		return "", err
	}
	got, err := s.Rcpt(q.recipient, "")
	if err != nil {
		return "", err
	}
	answer := fmt.Sprintf("%c %s", got.Type, e2e.Plain(got.SMTPReply))
	return answer, s.Abort(nil)
}

// stage is a configuration that was in force, and how a fresh daemon answers by it.
type stage struct {
	wish    wish
	answers map[question]string
}

// inForce are the configurations one after the other. From span's first to its last any may answer.
type inForce struct {
	mu     sync.Mutex
	stages []*stage
	oldest int
}

func (c *inForce) span() (oldest, newest int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.oldest, len(c.stages) - 1
}

func (c *inForce) at(i int) *stage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stages[i]
}

// begin lets s answer too, and settle lets s alone answer new connections.
func (c *inForce) begin(s *stage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stages = append(c.stages, s)
}

func (c *inForce) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.oldest = len(c.stages) - 1
}

// acceptedMail is mail that was accepted: where it may have gone, by its subject.
type acceptedMail struct {
	mu       sync.Mutex
	subjects map[string][]string
	perhaps  map[string]bool // the connection ended before the answer
}

// ask asks q once by a fresh connection, or by kept, which it replaces as needed. It returns what is wrong with the answer.
func (c *inForce) ask(q question, n int, kept **talk, since *int, mail *acceptedMail) string {
	from, _ := c.span()
	for {
		address := c.at(from).wish.at[q.door]
		if address == "" { // shut, or about to be opened
			return ""
		}
		subject, answer := "", ""
		var err error
		t := *kept
		if t == nil {
			*since = from
			t, err = dialDoor(q.door, address)
		}
		first := *since
		address = c.at(first).wish.at[q.door]
		if err == nil {
			if strings.HasPrefix(q.sender, "friend@") && strings.HasPrefix(q.door, "smtp") {
				subject = fmt.Sprintf("%s-%d-%d", q.door, n, rand.Uint64())
			}
			answer, err = t.ask(q, subject)
		}
		_, to := c.span()
		if subject != "" {
			var folders []string
			for i := first; i <= to; i++ {
				folders = append(folders, c.at(i).wish.mail)
			}
			mail.mu.Lock()
			mail.subjects[subject] = folders
			mail.perhaps[subject] = err != nil
			mail.mu.Unlock()
		}
		if err == nil {
			*kept = t
			if q.door == "dns" && first > 0 {
				first-- // the former process answers what comes by UDP within its grace of 0.1 s
			}
			for i := first; i <= to; i++ {
				// A connection of Postfix's services goes over to the new process also where its door has moved.
				if s := c.at(i); (s.wish.at[q.door] == address || q.door == "policy") && s.answers[q] == answer {
					return ""
				}
			}
			return fmt.Sprintf("%v at %s: %q, and not, by configurations %d to %d, %q", q, address, answer, first, to, c.at(to).answers[q])
		}
		if t != nil {
			t.close()
		}
		wasKept := *kept != nil
		*kept = nil
		switch {
		case wasKept && to > first: // it may end when another process has taken over
			from, _ = c.span()
			continue
		case wasKept:
			return fmt.Sprintf("%v at %s: a kept connection ended under configuration %d: %v", q, address, to, err)
		}
		// The address may have gone. Then that of a later configuration must answer.
		next := from + 1
		for next <= to && c.at(next).wish.at[q.door] == address {
			next++
		}
		if next > to {
			return fmt.Sprintf("%v at %s, configurations %d to %d: %v", q, address, from, to, err)
		}
		from = next
	}
}

// fresh asks everything of a daemon that begins with w, at addresses of its own.
func fresh(t *testing.T, w wish, shared string, spare map[string]string) *stage {
	t.Helper()
	s := &stage{w, map[question]string{}}
	if !t.Run("fresh", func(t *testing.T) { s.learn(t, shared, spare) }) {
		t.FailNow()
	}
	return s
}

func (s *stage) learn(t *testing.T, shared string, spare map[string]string) {
	w := s.wish
	there := w.clone()
	for door, address := range w.at {
		if address != "" {
			there.at[door] = spare[door]
		}
	}
	d := &e2e.Daemon{Dir: t.TempDir(), HTTP: there.at["http"]}
	testkit.Write(t, d.Path("config.toml"), there.text(shared))
	d.Start(t)
	for door, address := range there.at {
		if address == "" {
			continue
		}
		for _, q := range questionsOf(door) {
			answer, err := answerOf(q, address)
			if err != nil {
				t.Fatalf("a fresh daemon: %v: %v\n%s", q, err, d.Log)
			}
			s.answers[q] = answer
		}
	}
}

func answerOf(q question, address string) (string, error) {
	t, err := dialDoor(q.door, address)
	if err != nil {
		return "", err
	}
	defer t.close()
	return t.ask(q, "")
}

// probe holds that new connections are answered as by the fresh daemon of s, and that what is shut is shut.
func (s *stage) probe(t *testing.T, when string, doors movable) {
	t.Helper()
	for q, want := range s.answers {
		if q.door == "dns" { // see ask
			testkit.Eventually(t, fmt.Sprintf("%s: %v: %s", when, q, want), func() bool {
				got, err := answerOf(q, s.wish.at[q.door])
				return err == nil && got == want
			})
		} else if got, err := answerOf(q, s.wish.at[q.door]); err != nil || got != want {
			t.Errorf("%s: %v at %s: %q %v, a fresh daemon says %q", when, q, s.wish.at[q.door], got, err, want)
		}
	}
	for door, addresses := range doors {
		for _, address := range addresses {
			if address == "" || address == s.wish.at[door] || door == "dns" {
				continue
			}
			testkit.Eventually(t, when+": nobody to listen at "+address, func() bool { return !e2e.Listens(address) })
		}
	}
}

// TestReconfigureFlow takes up random configurations, good and faulty ones, by `blockd reload` while clients ask at all doors, by
// a connection for each question and by kept ones. Each answer is that of the configuration before or of the one after, and
// there is one; after the reload new connections are answered as by a fresh daemon; what is faulty changes nothing; a process
// that is killed while it takes over costs nothing; no mail is lost or doubled. The seed is in the log;
// BLOCKD_TEST_SEED takes it again.
func TestReconfigureFlow(t *testing.T) {
	steps := 10
	if *e2e.Soak {
		steps = 200
	}
	// The short run takes one sequence, in which the door of kept policy connections moves; the long one takes any.
	seed := uint64(14389738595176314953)
	if *e2e.Soak {
		seed = rand.Uint64()
	}
	if text := os.Getenv("BLOCKD_TEST_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	shared := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		testkit.Write(t, filepath.Join(shared, name+".1.txt"), name+".example\n")
		testkit.Write(t, filepath.Join(shared, name+".2.txt"), name+".example\nb.example\n")
	}
	certificate := func(name string) string {
		dir := t.TempDir()
		selfsigned.New(t, name).Write(t, dir)
		return dir
	}
	certificates, bad := []string{certificate("one.here.example"), certificate("two.here.example")}, certificate("bad.here.example")
	selfsigned.New(t, "other.here.example").Write(t, shared)
	testkit.Write(t, filepath.Join(bad, "key.pem"), testkit.Read(t, filepath.Join(shared, "key.pem"))) // of another pair
	d := &e2e.Daemon{Dir: t.TempDir(), HTTP: e2e.FreeAddress(t), Program: e2e.Raced(t)}
	doors, spare := movable{}, map[string]string{}
	for _, door := range []string{"smtp", "smtps", "milter", "policy", "resp", "dns"} {
		spare[door] = e2e.FreeAddress(t)
		doors[door] = []string{e2e.FreeAddress(t), e2e.FreeAddress(t)}
		if door != "smtp" {
			doors[door] = append(doors[door], "")
		}
	}
	spare["http"] = e2e.FreeAddress(t)
	doors["http"] = []string{d.HTTP, e2e.FreeAddress(t)}
	for _, door := range []string{"milter", "policy"} {
		doors[door][1] = "unix:" + d.Path(door+".sock")
	}
	now := wish{
		at: map[string]string{"smtps": ""}, size: 10, mail: "mail1", exempt: "abuse", contact: "https://help.example/",
		lists: map[string]wishedList{"a": {1, "refuse", "no", "block"}, "b": {1, "tempfail", "not now", "block"}},
	}
	for _, door := range []string{"smtp", "milter", "policy", "http", "resp", "dns"} {
		now.at[door] = doors[door][0]
	}
	occupied, silent := testkit.Listen(t).Addr().String(), testkit.Listen(t).Addr().String()
	path := d.Path("config.toml")
	testkit.Write(t, path, now.text(shared))
	c := &inForce{stages: []*stage{fresh(t, now, shared, spare)}}
	d.Start(t)

	mail := &acceptedMail{subjects: map[string][]string{}, perhaps: map[string]bool{}}
	f := e2e.NewFlow(t)
	for door := range doors {
		questions := questionsOf(door)
		for _, keeps := range []bool{false, true} {
			if door == "dns" && keeps {
				continue
			}
			var kept *talk
			since := 0
			pace := time.NewTicker(4 * time.Millisecond)
			defer pace.Stop()
			f.Run(fmt.Sprintf("%s, kept %v", door, keeps), func(n int) string {
				<-pace.C
				q := questions[n%len(questions)]
				if keeps && q.sender == "" {
					return "" // STARTTLS is for once
				}
				began := time.Now()
				wrong := c.ask(q, n, &kept, &since, mail)
				if took := time.Since(began); took > time.Second {
					from, to := c.span()
					t.Logf("%v, kept %v: took %v, configurations %d to %d", q, keeps, took, from, to)
				}
				if kept != nil && (!keeps || n%500 == 499) {
					kept.close()
					kept = nil
				}
				return wrong
			})
		}
	}
	httpAt := func() string { d.HTTP = c.at(len(c.stages) - 1).wish.at["http"]; return d.HTTP }
	done := map[string]int{}
	for step := 0; step < steps && !f.Odd() && !t.Failed(); step++ {
		f.Goes(200)
		testkit.Eventually(t, "former processes to end, of which there may be sixteen", func() bool {
			log := d.Log.String()
			return strings.Count(log, "another process answers") < strings.Count(log, "the process before has ended")+12
		})
		httpAt()
		next, what := now.clone(), []string{}
		for range 1 + r.IntN(3) {
			what = append(what, next.change(r, doors, certificates))
		}
		when := fmt.Sprintf("step %d, %v", step, what)
		switch kind := r.IntN(12); {
		case kind < 3 || step == 1: // faulty
			text, fault, want := next.spoilt(r, shared, occupied, bad)
			when += ", " + fault
			testkit.Write(t, path, text)
			if code, out := d.Reloaded(t); code != 1 || !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("%s: blockd reload ends with %d and says %q, want %q\n%s", when, code, out, want, text)
			}
			if status, body := d.Readyz(); status != 200 || !strings.HasPrefix(body, "degraded") || !strings.Contains(body, "configuration not taken up") {
				t.Errorf("%s: /readyz says %d %q", when, status, body)
			}
			done["faulty"]++
		case kind == 3 || step == 2: // killed
			next.upstream = "smtp://" + silent // it is looked at before it takes over, for ten seconds
			testkit.Write(t, path, next.text(shared))
			d.Killed(t, when, r)
			done["killed"]++
		default:
			s := fresh(t, next, shared, spare)
			open, err := dialDoor("smtp", now.at["smtp"])
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			testkit.Write(t, path, next.text(shared))
			c.begin(s)
			code, out := d.Reloaded(t)
			if code != 0 {
				t.Fatalf("%s: blockd reload ends with %d and says %q\n%s", when, code, out, e2e.Tail(d.Log.String(), 6000))
			}
			c.settle()
			// A session that was open goes on by the configuration of before or the one after, as the process has changed or not.
			q := question{"smtp", "friend@there.example", "user@here.example"}
			if got, err := open.ask(q, ""); err != nil || got != c.at(len(c.stages) - 2).answers[q] && got != s.answers[q] {
				t.Errorf("%s: an open session: %q %v", when, got, err)
			}
			open.close()
			now = next
			httpAt()
			if _, body := d.Readyz(); body != "ok\n" {
				t.Errorf("%s: /readyz says %q", when, body)
			}
			for _, w := range what {
				done[w]++
			}
		}
		c.at(len(c.stages)-1).probe(t, when, doors)
	}
	f.Goes(200)
	f.End()
	mail.check(t, d)
	t.Logf("%v: %d messages", done, len(mail.subjects))
}

// check holds that each message that was taken has come once, to where a configuration of its time sends it.
func (m *acceptedMail) check(t *testing.T, d *e2e.Daemon) {
	t.Helper()
	subject := regexp.MustCompile(`(?m)^Subject: (\S+)`)
	found := func() (came map[string][]string) {
		came = map[string][]string{}
		for _, folder := range []string{"mail1", "mail2"} {
			for _, path := range e2e.Messages(t, d.Path(folder)) {
				if s := subject.FindSubmatch(testkit.Read(t, path)); s != nil {
					came[string(s[1])] = append(came[string(s[1])], folder)
				}
			}
		}
		return came
	}
	came := found()
	for s, folders := range m.subjects {
		got := came[s]
		switch {
		case len(got) == 0 && m.perhaps[s]:
		case len(got) != 1:
			t.Errorf("%s was taken and has come to %q", s, got)
		case !slices.Contains(folders, got[0]):
			t.Errorf("%s has come to %s, and should have to %q", s, got[0], folders)
		}
	}
}
