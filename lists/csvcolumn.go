package lists

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"blockd/mail/addr"
)

// maxColumns bounds a column number that can be declared.
const maxColumns = 10000

// csvEntries are the names of columns that may be the list, as plainName has them. What is about recipients, owners
// and contacts is not among them; where two columns are, the file is refused.
var csvEntries = [...]string{
	"entry", "sender", "senderaddress", "envelopesender", "envelopefrom", "mailfrom", "from", "fromaddress", "returnpath", "blockedsender",
	"email", "emailaddress", "mail", "mailaddress", "address", "addr",
	"domain", "domainname", "host", "hostname", "fqdn",
	"ip", "ipaddress", "ipaddr", "ipv4", "ipv6", "sourceip", "srcip", "dstip", "clientip", "remoteip", "badip", "network", "netblock", "cidr", "subnet", "prefix", "iprange",
	"indicator", "ioc", "iocvalue",
}

// The bounds of what stands above the header and is looked at: lines, those of them that are neither blank nor
// comments, their octets, and columns.
const (
	maxAhead    = 1000
	maxAbove    = 64
	aheadOctets = 4 << 20
	maxCells    = 1000
)

// plainName is the name of a column in small letters and digits alone: "Sender Address" is senderaddress.
func plainName(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) || unicode.IsDigit(c) {
			return unicode.ToLower(c)
		}
		return -1
	}, text)
}

// csvWant is what the format's argument asks for: "COLUMN", or "COLUMN,SCORE>=N"
// for the records whose column SCORE has at least N. Columns are numbers from 1 or
// names of the header.
type csvWant struct {
	column string // "": the only one that can be the list, by its name or else by its cells
	score  string // "": every record
	least  float64
}

// columns are where a file has them, from 0; -1: none is asked for, or the file has none.
type columns struct {
	entry, score  int
	action        int
	owner, reason int // of a list per recipient
	header        int // its line; what is above it is not looked at. 0 = there is none
}

// reaches reports whether the record in hand has the score that is asked for. If
// not, it says so of the line.
func (f *csvFile) reaches(column int) bool {
	if column >= len(f.cells) {
		f.short = true
		return f.r.fail(Syntax, "", fmt.Sprintf("the record ends before column %d, its score", column+1))
	}
	f.scored = true
	text := trim(f.cells[column].text)
	score, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || score != score:
		return f.r.fail(Syntax, text, "a score that is no number")
	case score < f.want.least:
		f.r.skip(BelowScore, fmt.Sprintf("a score of %s", text))
		return false
	}
	return true
}

// findColumns settles by the lines ahead where the header is, and which columns are asked for.
func (f *csvFile) findColumns() (err error) {
	f.at = columns{score: -1, owner: -1, action: -1, reason: -1}
	records := f.recordsAhead()
	if err := f.tryCells(records); err != nil {
		return err
	}
	header := slices.IndexFunc(records, func(rec csvRecord) bool { return !rec.isData && f.isHeader(rec) })
	if header < 0 && len(records) > 0 {
		if err := f.withoutNames(records, &header); err != nil {
			return err
		}
	} else if header >= 0 {
		if f.at.entry, err = f.entryColumn(records[header]); err != nil {
			return err
		}
		for _, above := range records[:header] {
			if len(above.cells) == len(records[header].cells) && above.isEntry(f.at.entry) {
				return twoHeads(records[header], above, f.at.entry)
			}
		}
		if err := f.namesNothing(records[header], records[header+1:]); err != nil {
			return err
		}
	}
	var names csvRecord
	if header >= 0 {
		names = records[header]
		f.at.header = names.last
	}
	s := &f.r.settings
	owner := names.named("owner")
	switch {
	case !s.PerRecipient && owner >= 0 && (strings.EqualFold(f.want.column, "entry") || f.at.entry == names.named("entry")):
		return refusal(NoColumn, `the entries have a column "owner", and would be everybody's; the list needs per_recipient = true`)
	case s.PerRecipient && owner < 0 && s.Owner.Text == "":
		return refusal(NoColumn, `no record of the first is a header with an "owner", such as owner,entry,action,reason`)
	case s.PerRecipient && s.Owner.Text == "": // else the file's name says it
		f.at.owner = owner
	}
	f.at.action, f.at.reason = names.named("action"), names.named("reason")
	if f.at.action == f.at.entry {
		f.at.action = -1
	}
	if allDigits(f.want.score) {
		// Real lists begin with lines that are no records and have no such column:
		// each record is judged by itself, and the file at its end.
		f.at.score, _ = strconv.Atoi(f.want.score)
		f.at.score--
	} else if f.want.score != "" {
		if f.at.score = names.named(f.want.score); f.at.score < 0 {
			return noColumn(records, f.want.score)
		}
	}
	if len(records) > 0 {
		f.r.sum.Read = f.read(records, header)
	}
	return nil
}

