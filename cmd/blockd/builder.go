package main

import (
	"os"

	"github.com/spf13/cobra"

	"blockd/reload/builder"
)

// newBuilder is the process in which serve builds an index.
func newBuilder() *cobra.Command {
	return &cobra.Command{
		Use:    builderName,
		Short:  "build an index for serve, which starts this",
		Hidden: true,
		Args:   noArgs,
		RunE:   func(*cobra.Command, []string) error { return builder.Serve(os.Stdin, os.Stdout) },
	}
}

const builderName = "builder"
