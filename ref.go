package main

// What people type for a job or a run, and which row that is. A number is an id, never a prefix; a name never looks like an id. Only
// reads; a run that was never granted has no written form and is not found by any but the server itself.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Forms of a reference.
const (
	refNumber  = iota // 12: a job; where a run is wanted its newest attempt
	refAttempt        // 12.2
	refRow            // r40: a run without a job
	refLast           // last
	refUID            // 32 hex digits
	refName           // a name or the begin of one
)

type typedRef struct {
	form    int
	number  int64
	attempt int64
	text    string
}

// parseRef reads one reference. Numbers beyond 18 digits are no ids but do look like one: they are found nowhere.
func parseRef(s string) typedRef {
	r := typedRef{form: refName, text: s}
	if n, ok := refDigits(s); ok {
		r.form, r.number = refNumber, n
		return r
	}
	if a, b, ok := strings.Cut(s, "."); ok {
		n, okA := refDigits(a)
		m, okB := refDigits(b)
		if okA && okB {
			r.form, r.number, r.attempt = refAttempt, n, m
			return r
		}
	}
	if len(s) > 1 && s[0] == 'r' {
		if n, ok := refDigits(s[1:]); ok {
			r.form, r.number = refRow, n
			return r
		}
	}
	switch {
	case s == "last":
		r.form = refLast
	case isUID(s):
		r.form = refUID
	}
	return r
}

func refDigits(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return -1, true
	}
	return n, true
}

// runVisible is the condition of a run r that has a written form.
const runVisible = "r.state <> 'BURNED' AND (r.job_id IS NULL OR r.attempt IS NOT NULL)"

const (
	hintJobs = "gpuctl job list"
	hintRuns = "gpuctl run list"
)

func noSuchJob(text string) error {
	return newProblem(codeNotFound, hintJobs, "there is no job %s", text)
}

func noSuchRun(text string) error {
	return newProblem(codeNotFound, hintRuns, "there is no run %s", text)
}

// resolveJob finds the job that text names.
func resolveJob(c *conn, text string) (int64, error) {
	r := parseRef(text)
	var id int64
	var found bool
	var err error
	switch r.form {
	case refNumber:
		found, err = c.one("SELECT id FROM jobs WHERE id = ?", []any{r.number}, &id)
	case refLast:
		found, err = c.one("SELECT id FROM jobs ORDER BY id DESC LIMIT 1", nil, &id)
	case refUID:
		found, err = c.one("SELECT id FROM jobs WHERE uid = ?", []any{text}, &id)
	case refAttempt:
		return 0, newProblem(codeNotFound, fmt.Sprintf("its job is %d", r.number), "%s is a run, a job is wanted", text)
	case refRow:
		return 0, newProblem(codeNotFound, hintJobs, "%s is a run, a job is wanted", text)
	default:
		var fits []refCandidate
		if fits, err = jobsNamed(c, text); err == nil {
			id, found, err = onlyOne(text, fits)
		}
	}
	if err == nil && !found {
		err = noSuchJob(text)
	}
	return id, err
}

// resolveRun finds the run that text names; for a job its newest attempt.
func resolveRun(c *conn, text string) (int64, error) {
	r := parseRef(text)
	var id int64
	var found bool
	var err error
	switch r.form {
	case refNumber:
		if found, err = c.one("SELECT id FROM jobs WHERE id = ?", []any{r.number}, &id); err == nil && found {
			return newestRun(c, id)
		}
	case refAttempt:
		found, err = c.one("SELECT r.id FROM runs r WHERE r.job_id = ? AND r.attempt = ? AND "+runVisible, []any{r.number, r.attempt}, &id)
	case refRow:
		found, err = c.one("SELECT r.id FROM runs r WHERE r.id = ? AND r.job_id IS NULL AND "+runVisible, []any{r.number}, &id)
	case refLast:
		found, err = c.one("SELECT r.id FROM runs r WHERE "+runVisible+" ORDER BY r.id DESC LIMIT 1", nil, &id)
	case refUID:
		found, err = c.one("SELECT r.id FROM runs r WHERE r.uid = ? AND "+runVisible, []any{text}, &id)
	default:
		return runNamed(c, text)
	}
	if err == nil && !found {
		err = noSuchRun(text)
	}
	return id, err
}

