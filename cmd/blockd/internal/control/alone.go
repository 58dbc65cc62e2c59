package control

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/forget"
	"blockd/doors/httpapi"
	"blockd/doors/httpapi/session"
	"blockd/doors/receipt"
	"blockd/index"
	"blockd/index/kept"
	"blockd/index/live"
	"blockd/lists"
	"blockd/policy"
	"blockd/policy/hits"
	"blockd/records/correspondents"
	"blockd/records/history"
	"blockd/records/letter"
	"blockd/records/pause"
	"blockd/records/quarantine"
	"blockd/reload"
)

// aloneHost is the host of a question that is answered in this process.
const aloneHost = "no-daemon"

// do asks the daemon, or where none runs this process, which then serves the same operations over its files: alone. open adds what one
// operation needs beside the files that cost nothing; nil = nothing.
func do(ctx context.Context, c config.Config, q question, open func(*files) error) (resp *http.Response, alone bool, err error) {
	resp, err = q.ask(ctx, c)
	if !errors.Is(err, ErrNoDaemon) {
		return resp, false, err
	}
	f := &files{config: c}
	if open != nil {
		if err := open(f); err != nil {
			f.close()
			return nil, true, err
		}
	}
	resp, err = f.answer(ctx, q)
	return resp, true, err
}

// Do is Ask of an operation that this process does over the files where no daemon runs: alone.
func Do(ctx context.Context, c config.Config, method, path string, body, answer any) (alone bool, err error) {
	return doWith(ctx, c, method, path, body, answer, nil)
}

func doWith(ctx context.Context, c config.Config, method, path string, body, answer any, open func(*files) error) (alone bool, err error) {
	q, err := newQuestion(method, path, body)
	if err != nil {
		return false, err
	}
	resp, alone, err := do(ctx, c, q, open)
	if err != nil {
		return alone, err
	}
	return alone, decodeAnswer(c, resp, answer)
}

// files are those of a daemon that does not run, as far as they are open.
type files struct {
	config  config.Config
	entries *live.Set // open for changes; nil = they cannot be changed
	person  *forget.Places
	closers []func()
	kept    bool // for several questions
}

func (f *files) close() {
	for _, close := range f.closers {
		close()
	}
	f.closers = nil
}

// answer has a question answered by the operations of the daemon. The files are closed with the body of the answer, unless they are kept.
func (f *files) answer(ctx context.Context, q question) (*http.Response, error) {
	conn, stop, err := f.serve(ctx)
	then := func() {
		stop()
		if !f.kept {
			f.close()
		}
	}
	if err != nil {
		then()
		return nil, err
	}
	resp, err := q.over(ctx, conn)
	if err != nil {
		conn.Close()
		then()
		return nil, err
	}
	resp.Body = closing{resp.Body, then}
	return resp, nil
}

// closing is a body with something to be done when it is closed.
type closing struct {
	io.ReadCloser
	then func()
}

func (c closing) Close() error {
	defer c.then()
	return c.ReadCloser.Close()
}

// serve serves one connection as the daemon's Unix socket would: whoever may open the files may ask. stop ends it, and is there
// after an error, too.
func (f *files) serve(ctx context.Context) (conn net.Conn, stop func(), err error) {
	stop = func() {}
	server, err := f.server()
	if err != nil {
		return nil, stop, err
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, stop, os.NewSyscallError("socketpair", err)
	}
	var conns [2]net.Conn
	for i, fd := range ends {
		end := os.NewFile(uintptr(fd), "")
		var failed error
		conns[i], failed = net.FileConn(end)
		err = errors.Join(err, failed, end.Close())
	}
	if err != nil {
		for _, conn := range conns {
			if conn != nil {
				conn.Close()
			}
		}
		return nil, stop, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(ctx, &oneConn{conn: conns[1], closed: ctx.Done()}) // what is wrong, the answer says
	}()
	return conns[0], func() { cancel(); <-ended }, nil
}

