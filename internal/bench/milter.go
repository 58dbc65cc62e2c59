package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// milterSettings of a run of `bench milter`.
type milterSettings struct {
	doorSettings
	mails     int // of 1 KB on new connections, a way and round
	reused    int // the same on connections that are used again
	refusals  int // of listed senders
	questions int // to the policy service, on each number of connections
	events    int // of the milter protocol that are timed one by one
	idle      int // connections held
}

// milterDoor is a Postfix that asks blockd, others, and nobody. blockd's milter is the
// first of the ways.
type milterDoor struct {
	milterSettings
	milterTables
	servers
	postfix   postfix
	ways      []way
	milter    path   // blockd's, spoken to directly
	policies  []path // policy services, the same
	addresses *addresses
	held      int // connections, in the end
}

func newMilterDoor() *milterDoor {
	return &milterDoor{milterTables: newMilterTables(),
		milterSettings: milterSettings{mails: 1000, reused: 1500, refusals: 2000, questions: 40_000, events: 5000}}
}

func newMilterCommand() *command {
	m := newMilterDoor()
	c := newDoorCommand("milter", "asked by Postfix", 5, &m.doorSettings, m)
	c.flags.IntVar(&m.idle, "idle", 10_000, "milter `connections` to hold for the memory of an idle one")
	c.flags.StringVar(&m.temp, "queue", memoryFolder(), "`folder` for Postfix' queue")
	c.within = func() bool { return m.n >= 1000 && m.rounds >= 1 && m.idle >= 1 }
	c.bounds = "-n of 1000 or more, -rounds and -idle of 1 or more"
	return c
}

// memoryFolder is where files cost no disk; "" = the system's temporary folder.
func memoryFolder() string {
	const shm = "/dev/shm"
	if info, err := os.Stat(shm); err != nil || !info.IsDir() {
		return ""
	}
	return shm
}

func (m *milterDoor) lacks() error {
	if err := lackOf("smtp-source", "postfix"); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("must be root, as the master of Postfix must")
	}
	return nil
}

// round measures everything once in every way, one after the other.
func (m *milterDoor) round(ctx context.Context) error {
	for _, load := range []struct {
		mails     int
		options   []string
		rate, cpu int // columns
	}{{m.mails, nil, milteredNew, milteredNewCPU}, {m.reused, []string{"-d"}, milteredReused, milteredReusedCPU}} {
		for _, way := range m.ways {
			before, err := way.filter.cpu()
			if err != nil {
				return err
			}
			begun := time.Now()
			if _, err := source(ctx, way.address, smtpSessions, load.mails, smallMessage, load.options...); err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			if err := m.postfix.settle(ctx); err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			m.accepted.add(way.name, load.rate, float64(load.mails)/time.Since(begun).Seconds())
			after, err := way.filter.cpu()
			if err != nil {
				return err
			}
			if way.filter.filters {
				m.accepted.add(way.name, load.cpu, 1e6*(after-before)/float64(load.mails))
			}
		}
	}
	for _, way := range m.ways {
		if way.refuse == nil {
			continue
		}
		seconds, err := way.refuse(ctx, way.address, m.refusals, m.addresses.sample)
		if err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
		m.refused.add(way.name, 0, float64(m.refusals)/seconds)
	}
	for _, server := range m.policies {
		for column, connections := range policyConnections {
			seconds, err := askPolicy(server.address, connections, m.questions, m.addresses.sample)
			if err != nil {
				return fmt.Errorf("%s: %w", server.name, err)
			}
			m.policy.add(server.name, column, float64(m.questions)/seconds)
		}
	}
	times, err := timeEvents(m.milter.address, m.events, m.addresses.sample)
	if err != nil {
		return fmt.Errorf("%s: %w", nameBlockd, err)
	}
	for column, event := range timedEvents {
		m.latency.add(nameBlockd, 2*column, times[event].quantile(0.5))
		m.latency.add(nameBlockd, 2*column+1, times[event].quantile(0.99))
	}
	return nil
}

// finish measures blockd's memory with many idle connections while events flow.
func (m *milterDoor) finish(ctx context.Context, now progress) (err error) {
	now.say("holding " + grouped(m.idle) + " connections")
	m.held, err = whileHeld(ctx, "milter-hold", m.milter, m.idle, m.rounds, &m.memory, func() error {
		_, err := timeEvents(m.milter.address, m.events, m.addresses.sample)
		return err
	})
	return err
}
