package main

import (
	"fmt"
	"testing"
	"time"
)

// TestProgress: rows and lines in, what the run's view says out. Times are relative to now.
func TestProgress(t *testing.T) {
	const bar = " 12%|█▏        | 120/1000 [00:12<01:30, 9.80it/s]"
	f := newDoors(t)
	f.node("n1")
	now := time.Now().UnixMilli()
	n := int64(0)
	for _, c := range []struct {
		name   string
		state  string
		job    string // SQL value of jobs.total_steps
		points []stepAt
		total  string // of a checkpoint, SQL
		lines  []string
		live   string
		want   string // step total from part
		eta    int64  // ms, -1 = none
		slack  int64  // ms
	}{
		{name: "nothing", state: runAlive, job: "NULL", want: "null", eta: -1},
		{name: "points alone", state: runAlive, job: "NULL", points: []stepAt{{0, -10_000}, {100, 0}}, want: `100 - "" -`, eta: -1},
		{name: "total of the job", state: runAlive, job: "200", points: []stepAt{{0, -10_000}, {50, -5000}, {100, 0}}, total: "999", live: bar, want: `100 200 "total_steps" -`, eta: 10000, slack: 5000},
		{name: "resumed at 500", state: runAlive, job: "1000", points: []stepAt{{500, -10_000}, {600, 0}}, want: `600 1000 "total_steps" -`, eta: 40000, slack: 10_000},
		{name: "total of the trainer", state: runAlive, job: "NULL", points: []stepAt{{0, -10_000}, {100, 0}}, total: "300", live: bar, want: `100 300 "trainer_state" -`, eta: 20000, slack: 10_000},
		{name: "stalled for an hour", state: runAlive, job: "200", points: []stepAt{{0, -3_610_000}, {100, -3_600_000}}, want: `100 200 "total_steps" -`, eta: 3590000, slack: 10_000},
		{name: "done steps", state: runAlive, job: "100", points: []stepAt{{0, -10_000}, {100, 0}}, want: `100 100 "total_steps" -`, eta: 0},
		{name: "a bar that is drawn", state: runAlive, job: "NULL", points: []stepAt{{0, -10_000}, {100, 0}}, live: bar, want: `120 1000 "tqdm" -`, eta: 90000},
		{name: "a bar in the lines", state: runAlive, job: "NULL", lines: []string{bar, "saved"}, want: `120 1000 "tqdm" -`, eta: 90000},
		{name: "a part", state: runAlive, job: "NULL", live: "Epoch 3:  45%|████▌     | 450/1000 [00:12<00:14, 38.40it/s]", want: `450 1000 "tqdm" "Epoch 3"`, eta: -1},
		{name: "a part, total known", state: runAlive, job: "9000", live: "Epoch 3:  45%|████▌     | 450/1000 [00:12<00:14, 38.40it/s]", want: "null", eta: -1},
		{name: "steps of the bar, total of the job", state: runAlive, job: "1000", live: bar, want: `120 1000 "total_steps" -`, eta: 90000},
		{name: "no total", state: runAlive, job: "NULL", live: "120it [00:12,  9.85it/s]", want: `120 - "" -`, eta: -1},
		{name: "only a checkpoint", state: runAlive, job: "NULL", total: "300", want: `40 300 "trainer_state" -`, eta: -1},
		{name: "ended", state: runEnded, job: "200", points: []stepAt{{0, -10_000}, {100, 0}}, live: bar, want: `100 200 "total_steps" -`, eta: -1},
		{name: "ended, only a bar", state: runEnded, job: "NULL", lines: []string{bar}, want: "null", eta: -1},
		{name: "lost", state: runLost, job: "200", points: []stepAt{{0, -10_000}, {100, 0}}, want: `100 200 "total_steps" -`, eta: -1},
	} {
		n++
		f.submit(fmt.Sprintf("j%d", n))
		run := f.run(n, 1, c.state)
		f.sql(fmt.Sprintf("UPDATE jobs SET total_steps = %s WHERE id = %d", c.job, n))
		if len(c.points) > 0 {
			first, last := c.points[0], c.points[len(c.points)-1]
			f.sql(fmt.Sprintf("INSERT INTO series (run_id, source, name, count, first_step, first_ms, last_step, last_ms, last_value) VALUES (%d, 'tb', 'loss', %d, %d, %d, %d, %d, 1)",
				run, len(c.points), first.step, now+first.atMS, last.step, now+last.atMS),
				fmt.Sprintf("INSERT INTO series (run_id, source, name, count, first_step, first_ms, last_step, last_ms, last_value) VALUES (%d, 'tb', 'epoch', 1, 1, %d, 1, %d, 1)", run, now, now-1))
			for i, p := range c.points {
				f.sql(fmt.Sprintf("INSERT INTO points SELECT min(id), %d, %d, %d, 1 FROM series WHERE run_id = %d", i, p.step, now+p.atMS, run))
			}
		}
		if c.total != "" {
			f.sql(fmt.Sprintf(`INSERT INTO checkpoints (run_id, path, kind, step, step_from, total_steps, size_bytes, mtime_ms, fingerprint, state, state_ms, found_ms, told_ms)
				VALUES (%d, '/c', 'folder', 40, 'name', %s, 1, 1, 'f', 'COMPLETE', 1, 1, 1)`, run, c.total))
		}
		for i, l := range c.lines {
			f.sql(fmt.Sprintf("INSERT INTO log_lines VALUES (%d, %d, %d, '%s', 0)", run, i+1, now, l))
		}
		if c.live != "" {
			f.s.contacts.setLive(run, &logItem{Text: c.live, AtMS: now})
		}
		var v runView
		f.get(fmt.Sprintf("/api/v1/runs/%d.1", n), &v)
		eta := int64(-1)
		if v.Progress != nil && v.Progress.ETAMS != nil {
			eta = *v.Progress.ETAMS
		}
		if got := progressWords(v.Progress); got != c.want || eta < c.eta-c.slack || eta > c.eta+c.slack {
			t.Errorf("%s: %s, ETA %d; want %s, ETA %d", c.name, got, eta, c.want, c.eta)
		}
		var l list[runView]
		f.get(fmt.Sprintf("/api/v1/runs?job=%d", n), &l)
		if (l.Items[0].Progress == nil) != (v.Progress == nil) {
			t.Errorf("%s: the list says %s", c.name, progressWords(l.Items[0].Progress))
		}
	}
	f.s.contacts.setLive(f.run(1, 2, runAlive), &logItem{Text: bar, AtMS: now - progressBarStale.Milliseconds() - 1000})
	var v runView
	f.get("/api/v1/runs/1.2", &v)
	if got := progressWords(v.Progress); got != `120 1000 "tqdm" -` || v.Progress.ETAMS != nil {
		t.Errorf("a bar that is not drawn any more: %s", got)
	}
	again := f.run(1, 3, runAlive)
	for i, c := range []struct{ live, want string }{
		{" 90%|█████████ | 108/120 [00:10<00:01, 10it/s]", `108 120 "tqdm" -`},
		{"", "null"},
		{" 10%|█         | 12/120 [00:01<00:10, 10it/s]", `12 120 "tqdm" ""`},
		{" 50%|█████     | 60/120 [00:05<00:05, 10it/s]", `60 120 "tqdm" ""`},
		{" 50%|█████     | 500/1000 [00:05<00:05, 10it/s]", `500 1000 "tqdm" -`},
		{"Epoch 2/5:  1%|█         | 10/1000 [00:05<00:05, 10it/s]", `1010 5000 "tqdm" -`},
	} {
		if c.live == "" {
			f.s.contacts.setLive(again, nil)
		} else {
			f.s.contacts.setLive(again, &logItem{Text: c.live, AtMS: now})
		}
		f.get("/api/v1/runs/1.3", &v)
		if got := progressWords(v.Progress); got != c.want {
			t.Errorf("%d: a bar that begins anew: %s, want %s", i, got, c.want)
		}
		v = runView{}
	}
	f.s.contacts.forgetLive(again)
	if _, left := f.s.contacts.bars[again]; left {
		t.Error("what was known of a run that is over is kept")
	}
}

func progressWords(p *runProgress) string {
	if p == nil {
		return "null"
	}
	total := "-"
	if p.Total != nil {
		total = fmt.Sprint(*p.Total)
	}
	part := "-"
	if p.Part != nil {
		part = fmt.Sprintf("%q", *p.Part)
	}
	return fmt.Sprintf("%d %s %q %s", p.Step, total, p.From, part)
}
