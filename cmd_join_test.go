package main

// agent join against servers that are ours, are not, or are gone; agent.yaml as it comes out.

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const joinedToken = "gpc_agent_7_secret"

// joinServer takes any code.
func joinServer(t *testing.T) *fakeAPI {
	f := newFakeAPI(t)
	f.json("POST /agent/join", joinAnswer{Token: joinedToken, Name: "box"})
	return f
}

func joinHome(t *testing.T, agentFile string) (home string, env []string) {
	t.Helper()
	home = t.TempDir()
	if agentFile != "" {
		if err := os.WriteFile(filepath.Join(home, agentYAML), []byte(agentFile), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return home, []string{"GPUCTL_HOME=" + home}
}

func agentFileOf(t *testing.T, home string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(home, agentYAML))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(b)
}

func TestAgentJoinFile(t *testing.T) {
	f := joinServer(t)
	lines := "server_url: " + f.URL + "\ntoken: " + joinedToken + "\n"
	for _, c := range []struct{ name, before, args, want string }{
		{"no file", "", "", lines},
		{"empty file", "\n", "", "\n" + lines},
		{"the rest stays", "# mine\ncpu_lane: 3 # three\n\ndefault_env:\n  token: inner\n  server_url: inner", "", "# mine\ncpu_lane: 3 # three\n\ndefault_env:\n  token: inner\n  server_url: inner\n" + lines},
		{"again", "token: gpc_agent_1_old\nname: a\nserver_url : " + f.URL + "/\n", "", "token: " + joinedToken + "\nname: a\nserver_url: " + f.URL + "\n"},
		{"a name", "name: a\n", "--name b", "name: b\n" + lines},
		{"a name of digits", "", "--name 12", lines + "name: \"12\"\n"},
		{"another server, forced", "server_url: http://far:1\ntoken: x\n", "--force", lines},
		{"a server without a token", "server_url: http://far:1\n", "", lines},
		{"a document", "---\nname: a\n", "", "---\nname: a\n" + lines},
		{"CRLF", "name: a\r\n", "", "name: a\r\n" + lines},
	} {
		home, env := joinHome(t, c.before)
		got := runCLI(t, "", env, append([]string{"agent", "join", f.URL + "/", "code"}, strings.Fields(c.args)...)...)
		if got.code != 0 || got.out != "" || agentFileOf(t, home) != c.want {
			t.Errorf("%s: exit %d, %s%s, file\n%s", c.name, got.code, got.out, got.err, agentFileOf(t, home))
		}
		st, err := os.Stat(filepath.Join(home, agentYAML))
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Whatever can be known to fail is found before the code is sent.
func TestAgentJoinKeepsTheCode(t *testing.T) {
	f := joinServer(t)
	notAFolder := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(notAFolder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, before, args string
		code               int
		want               string
	}{
		{"another server", "server_url: http://far:1\ntoken: x\n", f.URL + " code", 6, "holds a token for http://far:1"},
		{"a token of nobody knows whom", "token: x\n", f.URL + " code", 6, "holds a token for another server"},
		{"flow mapping", "{name: a}\n", f.URL + " code", 2, "plain lines"},
		{"a token over two lines", "token: >-\n  abc\n", f.URL + " code --force", 2, "plain lines"},
		{"a typing error", "nmae: a\n", f.URL + " code", 2, "nmae"},
		{"not YAML", "a: b: c", f.URL + " code", 2, agentYAML},
		{"no scheme", "", "gpu1:8600 code", 2, "http://127.0.0.1:8600"},
		{"a path of a file", "", "/tmp code", 2, "not the address"},
		{"IPv6 without brackets", "", "http://fd00::1:8600 code", 2, "not the address"},
		{"a query", "", f.URL + "?x=1 code", 2, "not the address"},
		{"no code", "", f.URL, 2, "CODE"},
		{"too much", "", f.URL + " code more", 2, "more"},
	} {
		home, env := joinHome(t, c.before)
		got := runCLI(t, "", env, append([]string{"agent", "join"}, strings.Fields(c.args)...)...)
		if got.code != c.code || !strings.Contains(got.err, c.want) || !strings.Contains(got.err, "hint: ") || agentFileOf(t, home) != c.before {
			t.Errorf("%s: exit %d, %s", c.name, got.code, got.err)
		}
	}
	got := runCLI(t, "", []string{"GPUCTL_HOME=" + filepath.Join(notAFolder, "home")}, "agent", "join", f.URL, "code")
	if got.code != 2 {
		t.Errorf("a home that cannot be: exit %d, %s", got.code, got.err)
	}
	home, env := joinHome(t, "")
	if err := os.MkdirAll(filepath.Join(home, "runs", strings.Repeat("a", 32)), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := runCLI(t, "", env, "agent", "join", f.URL, "code"); got.code != 6 || !strings.Contains(got.err, "1 runs of another server") {
		t.Errorf("runs of another server: exit %d, %s", got.code, got.err)
	}
	lock, err := lockFile(filepath.Join(home, agentLockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if got := runCLI(t, "", env, "agent", "join", f.URL, "code"); got.code != 6 || !strings.Contains(got.err, "an agent runs in") {
		t.Errorf("an agent of another server: exit %d, %s", got.code, got.err)
	}
	if n := len(f.requests("")); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestAgentJoinNotOurs(t *testing.T) {
	answer := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Location", "https://login.example/")
			w.WriteHeader(status)
			w.Write([]byte(body))
		}
	}
	for _, c := range []struct {
		name string
		h    http.HandlerFunc
		code int
		want string
	}{
		{"a page", answer(200, "text/html", "<html>"), 5, "got HTML"},
		{"a page that is not there", answer(404, "text/html", "<html>"), 5, "got HTML"},
		{"a portal", answer(302, "text/html", ""), 5, "redirects"},
		{"a proxy without the server", answer(502, "text/html", "bad gateway"), 5, "the server behind it does not"},
		{"another program", answer(200, "application/json", `{"status":"ok"}`), 5, "gave no token of an agent"},
		{"a token of another kind", answer(200, "application/json", `{"token":"gpc_admin_1_x"}`), 5, "gave no token of an agent"},
		{"a list", answer(200, "application/json", `[]`), 5, "not understood"},
		{"an older server", func(w http.ResponseWriter, _ *http.Request) {
			tellProblem(w, newProblem(codeNotFound, "x", "there is no route"))
		}, 3, "older gpuctl server"},
		{"another name", func(w http.ResponseWriter, _ *http.Request) {
			tellProblem(w, newProblem(codeHost, "x", "not a name of this server"))
		}, 4, "public_host"},
		{"a used code", func(w http.ResponseWriter, _ *http.Request) {
			tellProblem(w, newProblem(codeUnauthorized, "on the server: gpuctl node join", "was used"))
		}, 4, "gpuctl node join"},
	} {
		f := newFakeAPI(t)
		f.on("POST /agent/join", c.h)
		home, env := joinHome(t, "")
		got := runCLI(t, "", env, "agent", "join", f.URL, "code")
		if got.code != c.code || !strings.Contains(got.err, c.want) || !strings.Contains(got.err, "hint: ") || agentFileOf(t, home) != "" {
			t.Errorf("%s: exit %d, %s", c.name, got.code, got.err)
		}
	}
	_, env := joinHome(t, "")
	f := joinServer(t)
	if got := runCLI(t, "", env, "agent", "join", strings.Replace(f.URL, "http:", "https:", 1), "code"); got.code != 5 || !strings.Contains(got.err, "plain HTTP") || !strings.Contains(got.err, "hint: write http://") {
		t.Errorf("https to a plain server: exit %d, %s", got.code, got.err)
	}
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	if got := runCLI(t, "", env, "agent", "join", strings.Replace(secure.URL, "https:", "http:", 1), "code"); got.code != 5 || !strings.Contains(got.err, "https://") {
		t.Errorf("http to a TLS server: exit %d, %s", got.code, got.err)
	}
	if got := runCLI(t, "", env, "agent", "join", "http://127.0.0.1:1", "code"); got.code != 5 || !strings.Contains(got.err, "host: 0.0.0.0") {
		t.Errorf("nobody there: exit %d, %s", got.code, got.err)
	}
}

// Other ways to write the same address; the file then has the plain one.
func TestAgentJoinAddresses(t *testing.T) {
	f := joinServer(t)
	for _, given := range []string{f.URL, f.URL + "/", f.URL + "//", strings.Replace(f.URL, "http", "ws", 1), strings.Replace(f.URL, "http", "HTTP", 1)} {
		home, env := joinHome(t, "")
		if got := runCLI(t, "", env, "agent", "join", given, "code"); got.code != 0 || !strings.Contains(agentFileOf(t, home), "server_url: "+f.URL+"\n") {
			t.Errorf("%s: exit %d, %s\n%s", given, got.code, got.err, agentFileOf(t, home))
		}
	}
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Logf("no IPv6 here: %v", err)
		return
	}
	six := httptest.NewUnstartedServer(f)
	six.Listener.Close()
	six.Listener = l
	six.Start()
	defer six.Close()
	home, env := joinHome(t, "")
	if got := runCLI(t, "", env, "agent", "join", six.URL, "code"); got.code != 0 || !strings.Contains(agentFileOf(t, home), "server_url: http://[::1]:") {
		t.Errorf("%s: exit %d, %s", six.URL, got.code, got.err)
	}
}

// Which token the agent takes: one goes only to the server that it was given for, and the command line's is not the agent's.
func TestAgentToken(t *testing.T) {
	for _, c := range []struct{ name, file, env, url, args, token, wantURL string }{
		{"joined", "server_url: http://far:1\ntoken: gpc_agent_1_f\n", "", "", "", "gpc_agent_1_f", "http://far:1"},
		{"ws of old files", "server_url: ws://far:1/\ntoken: gpc_agent_1_f\n", "", "http://far:1", "", "gpc_agent_1_f", "http://far:1"},
		{"another server by environment", "server_url: http://far:1\ntoken: gpc_agent_1_f\n", "", "http://evil:1", "", "", "http://evil:1"},
		{"another server by flag", "server_url: http://far:1\ntoken: gpc_agent_1_f\n", "", "", "http://evil:1", "", "http://evil:1"},
		{"the command line's token", "server_url: http://far:1\ntoken: gpc_agent_1_f\n", "gpc_write_2_e", "", "", "gpc_agent_1_f", "http://far:1"},
		{"an agent's token", "server_url: http://far:1\ntoken: gpc_agent_1_f\n", "gpc_agent_2_e", "", "", "gpc_agent_2_e", "http://far:1"},
		{"a token of one's own making", "", "letmein", "http://far:1", "", "letmein", "http://far:1"},
		{"a file with a token only", "token: gpc_agent_1_f\n", "", "http://far:1", "", "gpc_agent_1_f", "http://far:1"},
	} {
		home, _ := joinHome(t, c.file)
		if c.file != "" {
			if err := os.Chmod(filepath.Join(home, agentYAML), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("GPUCTL_TOKEN", c.env)
		t.Setenv("GPUCTL_SERVER_URL", c.url)
		o, err := agentOptionsOf(home, agentFlags{server: c.args})
		if err != nil || o.token != c.token || o.serverURL != c.wantURL {
			t.Errorf("%s: %q to %s, %v", c.name, o.token, o.serverURL, err)
		}
	}
}
