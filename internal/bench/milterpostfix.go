package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A Postfix with an smtpd for each way. It takes mail, queues it and throws it away.
const (
	milterMain = `relay_transport = discard:
milter_default_action = tempfail
in_flow_delay = 0
`
	milterMaster = `bounce    unix - - n - 0 bounce
defer     unix - - n - 0 bounce
trace     unix - - n - 0 bounce
discard   unix - - n - - discard
retry     unix - - n - - error
error     unix - - n - - error
`
)

// startPostfix starts it with the options of each way.
func (m *milterDoor) startPostfix(ctx context.Context, dir string, options []string) (err error) {
	var master strings.Builder
	master.WriteString(milterMaster)
	var addresses []string
	for i, w := range m.ways {
		fmt.Fprintf(&master, "%s inet n - n - - smtpd\n  -o %s\n", w.address, options[i])
		addresses = append(addresses, w.address)
	}
	if m.postfix, err = makePostfix(dir, milterMain, master.String()); err != nil {
		return err
	}
	return m.run(ctx, m.postfix, addresses...)
}

// settle waits until Postfix has delivered what it has taken.
func (p postfix) settle(ctx context.Context) error {
	return until(ctx, time.Minute, "Postfix to deliver", func() (bool, error) {
		for _, folder := range []string{"incoming", "active"} {
			f, err := os.Open(filepath.Join(p.queue(), folder))
			if err != nil {
				return false, err
			}
			names, _ := f.Readdirnames(1) // io.EOF: there are none
			f.Close()
			if len(names) > 0 {
				return false, nil
			}
		}
		if late, _ := filepath.Glob(filepath.Join(p.queue(), "deferred", "*", "*")); len(late) > 0 {
			return false, errors.New("mail was put off by Postfix")
		}
		return true, nil
	})
}
