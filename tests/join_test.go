package tests

// A second machine: how it joins, what it runs, and what happens when it falls silent. The second machine is an agent on a home of its own;
// where folders, host name or machine-id must differ it has namespaces of its own.

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

type nodeShape struct {
	Name      string `json:"name"`
	State     string `json:"state"`
	MachineID string `json:"machine_id"`
	StateMS   *int64 `json:"state_ms"`
	Slots     []struct {
		Lane string  `json:"lane"`
		Run  *string `json:"run"`
	} `json:"slots"`
}

// secondHome is another machine's home: same server, same work folder, nothing else in common.
func (p *plane) secondHome() *plane {
	p.t.Helper()
	root, err := os.MkdirTemp("", "gpuctl-test-")
	if err != nil {
		p.t.Fatal(err)
	}
	q := &plane{t: p.t, home: filepath.Join(root, "home"), work: p.work, port: p.port}
	p.t.Cleanup(func() { q.cleanup(root) })
	return q
}

// joinLine is what `gpuctl node join` prints, as words behind gpuctl.
func (p *plane) joinLine(args ...string) []string {
	p.t.Helper()
	out := strings.Fields(p.ok(append([]string{"node", "join", "-q"}, args...)...))
	if len(out) != 5 || out[0] != "gpuctl" || out[1] != "agent" || out[2] != "join" {
		p.t.Fatalf("node join printed %q", out)
	}
	return out[1:]
}

// second joins a second machine to p and starts its agent by prog ("" = plainly).
func (p *plane) second(name, prog string, args ...string) (q *plane, agent *daemon) {
	p.t.Helper()
	q = p.secondHome()
	q.ok(append(p.joinLine("--url", p.url()), "--name", name)...)
	if prog == "" {
		prog = "gpuctl"
	}
	agent = q.start(prog, append([]string{"agent"}, args...)...)
	p.waitNode(name, "ready", 20*time.Second)
	return q, agent
}

func (p *plane) node(name string) (n nodeShape) {
	p.t.Helper()
	p.mustGet("/api/v1/nodes/"+name, &n)
	return n
}

func (p *plane) waitNode(name, state string, within time.Duration) {
	p.t.Helper()
	waitFor(p.t, within, "node "+name+" is "+state, func() bool {
		var l struct{ Items []nodeShape }
		p.mustGet("/api/v1/nodes", &l)
		return slices.ContainsFunc(l.Items, func(n nodeShape) bool { return n.Name == name && n.State == state })
	})
}

// held are the runs that hold slots of a node.
func (p *plane) held(node string) (runs []string) {
	p.t.Helper()
	for _, s := range p.node(node).Slots {
		if s.Run != nil {
			runs = append(runs, *s.Run)
		}
	}
	return runs
}

