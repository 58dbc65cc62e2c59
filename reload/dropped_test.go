package reload

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"blockd/lists"
)

// A line that is refused is told of with its file, line and class: in the log, in a counter and a
// gauge, and as a remark for /readyz.
func TestRefusedLinesAreTold(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": "bad.example\n\nno entry\ncom\n", "b.txt": "good.example\n"})
	guard, err := lists.NewGuard(lists.DefaultGuard())
	d.must(err)
	d.settings.Lists[0].Settings.Guard = guard
	d.open().start()
	d.wantCount(`msg="line refused"`, 2)
	for _, words := range []string{
		`level=WARN msg="line refused" list=a file=` + d.path("a.txt") + ` line=3 class=syntax error="more than one word; write one entry a line" text="no entry"`,
		`level=WARN msg="line refused" list=a file=` + d.path("a.txt") + ` line=4 class=public-suffix error="a single label: everybody's names are below it" text=com`,
	} {
		if d.count(words) != 1 {
			t.Errorf("no line %q in the log:\n%s", words, d.log)
		}
	}
	for _, class := range []string{"syntax", "public-suffix"} {
		d.wantMetric(`blockd_list_refused_lines_total{class="`+class+`",list="a"}`, "1")
		d.wantMetric(`blockd_list_lines_left_out{class="`+class+`",list="a"}`, "1")
	}
	want := []string{"list a: 2 lines are refused (1 public-suffix, 1 syntax), such as " + d.path("a.txt") + ":3: syntax: more than one word; write one entry a line"}
	if s := d.Status(); !s.Ready || len(s.Problems) > 0 || !slices.Equal(s.Remarks, want) {
		t.Errorf("status %+v, want the remark %q", s, want)
	}

	// Another list changes: what is known is not told again.
	d.served("b.txt", "good.example\nother.example\n", "x@other.example")
	d.wantCount(`msg="line refused"`, 2)
	if s := d.Status(); !slices.Equal(s.Remarks, want) {
		t.Errorf("remarks %q after another list's change", s.Remarks)
	}

	// So it is where the list itself changes elsewhere; a new fault is told, and counted once.
	d.served("a.txt", "bad.example\n\n\nno entry\nworse.example\na..test\n", "x@worse.example")
	d.wantCount(`msg="line refused"`, 3)
	if d.count("line=6 class=syntax") != 1 || d.count("more lines refused") != 0 {
		t.Errorf("log:\n%s", d.log)
	}
	d.wantMetric(`blockd_list_refused_lines_total{class="syntax",list="a"}`, "2")
	d.wantMetric(`blockd_list_lines_left_out{class="syntax",list="a"}`, "2")
	d.wantMetric(`blockd_list_lines_left_out{class="public-suffix",list="a"}`, "")

	d.served("a.txt", "bad.example\ncured.example\n", "x@cured.example")
	if s := d.Status(); len(s.Remarks) > 0 {
		t.Errorf("remarks %q of sound lists", s.Remarks)
	}
}

// Of many refused lines the first ten are told of, then their number. A daemon that finds the index
// on disk tells the same.
func TestManyRefusedLinesAreTenAndACount(t *testing.T) {
	var text strings.Builder
	text.WriteString("bad.example\n")
	for i := range 25 {
		fmt.Fprintf(&text, "no entry %d\n", i)
	}
	d := newDaemon(t, map[string]string{"a.txt": text.String()})
	for _, how := range []string{"built", "found on disk"} {
		d.open()
		if d.count("how="+quoted(how)) != 1 {
			t.Errorf("not %s:\n%s", how, d.log)
		}
		if n := d.count(`msg="line refused"`); n != 10 {
			t.Errorf("%s: %d lines in the log, want 10:\n%s", how, n, d.log)
		}
		if d.count(`msg="more lines refused" list=a file=`+d.path("a.txt")+` refused=25 told=10 classes="25 syntax"`) != 1 {
			t.Errorf("%s: no count in the log:\n%s", how, d.log)
		}
		d.wantMetric(`blockd_list_refused_lines_total{class="syntax",list="a"}`, "25")
		if s := d.Status(); len(s.Remarks) != 1 || !strings.HasPrefix(s.Remarks[0], "list a: 25 lines are refused (25 syntax), such as ") {
			t.Errorf("%s: remarks %q", how, s.Remarks)
		}
	}
	d.start()
	d.served("a.txt", text.String()+"no entry 25\nnew.example\n", "x@new.example")
	d.wantCount("more lines refused", 2)
	if n := d.count(`msg="line refused"`); n != 10 {
		t.Errorf("%d lines in the log, want still 10", n)
	}
	d.wantMetric(`blockd_list_refused_lines_total{class="syntax",list="a"}`, "26")
}

func quoted(text string) string {
	if strings.Contains(text, " ") {
		return `"` + text + `"`
	}
	return text
}

// A refused line of a small change to a large index, which acts from memory first, is told alike.
func TestRefusedLineOfAnUpdateIsTold(t *testing.T) {
	d := newDaemon(t, map[string]string{"a.txt": strings.Repeat("# a comment\n", 6000) + "bad.example\n"})
	d.settings.updateFrom = 1
	d.open().start()
	d.served("a.txt", strings.Repeat("# a comment\n", 6000)+"bad.example\nnew.example\na..b\n", "x@new.example")
	d.wantCount("line=6003 class=syntax", 1)
	d.wait("the build behind the update", func() bool { return !d.Live().Updated() })
	d.wantCount(`msg="line refused"`, 1)
	d.wantMetric(`blockd_list_refused_lines_total{class="syntax",list="a"}`, "1")
}
