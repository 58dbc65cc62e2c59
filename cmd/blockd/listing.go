package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"blockd/httpapi"
	"blockd/internal/config"
	"blockd/internal/term"
	"blockd/reload"
)

func newListing() *cobra.Command {
	var path, file string
	var asJSON bool
	var view listingView
	cmd := &cobra.Command{
		Use:   "lists [-c config.toml | -i FILE.bdx] [--files] [--overlaps] [--entries] [--json]",
		Short: "show what each list is worth, how old it is, and how it does",
		Long: `Show a row for each list: its entries and distinct keys; the keys that no other list
has; the list with which it shares most, and how much of it; the age of what serves,
since it was written or its server confirmed it; its state; and since the daemon's
start how often it had an entry for an envelope or a question, how often no other
list had one, when it last had, and, if there is such a list, how often an allow entry
overruled its block. Below it stands what is wrong with lists, which lines of them are
refused (of a list whose state is "partial"), and which pairs of them share most. With --entries, those with the most hits follow.

The daemon is asked at [http] listen. Where none answers, the index file tells what
it knows, and hits are "-".`,
		Example: `  blockd lists
  blockd lists --files -c /etc/blockd/config.toml
  blockd lists --json | jq -r '.worth[] | select(.unique == 0).list'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" && cmd.Flags().Changed("config") {
				return usagef("want -c or -i, not both")
			}
			lists, err := listing(cmd.Context(), path, file, view.entries, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if asJSON {
				return term.JSON(cmd.OutOrStdout(), lists)
			}
			view.now, view.paint = time.Now(), term.NewPaint(cmd.OutOrStdout())
			return view.print(cmd.OutOrStdout(), lists)
		},
	}
	configFlag(cmd, &path)
	cmd.Flags().StringVarP(&file, "index", "i", "", "compiled index `file` to read, with no configuration")
	must(cmd.MarkFlagFilename("index", "bdx"))
	cmd.Flags().BoolVar(&view.files, "files", false, "a row for each file")
	cmd.Flags().BoolVar(&view.overlaps, "overlaps", false, "all pairs of lists that share keys, not the first ten")
	cmd.Flags().BoolVar(&view.entries, "entries", false, "the entries with the most hits")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what /v1/lists answers")
	return cmd
}

// listing asks the daemon of a configuration, or else reads the index file and
// says so on stderr.
func listing(ctx context.Context, path, file string, entries bool, stderr io.Writer) (httpapi.ListTable, error) {
	if file != "" {
		return indexListing(file, "", nil)
	}
	c, err := config.Load(path)
	if err != nil {
		return httpapi.ListTable{}, err
	}
	lists, asked := daemonListing(ctx, c, entries)
	if asked == nil {
		return lists, nil
	}
	lists, err = indexListing(c.Index.Path, path, c.Reload().Lists)
	if err == nil {
		fmt.Fprintf(stderr, "no hits, and problems only as of the build: %v\n", asked)
	}
	return lists, err
}

const (
	listingTimeout = 2 * time.Second // for all of a question to the daemon
	maxListing     = 64 << 20        // octets of its answer; that of 4,096 files and all overlaps has 12 MiB
)

// daemonListing is the answer of /v1/lists. The error says why there is none.
func daemonListing(ctx context.Context, c config.Config, entries bool) (lists httpapi.ListTable, err error) {
	ctx, cancel := context.WithTimeout(ctx, listingTimeout)
	defer cancel()
	path := "/v1/lists"
	if entries {
		path += fmt.Sprintf("?entries=%d", httpapi.MaxEntryWorth)
	}
	err = askDaemon(ctx, c, http.MethodGet, path, nil, &lists)
	return lists, err
}

// reachable is where a listener on address is reached from this machine: one that
// has no address of its own, or any, on loopback.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address // nobody listens there either
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "", err == nil && ip.Is4() && ip.IsUnspecified():
		host = "127.0.0.1"
	case err == nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// bareError is the system's word without the address, which is said before.
func bareError(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer in %v", listingTimeout)
	}
	return err
}

// indexListing is what an index file and the list files tell. all are the lists of
// the configuration, if there is one; "": none.
func indexListing(file, path string, all []reload.List) (httpapi.ListTable, error) {
	ix, err := openIndex(file, path)
	if err != nil {
		return httpapi.ListTable{}, err
	}
	s := reload.Status{Generation: ix.Generation(), Files: ix.Lists(), Worth: ix.Worth(), Overlaps: ix.Overlaps(),
		Dates: map[[2]string]time.Time{}, Held: map[string]int{}}
	held, err := reload.Held(file)
	if err != nil {
		return httpapi.ListTable{}, err
	}
	for _, e := range held {
		s.Held[e.List]++
	}
	s.Remarks = append(reload.DroppedRemarks(s.Files), reload.HeldRemarks(s.Held)...)
	now := time.Now()
	for _, row := range s.Files {
		info, err := os.Stat(row.Source.Path)
		if err != nil || info.ModTime().After(ix.Built()) {
			continue // not what was compiled
		}
		at := info.ModTime()
		i := slices.IndexFunc(all, func(l reload.List) bool { return l.Name == row.Source.List })
		if i >= 0 && all[i].Confirmed != nil {
			if confirmed := all[i].Confirmed(); !confirmed.IsZero() {
				at = confirmed
			}
		}
		s.Dates[[2]string{row.Source.List, row.Source.Path}] = at
		if i >= 0 && all[i].MaxAge > 0 && now.Sub(at) > all[i].MaxAge && !slices.Contains(s.Stale, row.Source.List) {
			s.Stale = append(s.Stale, row.Source.List)
		}
	}
	return httpapi.NewListTable(s, nil), nil
}