// newestRun is the newest attempt of a job.
func newestRun(c *conn, jobID int64) (int64, error) {
	var id int64
	found, err := c.one("SELECT r.id FROM runs r WHERE r.job_id = ? AND "+runVisible+" ORDER BY r.attempt DESC LIMIT 1", []any{jobID}, &id)
	if err == nil && !found {
		err = newProblem(codeNotFound, fmt.Sprintf("gpuctl job why %d", jobID), "job %d has not started yet", jobID)
	}
	return id, err
}

// refCandidate is a row that a name fits.
type refCandidate struct {
	id    int64
	label string // as it is shown: "12 train (RUNNING)"
	run   bool   // a run without a job
	exact bool   // by its whole name, not by how it begins
}

// runNamed finds a run by a name: of a job, or of a run that has none.
func runNamed(c *conn, text string) (int64, error) {
	fits, err := jobsNamed(c, text)
	if err != nil {
		return 0, err
	}
	const free = "SELECT r.id, r.name, r.state FROM runs r WHERE r.job_id IS NULL AND " + runVisible
	bare, err := namedRows(c, text, free+" AND r.name = ? ORDER BY r.id DESC LIMIT 6",
		free+" AND r.name >= ? AND r.name < ? ORDER BY r.id DESC LIMIT 6", true)
	if err != nil {
		return 0, err
	}
	fits = append(fits, bare...)
	if slices.ContainsFunc(fits, func(f refCandidate) bool { return f.exact }) {
		fits = slices.DeleteFunc(fits, func(f refCandidate) bool { return !f.exact })
	}
	id, found, err := onlyOne(text, fits)
	switch {
	case err != nil:
		return 0, err
	case !found:
		return 0, noSuchRun(text)
	case fits[0].run:
		return id, nil
	}
	return newestRun(c, id)
}

func jobsNamed(c *conn, text string) ([]refCandidate, error) {
	return namedRows(c, text, "SELECT id, name, state FROM jobs WHERE name = ? ORDER BY id DESC LIMIT 6",
		"SELECT id, name, state FROM jobs WHERE name >= ? AND name < ? ORDER BY id DESC LIMIT 6", false)
}

// namedRows finds up to six rows with exactly this name; only when there is none, rows whose name begins so.
func namedRows(c *conn, text, exact, begins string, run bool) ([]refCandidate, error) {
	var fits []refCandidate
	take := func(get func(...any) error) error {
		var f refCandidate
		var name, state string
		if err := get(&f.id, &name, &state); err != nil {
			return err
		}
		f.run, f.exact, f.label = run, name == text, fmt.Sprintf("%d %s (%s)", f.id, name, state)
		if run {
			f.label = "r" + f.label
		}
		fits = append(fits, f)
		return nil
	}
	if text == "" {
		return nil, nil
	}
	err := c.each(exact, []any{text}, take)
	if err == nil && len(fits) == 0 {
		err = c.each(begins, []any{text, text + "\U0010FFFF"}, take)
	}
	return fits, err
}

// onlyOne takes the one candidate; of several it names the newest.
func onlyOne(text string, fits []refCandidate) (id int64, found bool, err error) {
	switch len(fits) {
	case 0:
		return 0, false, nil
	case 1:
		return fits[0].id, true, nil
	}
	var labels []string
	for _, f := range fits[:min(5, len(fits))] {
		labels = append(labels, f.label)
	}
	if len(fits) > 5 {
		labels = append(labels, "...")
	}
	return 0, false, newProblem(codeAmbiguous, "use the number", "%q fits more than one: %s", text, strings.Join(labels, ", "))
}
