package main

// Following: the log of a run line by line, a job over its attempts to its end, through restarts of the server. It stops by its context;
// what Ctrl-C means is decided in cmd_go.go.

import (
	"context"
	"slices"
	"strconv"
	"time"
)

const (
	followPage     = 1000             // lines a request
	followPatience = 15 * time.Minute // how long a lost server is waited for; its job goes on anyway
	queueLook      = 5 * time.Second  // how often a waiting job's reason is looked at
)

// follower follows with one client and tells on stderr what is not part of the log.
type follower struct {
	cl       *client
	sink     *lineSink
	say      func(format string, args ...any)
	patience time.Duration
	pace     backoff // between tries while the server is lost
}

func newFollower(cl *client, sink *lineSink, say func(string, ...any)) *follower {
	told := func(format string, args ...any) {
		if sink != nil {
			sink.dropLive() // a note does not end up behind a progress bar
		}
		say(format, args...)
	}
	return &follower{cl: cl, sink: sink, say: told, patience: followPatience, pace: backoff{first: 200 * time.Millisecond, most: 5 * time.Second}}
}

// retry repeats a call while its error is one that passes: the server restarts, the network is away. It says so once, and once when it is
// over; it gives up after patience.
func (f *follower) retry(ctx context.Context, do func() error) error {
	var since time.Time
	for {
		err := do()
		if err == nil {
			if !since.IsZero() {
				f.pace.reset()
				f.say("gpuctl: the server is back")
			}
			return nil
		}
		if ctx.Err() != nil {
			return interrupted(ctx)
		}
		if !passing(err) {
			return err
		}
		if since.IsZero() {
			since = time.Now()
			f.say("gpuctl: %v; what runs goes on, trying again", err)
		} else if time.Since(since) > f.patience {
			return err
		}
		if !sleep(ctx, f.pace.next()) {
			return interrupted(ctx)
		}
		f.cl.moved()
	}
}

// followRun writes the lines of a run above number after until nothing more can come.
func (f *follower) followRun(ctx context.Context, run string, after int64) error {
	defer f.sink.dropLive()
	for {
		var page logPage
		asked := time.Now()
		if err := f.retry(ctx, func() (err error) {
			page, err = f.cl.logAfter(ctx, run, after, followPage, pollWaitMaxSeconds*time.Second)
			return err
		}); err != nil {
			return err
		}
		fresh, live := false, f.sink.live
		for _, l := range page.Items {
			if l.N <= after {
				continue
			}
			if l.N > after+1 {
				if err := f.sink.breakLine(); err != nil {
					return err
				}
				f.say("gpuctl: %s are not kept by the server; the whole log: gpuctl logs --full %s", lineRange(after+1, l.N-1), run)
			}
			if err := f.sink.line(l); err != nil {
				return err
			}
			after, fresh = l.N, true
		}
		if page.Done && len(page.Items) < followPage {
			return f.sink.breakLine()
		}
		f.sink.showLive(page.Live)
		// a server that answers at once without news must not be asked in a circle
		if !fresh && (!f.sink.tty || live == f.sink.live) && time.Since(asked) < 200*time.Millisecond && !sleep(ctx, 250*time.Millisecond) {
			return interrupted(ctx)
		}
	}
}

func lineRange(from, to int64) string {
	if from == to {
		return "line " + strconv.FormatInt(from, 10)
	}
	return "lines " + strconv.FormatInt(from, 10) + " to " + strconv.FormatInt(to, 10)
}

// followJob follows every run of a job that is not in seen, until the job is over and its last run is drained. It gives the job as it
// ended.
func (f *follower) followJob(ctx context.Context, id int64, seen []string) (jobView, error) {
	w := &jobWatch{f: f, ref: strconv.FormatInt(id, 10)}
	for {
		job, err := w.look(ctx)
		if err != nil {
			return job, err
		}
		fresh := false
		for _, run := range job.Runs {
			if slices.Contains(seen, run) {
				continue
			}
			if len(seen) > 0 {
				f.say("gpuctl: %s begins", run)
			}
			seen, fresh = append(seen, run), true
			err := f.followRun(ctx, run, 0)
			if p, ok := asProblem(err); ok && p.Code == codeNotFound {
				continue // it never started and has no number any more
			}
			if err != nil {
				return job, err
			}
		}
		if jobSettled(job) && !fresh {
			return job, nil
		}
	}
}