func wantRefusal(t *testing.T, r result, code int, words ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit %d, want %d: %s", r.code, code, r.err)
	}
	for _, w := range append(words, "hint: ") {
		if !strings.Contains(r.err, w) {
			t.Errorf("lacks %q: %s", w, r.err)
		}
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	promise(t, "node join and agent join let a second machine in by a code that works once; its agent then needs nothing else")
	p := newPlane(t)
	p.up("--name", "first")
	wantRefusal(t, p.cli("node", "join"), 6, "node join on a loopback server", "host: 0.0.0.0")
	q := p.secondHome()
	line := p.joinLine("--url", p.url())
	wantRefusal(t, q.cli("agent", "join", p.url(), "gpc_code_guess"), 4, "this code is not known", "gpuctl node join")
	if err := os.MkdirAll(q.home, 0o700); err != nil {
		t.Fatal(err)
	}
	yaml := q.write(filepath.Join(q.home, "agent.yaml"), "# ours\nname: box\ncpu_lane: 1\ndefault_env:\n  FROM_AGENT: \"yes\"\n")
	q.ok(line...)
	wantRefusal(t, q.cli(line...), 4, "was used")
	text, err := os.ReadFile(yaml)
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []string{"# ours\n", "name: box\n", "cpu_lane: 1\n", "  FROM_AGENT: \"yes\"\n", "server_url: " + p.url() + "\n", "token: gpc_agent_"} {
		if !strings.Contains(string(text), keep) {
			t.Errorf("agent.yaml lacks %q:\n%s", keep, text)
		}
	}
	if st, err := os.Stat(yaml); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("agent.yaml: %v, %v", st.Mode(), err)
	}
	q.start("gpuctl", "agent")
	p.waitNode("box", "ready", 20*time.Second)
	other := p.submit("-g", "0", "--node", "box", "-d", p.work, "--", "sh", "-c", "echo on $FROM_AGENT; sleep 1000")
	run := fmt.Sprintf("%d.1", other)
	waitFor(t, 20*time.Second, "its first line", func() bool { j := p.job(other); return len(j.Runs) == 1 && p.run(run).Log.Lines == 1 })
	if got := p.ok("logs", "--full", run); got != "on yes\n" {
		t.Errorf("logs --full: %q", got)
	}
	if held := p.held("box"); !slices.Equal(held, []string{run}) {
		t.Errorf("box holds %v", held)
	}
	show := p.ok("node", "show", "box")
	for _, w := range []string{"since", "joined", "box:cpu0", "run " + run, "ALIVE"} {
		if !strings.Contains(show, w) {
			t.Errorf("node show lacks %q:\n%s", w, show)
		}
	}
	p.ok("job", "cancel", fmt.Sprint(other))
	waitFor(t, 20*time.Second, "cancelled there", func() bool { return p.job(other).State == "CANCELLED" && len(p.held("box")) == 0 })

	// The command line of the joined machine needs a token of its own; up would give its runs to another server.
	wantRefusal(t, q.cli("job", "list"), 4, "a token of its own", "gpuctl token create", "cli.yaml")
	writer := p.newToken("laptop", "write")
	q.write(filepath.Join(q.home, "cli.yaml"), "server_url: "+p.url()+"/\ntoken: "+writer+"\n")
	q.ok("job", "list")
	wantRefusal(t, q.cliEnv([]string{"GPUCTL_HOME=" + q.home}, "up", "--port", "0"), 2, "belongs to "+p.url(), "GPUCTL_HOME=")
	// The same token on another machine: it stays out.
	copied := p.secondHome()
	if err := os.MkdirAll(copied.home, 0o700); err != nil {
		t.Fatal(err)
	}
	copied.write(filepath.Join(copied.home, "agent.yaml"), strings.Replace(string(text), "name: box", "name: thief", 1))
	thief := copied.start("gpuctl", "agent")
	waitFor(t, 20*time.Second, "the copy is refused", func() bool { return strings.Contains(thief.output(), "this token belongs to another node") })
	if out := p.ok("node", "list", "-o", "name"); out != "box\nfirst\n" {
		t.Errorf("nodes: %q", out)
	}
	thief.stop()
	// Another server takes no folder of this one's.
	wantRefusal(t, q.cli("agent", "join", "http://127.0.0.1:1", "gpc_code_x"), 6, "holds a token for "+p.url(), "--force")
	// A folder that worked for a server of its own has runs which are nobody else's business.
	id := p.submit("-g", "0", "--node", "first", "--", "true")
	wantEnd(t, p.waitOver(id, 20*time.Second), "SUCCEEDED", "", 0)
	wantRefusal(t, p.cli("agent", "join", "http://127.0.0.1:1", "gpc_code_x"), 6, "works for another server")
}

// TestJoinByPrintedLine: what node join prints works as it stands, by an address that is not loopback.
func TestJoinByPrintedLine(t *testing.T) {
	t.Parallel()
	o := promise(t, "host: 0.0.0.0: up works on its own machine, and the printed join command works as it stands")
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(addrs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.To4() != nil && !n.IP.IsLoopback()
	}) {
		o.skip(t, "this machine has no IPv4 address but loopback")
	}
	p := newPlane(t, "host: 0.0.0.0", "insecure_http: true", "public_host: [gpu.example.org]")
	d := p.up("--name", "first")
	if !strings.Contains(d.output(), "plain HTTP") {
		t.Errorf("no warning about plain HTTP: %s", d.output())
	}
	var code struct{ URLs []string }
	p.post("/api/v1/nodes:join-code", map[string]any{}, &code)
	if len(code.URLs) < 2 || code.URLs[0] != fmt.Sprintf("http://gpu.example.org:%d", p.port) || strings.Contains(strings.Join(code.URLs, " "), "127.0.0.1") {
		t.Fatalf("urls %v", code.URLs)
	}
	line := p.joinLine()
	line[2] = code.URLs[1] // gpu.example.org leads nowhere
	line = append(line, "--name", "second")
	q := p.secondHome()
	d.stop()
	wantRefusal(t, q.cli(line...), 5, "refused", "host: 0.0.0.0")
	p.up("--name", "first") // the code outlives the restart
	q.ok(line...)
	q.start("gpuctl", "agent")
	p.waitNode("second", "ready", 20*time.Second)
}

