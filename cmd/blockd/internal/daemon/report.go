package daemon

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/upgrade"
	"blockd/cmd/blockd/internal/version"
	"blockd/doors/forget"
	"blockd/doors/httpapi"
	"blockd/doors/receipt"
	"blockd/index"
	"blockd/index/kept"
	"blockd/index/live"
	"blockd/mail/mailbox"
	"blockd/mail/msgauth"
	"blockd/policy"
	"blockd/policy/junk"
	"blockd/policy/verdict"
	"blockd/records/audit"
	"blockd/records/letter"
	"blockd/reload"
	"blockd/smtpfilter/upstream"
)

// Hostname is the name of this machine in letters and events.
func Hostname(c config.Config) string {
	return wireName(cmp.Or(c.SMTP.Hostname, config.MachineName()), slog.New(slog.DiscardHandler))
}

// ReportFiles are what the files of a configuration tell for a letter, whether or not a daemon runs.
func ReportFiles(c config.Config, resolver *msgauth.Resolver) letter.Sources {
	s := letter.Sources{Host: Hostname(c), Version: version.String(), Aligned: aligned(resolver)}
	if c.History.Folder != config.None {
		s.History = c.HistoryFolder()
	}
	if folder := c.ReceiptsFolder(); folder != "" {
		s.Requests = func() ([]letter.OpenRequest, error) {
			key, err := receipt.OpenKey(folder)
			if err != nil {
				return nil, err
			}
			return openRequests(receipt.NewStore(folder, key))
		}
	}
	s.Proposals = proposed(c)
	s.Pending = func() ([]letter.Pending, error) {
		pins, err := c.Kept().Pins()
		return pending(pins), err
	}
	if c.Audit.Folder != config.None {
		s.Changes = func(ctx context.Context, since, until time.Time) ([]letter.Change, error) {
			return changes(ctx, c.AuditFolder(), since, until)
		}
	}
	if c.Live.Folder != config.None {
		s.Exceptions = func(since time.Time) []string {
			set, err := live.Read(c.LiveFolder())
			if err != nil {
				return nil
			}
			return exceptions(set, since)
		}
	}
	return s
}

// pending are the lists with something that waits to be adopted.
func pending(pins []kept.Pin) (all []letter.Pending) {
	for _, pin := range pins {
		p := pin.Proposal
		if p == nil {
			continue
		}
		all = append(all, letter.Pending{List: pin.List, Since: p.Waiting(), Changes: p.Counted(), Against: slices.Concat([]string{}, p.Findings, p.Weighed.Against())})
	}
	return all
}

// openRequests are those that wait for a person.
func openRequests(store *receipt.Store) (open []letter.OpenRequest, err error) {
	all, _, err := store.All()
	for _, r := range all {
		if r.State == receipt.Open {
			open = append(open, letter.OpenRequest{Ref: r.Ref, Sender: r.Sender, List: r.List, Time: r.Time, Note: r.Note})
		}
	}
	return open, err
}

// mostExceptions bounds the live entries that are looked at; few people add more in a period.
const mostExceptions = 100_000

// exceptions are the live entries that were added since a time to let senders in.
func exceptions(set *live.Set, since time.Time) (all []string) {
	for e := range set.All() {
		if e.Item.Action.Allows() && !e.Added.Before(since) && len(all) < mostExceptions {
			all = append(all, e.Text)
		}
	}
	return all
}

// mostPages bounds what is read of the journal: 100,000 lines.
const mostPages = 100

