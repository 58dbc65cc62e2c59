package main

import "fmt"

// The changes, and the rows of the seconds before them.
const (
	reloadAppend = "one line appended"
	reloadLine   = "file renamed over, one line differs"
	reloadTenth  = "file renamed over, a tenth differs"
	reloadBack   = "blockd rollback of that tenth"
	reloadOfTen  = "one of ten lists, one line differs"

	quietRow = " (before)"
)

// The columns: when it acts, then two for each door.
const (
	feltActs = 0

	feltTail = 0
	feltMax  = 1
)

func feltColumn(door, figure int) int { return 1 + 2*door + figure }

func feltColumns() []column {
	columns := []column{{"acts after, s", significant, neither}}
	for _, door := range probedDoors {
		columns = append(columns, column{door + " p99, ms", significant, neither}, column{"max", significant, neither})
	}
	return columns
}

// The goals.
const (
	mostMax   = 30.0 // ms, or quiet's own
	tailTimes = 1.5  // times quiet's
	daemonMB  = 40
)

func (d *reloadDoor) goals() (goals []goal) {
	for _, name := range []string{reloadAppend, reloadLine, reloadTenth, reloadBack, reloadOfTen} {
		acts := 0.5
		if name == reloadTenth || name == reloadBack {
			acts = 3
		}
		cells := d.felt.cells(name, feltActs)
		goals = append(goals, atMost(name+": acts after", acts, "s", cells.median(), len(cells) > 0))
		for i, door := range probedDoors {
			tail, before := d.felt.cells(name, feltColumn(i, feltTail)), d.felt.cells(name+quietRow, feltColumn(i, feltTail))
			goals = append(goals, goal{what: door + " p99", want: fmt.Sprintf("≤ %s× quiet", significant(tailTimes)),
				measured: fmt.Sprintf("%.2f×", tail.ratio(before)), met: tail.ratio(before) <= tailTimes})
			most, quiet := d.felt.cells(name, feltColumn(i, feltMax)).median(), d.felt.cells(name+quietRow, feltColumn(i, feltMax)).median()
			goals = append(goals, atMost(door+" max", max(mostMax, quiet), "ms", most, true))
		}
	}
	worst := 0.0
	for _, r := range d.memory.rows {
		worst = max(worst, r.cells[0].quantile(1))
	}
	return append(goals, atMost("anonymous memory of the daemon, at its peak", daemonMB, "MB", worst, true))
}

func (d *reloadDoor) tables() []*table { return []*table{&d.felt, &d.memory} }

func (d *reloadDoor) plot() (title string, panels []panel) { return "", nil }
