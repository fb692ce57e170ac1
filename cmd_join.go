package main

// gpuctl node join and gpuctl agent join: how a second machine comes in. The first asks the server for a code, the second exchanges it
// and writes agent.yaml. Running the agent is cmd_agent.go's.

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

func nodeJoinCommand() command {
	return command{
		words: "node join", short: "Print the command that lets another machine in",
		long: "The command is to be typed on the other machine. Its code works once, for 10 minutes.\n" +
			"The server must listen beyond its own machine: host: 0.0.0.0 in its server.yaml. Where the other machine reaches it in another way\n" +
			"(ssh tunnel, proxy), --url says how.",
		setup: func(c *cli, fs *pflag.FlagSet) runFunc {
			var address string
			fs.StringVar(&address, "url", "", "`URL` by which that machine reaches the server (default: as the server says)")
			return func(ctx context.Context, args []string) error { return c.nodeJoin(ctx, args, address) }
		},
	}
}

func (c *cli) nodeJoin(ctx context.Context, args []string, address string) error {
	if err := argCount(args, 0, 0, ""); err != nil {
		return err
	}
	cl, err := c.connect()
	if err != nil {
		return err
	}
	if address != "" {
		if _, err := parseBase(address); err != nil {
			return err
		}
	}
	code, err := cl.joinCode(ctx, address)
	if err != nil {
		return err
	}
	if len(code.URLs) == 0 { // it knows no address of its own; this one works from here
		code.URLs = []string{cl.base.Load().String()}
	}
	if c.p.json() {
		return c.p.writeJSON(code)
	}
	if err := c.p.data("gpuctl agent join " + code.URLs[0] + " " + code.Code); err != nil {
		return err
	}
	left := int(time.Until(time.UnixMilli(code.ExpiresMS)).Round(time.Minute).Minutes())
	if left < 1 || left > 60 { // the clocks of the two differ
		left = 10
	}
	c.p.sayf("gpuctl: type this on the other machine within %d minutes; it works once", left)
	if len(code.URLs) > 1 {
		c.p.sayf("gpuctl: where it does not reach %s: %s", code.URLs[0], strings.Join(code.URLs[1:], ", "))
	}
	return nil
}

func agentJoinCommand() command {
	return command{
		words: "agent join", args: "URL CODE", short: "Let this machine work for the server at URL",
		long: "URL and CODE are what `gpuctl node join` prints on the server. The token that the code is exchanged for goes to agent.yaml in\n" +
			"GPUCTL_HOME; gpuctl agent then needs nothing else.",
		setup: func(c *cli, fs *pflag.FlagSet) runFunc {
			var name string
			var force bool
			fs.StringVar(&name, "name", "", "name of this machine (default: its host name)")
			fs.BoolVar(&force, "force", false, "also when this folder's agent worked for another server")
			return func(ctx context.Context, args []string) error { return c.agentJoin(ctx, args, name, force) }
		},
	}
}

// agentJoin looks at everything that can go wrong here before it sends the code: the code works once.
func (c *cli) agentJoin(ctx context.Context, args []string, name string, force bool) error {
	if err := argCount(args, 2, 2, "URL and CODE"); err != nil {
		return err
	}
	base, err := parseBase(args[0])
	if err != nil {
		return err
	}
	home, err := c.home()
	if err != nil {
		return err
	}
	f := joinFile{path: filepath.Join(home, agentYAML), url: base.String(), name: name}
	if err := f.load(); err != nil {
		return err
	}
	if !force {
		if err := f.refuseOther(home); err != nil {
			return err
		}
	}
	if _, err := f.with("gpc_agent_0_rehearsal"); err != nil {
		return err
	}
	if err := rehearse(f.path); err != nil {
		return newProblem(codeUsage, "check the permissions and the disk, or set GPUCTL_HOME", "write %s: %v", f.path, err)
	}
	cl, err := newClient(f.url, "")
	if err != nil {
		return err
	}
	answer, err := cl.join(ctx, args[1], f.machineName())
	if err != nil {
		return joinHint(err, f.url)
	}
	if !strings.HasPrefix(answer.Token, "gpc_"+scopeAgent+"_") {
		return newProblem(codeNotOurServer, "gpuctl node join on the server prints its address", "%s gave no token of an agent", f.url)
	}
	text, err := f.with(answer.Token)
	if err != nil {
		return err
	}
	if err := writeAtomic(f.path, text); err != nil {
		return newProblem(codeUsage, "make room, then begin again: gpuctl node join on the server", "write %s: %v", f.path, err)
	}
	return c.tellJoined(f, answer, home)
}

