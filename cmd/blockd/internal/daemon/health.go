package daemon

import (
	"context"

	"blockd/doors/health"
)

// openHealth makes what [health] asks for. It comes after the other doors, whose locks it looks at.
func (d *daemon) openHealth(ctx context.Context) (err error) {
	o := &d.health
	if o.listeners, err = d.sockets.listen(ctx, "health", "health.listen", d.config.Health.Listen, ""); err != nil || len(o.listeners) == 0 {
		return err
	}
	ready := d.readiness(ctx)
	srv := &health.Server{Log: d.log,
		Ready: func() bool { return ready().Ready },
		Locks: func() {
			for _, pass := range d.locks {
				pass()
			}
		}}
	o.serve = func(ctx context.Context) error { return srv.Serve(ctx, o.listeners...) }
	return nil
}
