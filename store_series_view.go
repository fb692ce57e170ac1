package main

// Series in short, as runs show them: names, last, best, trend. It reads the rows of series only, never points.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// namesOfSeries gives the shown names of all series of one run, in the order of rows.
func namesOfSeries(rows []seriesRow) []string {
	keys := make([]seriesKey, len(rows))
	for i := range rows {
		keys[i] = rows[i].seriesKey
	}
	return seriesNames(keys)
}

// addRunMetrics fills what runs show of their series: one query for a page of runs.
func addRunMetrics(c *conn, runs []runStored) error {
	ids := make([]int64, len(runs))
	for i := range runs {
		ids[i] = runs[i].id
		runs[i].view.Metrics = []metricView{}
	}
	text, err := json.Marshal(ids)
	if err != nil {
		return fmt.Errorf("list runs: %w", err)
	}
	rows, err := readSeries(c, "WHERE run_id IN (SELECT value FROM json_each(?))", string(text)) // sorting them takes as long as reading
	if err != nil {
		return err
	}
	of := map[int64][]seriesRow{}
	for _, r := range rows {
		of[r.runID] = append(of[r.runID], r)
	}
	for _, of := range of {
		slices.SortFunc(of, func(a, b seriesRow) int { return cmp.Compare(a.id, b.id) })
	}
	primary, err := primaryMetrics(c, string(text))
	if err != nil {
		return err
	}
	goals := map[string]string{}
	for i := range runs {
		id, v := runs[i].id, &runs[i].view
		v.Metrics = metricViews(of[id], primary[id], goals)
		if newest := newestSeries(of[id]); newest != nil {
			v.LastStep, v.LastStepMS = &newest.last.step, &newest.last.atMS
		}
	}
	return nil
}

// primaryMetrics gives the primary metric of the runs whose job names one; ids is a JSON list.
func primaryMetrics(c *conn, ids string) (map[int64]*primaryMetric, error) {
	out := map[int64]*primaryMetric{}
	err := c.each(`SELECT r.id, j.primary_metric FROM runs r JOIN jobs j ON j.id = r.job_id
		WHERE r.id IN (SELECT value FROM json_each(?)) AND j.primary_metric IS NOT NULL`, []any{ids}, func(get func(...any) error) error {
		var id int64
		var text string
		if err := get(&id, &text); err != nil {
			return err
		}
		p := &primaryMetric{}
		out[id] = p
		return readColumns(jsonColumn{text, p})
	})
	return out, err
}

// newestSeries is the series that got a point last, by its writer's clock; nil without any point.
func newestSeries(rows []seriesRow) *seriesRow {
	var newest *seriesRow
	for i := range rows {
		r := &rows[i]
		if r.count > 0 && (newest == nil || cmp.Or(cmp.Compare(r.last.atMS, newest.last.atMS), cmp.Compare(r.last.step, newest.last.step)) > 0) {
			newest = r
		}
	}
	return newest
}

// metricViews shows the series of one run, the primary one first, then by name. goals remembers what was asked of metricGoal.
func metricViews(rows []seriesRow, primary *primaryMetric, goals map[string]string) []metricView {
	names := namesOfSeries(rows)
	out := make([]metricView, len(rows))
	for i := range rows {
		out[i] = metricViewOf(&rows[i], names[i], goals)
	}
	markPrimary(out, primary)
	for i := range out {
		v := &out[i]
		switch {
		case v.Goal == nil:
		case *v.Goal == "min":
			v.Best = v.Min
		case *v.Goal == "max":
			v.Best = v.Max
		}
	}
	slices.SortFunc(out, func(a, b metricView) int {
		if a.Primary != b.Primary {
			if a.Primary {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return out
}

func metricViewOf(r *seriesRow, name string, goals map[string]string) metricView {
	v := metricView{
		Name: name, Source: r.source, Folder: r.folder, Tag: r.tag,
		Count: r.count, NaNCount: r.nanCount, InfCount: r.infCount, Rewinds: r.rewinds,
	}
	goal, known := goals[r.tag]
	if !known {
		goal = metricGoal(r.tag)
		goals[r.tag] = goal
	}
	if goal != "" {
		v.Goal, v.GoalFrom = &goal, "inferred"
	}
	point := func(p seriesPoint) *metricPoint { return &metricPoint{p.step, p.atMS, jsonFloat(p.value)} }
	if r.count > 0 {
		v.Last = point(r.last)
	}
	if r.finite() > 0 {
		v.Min, v.Max = point(r.least), point(r.most)
	}
	if t := r.trend(); t != "" {
		v.Trend = &t
	}
	return v
}

// markPrimary finds the metric that the job named: by its shown name, else by its tag.
func markPrimary(views []metricView, p *primaryMetric) {
	if p == nil {
		return
	}
	shown := slices.ContainsFunc(views, func(v metricView) bool { return v.Name == p.Name })
	for i := range views {
		v := &views[i]
		if v.Name == p.Name || !shown && v.Tag == p.Name {
			v.Primary, v.Goal, v.GoalFrom = true, &p.Goal, "job"
		}
	}
}
