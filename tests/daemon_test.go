package tests

// Two of one kind, other names of the binary, files and their modes, the demo, and the bundled training.

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

func runCommand(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestSecondOneIsRefused(t *testing.T) {
	t.Parallel()
	promise(t, "a second server on the same data folder and a second agent on the same home are refused")
	p := newPlane(t)
	p.apart()
	for _, args := range [][]string{{"server", "--port", "0"}, {"agent"}, {"up", "--port", "0"}} {
		d := p.start("gpuctl", args...)
		select {
		case <-d.done:
		case <-time.After(15 * time.Second):
			t.Fatalf("a second `gpuctl %s` runs beside the first", args[0])
		}
		if code := d.cmd.ProcessState.ExitCode(); code == 0 || !strings.Contains(d.output(), "hint:") {
			t.Errorf("second `gpuctl %s`: exit %d, %q; want an error with a hint", args[0], code, d.output())
		}
	}
	id := p.submit("-g", "0", "--", "true")
	wantEnd(t, p.waitOver(id, 20*time.Second), "SUCCEEDED", "", 0)
}

func TestOtherNames(t *testing.T) {
	t.Parallel()
	promise(t, "gpuctl-server and gpuctl-agent are the same binary by other names; --port 0 takes any free port")
	p := newPlane(t)
	server := p.start("gpuctl-server", "--port", "0")
	address := filepath.Join(p.home, "server", "address")
	waitFor(t, 20*time.Second, "the address file", func() bool {
		b, err := os.ReadFile(address)
		if err != nil || !server.running() {
			return false
		}
		m := regexp.MustCompile(`^http://127\.0\.0\.1:(\d+)\s*$`).FindSubmatch(b)
		if m == nil {
			return false
		}
		p.port, err = strconv.Atoi(string(m[1]))
		return err == nil
	})
	agent := p.start("gpuctl-agent")
	p.waitReady(agent)
	id := p.submit("-g", "0", "--", "true")
	wantEnd(t, p.waitOver(id, 20*time.Second), "SUCCEEDED", "", 0)
	if code := agent.stop(); code != 0 {
		t.Errorf("gpuctl-agent ended with %d", code)
	}
	if code := server.stop(); code != 0 {
		t.Errorf("gpuctl-server ended with %d", code)
	}
}

func TestSecretsAreNotReadable(t *testing.T) {
	t.Parallel()
	promise(t, "files with tokens are 0600, the database keeps no token in clear")
	p := newPlane(t)
	d := p.up()
	for _, f := range []string{"server.yaml", "server/tokens/agent-local", "server/gpuctl.db", "server/incarnation"} {
		st, err := os.Stat(filepath.Join(p.home, f))
		if err != nil {
			t.Error(err)
			continue
		}
		if st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", f, st.Mode().Perm())
		}
	}
	admin := p.token()
	agent, err := os.ReadFile(filepath.Join(p.home, "server/tokens/agent-local"))
	if err != nil {
		t.Fatal(err)
	}
	d.stop()
	err = filepath.WalkDir(filepath.Join(p.home, "server"), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.Contains(path, "tokens") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, secret := range []string{admin, strings.TrimSpace(string(agent))} {
			if len(secret) < 40 {
				t.Errorf("secret of %d characters", len(secret))
			} else if bytes.Contains(b, []byte(secret)) {
				t.Errorf("%s has a token in clear", path)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(d.output(), admin) {
		t.Error("the admin token is in the log")
	}
}

func TestDemo(t *testing.T) {
	o := promise(t, "gpuctl demo takes a real training from submit to result in under 90 s, validation accuracy at least 0.90")
	p := newPlane(t)
	began := time.Now()
	r := p.cli("demo") // in a folder that has nothing of the sources
	took := time.Since(began)
	if r.code != 0 {
		t.Fatalf("demo: exit %d\n%s%s", r.code, r.out, r.err)
	}
	if took > 90*time.Second {
		t.Errorf("demo took %s", took)
	}
	all := r.out + r.err
	m := regexp.MustCompile(`final val_accuracy=(0\.\d+|1\.0*)`).FindStringSubmatch(all)
	if m == nil || !strings.Contains(all, "SUCCEEDED") {
		t.Fatalf("demo does not say how it went:\n%s", all)
	}
	if acc, err := strconv.ParseFloat(m[1], 64); err != nil || acc < 0.90 {
		t.Errorf("validation accuracy %s", m[1])
	}
	for what, form := range map[string]string{
		"the address of the page":                `http://127\.0\.0\.1:\d+/login#code=gpc_code_\S+`,
		"the primary metric, best with its step": `(?m)^val/accuracy +0\.\d+ +0\.9\d* @\d+ `,
		"all checkpoints counted":                `(?m)^checkpoints +20 in runs/mnist/checkpoints$`,
		"the last checkpoint with its step":      `(?m)1800 .*COMPLETE .*epoch-020\.json$`,
	} {
		if !regexp.MustCompile(form).MatchString(all) {
			t.Errorf("demo does not print %s:\n%s", what, all)
		}
	}
	o.Figure = fmt.Sprintf("%.1f s, validation accuracy %s", took.Seconds(), m[1])
	for _, pid := range allPids() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && pid != os.Getpid() && strings.Contains(string(env), "HOME="+p.work+"\x00") {
			cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			t.Errorf("demo left a process: %d %q", pid, cmd)
		}
	}
}

func TestDemoWithoutPython(t *testing.T) {
	t.Parallel()
	promise(t, "gpuctl demo without python3 says so, with a hint")
	p := newPlane(t)
	empty := filepath.Join(p.work, "bin")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	r := p.cliEnv([]string{"PATH=" + empty}, "demo")
	if r.code == 0 || !strings.Contains(r.err, "python3") || !strings.Contains(r.err, "hint:") {
		t.Errorf("exit %d: %q", r.code, r.err)
	}
}

// TestSameBytes: the training does not notice that it is watched.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	o := promise(t, "python3 train.py alone and under gpuctl produce the same checkpoint bytes for the same seed")
	p := newPlane(t)
	p.up()
	example, err := filepath.Abs("../examples/mnist")
	if err != nil {
		t.Fatal(err)
	}
	alone, under := filepath.Join(p.work, "alone"), filepath.Join(p.work, "under")
	args := []string{"train.py", "--epochs", "2", "--seed", "5", "--out"}
	cmd := exec.Command("python3", append(args, alone)...)
	cmd.Dir = example
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("train.py alone: %v\n%s", err, out)
	}
	id := p.submit(append([]string{"-g", "0", "-d", example, "--", "python3"}, append(args, under)...)...)
	wantEnd(t, p.waitOver(id, 2*time.Minute), "SUCCEEDED", "", 0)
	n := 0
	err = filepath.WalkDir(alone, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".json") {
			return err
		}
		n++
		other := filepath.Join(under, strings.TrimPrefix(path, alone))
		a, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(other)
		if err != nil {
			return err
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs", filepath.Base(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 3 {
		t.Errorf("only %d checkpoints compared", n)
	}
	o.Figure = fmt.Sprintf("%d checkpoints compared", n)
}
