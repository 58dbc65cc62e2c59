package control

import "testing"

func TestReachable(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:8025": "127.0.0.1:8025", "0.0.0.0:8025": "127.0.0.1:8025", ":8025": "127.0.0.1:8025", "[::]:8025": "[::1]:8025",
		"192.0.2.1:80": "192.0.2.1:80", "mail.example:80": "mail.example:80",
	} {
		if have := Reachable(listen); have != want {
			t.Errorf("Reachable(%s) = %s, want %s", listen, have, want)
		}
	}
}
