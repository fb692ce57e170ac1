package main

// gpuctl job submit|list|show|why|wait. What changes a job is in cmd_job_verbs.go.

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

func jobCommands() []command {
	return append([]command{
		{
			words: "job submit", args: "[--] COMMAND ARG...", short: "Queue a command", wordsEnd: true, ownSignals: true,
			long: `The command is run as given, never through a shell. On the machine of the job it keeps this shell's PATH and
active environment. Names of jobs are not unique; the number is.`,
			setup: func(c *cli, fs *pflag.FlagSet) runFunc {
				var f submitFlags
				f.register(fs)
				fs.BoolVar(&f.wait, "wait", false, "wait for its end; exit with its exit code")
				fs.BoolVar(&f.follow, "follow", false, "as --wait, with its log (the same as gpuctl go)")
				return func(ctx context.Context, args []string) error { return c.jobSubmit(ctx, &f, args) }
			},
		},
		{words: "job list", short: "List jobs, newest first", setup: jobListSetup},
		{words: "job show", args: "JOB", short: "Show one job", setup: func(c *cli, fs *pflag.FlagSet) runFunc { return c.jobShow }},
		{words: "job why", args: "JOB", short: "Say why a job waits, or where it is", setup: func(c *cli, fs *pflag.FlagSet) runFunc { return c.jobWhy }},
		{
			words: "job wait", args: "JOB...", short: "Wait for jobs to end; exit 0 when all SUCCEEDED, else 1",
			setup: func(c *cli, fs *pflag.FlagSet) runFunc { return c.jobWait },
		},
	}, jobVerbs()...)
}

// jobColumns are the columns of a list of jobs.
func (p *printer) jobColumns() []column[jobView] {
	return []column[jobView]{
		{name: "id", right: true, cell: func(j jobView) string { return strconv.FormatInt(j.ID, 10) }},
		{name: "name", cell: func(j jobView) string { return j.Name }},
		{name: "state", state: true, cell: func(j jobView) string { return j.State }},
		{name: "end", cell: func(j jobView) string { return jobEnd(j) }},
		{name: "gpus", right: true, cell: func(j jobView) string { return strconv.Itoa(j.GPUs) }},
		{name: "node", cell: func(j jobView) string { return textOf(j.Node) }},
		{name: "created", cell: func(j jobView) string { return p.ago(&j.CreatedMS) }},
		{name: "time", right: true, cell: func(j jobView) string { return p.lasted(j.StartedMS, j.EndedMS) }},
		{name: "runs", right: true, wide: true, cell: func(j jobView) string { return strconv.Itoa(len(j.Runs)) }},
		{name: "priority", right: true, wide: true, cell: func(j jobView) string { return strconv.Itoa(j.Priority) }},
		{name: "project", wide: true, cell: func(j jobView) string { return j.Project }},
		{name: "experiment", wide: true, cell: func(j jobView) string { return textOf(j.Experiment) }},
		{name: "tags", wide: true, cell: func(j jobView) string { return strings.Join(j.Tags, ",") }},
		{name: "by", wide: true, cell: func(j jobView) string { return j.SubmittedBy }},
		{name: "started", wide: true, cell: func(j jobView) string { return p.ago(j.StartedMS) }},
		{name: "ended", wide: true, cell: func(j jobView) string { return p.ago(j.EndedMS) }},
		{name: "command", wide: true, cell: func(j jobView) string { return quoteArgv(j.Argv) }},
	}
}

// jobEnd is how it ended while it is over, why it waits while it waits.
func jobEnd(j jobView) string {
	switch {
	case j.State == jobQueued:
		return textOf(j.WaitReason)
	case !jobOver(j.State):
		return ""
	}
	reason, end := textOf(j.Reason), endText(j.ExitCode, j.Signal)
	if reason == reasonExitCode || reason == reasonSignal || reason == j.State { // they say what end says
		reason = ""
	}
	return strings.TrimSpace(reason + " " + end)
}

func jobName(j jobView) string { return strconv.FormatInt(j.ID, 10) }

// quoteArgv writes a command so that a shell reads the same words.
func quoteArgv(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		if a != "" && !strings.ContainsFunc(a, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r > 0x7f || strings.ContainsRune("@%+=:,./_-", r))
		}) {
			words[i] = a
			continue
		}
		words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}

