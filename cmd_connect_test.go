package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFindServer: each source of address and token, and to which address a token goes.
func TestFindServer(t *testing.T) {
	const serverFile = "admin_token: gpc_admin\n"
	for _, c := range []struct {
		name              string
		env, args         string
		cli, server, addr string // contents of cli.yaml, server.yaml, server/address
		url, token        string
	}{
		{"nothing", "", "", "", "", "", "http://127.0.0.1:8600", ""},
		{"this machine's server", "", "", "", serverFile, "http://127.0.0.1:4711\n", "http://127.0.0.1:4711", "gpc_admin"},
		{"this machine's server, not running", "", "", "", serverFile + "port: 9000\nhost: 0.0.0.0\n", "", "http://127.0.0.1:9000", "gpc_admin"},
		{"cli.yaml", "", "", "server_url: http://far:1\ntoken: gpc_c\n", serverFile, "http://127.0.0.1:4711", "http://far:1", "gpc_c"},
		{"cli.yaml without a token", "", "", "server_url: http://far:1\n", serverFile, "http://127.0.0.1:4711", "http://far:1", ""},
		{"cli.yaml with a token only", "", "", "token: gpc_c\n", serverFile, "http://127.0.0.1:4711", "http://127.0.0.1:4711", "gpc_c"},
		{"cli.yaml names this machine", "", "", "server_url: http://localhost:4711\n", serverFile, "http://127.0.0.1:4711", "http://localhost:4711", "gpc_admin"},
		{"environment", "GPUCTL_SERVER_URL=http://e:2 GPUCTL_TOKEN=gpc_e", "", "server_url: http://far:1\ntoken: gpc_c\n", serverFile, "", "http://e:2", "gpc_e"},
		{"environment, old name", "GPUCTL_SERVER=http://e:2", "", "", serverFile, "", "http://e:2", ""},
		{"new name wins", "GPUCTL_SERVER=http://old GPUCTL_SERVER_URL=http://new", "", "", "", "", "http://new", ""},
		{"flag", "GPUCTL_SERVER_URL=http://e:2", "--server http://f:3", "server_url: http://far:1\ntoken: gpc_c\n", serverFile, "", "http://f:3", ""},
		{"flag, same as cli.yaml", "", "--server http://far:1/", "server_url: http://far:1\ntoken: gpc_c\n", "", "", "http://far:1/", "gpc_c"},
		{"flag, another port of this machine", "", "--server http://127.0.0.1:5", "", serverFile, "http://127.0.0.1:4711", "http://127.0.0.1:5", ""},
	} {
		home := t.TempDir()
		for name, text := range map[string]string{clientYAML: c.cli, serverYAML: c.server, "server/" + addressFile: c.addr} {
			if text == "" {
				continue
			}
			path := filepath.Join(home, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cl := newCLI(nil, &bytes.Buffer{}, &bytes.Buffer{}, append(strings.Fields(c.env), "GPUCTL_HOME="+home))
		if a := strings.Fields(c.args); len(a) == 2 {
			cl.global.server = a[1]
		}
		con, err := cl.findServer()
		if err != nil || con.url != c.url || con.token != c.token {
			t.Errorf("%s: %s with %q, %v", c.name, con.url, con.token, err)
		}
	}
}

func TestTokenFiles(t *testing.T) {
	home := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(home, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	env := []string{"GPUCTL_HOME=" + home}
	good := write("good", "gpc_t\n", 0o600)
	for _, c := range []struct{ name, file, want string }{
		{"open to others", write("open", "gpc_t", 0o644), "chmod 600"},
		{"open to the group", write("group", "gpc_t", 0o640), "chmod 600"},
		{"empty", write("empty", "\n", 0o600), "holds no token"},
		{"two lines", write("two", "a\nb\n", 0o600), "holds no token"},
		{"missing", filepath.Join(home, "missing"), "is not there"},
	} {
		got := runCLI(t, "http://127.0.0.1:1", nil, "--token-file", c.file, "job", "list")
		if got.code != 2 || !strings.Contains(got.err, c.want) {
			t.Errorf("%s: exit %d, %s", c.name, got.code, got.err)
		}
	}
	write(clientYAML, "server_url: http://127.0.0.1:1\ntoken_file: good\n", 0o644)
	cl := newCLI(nil, &bytes.Buffer{}, &bytes.Buffer{}, env)
	if con, err := cl.findServer(); err != nil || con.token != "gpc_t" {
		t.Errorf("token_file beside cli.yaml: %q, %v", con.token, err)
	}
	cl.global.tokenFile = good
	if con, err := cl.findServer(); err != nil || con.token != "gpc_t" || con.tokenFrom != "--token-file" {
		t.Errorf("--token-file: %+v, %v", con, err)
	}
	cl.global.tokenFile = ""
	write(clientYAML, "token: gpc_c\n", 0o644)
	if _, err := cl.findServer(); err == nil || !strings.Contains(err.Error(), "open to others") {
		t.Errorf("cli.yaml with a token, mode 0644: %v", err)
	}
	write(clientYAML, "tokn: gpc_c\n", 0o600)
	if _, err := cl.findServer(); exitCode(err) != 2 || !strings.Contains(err.Error(), "tokn") {
		t.Errorf("cli.yaml with an unknown key: %v", err)
	}
}