// changes counts what people and tokens have changed.
func changes(ctx context.Context, folder string, since, until time.Time) (all []letter.Change, err error) {
	q := audit.Query{Since: since, Until: until}
	at := map[string]int{}
	for range mostPages {
		found, err := audit.Search(ctx, folder, q)
		if err != nil {
			return all, err
		}
		for _, line := range found.Lines {
			if line.Action == audit.Start || line.Action == audit.ReportSend { // a letter is no reason for the next one
				continue
			}
			i, known := at[line.Action]
			if !known {
				i = len(all)
				at[line.Action], all = i, append(all, letter.Change{Action: line.Action})
			}
			all[i].Count++
			if len(all[i].By) < 5 && line.By != "" && !slices.Contains(all[i].By, line.By) {
				all[i].By = append(all[i].By, line.By)
			}
		}
		if q.Cursor = found.Next; q.Cursor == "" {
			break
		}
	}
	slices.SortFunc(all, func(a, b letter.Change) int { return strings.Compare(a.Action, b.Action) })
	return all, nil
}

// aligned is letter.Sources.Aligned; nil without a resolver.
func aligned(r *msgauth.Resolver) func(ctx context.Context, client netip.Addr, helo, sender string) bool {
	if r == nil {
		return nil
	}
	return func(ctx context.Context, client netip.Addr, helo, sender string) bool {
		spf := r.SPF(ctx, client, helo, sender)
		return spf.Proof == msgauth.Pass && r.HasDMARC(ctx, client, spf.Domain)
	}
}

// contentsOf is what serves of each list, but for live entries, whose changes are people's.
func contentsOf(ix *index.Index) map[string]letter.Content {
	all := map[string]letter.Content{}
	for _, row := range ix.Lists() {
		if row.Source.List == live.ListName {
			continue
		}
		sum := fnv.New64a()
		io.WriteString(sum, row.Source.Path)
		sum.Write(row.Summary.Hash[:])
		one := all[row.Source.List]
		one.Entries += row.Entries()
		one.Hash = one.Hash*31 + sum.Sum64()
		all[row.Source.List] = one
	}
	return all
}

// reports are what letters are made of.
type reports struct {
	daemon    *daemon
	diary     *letter.Diary // of how lists are loaded
	gathering chan struct{} // has one while a letter is made
}

// sources are ReportFiles with what the daemon knows.
func (o *reports) sources() letter.Sources {
	d := o.daemon
	s := ReportFiles(d.config, d.resolver)
	s.Host = d.hostname
	if d.past == nil {
		s.History = ""
	}
	s.Exceptions = nil
	if d.entries != nil {
		s.Exceptions = func(since time.Time) []string { return exceptions(d.entries, since) }
	}
	s.Allowed = func(sender string) bool {
		batch := policy.Batch{Uncounted: true}
		v := d.checker.AskAll(&batch, []policy.Question{{Text: sender}})
		return len(v) == 1 && v[0].Kind == verdict.Allowed
	}
	s.Pending = func() ([]letter.Pending, error) { return pending(d.lists.Status().Pins), nil }
	s.Loads = func() []letter.Load {
		status := d.lists.Status()
		return o.diary.Loads(status.Stale, status.Held)
	}
	s.Problems = func() (lines []string) {
		_, problems := d.state()
		for _, p := range problems {
			lines = append(lines, p.Text)
		}
		return lines
	}
	return s
}

// letter makes a letter, one at a time: each reads the whole period.
func (o *reports) letter(ctx context.Context, since, until time.Time) (letter.Letter, error) {
	select {
	case o.gathering <- struct{}{}:
		defer func() { <-o.gathering }()
	case <-ctx.Done():
		return letter.Letter{}, ctx.Err()
	}
	if past := o.daemon.past; past != nil {
		past.Settle() // what cannot be written is counted, and cannot be reported
	}
	return letter.Gather(ctx, o.sources(), since, until)
}

