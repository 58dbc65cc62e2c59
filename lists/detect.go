package lists

import (
	"fmt"
	"slices"
	"strings"
)

const (
	sampleLines = 200     // that are no comments decide
	sampleBytes = 1 << 20 // bound of what is kept of them
	fitPercent  = 95      // of them must fit the format
)

// foreign are the marks of formats that this package does not read: a file with
// one of them is refused, since its lines may look like those of another format.
var foreign = [...]struct {
	name string
	mark func(string) bool
}{
	{"dnsmasq", func(s string) bool {
		return hasFold(s, "address=/") || hasFold(s, "server=/") || hasFold(s, "local=/")
	}},
	{"unbound", func(s string) bool { return hasFold(s, "local-zone:") || hasFold(s, "local-data:") }},
	{"spamassassin", spamassassinMark},
	{"rpz", rpzMark},
	{"rbldnsd", rbldnsdMark},
	{"sendmail", sendmailMark},
	{"drop", dropMark},
}

// detect guesses the format of a file whose settings name none, and says why; or
// it refuses the file. A wrong guess could turn exceptions into refusals, so
// there is none without a reason.
func detect(src *source, eol byte) (*format, string, error) {
	sample, marked, err := takeSample(src, eol)
	if err != nil {
		return nil, "", err
	}
	if len(sample) == 0 && len(marked) == 0 {
		f, _, err := findFormat("plain")
		return f, "", err // nothing but comments: any format reads it as empty
	}
	if f, why, err := detectJSON(sample); f != nil || err != nil {
		return f, why, err
	}
	var found []string
	for _, text := range sample {
		if name := markOf(trimLeft(text)); name != "" && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	switch {
	case len(found) > 1:
		return nil, "", refusal(Ambiguous, "has marks of %s; declare its format", strings.Join(found, " and "))
	case len(found) == 1 && isForeign(found[0]):
		return nil, "", refusal(BadFormat, "looks like %s, which this version does not read", found[0])
	case len(found) == 1:
		return fits(found[0], sample)
	}
	return fitsPlain(sample, marked)
}

// fitsPlain is for a file without any mark. What formats differ about is not
// guessed: leading dots, and "! text", a comment in one and an exception in another.
func fitsPlain(sample, marked []string) (*format, string, error) {
	if slices.ContainsFunc(sample, func(s string) bool { return trimLeft(s)[0] == '.' }) {
		return nil, "", refusal(Ambiguous, "names with a leading dot mean different things in plain, postfix and rbldnsd; declare its format")
	}
	f, _, err := findFormat("plain")
	if err != nil {
		return nil, "", err
	}
	if n, err := f.good(marked); err != nil {
		return nil, "", err
	} else if n < len(marked) || len(sample) == 0 {
		return nil, "", refusal(Ambiguous, `lines with "!" and a blank are comments in adblock and exceptions in plain; declare its format`)
	}
	return fits("plain", sample)
}

// takeSample collects the first lines that are neither blank nor comments in any
// format, without trailing blanks; and apart from them those that begin with "!" and a blank.
func takeSample(src *source, eol byte) (sample, marked []string, err error) {
	in, err := src.text(nil)
	if err != nil {
		return nil, nil, err
	}
	lines := newLineReader(in, eol)
	for size := 0; len(sample) < sampleLines && size < sampleBytes; {
		l, ok := lines.next()
		if !ok {
			break
		}
		text := trim(l.text)
		if text == "" || isAnyComment(text) || l.long && text[0] != '[' && text[0] != '{' {
			continue // JSON may well be one line
		}
		size += len(text)
		if text[0] != '!' || len(text) > 1 && blankAt(text[1:]) == 0 {
			sample = append(sample, strings.Clone(trimRight(l.text)))
		} else if len(marked) < sampleLines {
			marked = append(marked, strings.Clone(text))
		}
	}
	r := reading{lines: lines}
	return sample, marked, r.end()
}

func isAnyComment(text string) bool {
	switch text[0] {
	case '#':
		return !strings.HasPrefix(text, "##") && !strings.HasPrefix(text, "#@#") && !strings.HasPrefix(text, "#?#") ||
			strings.Trim(text, "#") == "" || strings.HasPrefix(text, "###")
	case ';':
		return true
	}
	return strings.HasPrefix(text, "//")
}

// detectJSON knows JSON by its first character, but [Adblock Plus] and
// [2001:db8::1] by what follows it.
func detectJSON(sample []string) (*format, string, error) {
	if len(sample) == 0 {
		return nil, "", nil
	}
	first := trimLeft(sample[0])
	next := trimLeft(first[1:])
	if next == "" && len(sample) > 1 {
		next = trimLeft(sample[1])
	}
	switch {
	case first[0] != '[' && first[0] != '{':
		return nil, "", nil
	case next != "" && strings.IndexByte("\"{}]", next[0]) < 0:
		return nil, "", nil
	case first[0] == '{' && strings.HasSuffix(first, "}") && strings.Contains(first, `"cidr"`):
		return nil, "", refusal(BadFormat, "looks like drop, which this version does not read")
	}
	f, _, err := findFormat("json")
	return f, fmt.Sprintf(`auto: json, begins with "%c"`, first[0]), err
}

func markOf(text string) string {
	for _, f := range foreign {
		if f.mark(text) {
			return f.name
		}
	}
	for _, f := range formats {
		if f.marks != nil && f.marks(text) {
			return f.Name
		}
	}
	return ""
}

func isForeign(name string) bool {
	return !slices.ContainsFunc(formats[:], func(f format) bool { return f.Name == name })
}

// fits takes the named format if nearly all lines of the sample are lines of it.
func fits(name string, sample []string) (*format, string, error) {
	f, _, err := findFormat(name)
	if err != nil {
		return nil, "", err
	}
	good, err := f.good(sample)
	if err != nil {
		return nil, "", err
	}
	if good*100 < len(sample)*fitPercent {
		return nil, "", refusal(Ambiguous, "only %d of the first %d lines fit %s; declare its format", good, len(sample), name)
	}
	return f, fmt.Sprintf("auto: %s, %d of %d lines are %s", name, good, len(sample), f.shows), nil
}

// good counts the lines of a sample that are lines of the format. In one with a
// mark of its own what is unsupported still is: real adblock lists are full of
// it. A name without a dot is none, or any text with a word a line were a list.
func (f *format) good(sample []string) (int, error) {
	good, last := 0, 0
	text := strings.NewReader(strings.Join(sample, "\n"))
	r := newReading(text, '\n', f, "", Settings{}, func(it *Item) error {
		bad := it.Kind == Err && (it.Class != Unsupported || f.marks == nil) || it.Kind == Domain && it.Key.Labels < 2
		if !bad && it.Line != last {
			good, last = good+1, it.Line
		}
		return nil
	})
	return good, f.read(r)
}

// spamassassinMark tells the directives of a configuration file that name senders.
func spamassassinMark(text string) bool {
	word, rest := cutWord(text)
	for _, list := range [...]string{"blocklist", "blacklist", "welcomelist", "whitelist"} {
		for _, kind := range [...]string{"_from", "_auth", "_to"} {
			w := strings.TrimPrefix(strings.TrimPrefix(word, "def_"), "un")
			if rest != "" && strings.HasPrefix(w, list+kind) {
				return true
			}
		}
	}
	return rest != "" && (word == "freemail_domains" || word == "ifplugin")
}

// rpzMark tells an SOA and a CNAME to a policy target of a zone file.
func rpzMark(text string) bool {
	words := strings.Fields(text)
	for i, w := range words[:max(len(words)-1, 0)] {
		switch target := words[i+1]; strings.ToUpper(w) {
		case "SOA":
			return i > 0
		case "CNAME":
			return i > 0 && (target == "." || target == "*." || strings.HasPrefix(target, "rpz-"))
		}
	}
	return false
}

// rbldnsdMark tells values of 127/8 between colons and rbldnsd's own specials.
func rbldnsdMark(text string) bool {
	for _, special := range [...]string{"$DATASET", "$SOA", "$NS", "$TIMESTAMP", "$MAXRANGE4"} {
		if hasFold(text, special) {
			return true
		}
	}
	return strings.HasPrefix(text, ":127.") || strings.Contains(text, " :127.") || strings.Contains(text, "\t:127.")
}

// sendmailMark tells a tagged key with a value: "From:bulk.test REJECT". The form
// "From: promo@bulk.test" of a pasted header has a blank behind the colon.
func sendmailMark(text string) bool {
	for _, tag := range [...]string{"from:", "to:", "connect:", "spam:", "delay:", "tls_"} {
		if hasFold(text, tag) && len(text) > len(tag) && blankAt(text[len(tag):]) == 0 {
			return indexBlank(text) > 0
		}
	}
	return false
}

// dropMark tells "NETWORK ; SBL123" of Spamhaus DROP.
func dropMark(text string) bool {
	net, note, ok := strings.Cut(text, ";")
	return ok && looksNet(trimRight(net)) && hasFold(trimLeft(note), "SBL")
}