func (c *cli) tellJoined(f joinFile, answer joinAnswer, home string) error {
	running, err := isLocked(filepath.Join(home, agentLockFile))
	if err != nil {
		return newProblem(codeUsage, "check the permissions of "+home, "%v", err)
	}
	if c.p.json() {
		return c.p.writeJSON(map[string]any{"server_url": f.url, "token_name": answer.Name, "file": f.path, "agent_runs": running})
	}
	c.p.sayf("gpuctl: joined %s as %s; the token is in %s", f.url, answer.Name, f.path)
	if running {
		c.p.sayf("gpuctl: the agent that runs here takes the new token when its old one is refused")
		return nil
	}
	c.p.sayf("gpuctl: now start it: gpuctl agent")
	return nil
}

// joinHint says what to do about an exchange that failed, in the words of this command.
func joinHint(err error, address string) error {
	p, ok := asProblem(err)
	if !ok {
		return err
	}
	told := *p
	switch p.Code {
	case codeUnreachable:
		if !strings.Contains(p.Detail, "plain HTTP") {
			told.Hint = "is the server up, does it listen beyond its own machine (host: 0.0.0.0 in its server.yaml), and is no firewall between?"
		}
	case codeNotOurServer, codeNotFound, codeMethod:
		told.Hint = "gpuctl node join on the server prints its address; behind HTTPS write https://, behind a proxy set NO_PROXY"
	case codeHost:
		told.Hint = "add it to public_host in the server's " + serverYAML + ", then restart the server; the code is not used up"
	default:
		return err
	}
	if p.Code == codeNotFound || p.Code == codeMethod {
		told.Detail = address + " is an older gpuctl server: it knows no join"
	}
	return &told
}

// joinFile is agent.yaml as it is and as it shall be.
type joinFile struct {
	path, url, name string
	text            []byte
	now             agentConfig
}

func (f *joinFile) load() error {
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return newProblem(codeUsage, "check the permissions of "+f.path, "%v", err)
	}
	f.text = b
	return parseYAML(f.path, b, &f.now)
}

func (f *joinFile) machineName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "machine"
	}
	for _, n := range []string{f.name, f.now.Name, host} {
		if n != "" {
			return n
		}
	}
	return "machine"
}

// refuseOther refuses a folder whose agent works, or worked, for another server: what it knows of that one's runs would be told to this one.
func (f *joinFile) refuseOther(home string) error {
	if f.now.ServerURL != "" && sameServer(f.now.ServerURL, f.url) {
		return nil
	}
	const hint = "take a folder of its own: export GPUCTL_HOME=/another/folder; or --force, and the runs that lie here are told to the new server"
	if f.now.Token != "" {
		other := f.now.ServerURL
		if other == "" {
			other = "another server"
		}
		return newProblem(codeConflict, hint, "%s holds a token for %s", f.path, other)
	}
	if busy, err := isLocked(filepath.Join(home, agentLockFile)); err != nil || busy {
		if err != nil {
			return newProblem(codeUsage, "check the permissions of "+home, "%v", err)
		}
		return newProblem(codeConflict, "stop it first (gpuctl up, gpuctl agent), or take a folder of its own: export GPUCTL_HOME=/another/folder",
			"an agent runs in %s and works for another server", home)
	}
	entries, err := os.ReadDir(filepath.Join(home, "runs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return newProblem(codeUsage, "check the permissions of "+home, "%v", err)
	}
	n := 0
	for _, e := range entries {
		if e.IsDir() && isUID(e.Name()) {
			n++
		}
	}
	if n > 0 {
		return newProblem(codeConflict, hint, "%s has %d runs of another server", home, n)
	}
	return nil
}

// with is the file with a token in it: everything else stays as it is.
func (f *joinFile) with(token string) ([]byte, error) {
	text := bytes.Clone(f.text)
	want := f.now
	want.ServerURL, want.Token = f.url, token
	keys := [][2]string{{"server_url", f.url}, {"token", token}}
	if f.name != "" {
		want.Name = f.name
		keys = append(keys, [2]string{"name", f.name})
	}
	var err error
	for _, k := range keys {
		if text, err = withYAMLLine(text, k[0], k[1]); err != nil {
			return nil, err
		}
	}
	var back agentConfig
	if err := parseYAML(f.path, text, &back); err != nil || back.ServerURL != want.ServerURL || back.Token != want.Token || back.Name != want.Name {
		return nil, newProblem(codeUsage, "write server_url and token as plain lines, or move the file away", "%s has no place for server_url and token", f.path)
	}
	return text, nil
}

// rehearse makes sure that a file can be written there, by writing one beside it.
func rehearse(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := writeTemp(path, []byte("rehearsal\n"))
	if err != nil {
		return err
	}
	return os.Remove(tmp)
}