// TestSecondNodeLost: silence of the second machine, by SIGSTOP and by SIGKILL, and its return.
func TestSecondNodeLost(t *testing.T) {
	t.Parallel()
	promise(t, "a silent second node: its run is LOST, its slots stay held, the other node works on; back, the run is RUNNING and ends with its true code")
	p := newPlane(t, "lost_after: 12s") // an idle agent is heard every 10 s
	p.up("--name", "first")
	q, agent := p.second("box", "")
	gate := func(name string) string {
		return p.script(name, "#!/bin/sh\nwhile [ ! -e $1 ]; do sleep 0.05; done\nexit 7\n")
	}
	one := p.submit("-g", "0", "--node", "box", "--max-attempts", "1", "--", gate("one.sh"), "gate-one")
	two := p.submit("-g", "0", "--node", "box", "--max-attempts", "1", "--", gate("two.sh"), "gate-two")
	for _, id := range []int64{one, two} {
		waitFor(t, 20*time.Second, "the run is alive", func() bool { return len(p.job(id).Runs) == 1 && p.run(fmt.Sprintf("%d.1", id)).State == "ALIVE" })
	}
	if err := agent.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.waitState(one, 40*time.Second, "LOST")
	p.waitState(two, 5*time.Second, "LOST")
	if held := p.held("box"); len(held) != 2 {
		t.Errorf("box holds %v", held)
	}
	here := p.submit("-g", "0", "--", "true") // goes to the other one
	if j := p.waitOver(here, 20*time.Second); j.State != "SUCCEEDED" || deref(j.Node) != "first" {
		t.Errorf("%s on %s", j.State, deref(j.Node))
	}
	p.write(filepath.Join(p.work, "gate-one"), "") // ends while its agent is stopped
	if err := agent.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, p.waitOver(one, 40*time.Second), "FAILED", "EXIT_CODE", 7)
	p.waitState(two, 40*time.Second, "RUNNING")

	agent.kill()
	p.waitState(two, 40*time.Second, "LOST")
	if slow {
		p.waitNode("box", "unreachable", time.Minute)
		if n := p.node("box"); n.StateMS == nil {
			t.Errorf("unreachable since when? %+v", n)
		}
	}
	q.start("gpuctl", "agent")
	p.waitState(two, 40*time.Second, "RUNNING")
	p.write(filepath.Join(p.work, "gate-two"), "")
	j := p.waitOver(two, 40*time.Second)
	wantEnd(t, j, "FAILED", "EXIT_CODE", 7)
	if len(j.Runs) != 1 {
		t.Errorf("runs %v", j.Runs)
	}
}

// elsewhere writes a script that runs gpuctl as on another machine: its own machine-id and host name, and hidden folders.
func (p *plane) elsewhere(hidden ...string) string {
	id := p.write(filepath.Join(p.work, "machine-id"), "00112233445566778899aabbccddeeff\n")
	text := "#!/bin/sh\nset -e\nexec unshare -m -u sh -c '\nset -e\necho elsewhere >/proc/sys/kernel/hostname\n" +
		"[ ! -e /etc/machine-id ] || mount --bind " + id + " /etc/machine-id\n"
	for _, dir := range hidden {
		text += "mount -t tmpfs none " + dir + "\n"
	}
	return p.script("elsewhere.sh", text+"cd /\nexec "+bin+" \"$@\"' sh \"$@\"\n")
}

func needNamespaces(t *testing.T, o *outcome) {
	t.Helper()
	if os.Geteuid() != 0 {
		o.skip(t, "namespaces of its own need root")
	}
}

