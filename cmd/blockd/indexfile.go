package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"blockd/index"
	"blockd/internal/config"
	"blockd/internal/term"
	"blockd/reload"
)

// makeIndexFolder makes the folder of the index file, so that a fresh checkout
// runs. The file itself has mode 0600.
func makeIndexFolder(c config.Config) error {
	if err := os.MkdirAll(filepath.Dir(c.Index.Path), 0o755); err != nil {
		return fmt.Errorf("index.path: %w", err)
	}
	return nil
}

// openIndex opens an index file for a command that asks it. config is where the
// configuration is that names the file, "" if the command line does.
func openIndex(file, config string) (*index.Index, error) {
	ix, err := reload.OpenIndex(file)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return ix, err
	case config == "":
		return nil, fmt.Errorf("%s: no index yet; blockd compile -o makes one", term.Path(file))
	}
	return nil, fmt.Errorf("%s: no index yet: start the daemon, or run: blockd compile -c %s", term.Path(file), config)
}