// read says what of the file is read.
func (f *csvFile) read(records []csvRecord, header int) string {
	width := 0
	for _, rec := range records[max(header, 0):] {
		width = max(width, len(rec.cells))
	}
	said := fmt.Sprintf("column %d of %d", f.at.entry+1, width)
	if header >= 0 && f.at.entry < len(records[header].cells) {
		if name := cleanReason(cutText(trim(records[header].cells[f.at.entry].text), maxDroppedText)); name != "" {
			said = fmt.Sprintf("column %d, %s, of %d", f.at.entry+1, name, width)
		}
	}
	if f.at.action >= 0 {
		said += fmt.Sprintf("; column %d says the action", f.at.action+1)
	}
	if above := f.at.header - 1; above > 0 {
		said += fmt.Sprintf("; %d lines above the header", above)
		if above == 1 {
			said = strings.TrimSuffix(said, "1 lines above the header") + "1 line above the header"
		}
	}
	return said
}

// csvRecord is one of the records ahead, and the line that it ends with.
type csvRecord struct {
	cells []cell
	last  int
	odd   bool // a comment, or mark
	mark  bool // of Excel: "sep=;"

	// What tryCells has found.
	tried  []cellKind // of its cells
	any    bool       // one is an entry
	isData bool       // it reads as a header, and is a line with an entry that cannot be read
}

// cellKind is what a cell reads as: none of these, one or both.
type cellKind uint8

const (
	entryCell cellKind = 1 << iota
	nameCell           // of a column that may be the list
)

// isEntry reports whether a cell reads as an entry.
func (rec csvRecord) isEntry(column int) bool {
	return column < len(rec.tried) && rec.tried[column]&entryCell != 0
}

// named returns the column with this name, -1 if none has it.
func (rec csvRecord) named(name string) int {
	if i := slices.IndexFunc(rec.cells, func(c cell) bool { return strings.EqualFold(headName(c.text), name) }); i >= 0 {
		return i
	}
	if name = plainName(name); name == "" {
		return -1
	}
	return slices.IndexFunc(rec.cells, func(c cell) bool { return plainName(c.text) == name })
}

// headName is the name of a column without the mark of a comment, which some programs put before the header.
func headName(text string) string { return trim(strings.TrimLeft(trim(text), "#")) }

// recordsAhead are the records among the lines ahead that can be read.
func (f *csvFile) recordsAhead() (records []csvRecord) {
	for i := 0; i < len(f.ahead); i++ {
		if trim(f.ahead[i].text) == "" || f.ahead[i].long {
			continue
		}
		cells, err := splitRecord(nil, f.ahead[i].text, f.separator)
		last := i
		for n := i + 2; err == errOpenQuote && n <= min(len(f.ahead), i+maxAbove); n++ {
			if strings.Count(f.ahead[n-1].text, `"`)%2 != 0 {
				cells, err = splitRecord(nil, joinLines(f.ahead[i:n]), f.separator)
				last = n - 1
				break
			}
		}
		if err != nil {
			continue
		}
		first := trim(f.ahead[i].text)
		mark := excelSeparator(first) != 0
		records = append(records, csvRecord{
			cells: cells[:min(len(cells), maxCells)], last: f.ahead[last].number, odd: mark || first[0] == '#', mark: mark,
		})
		i = last
	}
	return records
}

// isHeader tells the header by its names: it has those that are asked for, and, if none is, one of a column that may
// be the list and no entry.
func (f *csvFile) isHeader(rec csvRecord) bool {
	s := &f.r.settings
	if s.PerRecipient && s.Owner.Text == "" && rec.named("owner") < 0 {
		return false
	}
	for _, name := range [...]string{f.want.column, f.want.score} {
		if name != "" && !allDigits(name) && rec.named(name) < 0 {
			return false
		}
	}
	named := f.want.column != "" && !allDigits(f.want.column) || f.want.score != "" && !allDigits(f.want.score) ||
		s.PerRecipient && (rec.named("owner") >= 0 || rec.named("action") >= 0)
	if f.want.column == "" {
		return !rec.any && (named || slices.ContainsFunc(rec.tried, func(k cellKind) bool { return k&nameCell != 0 }))
	}
	return named
}

