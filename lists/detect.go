package lists

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	sampleLines = 200     // that are no comments decide
	sampleBytes = 1 << 20 // bound of what is kept of them
	fitPercent  = 95      // of them must fit the format
)

// detect guesses the format of a file whose settings name none, and says why; or
// it refuses the file. A wrong guess could turn exceptions into refusals, so
// there is none without a reason.
func detect(src *source, eol byte) (f *format, arg, why string, err error) {
	if ours, err := beginsAsEntries(src); err != nil {
		return nil, "", "", err
	} else if ours {
		return formatNamed("entries"), "", "auto: entries, by its first line", nil
	}
	sample, marked, err := takeSample(src, eol)
	if err != nil {
		return nil, "", "", err
	}
	if len(sample) == 0 && len(marked) == 0 {
		return formatNamed("plain"), "", "", nil // nothing but comments: any format reads it as empty
	}
	if name, why := detectJSON(sample); name == "json" {
		return formatNamed(name), "", why, nil
	} else if name != "" {
		return fits(name, sample)
	}
	var found []string
	for _, text := range sample {
		if name := markOf(trimLeft(text)); name != "" && !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	switch {
	case len(found) > 1:
		return nil, "", "", refusal(Ambiguous, "has marks of %s; declare its format", strings.Join(found, " and "))
	case len(found) == 1:
		return fits(found[0], sample)
	}
	return fitsPlain(sample, marked)
}

// beginsAsEntries tells a file of the format entries, of any version. To the other formats its first line is a comment.
func beginsAsEntries(src *source) (bool, error) {
	in, err := src.text(nil)
	if err != nil {
		return false, err
	}
	head := make([]byte, len(entriesMark))
	if _, err := io.ReadFull(in, head); err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return false, err
	}
	return string(head) == entriesMark, nil
}

// fitsPlain is for a file without any mark. What formats differ about is not
// guessed: leading dots, and "! text", a comment in one and an exception in another.
func fitsPlain(sample, marked []string) (f *format, arg, why string, err error) {
	if slices.ContainsFunc(sample, func(s string) bool { return trimLeft(s)[0] == '.' }) {
		return nil, "", "", refusal(Ambiguous, leadingDots)
	}
	if formatNamed("plain").good(marked, "") < len(marked) || len(sample) == 0 {
		return nil, "", "", refusal(Ambiguous, `lines with "!" and a blank are comments in adblock and exceptions in plain; declare its format`)
	}
	return fits("plain", sample)
}

const leadingDots = "names with a leading dot mean different things in plain, postfix and rbldnsd; declare its format"

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
func detectJSON(sample []string) (name, why string) {
	if len(sample) == 0 {
		return "", ""
	}
	first := trimLeft(sample[0])
	next := trimLeft(first[1:])
	if next == "" && len(sample) > 1 {
		next = trimLeft(sample[1])
	}
	switch {
	case first[0] != '[' && first[0] != '{':
		return "", ""
	case next != "" && strings.IndexByte("\"{}]", next[0]) < 0:
		return "", ""
	case first[0] == '{' && strings.HasSuffix(first, "}") && (strings.Contains(first, `"cidr"`) || strings.Contains(first, `"metadata"`)):
		return "drop", ""
	}
	return "json", fmt.Sprintf(`auto: json, begins with "%c"`, first[0])
}

// markOf returns the format that the line can only be of, "" without a mark.
func markOf(text string) string {
	for _, f := range formats {
		if f.marks != nil && f.marks(text) {
			return f.Name
		}
	}
	return ""
}

// fits takes the named format if nearly all lines of the sample are lines of it.
func fits(name string, sample []string) (f *format, arg, why string, err error) {
	if f = formatNamed(name); f.guess != nil {
		if arg = f.guess(sample); arg != "" {
			name += ":" + arg
		}
	}
	good := f.good(sample, arg)
	if good*100 < len(sample)*fitPercent {
		return nil, "", "", refusal(Ambiguous, "only %d of the first %d lines fit %s; declare its format", good, len(sample), name)
	}
	return f, arg, fmt.Sprintf("auto: %s, %d of %d lines are %s", name, good, len(sample), f.shows), nil
}

// good counts the lines of a sample that are lines of the format. In one with a mark of its own what is unsupported
// still is: real adblock lists are full of it. A name without a dot is none, unless the line has a mark of the format,
// or all such are top-level domains, or any text with a word a line were a list.
func (f *format) good(sample []string, arg string) int {
	good, last, suffixes, words := 0, 0, 0, false
	text := strings.NewReader(strings.Join(sample, "\n"))
	r := newReading(f, arg, Settings{}, func(it *Item) error {
		bad := it.Kind == Err && (it.Class != Unsupported || f.marks == nil)
		if it.Kind == Domain && it.Key.Labels < 2 && (f.marks == nil || !f.marks(trim(it.Text))) {
			bad = true
			words = words || !isTopLevel(it.Key.Text)
			suffixes++
		}
		if !bad && it.Line != last {
			good, last = good+1, it.Line
		}
		return nil
	})
	r.in, r.lines = text, newLineReader(text, '\n')
	f.read(r) // its error is about the file as a whole, which a sample is not
	if !words {
		good += suffixes // whether it may hold them the gate says
	}
	return good
}
