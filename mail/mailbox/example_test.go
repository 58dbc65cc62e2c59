package mailbox_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/emersion/go-smtp"

	"blockd/mail/mailbox"
)

// A client delivers a message, which is then a file in new/.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	box, err := mailbox.New(mailbox.Settings{Dir: dir, Hostname: "here.example"}, slog.New(slog.DiscardHandler))
	if err != nil {
		log.Fatal(err)
	}
	conn, err := box.Dial(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	client := smtp.NewClient(conn)
	err = client.SendMail("a@sender.example", []string{"b@here.example"}, strings.NewReader("Subject: hi\r\n\r\nHello.\r\n"))
	if err != nil {
		log.Fatal(err)
	}
	client.Quit()
	if err := box.Shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}

	paths, _ := filepath.Glob(filepath.Join(dir, "new", "*"))
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		fmt.Print(strings.ReplaceAll(string(text), "\r\n", "\n"))
	}
	// Output:
	// Return-Path: <a@sender.example>
	// Delivered-To: b@here.example
	// Subject: hi
	//
	// Hello.
}
