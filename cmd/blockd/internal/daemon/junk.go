package daemon

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/cmd/blockd/internal/config"
	"blockd/policy/junk"
	"blockd/records/letter"
)

// openJunk makes what takes messages that users move to Junk. The HTTP door gives it the live entries.
func (d *daemon) openJunk() {
	d.junk = d.config.JunkDesk()
	box := d.junk.Box
	if box == nil {
		return
	}
	d.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_proposals_open",
		Help: "Senders whom several users do not want, that wait for a person to adopt or decline."}, func() float64 { return float64(box.CountOpen()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_proposals_damaged_lines",
			Help: "Lines of the file of proposals that cannot be read, and are left out."}, func() float64 { return float64(box.Damaged()) }))
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
