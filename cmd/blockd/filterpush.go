package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"blockd/bloom/filter"
	"blockd/bloom/redisfilter"
	"blockd/doors/export"
	"blockd/internal/redisclient"
	"blockd/internal/term"
)

func newFilterPush() *cobra.Command {
	var shards string
	var flags *fillFlags
	var at *redisFlags
	cmd := &cobra.Command{
		Use:   "push [-c config.toml | -i FILE.bdx] --as F [-p P] [--shards N] [--keys KINDS] [--list NAME]... URL NAME",
		Short: "put the lists into a Redis, as a filter",
		Long: `Write the keys of the compiled index as a Bloom filter into a Redis, under the key NAME:
` + strings.Join(redisfilter.Kinds(), ", ") + `. It is built aside, and takes the place of the one before by RENAME: a
program that asks meanwhile finds the old filter or the new one, each whole. After a kill
it can be run again. Of two at once the later wins.

URL is redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE], rediss:// for TLS, unix:///PATH, or
redis-sentinel://HOST:PORT[,HOST:PORT]/MASTER. A Cluster is found by itself. A password in
a URL is seen by all users of this machine; --password-file and the environment variable
REDISCLI_AUTH are not.

--shards N cuts the filter into {NAME:0} to {NAME:N-1}, which a Cluster spreads over its
nodes; "auto" does so if it is larger than 8 MiB. {NAME}:config tells programs how many.

docs/filters.md has the programs that ask such filters. Ends with 0 when the filter has all
keys, 1 when the lists have patterns, which have none, 2 on an error.`,
		Example: `  blockd filter push --as redisson -p 0.001 redis://redis.example bl
  blockd filter push --as bitmap --shards 64 --password-file /etc/blockd/redis rediss://push@redis.example bl
  blockd filter check redis://redis.example#bl someone@bad.example`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 || !redisclient.IsURL(args[0]) {
				return usagef("want a URL such as redis://localhost, and the NAME of a key")
			}
			return nil
		},
		RunE: answering(func(cmd *cobra.Command, args []string) error {
			what, err := flags.parse(redisfilter.Kinds())
			if err != nil {
				return err
			}
			parts, err := parseShards(shards)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			job, err := what.job()
			if err != nil {
				return err
			}
			server, err := at.dial(ctx, args[0])
			if err != nil {
				return err
			}
			defer server.Close()
			target, err := server.Target(ctx, args[1], flags.kind, parts)
			if err != nil {
				return err
			}
			bar := term.NewBar(cmd.ErrOrStderr())
			defer bar.Clear()
			filled, err := what.fill(ctx, job, bar, func(n uint64) (filter.Filter, error) { return target.New(n, flags.rate) })
			if err != nil {
				return err
			}
			octets, err := pushFilter(ctx, target, filled, bar)
			if err != nil {
				return err
			}
			bar.Clear()
			fmt.Fprintf(cmd.ErrOrStderr(), "%s at %s: %s, %s, %s%s\n", args[1], server, flags.kind, shownKeys(filled), term.Octets(octets), inParts(filled.Filter))
			return leftOut(cmd, filled)
		}),
	}
	flags = addFillFlags(cmd, "push", redisfilter.Kinds(), "utf8")
	must(cmd.Flags().MarkHidden("funnel")) // keys are octets in a Redis
	cmd.Flags().StringVar(&shards, "shards", "", "`N`, the number of parts, a power of two; or auto (default: one key)")
	at = addRedisFlags(cmd)
	return cmd
}

// pushFilter pushes, and says how much.
func pushFilter(ctx context.Context, target *redisfilter.Target, filled export.Filled, bar *term.Bar) (octets int64, err error) {
	err = target.Push(ctx, filled.Filter, func(done, total int64) {
		octets = total
		bar.Show(term.Step{Stage: "push", Done: done, Total: total})
	})
	return octets, err
}

func inParts(f filter.Filter) string {
	if all, ok := f.(filter.Sharded); ok {
		return ", in " + term.Counted(len(all), "part")
	}
	return ""
}

func parseShards(text string) (int, error) {
	switch text {
	case "":
		return redisfilter.OneKey, nil
	case "auto":
		return redisfilter.AsNeeded, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 2 || n > filter.MaxShards || n&(n-1) != 0 {
		return 0, usagef("--shards: want a power of two from 2 to %d, or auto, have %q", filter.MaxShards, text)
	}
	return n, nil
}

// redisFlags say how a Redis is reached.
type redisFlags struct {
	passwordFile string
	options      redisclient.Options
}

func addRedisFlags(cmd *cobra.Command) *redisFlags {
	f := &redisFlags{}
	cmd.Flags().StringVar(&f.passwordFile, "password-file", "", "`file` with the password of a Redis")
	cmd.Flags().StringVar(&f.options.CAFile, "ca", "", "`file` with the CA of a Redis with TLS")
	cmd.Flags().StringVar(&f.options.CertFile, "cert", "", "`file` with a certificate for a Redis that wants one")
	cmd.Flags().StringVar(&f.options.KeyFile, "key", "", "`file` with the key of --cert")
	cmd.Flags().DurationVar(&f.options.Timeout, "timeout", 15*time.Second, "`duration` to wait for a Redis, each time")
	return f
}

// dial connects to the Redis at url.
func (f *redisFlags) dial(ctx context.Context, url string) (*redisfilter.Server, error) {
	o := f.options
	if o.Timeout <= 0 {
		return nil, usagef("--timeout: want a duration above 0, have %v", o.Timeout)
	}
	o.URL, o.Password = url, os.Getenv("REDISCLI_AUTH") // as redis-cli has it
	if f.passwordFile != "" {
		text, err := os.ReadFile(f.passwordFile)
		if err != nil {
			return nil, err
		}
		o.Password, _, _ = strings.Cut(string(text), "\n")
		if o.Password = strings.TrimSuffix(o.Password, "\r"); o.Password == "" {
			return nil, fmt.Errorf("%s: no password in its first line", f.passwordFile)
		}
	}
	return redisfilter.Dial(ctx, o)
}

// open reads a filter on disk, or in a Redis as URL#NAME.
func (f *redisFlags) open(cmd *cobra.Command, at string) (filter.Filter, error) {
	scheme, _, remote := strings.Cut(at, "://")
	if !remote {
		return filter.Open(at)
	}
	server, name, _ := strings.Cut(at, "#")
	name, err := url.PathUnescape(name)
	switch {
	case !redisclient.IsURL(at):
		return nil, usagef("%s://: want a file, or redis://HOST#NAME", scheme)
	case err != nil || name == "":
		return nil, usagef("want the key of the filter after the URL: redis://HOST#NAME")
	}
	ctx, stop := interruptible(cmd)
	defer stop()
	s, err := f.dial(ctx, server)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	bar := term.NewBar(cmd.ErrOrStderr())
	defer bar.Clear()
	return s.Fetch(ctx, name, func(done, total int64) { bar.Show(term.Step{Stage: "read", Done: done, Total: total}) })
}
