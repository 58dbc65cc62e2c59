package daemon

import (
	"context"
	"fmt"
	"log/slog"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/resp"
	"blockd/index/live"
)

// respDoor is a door with passwords.
type respDoor struct {
	door
	server *resp.Server // nil: the door is shut
}

// openRESP makes what [resp] asks for.
func (d *daemon) openRESP(ctx context.Context) (err error) {
	c, o := d.config, &d.resp
	if !c.RESP.Open() {
		return nil
	}
	s := resp.Settings{
		AllowFrom: config.Networks(c.RESP.AllowFrom), Strangers: d.turnAway("resp"), MaxConnections: c.RESP.MaxConnections, Users: c.RESP.Users, Required: c.Required(nil), Serving: d.lists.Live,
	}
	for _, l := range c.Lists {
		s.Lists = append(s.Lists, l.Name)
		s.Waits = s.Waits || l.Asked()
	}
	if d.entries != nil {
		s.Lists, s.Live = append(s.Lists, live.ListName), d.entries.Len
	}
	if o.server, err = resp.New(s, d.checker, resp.NewMetrics(d.metrics), d.log); err != nil {
		return fmt.Errorf("resp.users: %w", err)
	}
	if o.listeners, err = d.sockets.listen(ctx, "resp", "resp.listen", c.RESP.Listen, c.RESP.SocketGroup); err != nil {
		return err
	}
	o.serve = func(ctx context.Context) error { return o.server.Serve(ctx, o.listeners...) }
	return nil
}

// renewUsers reads the passwords again.
func (d *respDoor) renewUsers(log *slog.Logger) {
	if d.server == nil {
		return
	}
	if err := d.server.RenewUsers(); err != nil {
		log.Error("resp passwords not read again: those from before count", slog.Any("error", err))
	}
}