// jobWatch looks at one job again and again, and tells why it waits whenever that changes.
type jobWatch struct {
	f     *follower
	ref   string
	last  jobView
	asked time.Time
	told  string
	slow  bool // it has been seen waiting
}

// look gets the job: at once the first time, later when it changed or after some seconds.
func (w *jobWatch) look(ctx context.Context) (jobView, error) {
	before := w.last
	err := w.f.retry(ctx, func() (err error) {
		switch {
		case w.asked.IsZero():
			w.last, err = w.f.cl.job(ctx, w.ref)
		case w.last.State == jobQueued || w.last.State == jobDispatching:
			wait := time.Second // a free slot is found in far less: no word about waiting then
			if w.slow {
				wait = queueLook
			}
			w.last, err = w.f.cl.jobUntil(ctx, w.ref, "running", wait)
		default:
			w.last, err = w.f.cl.jobUntil(ctx, w.ref, "drained", queueLook)
		}
		return err
	})
	if err != nil {
		return w.last, err
	}
	job := w.last
	same := !w.asked.IsZero() && before.State == job.State && len(before.Runs) == len(job.Runs) && before.Drained == job.Drained
	if same && time.Since(w.asked) < 200*time.Millisecond && !sleep(ctx, 250*time.Millisecond) { // not in a circle
		return job, interrupted(ctx)
	}
	if before.State != jobDispatching && before.State != "" && before.State != job.State && job.State == jobQueued {
		w.f.say("gpuctl: job %s is queued again%s", w.ref, w.lastEnd(ctx, job))
	}
	w.asked = time.Now()
	switch {
	case job.State == jobLost && before.State != jobLost:
		w.f.say("gpuctl: the machine of job %s is not heard from; the job may well go on there", w.ref)
	case job.State != jobQueued:
		w.slow = false
	case same:
		w.slow = true
		if why, err := w.f.cl.jobWhy(ctx, w.ref); err == nil && why.Summary != "" && countdown().ReplaceAllString(why.Summary, "") != w.told {
			w.told = countdown().ReplaceAllString(why.Summary, "")
			w.f.say("gpuctl: waiting: %s", why.Summary)
		}
	}
	return job, nil
}

// countdown is what changes in a reason to wait without being news: a length of time.
var countdown = lazyRegexp(`\b[0-9.]+(ms|s|m|h|d)[0-9a-z]*`)

// lastEnd says how the newest run of a job that waits again ended, "" when that cannot be asked.
func (w *jobWatch) lastEnd(ctx context.Context, job jobView) string {
	if len(job.Runs) == 0 {
		return reasonText(job.Reason, job.Detail)
	}
	run, err := w.f.cl.run(ctx, job.Runs[len(job.Runs)-1])
	if err != nil {
		return "" // the next request says what is wrong with the server
	}
	text := ": " + run.ID + " ended"
	if end := endText(run.ExitCode, run.Signal); end != "" {
		text += ", " + end
	}
	return text + reasonText(run.Reason, run.Detail)
}

// jobSettled reports whether nothing more comes of a job: it is over, and the log of its newest run, if it has one, is taken to its end.
func jobSettled(job jobView) bool { return jobOver(job.State) && (job.Drained || len(job.Runs) == 0) }

func reasonText(reason, detail *string) string {
	switch r, d := textOf(reason), textOf(detail); {
	case r != "" && d != "":
		return " (" + r + ": " + d + ")"
	case r+d != "":
		return " (" + r + d + ")"
	}
	return ""
}

// awaitJob waits until a job is over and drained.
func (f *follower) awaitJob(ctx context.Context, ref string) (jobView, error) {
	w := &jobWatch{f: f, ref: ref}
	for {
		job, err := w.look(ctx)
		if err != nil || jobSettled(job) {
			return job, err
		}
	}
}

// jobExit is the exit code of a job that is over, for whoever waited for it in its place: its own code, 128+n for a signal. What has no
// exit of its own is ours: 125. Nothing but SUCCEEDED gives 0.
func jobExit(job jobView) int {
	code := -1
	switch {
	case job.Signal != nil && *job.Signal > 0:
		code = 128 + int(*job.Signal)
	case job.ExitCode != nil && *job.ExitCode >= 0:
		code = int(*job.ExitCode)
	}
	switch {
	case job.State == jobSucceeded:
		return 0
	case job.State == jobCancelled && code <= 0: // never started, or a script that traps TERM and says all is well
		return 130
	case textOf(job.Reason) == reasonTimeout && code <= 0:
		return 124
	case code == 0:
		return 1
	case code < 0:
		return 125
	}
	return code
}
