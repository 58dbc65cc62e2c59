package doctor

import (
	"context"
	"time"

	"blockd/cmd/blockd/internal/control"
	"blockd/cmd/blockd/internal/daemon"
)

// clockMargin is how far this machine's clock may be from that of the database.
const clockMargin = 5 * time.Second

// checkShared looks at the live entries that machines share: by the daemon, and without one by asking the database.
func (d *doctor) checkShared(ctx context.Context, r *report) {
	now, err := control.SharedLive(ctx, d.Config)
	if err != nil {
		store, offset, err := daemon.TrySharedStore(ctx, d.Config)
		switch {
		case err != nil:
			r.fault("see live.dsn_file, and docs/live.md for the rights that the role wants", "%v", err)
		case offset.Abs() > clockMargin:
			r.warning("let the machine follow a time server", "the clock of this machine is off by %s, by that of %s", offset.Round(time.Second).Abs(), store)
		default:
			r.ok("%s answers", store)
		}
		return
	}
	switch {
	case !now.Up && now.Since != nil:
		r.fault("see live.dsn_file and the database; what was known acts meanwhile", "%s does not answer since %s: %s", now.Store, now.Since.Format(time.RFC3339), now.Fault)
	case !now.Up:
		r.warning("ask again in a moment", "%s was not asked yet", now.Store)
	default:
		r.ok("%s answers; %d live entries are shared, up to revision %d", now.Store, now.Entries, now.Revision)
	}
	if n := now.LostAll; n > 0 {
		r.warning("blockd live lost shows them; then blockd live offer or blockd live dismiss", "the database has lost %d changes of live entries", n)
	}
	if off := time.Duration(now.Offset * float64(time.Second)); off.Abs() > clockMargin {
		r.warning("let the machine follow a time server", "the clock of this machine is off by %s, by that of the database", off.Round(time.Second).Abs())
	}
	if now.Differs > 1 {
		r.warning("the log names entries that cannot be read; machines want the same version of blockd", "the live entries differ from the database's")
	}
}

// checkFleet looks at all nodes that are seen here.
func (d *doctor) checkFleet(ctx context.Context, r *report) {
	v, err := control.FleetView(ctx, d.Config)
	if err != nil {
		r.warning("start the daemon", "the nodes of the fleet cannot be seen: %v", err)
		return
	}
	if v.Fault != "" {
		r.warning("see live.shared", "there may be more nodes: %s", v.Fault)
	}
	troubled := 0
	for i := range v.Nodes {
		if n := &v.Nodes[i]; !n.Ready || len(n.Problems) > 0 {
			troubled++
		}
	}
	if troubled > 0 {
		r.warning("blockd fleet shows them", "%d of %d nodes have problems", troubled, len(v.Nodes))
	} else {
		r.ok("%d nodes report, and none has a problem", len(v.Nodes))
	}
	if v.Entries {
		r.warning("blockd fleet --json has the sums; machines want the same version of blockd", "nodes with the same revision have different live entries")
	}
}
