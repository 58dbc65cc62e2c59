package transaction

import "testing"

func TestParseRefusesWhatItDoesNotKnow(t *testing.T) {
	const rest = "from a@b\nalone accept\nverdict clear\n"
	for _, tt := range []struct{ text, want string }{
		{"what x", `x.txt:1: what is "what"`},
		{" indented", `x.txt:1: what is " indented"`},
		{"list bad", "x.txt:1: list wants NAME: ENTRIES, or one of allow all shadow paused tenth tempfail tag quarantine discard spamassassin fixed forced owned behind NAME"},
		{"list bad blok: a", "x.txt:1: list wants NAME: ENTRIES, or one of allow all shadow paused tenth tempfail tag quarantine discard spamassassin fixed forced owned behind NAME"},
		{"set x", "x.txt:1: set wants KEY VALUE"},
		{"auth x", "x.txt:1: auth wants KEY VALUE"},
		{"require x: spf", "x.txt:1: require wants the NAME of a list: PROOFS"},
		{"dns x", "x.txt:1: dns wants TYPE NAME: TEXT"},
		{"client here", `x.txt:1: ParseAddr("here"): unable to parse IP`},
		{"to bob@here.example", "x.txt:1: to wants RECIPIENT OUTCOME"},
		{"to bob@here.example refuse", `x.txt:1: want an outcome, have "refuse"`},
		{"to bob@here.example refuse nobody", `x.txt:1: want an outcome, have "refuse nobody"`},
		{"to bob@here.example accept bad", `x.txt:1: want an outcome, have "accept bad"`},
		{"to bob@here.example accept [door accept]", `x.txt:1: want a door, have "door"`},
		{"to bob@here.example accept [smtp accept", "x.txt:1: bracket without its pair"},
		{rest, `x.txt: no line "to"`},
	} {
		if _, err := Parse("x", tt.text); err == nil || err.Error() != tt.want {
			t.Errorf("Parse(%q) = %v, want %s", tt.text, err, tt.want)
		}
	}
}

func TestInternal(t *testing.T) {
	for path, want := range map[string]string{
		"": "", "a@b.example": "a@b.example", "a@b.example.": "a@b.example", `"a b"@x`: "a b@x", `"a\"b\\"@x`: `a"b\@x`,
		"@r1,@r2:a@b": "a@b", "postmaster": "postmaster",
	} {
		if got := Internal(path); got != want {
			t.Errorf("Internal(%q) = %q, want %q", path, got, want)
		}
	}
}
