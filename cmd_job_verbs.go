package main

// gpuctl job cancel|signal|retry: what changes a job.

import (
	"context"
	"strconv"

	"github.com/spf13/pflag"
)

func jobVerbs() []command {
	return []command{
		{words: "job cancel", args: "JOB...", short: "Cancel jobs: TERM, grace, KILL to their whole process trees", setup: jobCancelSetup},
		{
			words: "job signal", args: "JOB SIGNAL", short: "Send a signal to the processes of a job; USR1 and USR2 only to those that handle them",
			setup: func(c *cli, fs *pflag.FlagSet) runFunc { return c.jobSignal },
		},
		{
			words: "job retry", args: "JOB [-- COMMAND ARG...]", short: "Queue a job that is over again, as its next attempt",
			long:  "A command after -- takes the place of the old one, also for later attempts; -e adds to its variables.",
			setup: jobRetrySetup,
		},
	}
}

func jobCancelSetup(c *cli, fs *pflag.FlagSet) runFunc {
	var grace, reason string
	fs.StringVar(&grace, "grace", "", "`TIME` between TERM and KILL")
	fs.StringVar(&reason, "reason", "", "why, for the record")
	return func(ctx context.Context, args []string) error {
		if err := argCount(args, 1, -1, "JOB"); err != nil {
			return err
		}
		req := cancelRequest{Reason: reason}
		if grace != "" {
			s, err := flagSeconds("--grace", grace)
			if err != nil {
				return err
			}
			req.GraceS = &s
		}
		cl, err := c.connect()
		if err != nil {
			return err
		}
		var last error
		for _, ref := range args { // one that cannot be cancelled does not save the others
			job, err := cl.cancelJob(ctx, ref, req)
			if err == nil {
				err = c.printVerb(job)
			}
			if err != nil && last != nil {
				c.p.fail(last)
			}
			if err != nil {
				last = err
			}
		}
		return last
	}
}

// printVerb answers a verb: the job and its state now.
func (c *cli) printVerb(job jobView) error {
	switch {
	case c.p.json():
		return c.p.writeJSON(job)
	case c.p.quiet || c.p.format == outName:
		return c.p.data(jobName(job))
	}
	return c.p.data("job " + jobName(job) + " (" + job.Name + ") " + job.State)
}

func (c *cli) jobSignal(ctx context.Context, args []string) error {
	if err := argCount(args, 2, 2, "JOB or SIGNAL"); err != nil {
		return err
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	job, err := cl.signalJob(ctx, args[0], args[1])
	if err != nil {
		return err
	}
	return c.printVerb(job)
}

func jobRetrySetup(c *cli, fs *pflag.FlagSet) runFunc {
	var env, envFiles []string
	fs.StringArrayVarP(&env, "env", "e", nil, "`K=V`, or K to pass on the value it has here; repeatable")
	fs.StringArrayVar(&envFiles, "env-file", nil, "`FILE` with lines K=V; repeatable")
	return func(ctx context.Context, args []string) error {
		refs, argv := args, []string(nil)
		if at := fs.ArgsLenAtDash(); at >= 0 {
			refs, argv = args[:at], args[at:]
			if len(argv) == 0 {
				return newProblem(codeUsage, "leave -- out to keep the command", "the command behind -- is missing")
			}
		}
		if len(refs) > 1 {
			return newProblem(codeUsage, "put -- before a new command", "unexpected %q", refs[1])
		}
		if err := argCount(refs, 1, 1, "JOB"); err != nil {
			return err
		}
		req := retryRequest{Argv: argv, Env: map[string]string{}}
		for _, path := range envFiles {
			lines, err := readEnvFile(path)
			if err != nil {
				return err
			}
			env = append(lines, env...)
		}
		left, err := addEnv(req.Env, env, c.environ)
		if err != nil {
			return err
		}
		for _, name := range left {
			c.p.note("gpuctl: " + name + " is not passed on: names with " + ownPrefix + " belong to the platform")
		}
		cl, err := c.connect()
		if err != nil {
			return err
		}
		job, err := cl.retryJob(ctx, refs[0], req)
		if err != nil {
			return err
		}
		return c.printSubmitted(job, "queued again, attempt "+strconv.Itoa(len(job.Runs)+1))
	}
}
