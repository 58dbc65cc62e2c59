package postfix

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
	"blockd/policy"
	"blockd/policy/rule"
)

// readAction reads one answer of policy delegation.
func readAction(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return line, err
	}
	empty, err := r.ReadString('\n')
	if err == nil && empty != "\n" {
		err = errors.New("no empty line behind " + line)
	}
	return strings.TrimSuffix(line, "\n"), err
}

func badList() testList { return testList{name: "bad", text: "bulk.example"} }

// A connection is for many requests, however they arrive.
func TestConnectionAnswersInOrder(t *testing.T) {
	listed, clear := request("sender=a@bulk.example"), request("sender=a@good.example")
	for name, pieces := range map[string][]string{
		"one at a time":              {listed, clear, listed},
		"pipelined":                  {listed + clear + listed},
		"octet by octet":             strings.Split(listed+clear+listed, ""),
		"cut within the empty line":  {listed[:len(listed)-1], "\n" + clear[:len(clear)-1], "\n", listed},
		"one and a half, and a half": {listed + clear[:40], clear[40:] + listed[:9], listed[9:]},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, badList())
			s := r.service(Policy)
			synctest.Test(t, func(t *testing.T) {
				client, _, ended := r.dial(s)
				go func() {
					for _, p := range pieces {
						io.WriteString(client, p)
					}
				}()
				answers := bufio.NewReader(client)
				for i, want := range []string{"action=550 ", "action=DUNNO", "action=550 "} {
					testkit.Got(readAction(answers))(t, fmt.Sprint("answer ", i), want+"…", nil)
				}
				client.Close()
				<-ended
			})
		})
	}
}

// Thousands of pipelined requests are answered though the peer does not read the answers
// before the last of them: the peer's own buffer is the limit, not ours.
func TestConnectionPipelinedWithoutEnd(t *testing.T) {
	const n = 5000
	r := newRig(t, badList())
	s := r.service(Policy)
	client, c, ended := r.dial(s)
	go func() {
		text := []byte(strings.Repeat(request(), n))
		client.Write(text)
	}()
	answers := bufio.NewReader(client)
	for i := range n {
		testkit.MustEqual(t, i, testkit.Value(readAction(answers))(t), "action=DUNNO")
	}
	client.Close()
	<-ended
	if cap(c.in) > 4*readSize || cap(c.out) > 2*flushSize {
		t.Errorf("buffers of %d and %d octets are left", cap(c.in), cap(c.out))
	}
}

// What cannot be a request gets the answer of on_error and the end; it is counted,
// and told once in ten seconds.
func TestConnectionFaults(t *testing.T) {
	services := map[string]func(Settings, *policy.Checker, *Metrics, *slog.Logger) *Server{
		"policy": Policy, "socketmap": Socketmap, "tcp": TCPTable,
	}
	for _, tt := range []struct {
		name, service, sent string
		why                 fault
		accept, tempfail    string // the last words
	}{
		{"endless line", "policy", strings.Repeat("a", 1<<20), errTooLong, "action=DUNNO\n\n", "action=DEFER_IF_PERMIT 4.3.0 not checked: try again later\n\n"},
		{"endless request", "policy", strings.Repeat("a=b\n", 1<<18), errTooLong, "action=DUNNO\n\n", "action=DEFER_IF_PERMIT 4.3.0 not checked: try again later\n\n"},
		{"1,000 attributes", "policy", strings.Repeat("a=b\n", 1000) + "\n", errTooLong, "action=DUNNO\n\n", "action=DEFER_IF_PERMIT 4.3.0 not checked: try again later\n\n"},
		{"NUL", "policy", "request=smtpd_access_policy\nsender=\x00\n\n", errMalformed, "action=DUNNO\n\n", "action=DEFER_IF_PERMIT 4.3.0 not checked: try again later\n\n"},
		{"another protocol", "policy", "GET / HTTP/1.1\n\n", errMalformed, "action=DUNNO\n\n", "action=DEFER_IF_PERMIT 4.3.0 not checked: try again later\n\n"},
		{"half a request", "policy", "request=smtpd_access_policy\nsender=", errSlow, "action=DUNNO\n\n", "action=DEFER_IF_PERMIT 4.3.0 not checked: try again later\n\n"},
		{"wrong comma", "socketmap", "3:a b;", errMalformed, "9:NOTFOUND ,", "33:TEMP not checked: try again later,"},
		{"a netstring too long", "socketmap", "99999:", errTooLong, "9:NOTFOUND ,", "33:TEMP not checked: try again later,"},
		{"half a netstring", "socketmap", "10:senders", errSlow, "9:NOTFOUND ,", "33:TEMP not checked: try again later,"},
		{"endless line", "tcp", strings.Repeat("a", 1<<20), errTooLong, "500 not%20checked\n", "400 not%20checked:%20try%20again%20later\n"},
		{"half a line", "tcp", "get a@bulk", errSlow, "500 not%20checked\n", "400 not%20checked:%20try%20again%20later\n"},
	} {
		for onError, want := range map[rule.OnError]string{rule.AcceptOnError: tt.accept, rule.TempfailOnError: tt.tempfail} {
			t.Run(tt.service+", "+tt.name+", "+string(onError), func(t *testing.T) {
				r := newRig(t, badList())
				r.verdicts.OnError = onError
				s := r.service(services[tt.service])
				synctest.Test(t, func(t *testing.T) {
					client, _, ended := r.dial(s)
					go io.WriteString(client, tt.sent)
					began := time.Now()
					got := make([]byte, len(want))
					_, err := io.ReadFull(client, got)
					testkit.Got(err, string(got))(t, "last words", nil, want)
					if took := time.Since(began); tt.why == errSlow && took != requestTime {
						t.Errorf("after %v, want %v", took, requestTime)
					}
					<-ended
					client.Close()
				})
				r.counts(1, "blockd_postfix_faults_total", tt.service, string(tt.why))
				testkit.Has(t, r.log.String(), "why="+string(tt.why))
			})
		}
	}
}

