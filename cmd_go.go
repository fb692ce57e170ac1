package main

// gpuctl go: submit, follow the log to the end, end with the job's own exit code. Also the waiting of `job submit --wait|--follow`, and
// what Ctrl-C means meanwhile.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// detachWindow is how long after a first Ctrl-C a second one cancels the job.
const detachWindow = 2 * time.Second

// exitOurs is the exit code for what went wrong on our side, so that it is not taken for the job's.
const exitOurs = 125

func goCommand() command {
	return command{
		words: "go", args: "[--] COMMAND ARG...", short: "Submit a command, follow its log, end with its exit code", wordsEnd: true, ownSignals: true, exitsAsJob: true,
		long: `The command is run as given, never through a shell. Its exit code is the exit code of go, 128+n when signal n
ended it; 125 says that it is not the job's: wrong usage, or something on our side. The first Ctrl-C
leaves the job running, a second one within two seconds cancels it.`,
		setup: func(c *cli, fs *pflag.FlagSet) runFunc {
			var f submitFlags
			f.register(fs)
			return func(ctx context.Context, args []string) error { return c.submitAttended(ctx, &f, args, true) }
		},
	}
}

// submitAttended submits and stays until the job is over, with its log or without. Errors of ours, wrong usage too, end with 125.
func (c *cli) submitAttended(ctx context.Context, f *submitFlags, args []string, follow bool) error {
	cl, err := c.connect()
	if err != nil {
		return asOurs(err)
	}
	job, err := c.submitInterruptible(ctx, cl, f, args)
	if err != nil {
		return asOurs(err)
	}
	id := strconv.FormatInt(job.ID, 10)
	if err := c.tellSubmitted(job, follow); err != nil {
		return asOurs(err)
	}
	if follow && c.p.format == outJSON {
		c.p.format = outNDJSON // one line of the log a line
	}
	fl := newFollower(cl, newLineSink(c.p, false), c.say)
	var final jobView
	a := attention{signals: c.signals, window: detachWindow, say: c.say, job: id, back: "gpuctl logs -f " + id, cancelJob: func() error {
		_, err := cl.cancelJob(ctx, id, cancelRequest{Reason: "Ctrl-C"})
		return err
	}}
	err = a.attend(ctx, func(ctx context.Context) (err error) {
		if follow {
			final, err = fl.followJob(ctx, job.ID, nil)
		} else {
			final, err = fl.awaitJob(ctx, id)
		}
		return err
	})
	if p, ok := asProblem(err); ok && p.Code == codeTimeout && p.Hint == "" {
		err = newProblem(codeTimeout, a.back, "%s; job %s goes on", p.Detail, id)
	}
	if err != nil {
		return asOurs(err)
	}
	if !follow && c.p.json() {
		if err := c.p.writeJSON(final); err != nil {
			return asOurs(err)
		}
	}
	c.p.sayf("gpuctl: job %s %s", id, endOfJob(final))
	return exitStatus(jobExit(final))
}

// tellSubmitted names the job that is now waited for: its id on stdout when that is free of the log and was asked for, else on stderr.
func (c *cli) tellSubmitted(job jobView, follow bool) error {
	if !follow && (c.p.quiet || c.p.format == outName) {
		return c.p.data(jobName(job))
	}
	c.p.sayf("gpuctl: job %s (%s) submitted", jobName(job), job.Name)
	return nil
}

// say writes a line to stderr whatever -q says: it is about something unusual.
func (c *cli) say(format string, args ...any) { c.p.note(fmt.Sprintf(format, args...)) }

// endOfJob is how a job ended in a few words.
func endOfJob(job jobView) string {
	text := job.State
	if end := endText(job.ExitCode, job.Signal); end != "" {
		text += ", " + end
	}
	text += reasonText(job.Reason, job.Detail)
	if job.StartedMS != nil && job.EndedMS != nil {
		text += " after " + formatDuration(time.Duration(*job.EndedMS-*job.StartedMS)*time.Millisecond)
	}
	return text
}

// asOurs gives an error of ours, wrong usage too, the exit code 125; a timeout asked for and Ctrl-C keep theirs.
func asOurs(err error) error {
	if _, ok := errors.AsType[exitStatus](err); ok || err == nil {
		return err
	}
	if p, ok := asProblem(err); ok {
		switch p.Code {
		case codeTimeout, codeInterrupted:
			return err
		}
	}
	return exitAs{exitOurs, err}
}

// submitInterruptible submits; a signal ends the wait for the answer. The job may then exist: it is named when it does.
func (c *cli) submitInterruptible(ctx context.Context, cl *client, f *submitFlags, args []string) (jobView, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var job jobView
	done := make(chan error, 1)
	go func() {
		var err error
		job, err = c.submit(ctx, cl, f, args)
		done <- err
	}()
	select {
	case err := <-done:
		return job, err
	case <-c.signals:
		cancel()
		if err := <-done; err != nil {
			return job, newProblem(codeInterrupted, "gpuctl job list shows whether it was submitted", "interrupted")
		}
		return job, newProblem(codeInterrupted, fmt.Sprintf("gpuctl job cancel %d", job.ID), "interrupted; job %d was submitted", job.ID)
	}
}

// attention stays with a job while work follows it, and gives Ctrl-C its two meanings.
type attention struct {
	signals   <-chan os.Signal
	window    time.Duration
	say       func(format string, args ...any)
	job       string
	back      string // the command that comes back to it
	cancelJob func() error
}

// attend returns what work returns, or exit status 130 after detaching.
func (a attention) attend(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	detach := func() error {
		cancel()
		<-done
		a.say("gpuctl: detached, job %s goes on; come back: %s", a.job, a.back)
		return exitStatus(exitCode(newProblem(codeInterrupted, "", "")))
	}
	var window <-chan time.Time
	cancelled := make(chan error, 1)
	ending := false
	for {
		select {
		case err := <-done:
			return err
		case sig := <-a.signals:
			switch {
			case sig != syscall.SIGINT || ending:
				return detach()
			case window == nil:
				a.say("gpuctl: detaching in %s; press Ctrl-C again to cancel the job", a.window)
				window = time.After(a.window)
			default:
				window, ending = nil, true
				a.say("gpuctl: cancelling job %s", a.job)
				go func() { cancelled <- a.cancelJob() }()
			}
		case err := <-cancelled:
			if err != nil {
				ending = false
				a.say("gpuctl: job %s is not cancelled: %v", a.job, err)
			}
		case <-window:
			return detach()
		}
	}
}