// oneConn is a listener of one connection.
type oneConn struct {
	conn   net.Conn
	closed <-chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// server has the operations, over the files.
func (f *files) server() (*httpapi.Server, error) {
	c := f.config
	pauses, _ := pause.Open(c.PausesPath()) // what cannot be read is written anew
	owners := c.Policy().Owners             // without aliases, which the daemon reads
	s := httpapi.Settings{Alone: true, Pauses: pauses, Entries: f.entries, Person: f.person, Mailbox: owners.Mailbox}
	if c.Audit.Folder != config.None {
		s.Audit = &httpapi.Audit{Log: c.Journal(), Folder: c.AuditFolder()}
	}
	if folder := c.ReceiptsFolder(); folder != "" {
		s.Requests = receipt.NewStore(folder, nil)
	}
	if c.SMTP.Open() && c.SMTP.Quarantine != "" {
		s.Quarantine = &httpapi.Quarantine{Folder: quarantine.Folder(c.SMTP.Quarantine), Fill: func() (none httpapi.QuarantineFill) { return none }, Changed: func() {}}
	}
	s.Junk = c.JunkDesk()
	s.Junk.Entries = f.entries
	if c.History.Folder != config.None {
		var err error
		if s.History, err = history.OpenFollowing(historySettings(c)); err != nil {
			return nil, err
		}
	}
	s.Undo = &httpapi.Undo{Kept: c.Kept(), Lists: c.Undoable, Review: c.Reviews,
		Serves:   func(context.Context, string) error { return errNobodyServes },
		Good:     func(ctx context.Context, list string) error { return config.Adoptable(ctx, c, list) },
		HeldBack: func(string) (int, []kept.HeldBack) { return 0, nil }}
	none := func() *index.Index { return nil }
	metrics, silent := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	return httpapi.New(s, policy.New(none, policy.Settings{}, silent, metrics), f.status, metrics, silent), nil
}

var errNobodyServes = errors.New("no daemon runs")

func historySettings(c config.Config) history.Settings {
	return history.Settings{Folder: c.HistoryFolder(), Max: int64(c.History.Max), Keep: time.Duration(c.History.Keep)}
}

// status has the lists that are configured: nothing serves.
func (f *files) status() (s reload.Status) {
	for _, l := range f.config.Lists {
		row := index.Source{List: l.Name}
		if l.Action == lists.Allow.String() {
			row.Settings.Action = lists.Allow
		}
		if l.Mode == index.Shadow.String() {
			row.Mode = index.Shadow
		}
		s.Files = append(s.Files, index.ListInfo{Source: row})
	}
	if f.config.LiveFolder() != "" {
		s.Files = append(s.Files, index.ListInfo{Source: index.Source{List: live.ListName}})
	}
	return s
}

// withEntries opens the live entries for changes. The error wraps live.ErrLocked where another process has them.
func (f *files) withEntries() error {
	set, err := live.Open(f.config.LiveSettings(f.config.Journal()))
	if err != nil {
		return err
	}
	f.entries = set
	f.closers = append(f.closers, func() {
		set.Tidy() // or the daemon's next start would read each change; the journal has all if it fails
		set.Close()
	})
	node, err := shareAlone(f.config, set)
	if err == nil {
		f.closers = append([]func(){func() { node.Close() }}, f.closers...)
	}
	return err
}

// withCorrespondents opens those that are learned from.
func (f *files) withCorrespondents() error {
	set, _, err := correspondents.Open(f.config.CorrespondentSettings())
	if err != nil {
		return err
	}
	f.closers = append(f.closers, set.Close)
	f.person = &forget.Places{Correspondents: set}
	return nil
}

// withPeople opens all that is kept about people.
func (f *files) withPeople() error {
	c := f.config
	if err := f.withCorrespondents(); err != nil {
		return err
	}
	p := f.person
	p.Recent, p.RecentPath, p.Index = reload.OpenRecent(c.RecentPath(), c.Index.Recent, slog.New(slog.DiscardHandler)), c.RecentPath(), c.Index.Path
	p.Proposals, p.Hits, p.HitsPath = c.JunkBox(), hits.NewTable(prometheus.NewRegistry()), c.HitsPath()
	p.Report = func(names func(string) bool) (int, error) { return letter.ForgetIn(c.ReportPath(), names) }
	p.Quarantine, p.Subaddress = quarantine.Folder(c.SMTP.Quarantine), c.Policy().Owners.Subaddress
	if err := p.Hits.Load(p.HitsPath); err != nil {
		return err
	}
	if c.Live.Folder != config.None {
		if _, missing := os.Stat(c.LiveFolder()); missing == nil {
			if err := f.withEntries(); err != nil {
				return err
			}
			p.Live = f.entries
		}
	}
	if _, missing := os.Stat(c.Index.Path); missing == nil {
		p.Serving = func() (*index.Index, error) { return reload.OpenIndex(c.Index.Path) }
	}
	if c.Audit.Folder != config.None {
		p.Audit = c.AuditFolder()
	}
	if folder := c.ReceiptsFolder(); folder != "" {
		p.Requests = receipt.NewStore(folder, nil)
	}
	if _, missing := os.Stat(c.SessionSettings().Path); missing == nil {
		p.Sessions = func(names func(string) bool) (int, error) {
			set, damaged := session.Open(c.SessionSettings()) // then it is written anew
			n, err := set.Forget(time.Now(), names)
			return n, errors.Join(damaged, err)
		}
	}
	if c.History.Folder != config.None {
		p.History = func(ctx context.Context, about func(*history.Record) bool) (int, error) {
			return history.ForgetIn(ctx, historySettings(c), about)
		}
	}
	return nil
}