// An octet every nine seconds keeps no request alive for longer than another one.
func TestConnectionDrippedRequest(t *testing.T) {
	r := newRig(t, badList())
	s := r.service(Policy)
	synctest.Test(t, func(t *testing.T) {
		client, _, ended := r.dial(s)
		began := time.Now()
		dripped := make(chan struct{})
		go func() {
			defer close(dripped)
			for range 100 {
				if _, err := client.Write([]byte("r")); err != nil {
					return
				}
				<-time.After(3 * time.Second)
			}
		}()
		testkit.Got(readAction(bufio.NewReader(client)))(t, "the action", "action=DUNNO", nil)
		testkit.Equal(t, "it took", time.Since(began), requestTime)
		client.Close()
		<-ended
		<-dripped
	})
}

func TestConnectionIdle(t *testing.T) {
	r := newRig(t, badList())
	s := r.service(Policy)
	synctest.Test(t, func(t *testing.T) {
		client, _, ended := r.dial(s)
		answers := bufio.NewReader(client)
		last := time.Now()
		for range 5 { // 300 s is what Postfix waits for
			<-time.After(300 * time.Second)
			io.WriteString(client, request())
			last = time.Now()
			testkit.MustGot(readAction(answers))(t, "the action", "action=DUNNO", nil)
		}
		testkit.Got(answers.ReadByte())(t, "an idle connection", "…", io.EOF)
		if idle := time.Since(last); idle < idleTime || idle > idleTime+armTime {
			t.Errorf("it was idle for %v, want %v", idle, idleTime)
		}
		<-ended
	})
}

// A peer that asks and never reads is left, and not waited for.
func TestConnectionThatReadsNoAnswers(t *testing.T) {
	r := newRig(t, badList())
	s := r.service(Policy)
	synctest.Test(t, func(t *testing.T) {
		client, _, ended := r.dial(s)
		began := time.Now()
		go io.WriteString(client, request())
		<-ended
		if took := time.Since(began); took < writeTime || took > writeTime+armTime {
			t.Errorf("it took %v, want %v", took, writeTime+armTime)
		}
		client.Close()
	})
	r.counts(1, "blockd_postfix_faults_total", "policy", "unread")
}

func TestConnectionStops(t *testing.T) {
	const half = "request=smtpd_access_policy\nprotocol_state=RCPT\nsender=a@bulk"
	for _, tt := range []struct {
		name, before, after string // sent before and after the stop
		want                string
		took                time.Duration
	}{
		{"an idle one at once", "", "", "", graceTime},
		{"behind the question that is under way", "", request("sender=a@bulk.example"), "action=550 ", 0},
		{"behind half a request", half, ".example\nrecipient=b@here.example\n\n", "action=550 ", time.Second},
		{"behind half a request that stays one", half, "", "action=DUNNO", requestTime + time.Second}, // the last word may be read
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, badList())
			s := r.service(Policy)
			synctest.Test(t, func(t *testing.T) {
				client, c, ended := r.dial(s)
				if tt.before != "" {
					io.WriteString(client, tt.before)
				}
				synctest.Wait()
				began := time.Now()
				c.Stop()
				go func() {
					if tt.before != "" {
						<-time.After(time.Second)
					}
					io.WriteString(client, tt.after)
				}()
				got, err := io.ReadAll(client)
				if err != nil && !errors.Is(err, io.EOF) || !strings.HasPrefix(string(got), tt.want) || tt.want == "" && len(got) > 0 {
					t.Errorf("%q, %v, want %q and the end", got, err, tt.want)
				}
				<-ended
				if took := time.Since(began); took != tt.took {
					t.Errorf("it took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

// panicking is a dialect with a defect.
type panicking struct{ delegation }

func (*panicking) answer(_, _ []byte) ([]byte, error) { panic("defect") }

func TestConnectionSurvivesADefect(t *testing.T) {
	r := newRig(t, badList())
	s := r.service(Policy)
	s.speak = func(sv *service, _ bool) dialect { return &panicking{delegation{service: sv}} }
	client, _, ended := r.dial(s)
	go io.WriteString(client, request())
	testkit.Got(readAction(bufio.NewReader(client)))(t, "the action", "action=DUNNO", nil)
	client.Close()
	<-ended
	got := r.count("blockd_postfix_faults_total", "policy", "panic")
	testkit.Got(got, r.log.String())(t, "count", 1, "…defect…")
}

// errAfter is a connection that fails with an error of the network.
type errAfter struct{ net.Conn }

func (errAfter) Read([]byte) (int, error) { return 0, os.ErrClosed }

func TestConnectionThatFailsIsNoFault(t *testing.T) {
	r := newRig(t, badList())
	s := r.service(Policy)
	near, far := net.Pipe()
	defer near.Close()
	newConn(&s.service, s.speak(&s.service, true), errAfter{far}).Run()
	if r.log.Len() > 0 {
		t.Errorf("log: %s", &r.log)
	}
}
