package main

// gpuctl demo: the whole path once, in a scratch folder: server and agent as a child process, the bundled example submitted and followed,
// what became of it. It touches nothing outside of the scratch folder and leaves no process behind.

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

//go:embed examples/mnist
var demoFiles embed.FS

const (
	demoExample  = "examples/mnist"
	demoOut      = "runs/mnist"     // where the example writes
	demoAccuracy = 0.90             // the example reaches 0.96; below this it has not learned
	demoReady    = 20 * time.Second // a cold start on two slow cores takes under two
	demoLimit    = 10 * time.Minute // of everything, unless kept
	demoStop     = 10 * time.Second // between TERM and KILL of server and agent
)

func demoCommand() command {
	return command{
		words: "demo", short: "Train the bundled example in a scratch folder, start to end", ownSignals: true,
		long: `Starts a server and an agent on a free port, trains a small network on handwritten digits on the cpu, follows it
and says what became of it: its metrics with their best values, its checkpoints. The page shows it live, at the address that is
printed. Needs python3. Exit code 0 when it trained well; the folder is then removed.`,
		setup: func(c *cli, fs *pflag.FlagSet) runFunc {
			var d demo
			fs.BoolVar(&d.keep, "keep", false, "leave the server running until Ctrl-C")
			fs.IntVar(&d.epochs, "epochs", 0, "passes over the images (default: the example's)")
			return func(ctx context.Context, args []string) error {
				if err := argCount(args, 0, 0, ""); err != nil {
					return err
				}
				if fs.Changed("epochs") && d.epochs < 1 {
					return newProblem(codeUsage, "--epochs 20", "--epochs %d: it takes at least one", d.epochs)
				}
				self, err := os.Executable()
				if err != nil {
					return fmt.Errorf("find this program: %w", err)
				}
				d.c, d.self = c, self
				return d.run(ctx)
			}
		},
	}
}

// demo is one demonstration.
type demo struct {
	c      *cli
	self   string // the program that serves as `up`
	keep   bool
	epochs int

	home  string // scratch folder, GPUCTL_HOME of the child
	child *exec.Cmd
	ended chan error              // what the child ended with
	lose  context.CancelCauseFunc // ends the training's context when the child ends
	cl    *client
	job   jobView
}

// run does all of it. Whatever happens, the child is stopped before it returns.
func (d *demo) run(ctx context.Context) error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return newProblem(codeUsage, "install python3, or run something of your own: gpuctl up, then gpuctl go -g 0 -- COMMAND",
			"the demo trains with python3, and there is none in PATH")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // one Ctrl-C ends the demo in order; the child has a process group of its own and does not see it
		select {
		case <-d.c.signals:
			cancel(newProblem(codeInterrupted, "", "interrupted"))
		case <-ctx.Done():
		}
	}()
	if d.home, err = os.MkdirTemp("", "gpuctl-demo-"); err != nil {
		return newProblem(codeUsage, "set TMPDIR to a folder with room", "make a scratch folder: %v", err)
	}
	limited, end := context.WithTimeoutCause(ctx, demoLimit, newProblem(codeTimeout, "", "the demo is not done after %s", formatDuration(demoLimit)))
	defer end()
	limited, d.lose = context.WithCancelCause(limited)
	defer d.lose(nil)
	err = d.train(limited, python)
	if d.keep && err == nil {
		if err := d.sayPage(ctx); err != nil {
			d.c.say("demo: no link to the page: %v", err)
		}
		d.c.say("demo: the server goes on until Ctrl-C; in another terminal: export GPUCTL_HOME=%s, then gpuctl run show last, gpuctl run metrics last, gpuctl ckpt list last, gpuctl top", d.home)
		select {
		case <-ctx.Done():
		case cerr := <-d.ended:
			d.ended <- cerr
			err = fmt.Errorf("the server ended by itself: %w", cerr)
		}
	}
	if serr := d.stop(); err == nil {
		err = serr
	}
	if err != nil {
		d.c.say("demo: everything is still in %s (server and agent: up.log); to delete it: rm -r %s", d.home, d.home)
		return err
	}
	if err := os.RemoveAll(d.home); err != nil {
		return fmt.Errorf("remove the scratch folder: %w", err)
	}
	d.c.say("demo: done, the scratch folder is removed. To look around: gpuctl demo --keep. For your own training: gpuctl up, then gpuctl go -- python train.py")
	return nil
}

