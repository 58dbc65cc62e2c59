package control

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/forget"
	"blockd/doors/httpapi"
	"blockd/doors/httpapi/session"
	"blockd/doors/receipt"
	"blockd/index"
	"blockd/index/live"
	"blockd/mail/addr"
	"blockd/policy/hits"
	"blockd/records/correspondents"
	"blockd/records/history"
	"blockd/records/letter"
	"blockd/records/quarantine"
	"blockd/reload"
)

// Learner takes messages that users have sent, and has them learned from: by the daemon, or into the file where none
// runs. It is for one goroutine.
type Learner struct {
	Author string
	Total  httpapi.Learned

	config  config.Config
	set     *correspondents.Set // nil: the daemon is asked
	waiting []httpapi.SentMessage
}

// NewLearner finds out who has the correspondents. Close it.
func NewLearner(ctx context.Context, c config.Config, author string) (*Learner, error) {
	l := &Learner{Author: author, config: c}
	err := Ask(ctx, c, http.MethodPost, "/v1/correspondents", httpapi.LearnQuestion{Sent: []httpapi.SentMessage{}, Author: author}, &l.Total)
	if !errors.Is(err, ErrNoDaemon) {
		return l, err
	}
	l.set, _, err = correspondents.Open(c.CorrespondentSettings())
	return l, err
}

// Add takes a message.
func (l *Learner) Add(ctx context.Context, m httpapi.SentMessage) error {
	if l.waiting = append(l.waiting, m); len(l.waiting) < httpapi.MostLearned {
		return nil
	}
	return l.Flush(ctx)
}

// Flush has everything learned that was added.
func (l *Learner) Flush(ctx context.Context) (err error) {
	if len(l.waiting) == 0 {
		return nil
	}
	var some httpapi.Learned
	if l.set == nil {
		err = Ask(ctx, l.config, http.MethodPost, "/v1/correspondents", httpapi.LearnQuestion{Sent: l.waiting, Author: l.Author}, &some)
	} else if err = l.config.Journal().Add(httpapi.LearnLine(l.Author, len(l.waiting))); err == nil {
		some = httpapi.LearnFrom(l.set, l.waiting)
		err = l.set.Save()
	}
	l.waiting = l.waiting[:0]
	l.Total.Recipients += some.Recipients
	l.Total.Known = max(some.Known, l.Total.Known)
	return err
}

// Close lets others have the correspondents.
func (l *Learner) Close() {
	if l != nil {
		l.set.Close()
	}
}

// Forget erases what is kept about one person, by the daemon or in the files.
func Forget(ctx context.Context, c config.Config, a addr.Addr, w forget.Wish, why string) (f forget.Forgotten, err error) {
	err = Ask(ctx, c, http.MethodPost, "/v1/forget", httpapi.ForgetQuestion{Address: a.String(), Entries: w.Entries, Quarantine: w.Quarantine, Author: w.Author, Why: why}, &f)
	if !errors.Is(err, ErrNoDaemon) {
		return f, err
	}
	set, _, err := correspondents.Open(c.CorrespondentSettings())
	if err != nil {
		return f, err
	}
	defer set.Close()
	p := forget.Places{Correspondents: set, Recent: reload.OpenRecent(c.RecentPath(), c.Index.Recent, slog.New(slog.DiscardHandler)),
		RecentPath: c.RecentPath(), Index: c.Index.Path, Proposals: c.JunkBox(), Hits: hits.NewTable(prometheus.NewRegistry()), HitsPath: c.HitsPath(),
		Report:     func(names func(string) bool) (int, error) { return letter.ForgetIn(c.ReportPath(), names) },
		Quarantine: quarantine.Folder(c.SMTP.Quarantine), Subaddress: c.Policy().Owners.Subaddress}
	if err := p.Hits.Load(p.HitsPath); err != nil {
		return f, err
	}
	if c.Live.Folder != config.None {
		if _, missing := os.Stat(c.LiveFolder()); missing == nil {
			if p.Live, err = live.Open(c.LiveSettings(c.Journal())); err != nil {
				return f, err
			}
			defer p.Live.Close()
			node, err := shareAlone(c, p.Live)
			if err != nil {
				return f, err
			}
			defer node.Close()
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
			return history.ForgetIn(ctx, history.Settings{Folder: c.HistoryFolder(), Max: int64(c.History.Max), Keep: time.Duration(c.History.Keep)}, about)
		}
	}
	if err := c.Journal().Add(httpapi.ForgetLine(&p, a, w.Author, why)); err != nil {
		return f, err
	}
	return p.Forget(ctx, a, w)
}
