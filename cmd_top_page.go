package main

// The page of gpuctl top, made of what was asked: machines, their slots, the runs on them. It fits the width and height that it is given.

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// topWidth is the narrowest page that holds all columns.
const topWidth = 80

// topRow is one slot as it stands on the page.
type topRow struct {
	slot slotView
	free bool
	run  runView
	has  bool // run is known
}

// topPage makes the page, at most height lines (0 = as many as it takes): free slots of the cpu lane are left out first, then other free
// ones, and counted. Note stands in the first line.
func (p *printer) topPage(v topView, note string, width, height int) string {
	var text string
	for drop := range 4 {
		text = p.topLines(v, note, width, drop)
		if height == 0 || strings.Count(text, "\n") <= height {
			return text
		}
	}
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	return strings.Join(lines[:height-1], "") + fmt.Sprintf("and %d more lines: gpuctl top --once\n", len(lines)-height+1)
}

// topLines makes the page; drop 1 leaves out free cpu slots, 2 all free ones, 3 the empty lines too.
func (p *printer) topLines(v topView, note string, width, drop int) string {
	var b strings.Builder
	line := func(text string) { b.WriteString(clipText(plainText(text), width) + "\n") }
	line(topHead(v, note))
	if v.trouble != "" {
		line(v.trouble)
	}
	if len(v.nodes) == 0 {
		line("no machine yet: gpuctl up, or gpuctl agent on the machine with the cards")
		return b.String()
	}
	type group struct {
		head       string
		rows, free int
	}
	var groups []group
	var shown []topRow
	for _, n := range v.nodes {
		gr := group{head: n.Name}
		if n.State != "ready" {
			gr.head += " " + n.State + ", heard " + p.ago(&n.LastSeenMS)
		}
		for _, s := range n.Slots {
			row := topRow{slot: s, free: s.Run == nil && s.JobID == nil}
			if row.free && (drop >= 2 || drop == 1 && s.Lane == laneCPU) {
				gr.free++
				continue
			}
			row.run, row.has = v.runs[textOf(s.Run)]
			shown = append(shown, row)
			gr.rows++
		}
		groups = append(groups, gr)
	}
	rows := p.topTable(shown, width)
	b.WriteString(rows[0])
	rows = rows[1:]
	for _, gr := range groups {
		if gr.free > 0 {
			gr.head += ", " + strconv.Itoa(gr.free) + " more free"
		}
		if len(groups) > 1 && drop < 3 {
			b.WriteByte('\n')
		}
		line(gr.head)
		b.WriteString(strings.Join(rows[:gr.rows], ""))
		rows = rows[gr.rows:]
	}
	return b.String()
}

// topTable lays the rows out, the line of names first; names and models get as much room as the width leaves.
func (p *printer) topTable(rows []topRow, width int) []string {
	var lines []string
	for room := 20; room >= 8; room -= 2 {
		g := grid{
			heads: []string{"SLOT", "CARD", "MEM", "RUN", "NAME", "TIME", "STEP", "AGE", "LEFT"},
			right: []bool{false, false, true, false, false, true, true, true, true}, state: make([]bool, 9),
		}
		for _, r := range rows {
			g.rows = append(g.rows, p.topCells(r, room))
		}
		var b strings.Builder
		sub := *p
		sub.out, sub.width = &b, 0
		if err := sub.table(g, true); err != nil {
			return []string{err.Error() + "\n"} // a builder takes everything
		}
		lines = strings.SplitAfter(b.String(), "\n")
		widest := 0
		for i, l := range lines {
			l = strings.TrimRight(l, " \n")
			widest = max(widest, textWidth(l))
			lines[i] = clipText(l, width) + "\n"
		}
		if widest <= width {
			break
		}
	}
	return lines
}

// topHead counts what is held.
func topHead(v topView, note string) string {
	held, all := map[string]int{}, map[string]int{}
	for _, n := range v.nodes {
		for _, s := range n.Slots {
			all[s.Lane]++
			if s.Run != nil || s.JobID != nil {
				held[s.Lane]++
			}
		}
	}
	text := "gpuctl top"
	if !v.at.IsZero() {
		text += " " + v.at.Format(time.TimeOnly)
	}
	if all[laneGPU] > 0 {
		text += fmt.Sprintf(", %d of %d cards held", held[laneGPU], all[laneGPU])
	}
	if all[laneCPU] > 0 {
		text += fmt.Sprintf(", %d of %d cpu slots", held[laneCPU], all[laneCPU])
	}
	if note != "" {
		text += "; " + note
	}
	return text
}

// topCells are the cells of one slot. What is empty stays empty: a page full of dashes hides what is there.
func (p *printer) topCells(r topRow, room int) []string {
	s := r.slot
	cells := []string{"  " + s.Lane + strconv.Itoa(s.Idx), cardName(s), cardMemory(s.MemoryBytes), "", "", "", "", "", ""}
	switch {
	case r.free:
		cells[3] = "free"
		if s.Cordoned {
			cells[4] = "cordoned"
		}
	case s.Run == nil:
		cells[3], cells[4] = "offered", "to job "+numberOf(s.JobID)
	default:
		cells[3] = *s.Run
	}
	if s.Health != "ok" && s.Health != "" {
		cells[1] = s.Health + " " + cells[1]
	}
	if !r.free {
		cells[5] = p.lasted(s.HeldMS, nil)
	}
	if r.has {
		cells[4], cells[6], cells[8] = r.run.Name, stepShort(r.run), leftText(r.run)
		cells[7] = p.stepAge(r.run)
		if r.run.State != runAlive {
			cells[4] = r.run.State + " " + r.run.Name
		}
	}
	for i := range cells {
		cells[i] = plainText(cells[i])
	}
	cells[1], cells[4] = clipText(cells[1], room), clipText(cells[4], room)
	return cells
}

// stepShort is how far a run is in at most eleven columns: in percent where the numbers are longer.
func stepShort(r runView) string {
	text := runStep(r)
	if p := r.Progress; len(text) > 11 && p != nil && p.Total != nil && *p.Total > 0 {
		return fmt.Sprintf("%.1f%%", 100*float64(p.Step)/float64(*p.Total))
	}
	return clipText(text, 11)
}

// stepAge is how old the newest step is, "" when there is none.
func (p *printer) stepAge(r runView) string {
	if r.LastStepMS == nil {
		return ""
	}
	return ageShort(p.now.Sub(time.UnixMilli(*r.LastStepMS)))
}

// ageShort is an age in its largest unit: 4s, 50m, 13h, 3d.
func ageShort(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

// cardName is the model without what every card of its maker has in it.
func cardName(s slotView) string {
	name := s.Model
	for _, maker := range []string{"NVIDIA ", "AMD ", "GeForce ", "Instinct ", "Tesla "} {
		name = strings.TrimPrefix(name, maker)
	}
	if s.Fake {
		name += " (fake)"
	}
	return name
}

// cardMemory is a card's memory in whole GiB, as it is sold.
func cardMemory(bytes int64) string {
	switch {
	case bytes <= 0:
		return ""
	case bytes < 1<<30:
		return strconv.FormatInt((bytes+1<<19)>>20, 10) + "M"
	}
	return strconv.FormatInt((bytes+1<<29)>>30, 10) + "G"
}

// leftText is the time left of a run, "" when nobody knows.
func leftText(r runView) string {
	if r.Progress == nil || r.Progress.ETAMS == nil || runOver(r.State) {
		return ""
	}
	return formatDuration(time.Duration(*r.Progress.ETAMS) * time.Millisecond)
}