// openReport makes what [report] asks for. Its diary learns of each generation that serves, and of each list that is
// refused.
func openReport(_ context.Context, d *daemon, p *part) error {
	diary, path := letter.NewDiary(), d.config.ReportPath()
	o := &reports{daemon: d, diary: diary, gathering: make(chan struct{}, 1)}
	p.served = func(ix *index.Index) { diary.Served(contentsOf(ix)) }
	d.toLists.Refused = func(r reload.Refusal) { diary.Refused(r.List, r.Text) }
	postman := Postman{config: d.config, host: d.hostname, log: d.log, own: &d.own}
	d.toHTTP.Report = &httpapi.Report{Make: o.letter, To: d.config.Report.To, Every: time.Duration(d.config.Report.Every),
		Send: func(ctx context.Context, l *letter.Letter) ([]httpapi.ReportDelivery, error) {
			if d.config.Report.To == "" {
				return nil, ErrNoRecipient
			}
			return postman.Send(ctx, l, "")
		}}
	p.forget = func(all *forget.Places) {
		all.Report = func(names func(string) bool) (int, error) { return letter.ForgetIn(path, names) }
	}
	if d.config.Report.To == "" {
		return nil
	}
	courier := &letter.Courier{Every: time.Duration(d.config.Report.Every), Path: path, Make: o.letter, Diary: diary, Host: d.hostname,
		Send: func(ctx context.Context, l *letter.Letter, id string) error {
			_, err := postman.Send(ctx, l, id)
			return err
		}}
	courier.Register(d.log, d.metrics)
	p.forget = func(all *forget.Places) { all.Report = courier.Forget }
	p.remarks = func() []string {
		if err := courier.Fault(); err != nil {
			return []string{"report: the letter could not be sent, and is tried again: " + err.Error()}
		}
		return nil
	}
	p.ends, p.alone = atStop, upgrade.Writes
	p.run = func(ctx context.Context) error {
		o.settle(ctx)
		return courier.Run(ctx)
	}
	return nil
}

// How long a start may take before a letter tells of what is wrong, and how often it is looked at.
const (
	settleTime = 30 * time.Second
	settleLook = 100 * time.Millisecond
)

// settle waits until the daemon is ready: before, a letter that is due would say that the next server was not tried
// yet.
func (o *reports) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	tick := time.Tick(settleLook)
	for ctx.Err() == nil {
		if s, _ := o.daemon.state(); s.Ready {
			return
		}
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
}

// proposed are the proposals of a configuration that wait for a person; nil = there can be none.
func proposed(c config.Config) func() ([]letter.Unwanted, error) {
	box := c.JunkBox()
	if box == nil || c.Live.Folder == config.None {
		return nil
	}
	return func() (all []letter.Unwanted, err error) {
		open, _, err := box.All(junk.Open, time.Now())
		for _, p := range open {
			all = append(all, letter.Unwanted{Entry: p.Entry, Users: p.Users, Domains: p.Domains, Complaints: p.Complaints, Last: p.Last})
		}
		return all, err
	}
}

// ErrNoRecipient says that a letter has nowhere to go.
var ErrNoRecipient = errors.New("report.to is empty, so that nobody gets it")

// Postman brings letters to the next server.
type Postman struct {
	config config.Config
	host   string
	log    *slog.Logger
	own    *ownConnections // nil: nobody asks
}

// NewPostman returns one for a program that is no daemon.
func NewPostman(c config.Config) Postman {
	return Postman{config: c, host: Hostname(c), log: slog.New(slog.DiscardHandler)}
}

// sendTime is how long a try may take. endTime is how long the server's answer to a whole letter is waited for when
// the daemon ends.
const (
	sendTime = 2 * time.Minute
	endTime  = 5 * time.Second
)

