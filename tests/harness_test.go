package tests

// The harness: a scratch GPUCTL_HOME with real daemons on it, the command line, and REST. On failure the home is kept and the logs printed.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// plane is one control plane under test.
type plane struct {
	t       *testing.T
	home    string // GPUCTL_HOME
	work    string // scratch folder for jobs
	port    int
	daemons []*daemon
	env     []string // of daemons and CLI, beside the plain ones
}

// daemon is a started server, agent or up.
type daemon struct {
	p    *plane
	args []string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when the process is gone
}

// newPlane makes a home with a server.yaml that has a free port, plus the given lines.
func newPlane(t *testing.T, serverYAML ...string) *plane {
	t.Helper()
	root, err := os.MkdirTemp("", "gpuctl-test-")
	if err != nil {
		t.Fatal(err)
	}
	p := &plane{t: t, home: filepath.Join(root, "home"), work: filepath.Join(root, "work"), port: freePort(t)}
	for _, d := range []string{p.home, p.work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	lines := append([]string{"port: " + strconv.Itoa(p.port)}, serverYAML...)
	p.write(filepath.Join(p.home, "server.yaml"), strings.Join(lines, "\n")+"\n")
	t.Cleanup(func() { p.cleanup(root) })
	return p
}

func (p *plane) cleanup(root string) {
	for _, d := range p.daemons {
		d.kill()
	}
	p.sweep()
	if !p.t.Failed() {
		os.RemoveAll(root)
		return
	}
	p.t.Logf("kept: %s", root)
	for _, d := range p.daemons {
		b, _ := os.ReadFile(d.log)
		if len(b) > 6000 {
			b = append([]byte("...\n"), b[len(b)-6000:]...)
		}
		p.t.Logf("--- gpuctl %s\n%s", strings.Join(d.args, " "), b)
	}
}

// sweep ends whatever this home's runs left: processes that carry a run of ours in their environment, and supervisors on this home.
func (p *plane) sweep() {
	var marks []string
	for _, uid := range p.runUIDs() {
		marks = append(marks, "GPUCTL_RUN_UID="+uid)
	}
	for _, pid := range allPids() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, kv := range strings.Split(string(env), "\x00") {
			if kv == "GPUCTL_HOME="+p.home || slices.Contains(marks, kv) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

func (p *plane) runUIDs() []string {
	entries, _ := os.ReadDir(filepath.Join(p.home, "runs"))
	var uids []string
	for _, e := range entries {
		uids = append(uids, e.Name())
	}
	return uids
}

// runFile is a file of the only run folder of this home.
func (p *plane) runFile(name string) string {
	p.t.Helper()
	uids := p.runUIDs()
	if len(uids) != 1 {
		p.t.Fatalf("%d run folders, want 1", len(uids))
	}
	return filepath.Join(p.home, "runs", uids[0], name)
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (p *plane) write(path, text string) string {
	p.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// script writes an executable file into the work folder.
func (p *plane) script(name, text string) string {
	p.t.Helper()
	path := p.write(filepath.Join(p.work, name), text)
	if err := os.Chmod(path, 0o755); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// plainEnv is the environment of everything started here: no GPUCTL_* from outside, no virtual environment but one that is given.
func (p *plane) plainEnv() []string {
	env := []string{
		"GPUCTL_HOME=" + p.home, "HOME=" + p.work, "PATH=" + binDir + ":" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=dumb",
		"TMPDIR=" + os.TempDir(),
	}
	return append(env, p.env...)
}

// start starts a daemon: a name of the binary, or a program by its path. Its output goes to a file; it is in a process group of its own.
func (p *plane) start(name string, args ...string) *daemon {
	p.t.Helper()
	d := &daemon{p: p, args: args, done: make(chan struct{})}
	d.log = filepath.Join(filepath.Dir(p.home), fmt.Sprintf("daemon-%d.log", len(p.daemons)+1))
	out, err := os.Create(d.log)
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	if !filepath.IsAbs(name) {
		name = filepath.Join(binDir, name)
	}
	d.cmd = exec.Command(name, args...)
	d.cmd.Env, d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr = p.plainEnv(), p.work, out, out
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.daemons = append(p.daemons, d)
	go func() {
		_ = d.cmd.Wait()
		close(d.done)
	}()
	return d
}

// kill ends exactly this process by SIGKILL and waits until it is gone.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.done
}

// stop ends it the ordinary way and returns its exit code.
func (d *daemon) stop() int {
	d.p.t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		d.p.t.Fatal(err)
	}
	select {
	case <-d.done:
	case <-time.After(20 * time.Second):
		d.p.t.Errorf("gpuctl %s does not stop on SIGTERM", strings.Join(d.args, " "))
		d.kill()
	}
	return d.cmd.ProcessState.ExitCode()
}

func (d *daemon) running() bool {
	select {
	case <-d.done:
		return false
	default:
		return true
	}
}

func (d *daemon) output() string {
	b, err := os.ReadFile(d.log)
	if err != nil {
		d.p.t.Fatal(err)
	}
	return string(b)
}

// up starts `gpuctl up` and waits until its node is ready.
func (p *plane) up(args ...string) *daemon {
	p.t.Helper()
	d := p.start("gpuctl", append([]string{"up"}, args...)...)
	p.waitReady(d)
	return d
}

// apart starts server and agent as two processes.
func (p *plane) apart(agentArgs ...string) (server, agent *daemon) {
	p.t.Helper()
	server = p.start("gpuctl", "server")
	p.waitServer(server)
	agent = p.start("gpuctl", append([]string{"agent"}, agentArgs...)...)
	p.waitReady(agent)
	return server, agent
}

func (p *plane) waitServer(d *daemon) {
	p.t.Helper()
	waitFor(p.t, 20*time.Second, "server answers /readyz", func() bool {
		if !d.running() {
			p.t.Fatalf("gpuctl %s ended: %s", strings.Join(d.args, " "), d.output())
		}
		status, _ := p.get("/readyz", nil)
		return status == 200
	})
}

func (p *plane) waitReady(d *daemon) {
	p.t.Helper()
	p.waitServer(d)
	waitFor(p.t, 20*time.Second, "node is ready", func() bool {
		if !d.running() {
			p.t.Fatalf("gpuctl %s ended: %s", strings.Join(d.args, " "), d.output())
		}
		return p.nodeState() == "ready"
	})
}

// result is what a command of the CLI gave.
type result struct {
	out, err string
	code     int
}

// cli runs gpuctl and returns whatever came.
func (p *plane) cli(args ...string) result { return p.cliEnv(nil, args...) }

func (p *plane) cliEnv(env []string, args ...string) result {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = append(p.plainEnv(), env...), p.work, &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		p.t.Fatalf("gpuctl %s: not done after 3 minutes\n%s%s", strings.Join(args, " "), out.String(), errs.String())
	}
	if ee := (*exec.ExitError)(nil); err != nil && !errors.As(err, &ee) {
		p.t.Fatal(err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// ok runs gpuctl and wants exit code 0.
func (p *plane) ok(args ...string) string {
	p.t.Helper()
	r := p.cli(args...)
	if r.code != 0 {
		p.t.Fatalf("gpuctl %s: exit %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// submit runs `gpuctl job submit -q` and returns the job's number.
func (p *plane) submit(args ...string) int64 {
	p.t.Helper()
	out := strings.TrimSpace(p.ok(append([]string{"job", "submit", "-q"}, args...)...))
	id, err := strconv.ParseInt(out, 10, 64)
	if err != nil {
		p.t.Fatalf("job submit -q printed %q, want a number", out)
	}
	return id
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest != "" && rest[0] != 'Z' && rest[0] != 'X'
}

func allPids() []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// hwm is the largest resident size that a process had, in bytes.
func (d *daemon) hwm() int64 {
	d.p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		d.p.t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		d.p.t.Fatalf("no VmHWM in %s", b)
	}
	kb, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		d.p.t.Fatal(err)
	}
	return kb << 10
}
