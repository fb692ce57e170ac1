package main

// Configuration files in GPUCTL_HOME and where everything lies. Unknown keys are refused by name. No flags here: cmd_*.go lay them over.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"
)

// homeDir is GPUCTL_HOME, default ~/.gpuctl, absolute.
func homeDir() (string, error) {
	if h := os.Getenv("GPUCTL_HOME"); h != "" {
		return filepath.Abs(h)
	}
	h, err := os.UserHomeDir()
	if err != nil {
		return "", newProblem(codeUsage, "export GPUCTL_HOME=/path/to/a/folder", "no home folder: %v", err)
	}
	return filepath.Join(h, ".gpuctl"), nil
}

// serverConfig is server.yaml.
type serverConfig struct {
	Host         string   `yaml:"host,omitempty"`          // address to listen on, default 127.0.0.1
	Port         int      `yaml:"port,omitempty"`          // default 8600; 0 from the command line = any free one
	PublicHost   []string `yaml:"public_host,omitempty"`   // further names that the Host header may carry
	DataDir      string   `yaml:"data_dir,omitempty"`      // default $GPUCTL_HOME/server
	AdminToken   string   `yaml:"admin_token,omitempty"`   // written by the first start
	InsecureHTTP bool     `yaml:"insecure_http,omitempty"` // plain HTTP on a public address
	AckTimeout   duration `yaml:"ack_timeout,omitempty"`   // offer not claimed, default 30s
	LostAfter    duration `yaml:"lost_after,omitempty"`    // silent node, default 5m
	UIDir        string   `yaml:"ui_dir,omitempty"`        // for developers: the page's files from this folder instead of the built-in ones
}

// agentConfig is agent.yaml.
type agentConfig struct {
	ServerURL      string            `yaml:"server_url,omitempty"`
	Token          string            `yaml:"token,omitempty"`
	Name           string            `yaml:"name,omitempty"`     // default: host name
	CPULane        *int              `yaml:"cpu_lane,omitempty"` // default 2
	VisibleDevices string            `yaml:"visible_devices,omitempty"`
	DefaultEnv     map[string]string `yaml:"default_env,omitempty"`
}

// clientConfig is cli.yaml.
type clientConfig struct {
	ServerURL string `yaml:"server_url,omitempty"`
	Token     string `yaml:"token,omitempty"`
	TokenFile string `yaml:"token_file,omitempty"`
}

// Defaults.
const (
	defaultHost       = "127.0.0.1"
	defaultPort       = 8600
	defaultCPULane    = 2
	defaultAckTimeout = 30 * time.Second
	defaultLostAfter  = 5 * time.Minute
	unreachableAfter  = 45 * time.Second // shown as unreachable; not a state
	defaultGrace      = 5 * time.Second
)

// Names of files below GPUCTL_HOME that more than one side reads.
const (
	serverYAML     = "server.yaml"
	agentYAML      = "agent.yaml"
	clientYAML     = "cli.yaml"
	agentLockFile  = "agent.lock"         // held by the running agent
	addressFile    = "address"            // in data_dir: base URL of the running server
	agentTokenFile = "tokens/agent-local" // in data_dir: token of this machine's agent
)

// duration is a time.Duration that YAML writes as "30s".
type duration time.Duration

func (d *duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil || v <= 0 {
		return fmt.Errorf("line %d: %q is not a duration like 30s or 5m", n.Line, n.Value)
	}
	*d = duration(v)
	return nil
}

func (d duration) MarshalYAML() (any, error) { return time.Duration(d).String(), nil }

// or gives the configured duration or a default.
func (d duration) or(def time.Duration) time.Duration {
	if d > 0 {
		return time.Duration(d)
	}
	return def
}

// loadYAML reads a file strictly into v. A missing or empty file leaves v as it is.
func loadYAML(path string, v any) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return newProblem(codeUsage, "check the permissions of "+path, "%v", err)
	}
	return parseYAML(path, b, v)
}

// parseYAML decodes the text of a file strictly into v.
func parseYAML(path string, b []byte, v any) error {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		return newProblem(codeUsage, "correct "+path, "%s: %v", path, err)
	}
	return nil
}

// withYAMLLine sets a key at the top of a YAML text: in the place of the line that has it, else at the end. All else stays as its owner
// wrote it. Whether the result reads back as meant is for the caller to check: the owner may have written anything.
func withYAMLLine(text []byte, key, value string) ([]byte, error) {
	line, err := yaml.Marshal(map[string]string{key: value})
	if err != nil {
		return nil, err
	}
	var out []byte
	set := false
	for old := range bytes.Lines(text) {
		rest, isKey := bytes.CutPrefix(old, []byte(key))
		if isKey = isKey && bytes.HasPrefix(bytes.TrimLeft(rest, " \t"), []byte(":")); isKey && !set {
			old, set = line, true
		}
		if out = append(out, old...); !bytes.HasSuffix(out, []byte("\n")) {
			out = append(out, '\n')
		}
	}
	if !set {
		out = append(out, line...)
	}
	return out, nil
}

// loadServerConfig reads server.yaml of home and fills the defaults in.
func loadServerConfig(home string) (serverConfig, error) {
	c := serverConfig{Host: defaultHost, Port: defaultPort, DataDir: filepath.Join(home, "server")}
	if err := loadYAML(filepath.Join(home, serverYAML), &c); err != nil {
		return c, err
	}
	if c.Port < 0 || c.Port > 65535 {
		return c, newProblem(codeUsage, "set port: 8600", "%s: port %d", serverYAML, c.Port)
	}
	if !filepath.IsAbs(c.DataDir) {
		c.DataDir = filepath.Join(home, c.DataDir)
	}
	if c.UIDir != "" && !filepath.IsAbs(c.UIDir) {
		c.UIDir = filepath.Join(home, c.UIDir)
	}
	return c, nil
}