// Send sends a letter, whose id is that of the schedule; "" is one that a person has asked for. The error says that no
// recipient's mail was taken.
func (p Postman) Send(ctx context.Context, l *letter.Letter, id string) ([]httpapi.ReportDelivery, error) {
	now, to := time.Now(), p.config.Report.Recipients()
	id = cmp.Or(id, letter.ID(p.host, now))
	text := l.Message(letter.Header{From: p.config.Report.Sender(p.host), To: to, ID: id, Date: now}, time.Local)
	next, done, err := p.next()
	if err != nil {
		return nil, err
	}
	defer done()
	// The end of ctx ends a try, but not the wait for the answer to a whole letter: it would be sent twice.
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTime)
	defer cancel()
	var whole atomic.Bool
	defer context.AfterFunc(ctx, func() {
		if whole.Load() {
			time.AfterFunc(endTime, cancel)
		} else {
			cancel()
		}
	})()
	outcomes, err := next.Send(sending, upstream.Mail{Recipients: to, Size: int64(len(text)), Message: bytes.NewReader(text), End: func() error {
		whole.Store(true)
		return ctx.Err()
	}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.where(), err)
	}
	var all []httpapi.ReportDelivery
	var refusal string
	taken := 0
	for _, o := range outcomes {
		one := httpapi.ReportDelivery{Recipient: o.Recipient, Accepted: o.Reply.Code/100 == 2, Reply: upstream.FirstLine(o.Reply)}
		if all = append(all, one); one.Accepted {
			taken++
		} else {
			refusal = one.Reply
			p.log.Warn("report refused for a recipient", slog.String("recipient", one.Recipient), slog.String("reply", one.Reply))
		}
	}
	if taken == 0 {
		return all, fmt.Errorf("%s refuses the report: %q", p.where(), refusal)
	}
	return all, nil
}

// where is the server that takes letters, for people.
func (p Postman) where() string {
	if p.config.Report.Via != "" {
		return "report.via"
	}
	if p.config.SMTP.Open() {
		return "smtp.upstream"
	}
	return "the mail server at 127.0.0.1:25 (report.via)"
}

// next returns the way to the server that takes letters. done is called after the letter.
func (p Postman) next() (_ *upstream.Dialer, done func(), err error) {
	up, set, err := p.config.ReportServer(p.host)
	if err != nil {
		return nil, nil, err
	}
	if up.Scheme == "maildir" {
		box, err := mailbox.New(mailbox.Settings{Dir: up.Address, Hostname: p.host}, p.log)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p.where(), err)
		}
		set.Network, set.Address, set.Dial = "", "", box.Dial
		return upstream.New(set), func() {
			ctx, cancel := context.WithTimeout(context.Background(), mailboxPatience)
			defer cancel()
			box.Shutdown(ctx) // it has answered already
		}, nil
	}
	done = func() {}
	if set.Network == "tcp" && p.own != nil {
		dialer, network, address := net.Dialer{Timeout: upstream.DialTimeout}, set.Network, set.Address
		set.Dial = func(ctx context.Context) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return p.own.add(conn), nil
		}
	}
	return upstream.New(set), done, nil
}

// ownConnections are the SMTP connections that this process has made to send its own mail, by their local addresses:
// mail that comes to a door by one of them is its own. A header could be written by anybody; an address and port that
// this process holds cannot be another's. It is safe for concurrent use.
type ownConnections struct {
	open atomic.Pointer[[]netip.AddrPort]
}

// has reports whether a client is this process.
func (o *ownConnections) has(client netip.AddrPort) bool {
	open := o.open.Load()
	return open != nil && slices.Contains(*open, client)
}

// add notes a connection until it is closed.
func (o *ownConnections) add(conn net.Conn) net.Conn {
	at, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		return conn
	}
	local := at.AddrPort()
	local = netip.AddrPortFrom(local.Addr().Unmap().WithZone(""), local.Port())
	o.change(func(all []netip.AddrPort) []netip.AddrPort { return append(all, local) })
	return &ownConnection{Conn: conn, of: o, local: local}
}

func (o *ownConnections) change(f func([]netip.AddrPort) []netip.AddrPort) {
	for {
		was := o.open.Load()
		var all []netip.AddrPort
		if was != nil {
			all = slices.Clone(*was)
		}
		if all = f(all); o.open.CompareAndSwap(was, &all) {
			return
		}
	}
}

type ownConnection struct {
	net.Conn
	of    *ownConnections
	local netip.AddrPort
	gone  atomic.Bool
}

// Close forgets the connection.
func (c *ownConnection) Close() error {
	if !c.gone.Swap(true) {
		c.of.change(func(all []netip.AddrPort) []netip.AddrPort {
			return slices.DeleteFunc(all, func(a netip.AddrPort) bool { return a == c.local })
		})
	}
	return c.Conn.Close()
}
