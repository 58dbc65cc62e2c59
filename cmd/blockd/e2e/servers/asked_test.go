package servers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"blockd/cmd/blockd/e2e"
	"blockd/cmd/blockd/e2e/agreement"
	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
	"blockd/internal/testkit/script"
	"blockd/internal/testkit/transaction"
)

// TestAskedAtEachDoor shows senders of lists that are asked to the SMTP filter, the milter and the policy service, while their Redis is well,
// answers nonsense, hangs and is dead. A sender that is on no list is refused at none of them, and one that an
// exception lets pass is put off at most.
func TestAskedAtEachDoor(t *testing.T) {
	server := redisserver.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Address})
	t.Cleanup(func() { client.Close() })
	do := func(args ...any) {
		t.Helper()
		testkit.Must(t, client.Do(t.Context(), args...).Err())
	}
	var d *e2e.Daemon
	states := []struct {
		name            string
		begin           func()
		listed, excused string // outcomes; the second one: of a sender that a file blocks, and an asked list lets pass
	}{
		{"well", func() {}, "refuse asked", "accept"},
		{"nonsense", func() {
			for _, key := range []string{"blocked", "friends"} {
				do("rename", key, key+".kept")
				do("set", key, "no set")
			}
		}, "accept", "defer"},
		{"well again", func() {
			for _, key := range []string{"blocked", "friends"} {
				do("rename", key+".kept", key)
			}
			testkit.Eventually(t, "both lists to be asked again", func() bool {
				_, blocked := d.Get("/v1/check?sender=x@probe.blocked.example")
				_, allowed := d.Get("/v1/check?sender=x@probe.friends.example")
				return strings.Contains(blocked, `"blocked"`) && strings.Contains(allowed, `"allowed"`)
			})
		}, "refuse asked", "accept"},
		{"hung", func() { do("client", "pause", "3600000") }, "accept", "defer"},
		{"dead", server.Kill, "accept", "defer"},
	}
	for _, key := range []string{"blocked", "friends"} {
		do("sadd", key, "probe."+key+".example")
	}
	for i := range states { // each has senders of its own, whose answers are not cached
		do("sadd", "blocked", fmt.Sprintf("listed%d.example", i), fmt.Sprintf("gone%d.example", i))
		do("sadd", "friends", fmt.Sprintf("excused%d.example", i))
	}

	a := agreement.New(t)
	a.Upstream.Store(&script.Server{Caps: []string{"PIPELINING"}})
	list := "[[list]]\nname = %q\naction = %q\nexceptions = %q\n[list.source]\nkind = \"redis\"\nmode = \"ask\"\ndsn = %q\nkey = %q\nevery = \"1h\"\ntimeout = \"2s\"\nbreaker = { failures = 2, pause = \"100ms\" }\n"
	d = e2e.Serve(t, e2e.Setup{
		Upstream: "smtp://" + a.Next, Files: map[string]string{"bad.txt": "excused0.example\nexcused1.example\nexcused2.example\nexcused3.example\nexcused4.example\n"},
		Lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n" +
			fmt.Sprintf(list, "asked", "block", "own", "redis://"+server.Address, "blocked") + fmt.Sprintf(list, "friends", "allow", "all", "redis://"+server.Address, "friends"),
		SMTP:    "client_info = \"none\"\nallow_open_upstream = true\nproxy_from = [\"127.0.0.0/8\"]\nquarantine = \"aside\"\n",
		Milter:  fmt.Sprintf("listen = %q", a.Milter),
		Postfix: fmt.Sprintf("policy_listen = %q", a.Policy),
	})
	d.Counted(t, `blockd_ask_filter_keys{list="asked"}`, "11")
	d.Counted(t, `blockd_ask_filter_keys{list="friends"}`, "6")
	for i := range states { // whom the filters go on to take for listed perhaps
		do("srem", "blocked", fmt.Sprintf("gone%d.example", i))
	}
	for i, s := range states {
		s.begin()
		t.Run(s.name, func(t *testing.T) {
			for sender, outcome := range map[string]string{
				fmt.Sprintf("x@listed%d.example", i):  s.listed,
				fmt.Sprintf("x@gone%d.example", i):    "accept",
				fmt.Sprintf("x@excused%d.example", i): s.excused,
				"x@clear.example":                     "accept",
			} {
				c := testkit.Value(transaction.Parse(s.name, "list asked: as.the.configuration.has.it.example\nfrom "+sender+"\nto bob@here.example "+outcome+"\nalone "+outcome+"\nverdict clear\n"))(t)
				const text = "Subject: x\r\n\r\nx\r\n"
				agreement.Each(t, c, "smtp", a.AskSMTP(t, c, d, text), agreement.InFull)
				agreement.Each(t, c, "policy", a.AskPolicy(t, c), agreement.InFull)
				agreement.Each(t, c, "milter", a.AskMilter(t, c, text), agreement.InFull)
			}
		})
	}
}