func (c *cli) jobSubmit(ctx context.Context, f *submitFlags, args []string) error {
	if f.wait || f.follow {
		return c.submitAttended(ctx, f, args, f.follow)
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	job, err := c.submitInterruptible(ctx, cl, f, args)
	if err != nil {
		return err
	}
	return c.printSubmitted(job, "queued")
}

// printSubmitted answers a submit or retry: one line, or the id alone.
func (c *cli) printSubmitted(job jobView, what string) error {
	id := jobName(job)
	if c.p.json() {
		return c.p.writeJSON(job)
	}
	line := "job " + id + " (" + job.Name + ") " + what
	if c.p.quiet || c.p.format == outName {
		line = id
	}
	if err := c.p.data(line); err != nil {
		return err
	}
	if c.p.format != outName {
		c.p.hint("gpuctl logs -f "+id, "gpuctl job why "+id, "gpuctl job cancel "+id)
	}
	return nil
}

func jobListSetup(c *cli, fs *pflag.FlagSet) runFunc {
	var states []string
	var node, project, tag string
	var all bool
	var limit int
	fs.StringSliceVar(&states, "state", nil, "only jobs in this state, like RUNNING or QUEUED,RUNNING")
	fs.StringVar(&node, "node", "", "only jobs of this machine")
	fs.StringVarP(&project, "project", "p", "", "only jobs of this project")
	fs.StringVar(&tag, "tag", "", "only jobs with this tag")
	fs.IntVar(&limit, "limit", 50, "how many")
	fs.BoolVar(&all, "all", false, "all of them")
	return func(ctx context.Context, args []string) error {
		if err := argCount(args, 0, 0, ""); err != nil {
			return err
		}
		q := filters("node", node, "project", project, "tag", tag, "state", strings.ToUpper(strings.Join(states, ",")))
		return listCommand(ctx, c, "/jobs", q, limit, all, c.p.jobColumns(), jobName)
	}
}

// filters makes a query of names and values; empty values are left out.
func filters(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// listCommand gets and prints a list, newest first.
func listCommand[T any](ctx context.Context, c *cli, path string, q url.Values, limit int, all bool, cols []column[T], name func(T) string) error {
	if limit <= 0 {
		return newProblem(codeUsage, "--limit 50, or --all", "--limit %d: it must be at least 1", limit)
	}
	if all {
		limit = 0
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	l, err := listPages[T](ctx, cl, path, q, limit)
	if err != nil {
		return err
	}
	if err := printList(c.p, l, cols, name); err != nil {
		return err
	}
	if l.Next != nil && c.p.format != outName {
		c.p.hint("there are more: --all, or --limit " + strconv.Itoa(limit*4))
	}
	return nil
}

func (c *cli) jobShow(ctx context.Context, args []string) error {
	if err := argCount(args, 1, 1, "JOB"); err != nil {
		return err
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	job, err := cl.job(ctx, args[0])
	if err != nil {
		return err
	}
	return printOne(c.p, job, jobName, c.p.jobFields(job))
}

func (p *printer) jobFields(j jobView) []field {
	attempts := ""
	if j.MaxAttempts > 0 {
		attempts = strconv.Itoa(len(j.Runs)) + " of at most " + strconv.Itoa(j.MaxAttempts)
	}
	limit := ""
	if j.MaxTimeS > 0 {
		limit = formatDuration(time.Duration(j.MaxTimeS * float64(time.Second)))
	}
	return []field{
		{"job", jobName(j)},
		{"name", j.Name},
		{"state", j.State},
		{"end", endText(j.ExitCode, j.Signal)},
		{"reason", textOf(j.Reason)},
		{"detail", textOf(j.Detail)},
		{"waits", textOf(j.WaitReason)},
		{"command", quoteArgv(j.Argv)},
		{"folder", j.WorkingDir},
		{"gpus", strconv.Itoa(j.GPUs)},
		{"node", textOf(j.Node)},
		{"priority", strconv.Itoa(j.Priority)},
		{"attempts", attempts},
		{"runs", strings.Join(j.Runs, " ")},
		{"created", p.ago(&j.CreatedMS)},
		{"started", p.ago(j.StartedMS)},
		{"ended", p.ago(j.EndedMS)},
		{"time", p.lasted(j.StartedMS, j.EndedMS)},
		{"time limit", limit},
		{"project", j.Project},
		{"experiment", textOf(j.Experiment)},
		{"tags", strings.Join(j.Tags, ", ")},
		{"config", configText(j.Config)},
		{"variables", strings.Join(j.EnvNames, " ")},
		{"by", j.SubmittedBy},
	}
}

func (c *cli) jobWhy(ctx context.Context, args []string) error {
	if err := argCount(args, 1, 1, "JOB"); err != nil {
		return err
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	why, err := cl.jobWhy(ctx, args[0])
	if err != nil {
		return err
	}
	if c.p.json() {
		return c.p.writeJSON(why)
	}
	if err := c.p.data("job " + strconv.FormatInt(why.JobID, 10) + " is " + why.State + ": " + why.Summary); err != nil {
		return err
	}
	for _, r := range why.Reasons {
		if len(why.Reasons) == 1 && strings.Contains(why.Summary, r.Detail) {
			break // said already
		}
		line := "  " + r.Type
		if r.Node != "" && !strings.HasPrefix(r.Detail, r.Node) {
			line += " " + r.Node
		}
		if r.Detail != "" {
			line += ": " + r.Detail
		}
		if err := c.p.data(line); err != nil {
			return err
		}
	}
	return nil
}

// jobWait waits for all named jobs and shows how they ended.
func (c *cli) jobWait(ctx context.Context, args []string) error {
	if err := argCount(args, 1, -1, "JOB"); err != nil {
		return err
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	f := newFollower(cl, nil, c.say)
	ended := list[jobView]{Items: []jobView{}}
	bad := false
	for _, ref := range args {
		job, err := cl.job(ctx, ref) // an unknown one is told at once; from here on by number: names move
		if err != nil {
			return err
		}
		ended.Items = append(ended.Items, job)
	}
	for i, job := range ended.Items {
		if ended.Items[i], err = f.awaitJob(ctx, jobName(job)); err != nil {
			return err
		}
		bad = bad || ended.Items[i].State != jobSucceeded
	}
	if err := printList(c.p, ended, c.p.jobColumns(), jobName); err != nil {
		return err
	}
	if bad {
		return exitStatus(1)
	}
	return nil
}
