package main

// gpuctl logs: the last lines of a run, following it, or the whole file through to its machine.

import (
	"bufio"
	"context"
	"strconv"

	"github.com/spf13/pflag"
)

const logTail = 200 // lines shown unless -n says otherwise

type logFlags struct {
	follow, full, raw bool
	lines             int
	attempt           int64
}

func logsCommand() command {
	return command{
		words: "logs", args: "JOB|RUN", short: "Show or follow the log of a job or run",
		long: `A job stands for its newest attempt. The server keeps the first 200 and the last 2,000 lines; --full reads the
whole file from the machine that ran it, --full --raw byte for byte.`,
		setup: func(c *cli, fs *pflag.FlagSet) runFunc {
			var f logFlags
			fs.BoolVarP(&f.follow, "follow", "f", false, "go on until it is over")
			fs.IntVarP(&f.lines, "lines", "n", logTail, "lines from the end; 0 = none, with -f only what comes")
			fs.BoolVar(&f.full, "full", false, "the whole log, from the machine that has it")
			fs.BoolVar(&f.raw, "raw", false, "exactly as written, also on a terminal")
			fs.Int64Var(&f.attempt, "attempt", 0, "of this attempt of a job")
			return func(ctx context.Context, args []string) error { return c.logs(ctx, f, args) }
		},
	}
}

func (c *cli) logs(ctx context.Context, f logFlags, args []string) error {
	if err := argCount(args, 1, 1, "JOB or RUN"); err != nil {
		return err
	}
	switch {
	case f.lines < 0:
		return newProblem(codeUsage, "-n 200", "-n %d: it cannot be below 0", f.lines)
	case f.full && f.follow:
		return newProblem(codeUsage, "gpuctl logs -f "+args[0], "--full shows what is there and ends; it does not follow")
	case f.full && c.flags.Changed("lines"):
		return newProblem(codeUsage, "gpuctl logs --full "+args[0], "--full is all of it: -n does not go with it")
	case f.full && c.p.json():
		return newProblem(codeUsage, "leave -o out", "--full is text, not JSON")
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	run, job, err := findRun(ctx, cl, args[0], f.attempt, f.follow)
	if err != nil {
		return err
	}
	if f.full {
		return c.fullLog(ctx, cl, run.ID, f.raw)
	}
	if f.follow && c.p.format == outJSON {
		c.p.format = outNDJSON // one line of the log a line
	}
	fl := newFollower(cl, newLineSink(c.p, f.raw), c.say)
	if run.ID != "" {
		if err := c.tail(ctx, fl, run, f); err != nil {
			return err
		}
	}
	if f.follow && job != nil {
		ended, err := fl.followJob(ctx, job.ID, job.Runs)
		if err != nil {
			return err
		}
		c.p.sayf("gpuctl: job %d %s", job.ID, endOfJob(ended))
	}
	return nil
}

// tail shows the last lines of a run and, when asked, what comes.
func (c *cli) tail(ctx context.Context, fl *follower, run runView, f logFlags) error {
	after := max(0, run.Log.Lines-int64(f.lines))
	if f.follow {
		return fl.followRun(ctx, run.ID, after)
	}
	if f.lines > logRingLines && run.Log.Lines > logRingLines {
		c.p.hint("gpuctl logs --full " + run.ID + " for more than the last " + strconv.Itoa(logRingLines) + " lines")
	}
	shown := logPage{Items: []logLine{}, Next: after, State: run.State, Done: runOver(run.State) && run.Drained}
	for f.lines > 0 {
		page, err := fl.cl.logAfter(ctx, run.ID, after, followPage, 0)
		if err != nil {
			return err
		}
		before := after
		for _, l := range page.Items {
			if l.N <= after {
				continue
			}
			if c.p.format == outJSON {
				shown.Items = append(shown.Items, l)
			} else if err := fl.sink.line(l); err != nil {
				return err
			}
			after = l.N
		}
		shown.Next, shown.Live, shown.State, shown.Done = after, page.Live, page.State, page.Done
		if len(page.Items) < followPage || after == before {
			if live := textOf(page.Live); live != "" && !c.p.json() { // the unfinished last line, as it stands
				if err := fl.sink.line(logLine{Text: live}); err != nil {
					return err
				}
			}
			break
		}
	}
	if c.p.format == outJSON {
		return c.p.writeJSON(shown)
	}
	return fl.sink.breakLine()
}

// fullLog copies the whole file. On a terminal it is made safe, unless raw.
func (c *cli) fullLog(ctx context.Context, cl *client, run string, raw bool) error {
	if c.width == 0 || raw {
		w := bufio.NewWriterSize(c.out, 64<<10)
		err := cl.logBytes(ctx, run, w)
		if ferr := w.Flush(); err == nil {
			err = ferr
		}
		return err
	}
	safe := &safeWriter{w: c.out}
	if err := cl.logBytes(ctx, run, safe); err != nil {
		return err
	}
	return safe.flush()
}

// runForm is the written form of a run; everything else may name a job.
var runForm = lazyRegexp(`^([0-9]+\.[0-9]+|r[0-9]+)$`)

// findRun finds the run that a reference means. Job is set when it names a job, so that following may go over to its next attempt; with
// mayWait a job without a run is no error: run.ID is "" then.
func findRun(ctx context.Context, cl *client, ref string, attempt int64, mayWait bool) (runView, *jobView, error) {
	if runForm().MatchString(ref) {
		if attempt != 0 {
			return runView{}, nil, newProblem(codeUsage, "", "%s names an attempt already", ref)
		}
		run, err := cl.run(ctx, ref)
		return run, nil, err
	}
	job, err := cl.job(ctx, ref)
	if p, ok := asProblem(err); ok && p.Code == codeNotFound && attempt == 0 {
		run, rerr := cl.run(ctx, ref) // a run without a job, by its name
		if rerr == nil {
			return run, nil, nil
		}
		return runView{}, nil, err
	}
	if err != nil {
		return runView{}, nil, err
	}
	if attempt != 0 {
		run, err := cl.run(ctx, attemptRef(job.ID, attempt))
		return run, nil, err
	}
	if len(job.Runs) == 0 {
		if mayWait {
			return runView{}, &job, nil
		}
		return runView{}, nil, newProblem(codeWrongState, "gpuctl job why "+strconv.FormatInt(job.ID, 10), "job %d has not run: it is %s", job.ID, job.State)
	}
	run, err := cl.run(ctx, job.Runs[len(job.Runs)-1])
	return run, &job, err
}

func attemptRef(job, attempt int64) string {
	return strconv.FormatInt(job, 10) + "." + strconv.FormatInt(attempt, 10)
}
