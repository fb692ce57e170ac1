package main

// Where the server is and with which token to speak to it: flags, environment, cli.yaml, the files of this machine's server, in this
// order. A token goes only to the server that it was given for.

import (
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// connection is an address and the token for it, with where each came from.
type connection struct {
	url, urlFrom     string
	token, tokenFrom string
	agentOf          string        // agent.yaml, when this machine's agent works for that server
	rebase           func() string // reads the address again; nil when it is fixed
}

// connect finds the server and makes its client. It does not speak to it yet.
func (c *cli) connect() (*client, error) {
	con, err := c.findServer()
	if err != nil {
		return nil, err
	}
	if con.token == "" && con.agentOf != "" {
		return nil, newProblem(codeUnauthorized, "on the server: gpuctl token create NAME --scope write; here: put server_url and token into "+
			clientYAML+" beside it, mode 0600, or give --token-file FILE",
			"%s lets the agent of this machine speak to %s; the command line needs a token of its own", con.agentOf, con.url)
	}
	cl, err := newClient(con.url, con.token)
	if err != nil {
		return nil, err
	}
	cl.rebase = con.rebase
	if c.global.verbose {
		c.p.note("server " + con.url + " (" + con.urlFrom + "), token from " + con.tokenFrom)
	}
	return cl, nil
}

func (c *cli) findServer() (connection, error) {
	home, err := c.home()
	if err != nil {
		return connection{}, err
	}
	var file clientConfig
	cliFile := filepath.Join(home, clientYAML)
	if err := loadYAML(cliFile, &file); err != nil {
		return connection{}, err
	}
	if file.Token != "" {
		if err := private(cliFile); err != nil {
			return connection{}, err
		}
	}
	local, localErr := loadServerConfig(home)
	con := connection{}
	agentURL := joinedServer(home)
	switch {
	case c.global.server != "":
		con.url, con.urlFrom = c.global.server, "--server"
	case c.getenv("GPUCTL_SERVER_URL") != "":
		con.url, con.urlFrom = c.getenv("GPUCTL_SERVER_URL"), "GPUCTL_SERVER_URL"
	case c.getenv("GPUCTL_SERVER") != "":
		con.url, con.urlFrom = c.getenv("GPUCTL_SERVER"), "GPUCTL_SERVER"
	case file.ServerURL != "":
		con.url, con.urlFrom = file.ServerURL, cliFile
	case localErr != nil:
		return con, localErr
	case agentURL != "" && local.AdminToken == "": // no server of its own here
		con.url, con.urlFrom = agentURL, filepath.Join(home, agentYAML)
	default:
		con.url, con.urlFrom = localAddress(local)
		con.rebase = func() string { u, _ := localAddress(local); return u }
	}
	if agentURL != "" && sameServer(agentURL, con.url) {
		con.agentOf = filepath.Join(home, agentYAML)
	}
	err = c.findToken(&con, home, file, local, localErr)
	return con, err
}

// joinedServer is the server that the agent of this home was joined to, "" when to none. What is wrong with agent.yaml is for the agent to
// say: the command line does without it.
func joinedServer(home string) string {
	var agent agentConfig
	if loadYAML(filepath.Join(home, agentYAML), &agent) != nil || agent.Token == "" {
		return ""
	}
	return agent.ServerURL
}

// findToken takes the first token that is meant for the server of con.
func (c *cli) findToken(con *connection, home string, file clientConfig, local serverConfig, localErr error) error {
	fromFile := func(path, from string) error {
		t, err := readTokenFile(path)
		con.token, con.tokenFrom = t, from
		return err
	}
	switch {
	case c.global.tokenFile != "":
		return fromFile(c.global.tokenFile, "--token-file")
	case c.getenv("GPUCTL_TOKEN") != "":
		con.token, con.tokenFrom = c.getenv("GPUCTL_TOKEN"), "GPUCTL_TOKEN"
		return nil
	}
	if file.ServerURL == "" || sameServer(file.ServerURL, con.url) {
		switch {
		case file.Token != "":
			con.token, con.tokenFrom = file.Token, filepath.Join(home, clientYAML)
			return nil
		case file.TokenFile != "":
			path := file.TokenFile
			if !filepath.IsAbs(path) {
				path = filepath.Join(home, path)
			}
			return fromFile(path, path)
		}
	}
	con.tokenFrom = "nowhere"
	if localErr != nil || local.AdminToken == "" {
		return nil
	}
	if own, _ := localAddress(local); sameServer(own, con.url) {
		con.token, con.tokenFrom = local.AdminToken, filepath.Join(home, serverYAML)
	}
	return nil
}

// home is GPUCTL_HOME of this call's environment.
func (c *cli) home() (string, error) {
	if h := c.getenv("GPUCTL_HOME"); h != "" {
		return filepath.Abs(h)
	}
	return homeDir()
}

// localAddress is where this machine's server listens: as the running one wrote it, else as its configuration says.
func localAddress(s serverConfig) (address, from string) {
	path := filepath.Join(s.DataDir, addressFile)
	if b, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(b)) != "" {
		return strings.TrimSpace(string(b)), path
	}
	host := s.Host
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = defaultHost
	}
	port := s.Port
	if port == 0 {
		port = defaultPort
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(port)), "default"
}

// sameServer reports whether two addresses name one server: the names of loopback are one.
func sameServer(a, b string) bool {
	ua, erra := parseBase(a)
	ub, errb := parseBase(b)
	return erra == nil && errb == nil && serverKey(ua) == serverKey(ub)
}

func serverKey(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if isLoopbackHost(host) {
		host = defaultHost
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(host, port) + u.Path
}

// readTokenFile reads a file that holds nothing but a token.
func readTokenFile(path string) (string, error) {
	if err := private(path); err != nil {
		return "", err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", newProblem(codeUsage, "check --token-file", "%v", err)
	}
	t := strings.TrimSpace(string(b))
	if t == "" || strings.ContainsFunc(t, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", newProblem(codeUsage, "the file holds one token and nothing else", "%s holds no token", path)
	}
	return t, nil
}

// private refuses a file with a secret that others may read.
func private(path string) error {
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newProblem(codeUsage, "check the name", "%s is not there", path)
	}
	if err != nil {
		return newProblem(codeUsage, "check the permissions of "+path, "%v", err)
	}
	if mode := st.Mode(); mode.IsRegular() && mode.Perm()&0o077 != 0 {
		return newProblem(codeUsage, "chmod 600 "+path, "%s holds a token and is open to others (mode %04o)", path, mode.Perm())
	}
	return nil
}