// train starts the child, submits, follows, and judges.
func (d *demo) train(ctx context.Context, python string) error {
	d.c.say("demo: scratch folder %s", d.home)
	if err := d.start(ctx); err != nil {
		return err
	}
	folder := filepath.Join(d.home, "example")
	if err := unpack(demoFiles, demoExample, folder); err != nil {
		return err
	}
	gpus := 0
	argv := []string{python, "train.py"}
	if d.epochs > 0 {
		argv = append(argv, "--epochs", strconv.Itoa(d.epochs))
	}
	var err error
	d.job, err = d.cl.submitJob(ctx, jobRequest{
		Argv: argv, WorkingDir: folder, GPUs: &gpus, Name: "digits", Project: "demo", Env: captureEnv(d.c.environ), Reason: "gpuctl demo",
		Watch: []string{demoOut + "/checkpoints"}, TB: []string{demoOut + "/tb"}, PrimaryMetric: &primaryMetric{Name: "val/accuracy", Goal: "max"},
	}, newUID())
	if err != nil {
		return err
	}
	d.c.say("demo: job %d submitted on the cpu lane: %s", d.job.ID, quoteArgv(argv))
	if err := d.sayPage(ctx); err != nil {
		return err
	}
	accuracy := -1.0
	sink := newLineSink(d.c.p, false)
	sink.each = func(l logLine) {
		if v, ok := finalAccuracy(l.Text); ok {
			accuracy = v
		}
	}
	if d.job, err = newFollower(d.cl, sink, d.c.say).followJob(ctx, d.job.ID, nil); err != nil {
		return err
	}
	if err := d.tell(ctx, accuracy); err != nil {
		return err
	}
	return demoVerdict(d.job, accuracy)
}

var finalLine = lazyRegexp(`^final val_accuracy=([0-9.eE+-]+)( |$)`)

// finalAccuracy reads the example's last line: "final val_accuracy=0.9667 best=0.9722 at epoch 17".
func finalAccuracy(line string) (float64, bool) {
	m := finalLine().FindStringSubmatch(line)
	if m == nil {
		return 0, false
	}
	v, err := strconv.ParseFloat(m[1], 64)
	return v, err == nil
}

// demoVerdict is nil when the job succeeded and learned.
func demoVerdict(job jobView, accuracy float64) error {
	switch {
	case job.State != jobSucceeded:
		return fmt.Errorf("the example did not succeed: %s", endOfJob(job))
	case accuracy < 0:
		return fmt.Errorf("the example succeeded but its log has no line \"final val_accuracy=\"")
	case !(accuracy >= demoAccuracy):
		return fmt.Errorf("the example reached a validation accuracy of %.4f, less than %.2f", accuracy, demoAccuracy)
	}
	return nil
}

// start runs `up` on a free port and waits until it answers.
func (d *demo) start(ctx context.Context) error {
	logPath := filepath.Join(d.home, "up.log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("make the log of server and agent: %w", err)
	}
	defer log.Close()
	d.child = exec.Command(d.self, "up", "--port", "0", "--name", "demo")
	d.child.Env = append(withoutOwn(d.c.environ), "GPUCTL_HOME="+d.home)
	d.child.Dir, d.child.Stdout, d.child.Stderr = d.home, log, log
	d.child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.child.Start(); err != nil {
		return fmt.Errorf("start %s up: %w", d.self, err)
	}
	d.ended = make(chan error, 1)
	go func() {
		err := d.child.Wait()
		d.ended <- err
		d.lose(newProblem(codeUnavailable, "less "+logPath, "server and agent ended (%v): %s", err, lastLine(logPath)))
	}()
	deadline := time.Now().Add(demoReady)
	for {
		lastErr := d.reach(ctx)
		if lastErr == nil {
			d.c.say("demo: server and agent run at %s", d.cl.base.Load())
			return nil
		}
		select {
		case <-ctx.Done(): // also when the child ended
			return interrupted(ctx)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return newProblem(codeUnavailable, "less "+logPath, "server and agent did not get ready within %s: %v", formatDuration(demoReady), lastErr)
		}
	}
}

// reach makes the client once the child has written its address, and asks whether it is ready and has its node.
func (d *demo) reach(ctx context.Context) error {
	cfg, err := loadServerConfig(d.home)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, addressFile)); err != nil {
		return err
	}
	address, _ := localAddress(cfg)
	if d.cl, err = newClient(address, cfg.AdminToken); err != nil {
		return err
	}
	if err := d.cl.ready(ctx); err != nil {
		return err
	}
	nodes, err := d.cl.nodes(ctx)
	if err == nil && len(nodes.Items) == 0 {
		err = fmt.Errorf("the agent has not said hello")
	}
	return err
}

// stop ends what the demo started: the job if it is not over, then the child by TERM, and by KILL when that takes too long.
func (d *demo) stop() error {
	if d.ended == nil {
		return nil
	}
	if d.cl != nil && d.job.ID != 0 && !jobOver(d.job.State) {
		d.endJob()
	}
	select {
	case err := <-d.ended: // it ended by itself
		d.ended <- err
		return nil
	default:
	}
	if err := d.child.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		d.c.say("demo: stop server and agent: %v", err)
	}
	select {
	case <-d.ended:
		return nil
	case <-time.After(demoStop):
	}
	if err := syscall.Kill(-d.child.Process.Pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill server and agent (pid %d): %w", d.child.Process.Pid, err)
	}
	<-d.ended
	return fmt.Errorf("server and agent did not end within %s after TERM and were killed", formatDuration(demoStop))
}

