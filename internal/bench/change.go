package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
)

// changedLists is how many lists the keys are dealt out to.
const changedLists = 10

// changeALine measures what follows when one line is put into one of ten lists: the
// time to an index that knows it, which is what a daemon serves first, and that of
// the build behind it, which takes the other lists from their segments.
func changeALine(ctx context.Context, s settings, dir string, k *keys, r *report) error {
	folder := filepath.Join(dir, "change")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	sources, text, err := deal(folder, k.present)
	if err != nil {
		return err
	}
	last := sources[len(sources)-1].Path
	path := filepath.Join(folder, "lists.bdx")
	options := index.Options{Cache: path + index.CacheSuffix}
	built := func() (*index.Index, time.Duration, error) {
		began := time.Now()
		draft, err := index.Build(ctx, path, sources, options)
		if err != nil {
			return nil, 0, err
		}
		defer draft.Discard()
		err = draft.Publish()
		return draft.Index(), time.Since(began), err
	}
	serving, _, err := built()
	if err != nil {
		return err
	}
	for round := range s.buildRounds() {
		sender := fmt.Sprintf("changed%d@bulk.test", round)
		middle := bytes.IndexByte(text[len(text)/2:], '\n') + 1 + len(text)/2
		text = append(append(append([]byte(nil), text[:middle]...), sender+"\n"...), text[middle:]...)
		if err := os.WriteFile(last, text, 0o600); err != nil {
			return err
		}
		began := time.Now()
		updated, _, err := serving.Update(ctx, sources, options)
		if err != nil {
			return err
		}
		took := time.Since(began)
		a, err := addr.Parse(sender)
		if err != nil {
			return err
		}
		if matches, err := updated.Lookup(nil, a, time.Now()); err != nil || len(matches) != 1 {
			return errors.Join(fmt.Errorf("%s: %d matches after the change", sender, len(matches)), err)
		}
		r.verdicts++
		var whole time.Duration
		if serving, whole, err = built(); err != nil {
			return err
		}
		r.change.add("**blockd**", changeActs, took.Seconds()*1e3)
		r.change.add("**blockd**", changeBuilt, whole.Seconds())
	}
	return nil
}

// deal deals the lines of a file out to lists, and returns those of the last one.
func deal(folder, file string) (sources []index.Source, last []byte, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	for i := range changedLists {
		end := len(text)
		if i < changedLists-1 {
			end = len(text) / (changedLists - i)
			end += bytes.IndexByte(text[end:], '\n') + 1
		}
		name := fmt.Sprintf("list%d", i)
		path := filepath.Join(folder, name+".txt")
		if err := os.WriteFile(path, text[:end], 0o600); err != nil {
			return nil, nil, err
		}
		sources = append(sources, index.Source{List: name, Path: path, Settings: lists.Settings{Format: "plain"}})
		last, text = text[:end], text[end:]
	}
	return sources, last, nil
}