// tryCells tries each cell of the records once. A record is data in spite of the names in it if one below it has an
// entry, and in a column with the same part a word that names such a column, too, as "domain" is of a kind.
func (f *csvFile) tryCells(records []csvRecord) error {
	var named [maxCells]bool // of a column: a record below with an entry has such a word there
	for i := len(records) - 1; i >= 0; i-- {
		if err := f.r.ctx.Err(); err != nil {
			return err
		}
		rec := &records[i]
		rec.tried = make([]cellKind, len(rec.cells))
		for c := range rec.cells {
			text := rec.cells[c].text
			if f.isColumnName(headName(text)) {
				rec.tried[c] |= nameCell
				rec.isData = rec.isData || named[c]
			}
			if readsAsEntry(trim(text)) {
				rec.tried[c] |= entryCell
				rec.any = true
			}
		}
		for c := range rec.tried {
			named[c] = named[c] || rec.any && rec.tried[c]&nameCell != 0
		}
	}
	return nil
}

// namesNothing refuses a file whose header names a column of words, while another one has the entries.
func (f *csvFile) namesNothing(header csvRecord, below []csvRecord) error {
	if f.want.column != "" || f.r.settings.PerRecipient || header.named("entry") >= 0 {
		return nil
	}
	words, topmost := 0, map[string]bool{}
	for _, rec := range below {
		if rec.odd || f.at.entry >= len(rec.cells) || rec.cells[f.at.entry].text == "" {
			continue
		}
		text := trim(rec.cells[f.at.entry].text)
		if strings.ContainsAny(text, ".@:") {
			return nil
		}
		words++
		if key, err := addr.DomainKey(text); err == nil && isTopLevel(key.Text) {
			topmost[key.Text] = true
		}
	}
	if 2*len(topmost) > words { // a list of such domains: a word for a kind would come again
		return nil
	}
	if found, _ := f.columnsOfEntries(below); words > 0 && len(found) > 0 {
		return refusal(Ambiguous, "line %d reads as the header, and column %d below it has no entry; declare csv:%d or csv:%d",
			header.last, f.at.entry+1, found[0]+1, f.at.entry+1)
	}
	return nil
}

func isEntryName(text string) bool { return slices.Contains(csvEntries[:], plainName(text)) }

// readsAsEntry reports whether a text is an entry and hardly anything else.
func readsAsEntry(text string) bool {
	if text == "" || len(text) > maxText || !strings.ContainsAny(text, ".@:") {
		return false
	}
	r := reading{bare: Tree}
	r.take(line{text: text})
	if !r.utf8(text) || !r.entry(text) {
		return false
	}
	it := &r.queue[0]
	return it.Kind != Domain || it.Key.Labels > 1
}

// entryColumn finds the column of the entries by the names of a header.
func (f *csvFile) entryColumn(header csvRecord) (int, error) {
	switch {
	case allDigits(f.want.column):
		n, _ := strconv.Atoi(f.want.column) // parseWant has judged it
		if n > len(header.cells) {
			return 0, refusal(NoColumn, "%d cells in line %d, the header; column %d was declared", len(header.cells), header.last, n)
		}
		return n - 1, nil
	case f.want.column != "":
		return header.named(f.want.column), nil
	}
	if i := header.named("entry"); i >= 0 {
		return i, nil // blockd's own word
	}
	var found []int
	for i, c := range header.cells {
		if isEntryName(headName(c.text)) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return 0, nil
	case 1:
		return found[0], nil
	}
	return 0, whichColumn(header, found)
}

// whichColumn refuses a file of which several columns can be the list.
func whichColumn(header csvRecord, found []int) error {
	var which []string
	for _, i := range found[:min(len(found), 6)] {
		name := strconv.Itoa(i + 1)
		if i < len(header.cells) {
			if text := headName(header.cells[i].text); text != "" && header.named(text) == i && !strings.ContainsAny(text, `,"`) && len(text) <= maxLocal {
				name = text
			}
		}
		which = append(which, cleanText("csv:"+name))
	}
	return refusal(Ambiguous, "which of %d columns is the list? Declare %s", len(found), strings.Join(which, " or "))
}

// noColumn refuses a file without the column that is asked for.
func noColumn(records []csvRecord, name string) error {
	for _, rec := range records {
		if !rec.odd && len(rec.cells) > 1 {
			var names []string
			for _, c := range rec.cells[:min(len(rec.cells), 10)] {
				names = append(names, cutText(cleanText(trim(c.text)), maxLocal))
			}
			return refusal(NoColumn, "no header among the first lines has %q; line %d has %s", name, rec.last, strings.Join(names, ", "))
		}
	}
	return refusal(NoColumn, "the header has no %q", name)
}