func TestNoDirGoesElsewhere(t *testing.T) {
	t.Parallel()
	o := promise(t, "a node without the folder refuses, the job goes to the other node, job why says who refused; without another node it is START_FAILED, one line a node")
	needNamespaces(t, o)
	p := newPlane(t)
	p.up("--name", "first", "--fake-gpus", p.fakeGPUs(1))
	data, mine := filepath.Join(p.work, "data"), filepath.Join(p.work, "mine")
	for _, dir := range []string{data, mine} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cards := p.write(filepath.Join(p.work, "second.json"), `[{"uuid":"GPU-s0","model":"Fake 80G","memory_bytes":85899345920},{"uuid":"GPU-s1","model":"Fake 80G","memory_bytes":85899345920}]`)
	if err := os.Mkdir(filepath.Join(data, "only-here"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.second("away", p.elsewhere(data), "--fake-gpus", cards)
	if a, b := p.node("first").MachineID, p.node("away").MachineID; a == b || b == "" {
		t.Fatalf("machine ids %q, %q", a, b)
	}

	// Only the second has two cards: it runs there, with none of the environment of this machine.
	id := p.submit("-g", "2", "-d", mine, "-e", "GIVEN=1", "--", "sh", "-c", "echo $PATH $GIVEN $CUDA_VISIBLE_DEVICES; hostname=$(cat /proc/sys/kernel/hostname); echo $hostname")
	j := p.waitOver(id, 20*time.Second)
	wantEnd(t, j, "SUCCEEDED", "", 0)
	lines := p.lines(fmt.Sprintf("%d.1", id), 0)
	if deref(j.Node) != "away" || len(lines) != 2 || strings.HasPrefix(lines[0].Text, "/captured") || !strings.HasSuffix(lines[0].Text, " 1 0,1") || lines[1].Text != "elsewhere" {
		t.Errorf("on %s: %+v", deref(j.Node), lines)
	}
	// The same by a shell with a PATH of its own: only the machine of that shell gets it.
	captured := []string{"PATH=/captured:" + binDir + ":" + os.Getenv("PATH"), "VIRTUAL_ENV=/captured/env"}
	for node, gpus := range map[string]string{"first": "-g1", "away": "-g2"} {
		args := []string{"go", "-q", gpus, "-d", mine, "--", "sh", "-c", `echo "$PATH|$VIRTUAL_ENV"`}
		if node == "first" {
			args = slices.Insert(args, 1, "--node=first")
		}
		r := p.cliEnv(captured, args...)
		if r.code != 0 || strings.HasPrefix(r.out, "/captured:") != (node == "first") || strings.Contains(r.out, "|/captured/env\n") != (node == "first") {
			t.Errorf("on %s: exit %d, %q %s", node, r.code, r.out, r.err)
		}
	}

	// The folder is on the first only, whose card is busy: the second refuses, then it waits for the first.
	busy := p.submit("-g", "1", "--node", "first", "-d", mine, "--", "sleep", "1000")
	p.waitState(busy, 20*time.Second, "RUNNING")
	moved := p.submit("-g", "1", "-d", filepath.Join(data, "only-here"), "--", "sh", "-c", "while [ ! -e gate ]; do sleep 0.05; done")
	var why string
	waitFor(t, 20*time.Second, "the second refuses", func() bool {
		why = p.ok("job", "why", fmt.Sprint(moved))
		return strings.Contains(why, "node_refused: away refused it") && strings.Contains(why, "no_dir") && strings.Contains(why, "slots_busy: first")
	})
	p.ok("job", "cancel", fmt.Sprint(busy))
	p.waitState(moved, 20*time.Second, "RUNNING")
	if why = p.ok("job", "why", fmt.Sprint(moved)); !strings.Contains(why, "it runs (first)") || !strings.Contains(why, "node_refused: away refused it") {
		t.Errorf("why of a running job: %s", why)
	}
	p.write(filepath.Join(data, "only-here", "gate"), "")
	if j := p.waitOver(moved, 20*time.Second); j.State != "SUCCEEDED" || deref(j.Node) != "first" {
		t.Errorf("%s on %s, %s", j.State, deref(j.Node), why)
	}
	nowhere := p.submit("-g", "1", "-d", filepath.Join(data, "nowhere"), "--", "true")
	j = p.waitOver(nowhere, 20*time.Second)
	detail := strings.Split(deref(j.Detail), "\n")
	if j.State != "FAILED" || deref(j.Reason) != "START_FAILED" || len(detail) != 2 || !strings.HasPrefix(detail[0], "away: ") || !strings.HasPrefix(detail[1], "first: ") {
		t.Errorf("%s/%s: %q", j.State, deref(j.Reason), deref(j.Detail))
	}
}

func TestTokenReplacedWhileRunning(t *testing.T) {
	t.Parallel()
	promise(t, "a revoked token of a running agent: agent join again, and it goes on without a restart; the run and its log lose nothing")
	p := newPlane(t)
	p.up("--name", "first")
	q, agent := p.second("box", "")
	id := p.submit("-g", "0", "--node", "box", "--", p.script("t.sh", "#!/bin/sh\necho before\nwhile [ ! -e gate ]; do sleep 0.05; done\necho after\nexit 5\n"))
	run := fmt.Sprintf("%d.1", id)
	waitFor(t, 20*time.Second, "its first line", func() bool { return len(p.job(id).Runs) == 1 && p.run(run).Log.Lines == 1 })
	if again := p.cli("token", "list", "-o", "name"); !strings.Contains(again.out, "box\n") {
		t.Fatalf("tokens: %s", again.out)
	}
	r := q.cli(p.joinLine("--url", p.url()+"/")...)
	if r.code != 0 || !strings.Contains(r.err, "takes the new token") {
		t.Fatalf("joining again: exit %d, %s", r.code, r.err)
	}
	p.ok("token", "revoke", "box")
	p.write(filepath.Join(p.work, "gate"), "")
	wantEnd(t, p.waitOver(id, 90*time.Second), "FAILED", "EXIT_CODE", 5)
	compareLines(t, p.lines(run, 0), []lineShape{{1, "before", false}, {2, "after", false}})
	if !agent.running() {
		t.Errorf("the agent ended: %s", agent.output())
	}
	var tokens struct {
		Items []struct {
			Name      string
			Node      *string
			RevokedMS *int64 `json:"revoked_ms"`
		}
	}
	b := p.ok("token", "list", "-o", "json")
	if err := json.Unmarshal([]byte(b), &tokens); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, k := range tokens.Items {
		if deref(k.Node) == "box" && k.RevokedMS == nil {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d tokens for box: %s", n, b)
	}
}
