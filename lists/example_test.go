package lists_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"blockd/lists"
)

func Example() {
	dir, err := os.MkdirTemp("", "lists")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "bad.txt")
	text := "bulk.example       # and every name below it\n!press@bulk.example\nbulk..example\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	sum, err := lists.ReadFile(context.Background(), path, lists.Settings{Format: "plain"}, func(it *lists.Item) error {
		if it.Kind == lists.Err {
			fmt.Printf("line %d, column %d: %s: %s\n", it.Line, it.Column, it.Class, it.Message)
		} else {
			fmt.Printf("line %d: %s %s, %s %s\n", it.Line, it.Kind, it.Name(), it.Scope, it.Action)
		}
		return nil
	})
	fmt.Println(sum.Verdict, sum.Entries, "entries,", sum.Errors, "error;", err)
	// Output:
	// line 1: domain bulk.example, tree block
	// line 2: addr press@bulk.example, exact allow
	// line 3, column 1: syntax: nothing between two dots, or before one
	// loaded 2 entries, 1 error; <nil>
}