// withoutNames finds the column of the entries where no header has a name that tells it: the declared number, or the
// only column whose cells are entries. header is then what headerAbove finds, -1 if there is none.
func (f *csvFile) withoutNames(records []csvRecord, header *int) error {
	if f.want.column != "" && !allDigits(f.want.column) {
		return noColumn(records, f.want.column)
	}
	if f.want.score != "" && !allDigits(f.want.score) {
		return noColumn(records, f.want.score)
	}
	if f.want.column != "" {
		n, _ := strconv.Atoi(f.want.column)
		f.at.entry = n - 1
		if !slices.ContainsFunc(records, func(rec csvRecord) bool { return len(rec.cells) >= n && !rec.mark }) {
			return refusal(NoColumn, "%d cells in the first record, column %d was declared", len(records[0].cells), n)
		}
	} else {
		found, data := f.columnsOfEntries(records)
		if len(found) > 1 {
			names := csvRecord{}
			if data > 0 {
				names = records[data-1]
			}
			return whichColumn(names, found)
		}
		if len(found) == 1 {
			f.at.entry = found[0]
		}
	}
	return f.headerAbove(records, header)
}

// headerAbove finds the header above the entries of a column that no name tells: the last record there with a column
// "action", else the last one with a word in that column. Without such a one it is the last of the titles and comments
// at the top.
func (f *csvFile) headerAbove(records []csvRecord, header *int) error {
	isEntry := func(rec csvRecord) bool { return rec.isEntry(f.at.entry) }
	none := !slices.ContainsFunc(records, isEntry)
	data, titles, action := -1, true, -1 // action: the column of that name in the header
	for i, rec := range records {
		if isEntry(rec) {
			data = i
			continue
		}
		word, says := false, -1 // what has none of these signs is no sender that anybody lists
		if len(rec.cells) > f.at.entry {
			cell := trim(rec.cells[f.at.entry].text)
			word, says = cell != "" && !strings.ContainsAny(cell, ".@:"), rec.named("action")
		}
		title := rec.mark || len(rec.cells) <= f.at.entry || rec.odd && (word || f.want.column == "")
		switch {
		case data >= 0:
			if says >= 0 && says != action && !rec.odd && namesColumns(rec, says, records[i+1:]) {
				return twoHeads(rec, records[data], f.at.entry)
			}
		case none && !titles: // only the first may be a header
		case action >= 0 && says < 0: // a word such as localhost
			titles = false
		case !title && (word || says >= 0) && !rec.odd:
			*header, titles, action = i, false, says
		case title && titles:
			*header = i
		default:
			titles = false
		}
	}
	return nil
}

// namesColumns reports whether a record with a cell "action" is a header: its other cells are names, or one below that
// cell is an action.
func namesColumns(rec csvRecord, action int, below []csvRecord) bool {
	for _, b := range below {
		if !b.odd && action < len(b.cells) {
			if _, ok := EntryAction(strings.ToLower(trim(b.cells[action].text))); ok {
				return true
			}
		}
	}
	return !slices.ContainsFunc(rec.cells, func(c cell) bool {
		name := plainName(c.text)
		return name != "" && !slices.Contains(csvEntries[:], name) && !isRecordMember(name)
	})
}

// twoHeads refuses a file with an entry above its header.
func twoHeads(header, above csvRecord, column int) error {
	if header.named("action") >= 0 {
		return refusal(Ambiguous, "line %d reads as the header, and line %d above it has an entry in column %d; put the header first",
			header.last, above.last, column+1)
	}
	return refusal(Ambiguous, "line %d reads as the header, and line %d above it has an entry in column %d; declare csv:%d",
		header.last, above.last, column+1, column+1)
}

// columnsOfEntries are the columns in which at least half of the records with any entry have one; data is the first
// such record.
func (f *csvFile) columnsOfEntries(records []csvRecord) (found []int, data int) {
	counts, with := map[int]int{}, 0
	for i, rec := range records {
		for c := range rec.cells {
			if rec.isEntry(c) {
				counts[c]++
			}
		}
		if rec.any {
			if with++; with == 1 {
				data = i
			}
		}
	}
	for c, n := range counts {
		if 2*n >= with {
			found = append(found, c)
		}
	}
	slices.Sort(found)
	return found, data
}

// checkColumn judges the argument of the format.
func checkColumn(arg string) error {
	_, err := parseWant(arg)
	return err
}

func parseWant(arg string) (csvWant, error) {
	column, score, scored := strings.Cut(arg, ",")
	want := csvWant{column: column}
	if scored {
		name, least, ok := strings.Cut(score, ">=")
		n, err := strconv.ParseFloat(least, 64)
		if !ok || name == "" || err != nil || n != n {
			return want, fmt.Errorf("behind the comma stands a column with the least score in it: %q", "count>=3")
		}
		want.score, want.least = name, n
	}
	for _, text := range []string{want.column, want.score} {
		if n, err := strconv.Atoi(text); allDigits(text) && (err != nil || n < 1 || n > maxColumns) {
			return want, fmt.Errorf("a column is 1 to %d, or the name of a header", maxColumns)
		}
	}
	return want, nil
}
