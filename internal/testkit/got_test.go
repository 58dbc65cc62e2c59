package testkit

import "testing"

func TestLike(t *testing.T) {
	for _, tt := range []struct {
		text, pattern string
		want          bool
	}{
		{"", "", true}, {"a", "", false}, {"a", "a", true}, {"ab", "a", false}, {"", "…", true}, {"ab", "…", true}, {"ab", "a…", true}, {"ba", "a…", false},
		{"ba", "…a", true}, {"ab", "…a", false}, {"xaby", "…ab…", true}, {"xay", "…ab…", false}, {"aba", "ab…ba", false}, {"a1b2c", "a…b…c", true}, {"a1c2b", "a…b…c", false},
	} {
		Equal(t, tt.text+" like "+tt.pattern, like(tt.text, tt.pattern), tt.want)
	}
}