// endJob cancels the job of a demo that is given up, so that no training is left without a platform.
func (d *demo) endJob() {
	ctx, cancel := context.WithTimeout(context.Background(), demoStop)
	defer cancel()
	grace, id := 1.0, strconv.FormatInt(d.job.ID, 10)
	_, err := d.cl.cancelJob(ctx, id, cancelRequest{GraceS: &grace, Reason: "the demo was given up"})
	for err == nil && !jobOver(d.job.State) && ctx.Err() == nil {
		d.job, err = d.cl.jobUntil(ctx, id, "done", 2*time.Second)
	}
	if p, ok := asProblem(err); err != nil && !(ok && p.Code == codeWrongState) {
		d.c.say("demo: the job may still run: %v", err)
	}
}

// tell says what the run was.
func (d *demo) tell(ctx context.Context, accuracy float64) error {
	if len(d.job.Runs) == 0 {
		return nil
	}
	run, err := d.cl.run(ctx, d.job.Runs[len(d.job.Runs)-1])
	for range 20 { // the snapshot is a fact of its own and may come a moment after the log's end
		if err != nil || len(run.EnvSnapshot) > 0 && string(run.EnvSnapshot) != "null" || !sleep(ctx, 100*time.Millisecond) {
			break
		}
		run, err = d.cl.run(ctx, run.ID)
	}
	if err != nil {
		return err
	}
	d.c.p.now = time.Now() // ages are counted from here, not from the start of the demo
	if d.c.p.json() {
		return d.c.p.writeJSON(run)
	}
	result := ""
	if accuracy >= 0 {
		result = fmt.Sprintf("%.4f of the validation images read right", accuracy)
	}
	if err := d.c.p.data(""); err != nil {
		return err
	}
	if err := d.c.p.fields(append([]field{
		{"run", run.ID + " of job " + jobName(d.job) + " (" + run.Name + ")"},
		{"state", d.job.State},
		{"end", endText(run.ExitCode, run.Signal) + reasonText(run.Reason, run.Detail)},
		{"time", d.c.p.lasted(run.StartedMS, run.EndedMS)},
		{"result", result},
		{"log", strconv.FormatInt(run.Log.Lines, 10) + " lines"},
		{"node", textOf(run.Node) + " " + slotsText(run.Slots)},
		{"checkpoints", strconv.FormatInt(run.Checkpoints, 10) + " in " + demoOut + "/checkpoints"},
	}, envFields(run)...)); err != nil {
		return err
	}
	return d.tellMetrics(ctx, run)
}

// demoCheckpoints is how many of the newest are listed.
const demoCheckpoints = 3

// tellMetrics says what was measured and what was saved.
func (d *demo) tellMetrics(ctx context.Context, run runView) error {
	if err := d.c.p.data(""); err != nil {
		return err
	}
	if err := d.c.p.metricTable(run, runShowMetrics); err != nil {
		return err
	}
	saved, err := getOne[list[checkpointView]](ctx, d.cl, "/runs/"+seg(run.ID)+"/checkpoints", url.Values{"limit": {strconv.Itoa(demoCheckpoints)}})
	if err != nil || len(saved.Items) == 0 {
		return err
	}
	for i := range saved.Items {
		if rel, err := filepath.Rel(d.home, saved.Items[i].Path); err == nil {
			saved.Items[i].Path = rel
		}
	}
	saved.Next = nil
	if err := d.c.p.data(""); err != nil {
		return err
	}
	if err := printList(d.c.p, saved, d.c.p.ckptColumns(), ckptID); err != nil {
		return err
	}
	if more := run.Checkpoints - int64(len(saved.Items)); more > 0 {
		return d.c.p.data(fmt.Sprintf("and %d before them: gpuctl ckpt list %s", more, run.ID))
	}
	return nil
}

// sayPage prints the address of the page, with a code that logs in once.
func (d *demo) sayPage(ctx context.Context) error {
	link, err := d.cl.loginLink(ctx)
	if err != nil {
		return err
	}
	d.c.say("demo: the page, live: %s", link.URLs[0])
	return nil
}

// unpack writes an embedded folder to dir.
func unpack(files fs.FS, from, dir string) error {
	return fs.WalkDir(files, from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, strings.TrimPrefix(path, from))
		if e.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		b, err := fs.ReadFile(files, path)
		if err != nil {
			return fmt.Errorf("unpack %s: %w", path, err)
		}
		return os.WriteFile(to, b, 0o600)
	})
}

// withoutOwn is an environment without the platform's variables.
func withoutOwn(environ []string) []string {
	var env []string
	for _, kv := range environ {
		if !strings.HasPrefix(kv, ownPrefix) {
			env = append(env, kv)
		}
	}
	return env
}

// lastLine is the last line of a file that is not empty, for an error message.
func lastLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}
