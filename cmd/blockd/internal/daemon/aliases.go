package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/policy/rule"
	"blockd/sources/mirror"
)

// ReadAliases reads recipients.aliases once; nil if there are none.
func ReadAliases(ctx context.Context, c config.Config) (*rule.Aliases, error) {
	a := c.Recipients.Aliases
	if a == nil {
		return nil, nil
	}
	if a.Kind == "file" {
		f, err := os.Open(a.Path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		all, err := rule.ReadAliases(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.Path, err)
		}
		return all, nil
	}
	source, err := OpenSource(a.Source())
	if err != nil {
		return nil, err
	}
	defer source.Close()
	all := &rule.Aliases{}
	_, err = source.All(ctx, func(row mirror.Row) error {
		if all.Len() == rule.MaxAliases {
			return fmt.Errorf("more than %d aliases", rule.MaxAliases)
		}
		all.Add(row.Entry, row.Reason) // a row that is none costs itself alone
		return ctx.Err()
	})
	return all, err
}

// aliasPatience is how long one reading of a database may take.
const aliasPatience = time.Minute

// followAliases keeps the aliases as their source has them. What was read last stays in force while the source cannot be read.
func (d *daemon) followAliases(ctx context.Context) {
	a := d.config.Recipients.Aliases
	if a == nil {
		return
	}
	d.aliases = &rule.Book{}
	failed := false
	read := func() {
		ctx, cancel := context.WithTimeout(ctx, aliasPatience)
		defer cancel()
		all, err := ReadAliases(ctx, d.config)
		switch {
		case ctx.Err() == context.Canceled:
		case err != nil:
			text := "recipients.aliases: cannot be read, and those that were read last stay in force: "
			if d.aliases.Now() == nil {
				text = "recipients.aliases: cannot be read, and nobody behind an alias has his entries: "
			}
			text += err.Error()
			if d.aliasFault.Store(&text); failed {
				return
			}
			failed = true
			d.log.Error("aliases of recipients cannot be read: those that were read last stay in force", slog.Any("error", err))
		case err == nil:
			if failed || all.Len() != d.aliases.Now().Len() {
				d.log.Info("aliases of recipients", slog.Int("aliases", all.Len()))
			}
			failed = false
			d.aliasFault.Store(nil)
			d.aliases.Set(all)
		}
	}
	read()
	go func() {
		tick := time.NewTicker(a.Pause())
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				read()
			}
		}
	}()
}
