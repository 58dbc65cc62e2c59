package main

import (
	"context"
	"fmt"
)

// smtpSettings of a run of `bench smtp`.
type smtpSettings struct {
	doorSettings
	mails    int // of 1 KB on new connections, a path and round
	reused   int // the same on connections that are used again
	large    int // of 10 MB
	refusals int // of listed senders
	commands int // mails whose commands are timed one by one
	idle     int // sessions held
}

// The load: 20 sessions of 1 KB messages, as the goals have it.
const (
	smtpSessions  = 20
	smallMessage  = 1 << 10
	largeMessage  = 10 << 20
	largeSessions = 4
)

// smtpDoor is the SMTP filter, and what stands between the same client and sink
// instead. blockd's path is the first everywhere.
type smtpDoor struct {
	smtpSettings
	smtpTables
	servers
	accepting, refusing, timed []path
	sink                       string // address
	addresses                  *addresses
}

func newSMTPDoor() *smtpDoor {
	return &smtpDoor{smtpTables: newSMTPTables(),
		smtpSettings: smtpSettings{mails: 3000, reused: 6000, large: 8, refusals: 6000, commands: 500}}
}

func newSMTPCommand() *command {
	p := newSMTPDoor()
	c := newDoorCommand("smtp", "SMTP", 7, &p.doorSettings, p)
	c.flags.IntVar(&p.idle, "idle", 10_000, "`sessions` to hold for the memory of an idle one")
	c.within = func() bool { return p.n >= 1000 && p.rounds >= 1 && p.idle >= 1 }
	c.bounds = "-n of 1000 or more, -rounds and -idle of 1 or more"
	return c
}

func (p *smtpDoor) lacks() error { return lackOf("smtp-source", "smtp-sink") }

// round measures everything once on every path, one after the other.
func (p *smtpDoor) round(ctx context.Context) error {
	for _, m := range []struct {
		mails, each, sessions int
		options               []string
		rate, cpu             int // columns; -1: none
		perCPU                float64
	}{
		{p.mails, smallMessage, smtpSessions, nil, acceptedNew, acceptedNewCPU, 1000},
		{p.reused, smallMessage, smtpSessions, []string{"-d"}, acceptedReused, acceptedReusedCPU, 1000},
		{p.large, largeMessage, largeSessions, nil, -1, acceptedLargeCPU, 1 / (float64(largeMessage) / 1e6)},
	} {
		for _, path := range p.accepting {
			before, err := path.cpu()
			if err != nil {
				return err
			}
			seconds, err := source(ctx, path.address, m.sessions, m.mails, m.each, m.options...)
			if err != nil {
				return fmt.Errorf("%s: %w", path.name, err)
			}
			if m.rate >= 0 {
				p.accepted.add(path.name, m.rate, float64(m.mails)/seconds)
			}
			after, err := path.cpu()
			if err != nil {
				return err
			}
			if path.filters {
				p.accepted.add(path.name, m.cpu, 1e3*(after-before)/float64(m.mails)*m.perCPU)
			}
		}
	}
	for _, path := range p.refusing {
		for column, each := range map[int]int{refusedNew: 1, refusedReused: refusalsASession} {
			seconds, err := refusals(ctx, path.address, p.refusals, each, p.addresses.sample)
			if err != nil {
				return fmt.Errorf("%s: %w", path.name, err)
			}
			p.refused.add(path.name, column, float64(p.refusals)/seconds)
		}
	}
	return p.timeCommands(ctx)
}

// timeCommands times commands of one session: those that are passed on, on all
// paths, and those of a listed sender at blockd. Paths take turns mail by mail.
func (p *smtpDoor) timeCommands(ctx context.Context) error {
	var talks []*talk
	for _, path := range p.timed {
		t, err := dialTalk(ctx, path.address)
		if err != nil {
			return fmt.Errorf("%s: %w", path.name, err)
		}
		defer t.close()
		talks = append(talks, t)
	}
	times := make([]map[string]series, len(talks))
	for i := range times {
		times[i] = map[string]series{}
	}
	for n := range p.commands {
		for i, t := range talks {
			if err := t.mail(times[i]); err != nil {
				return fmt.Errorf("%s: %w", p.timed[i].name, err)
			}
			if i == 0 { // blockd
				if err := t.refused(p.addresses.sample[n%len(p.addresses.sample)], times[i]); err != nil {
					return fmt.Errorf("%s: %w", p.timed[i].name, err)
				}
			}
		}
	}
	for i, path := range p.timed {
		p.latency.add(path.name, latencyMedian, times[i]["passed"].quantile(0.5))
		p.latency.add(path.name, latencyTail, times[i]["passed"].quantile(0.99))
		if i == 0 {
			p.latency.add(path.name, latencyMail, times[i]["MAIL"].quantile(0.5))
			p.latency.add(path.name, latencyRcpt, times[i]["RCPT"].quantile(0.5))
		}
	}
	return nil
}

// finish measures blockd's memory with many idle sessions while mail flows.
func (p *smtpDoor) finish(ctx context.Context, now progress) error {
	now.say("holding " + grouped(p.idle) + " sessions")
	blockd := p.accepting[0]
	_, err := whileHeld(ctx, "smtp-hold", blockd, p.idle, p.rounds, &p.memory, func() error {
		_, err := source(ctx, blockd.address, smtpSessions, p.mails, smallMessage)
		return err
	})
	return err
}
