package index_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
)

// One writer builds generations aside and publishes each with a single store of
// a pointer; readers need no lock, and take the pointer once for a sender.
func Example() {
	folder, err := os.MkdirTemp("", "index")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	list := filepath.Join(folder, "list.txt")
	if err := os.WriteFile(list, []byte("bulk.test\npromo@shop.test\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	sources := []index.Source{{List: "mine", Path: list, Settings: lists.Settings{Format: "plain", Reason: "spam"}}}

	var live atomic.Pointer[index.Index]
	draft, err := index.Build(context.Background(), filepath.Join(folder, "lists.bdx"), sources, index.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer draft.Discard()
	// Here is the place to look at draft.Report and draft.Index, and to go no further.
	if err := draft.Publish(); err != nil {
		log.Fatal(err)
	}
	live.Store(draft.Index())

	for _, text := range []string{"x@mx.bulk.test", "x@shop.test"} {
		sender, err := addr.Parse(text)
		if err != nil {
			log.Fatal(err)
		}
		ix := live.Load()
		matches, err := ix.Lookup(nil, sender, time.Now())
		if err != nil {
			log.Fatal(err) // the store cannot be read: neither listed nor clear
		}
		fmt.Println(text, len(matches))
		for _, m := range matches {
			fmt.Printf("  %s:%d %s: %s\n", ix.Lists()[m.Row].Source.List, m.Line, m.Key.Text, m.Reason)
		}
	}
	// Output:
	// x@mx.bulk.test 1
	//   mine:1 bulk.test: spam
	// x@shop.test 0
}
