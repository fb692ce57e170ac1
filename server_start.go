package main

// What a start checks and a first start writes: the data folder, the tokens that live in files.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Names of the tokens that live in files.
const (
	adminTokenName = "admin"
	agentTokenName = "agent-local"
)

// prepareDataDir makes the data folder and refuses a network file system: SQLite's locks and fsync do not hold there.
func prepareDataDir(dir string, force bool) error {
	if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(agentTokenFile)), 0o700); err != nil {
		return newProblem(codeUsage, "choose another data_dir in server.yaml", "make the data folder: %v", err)
	}
	kind, err := networkFS(dir)
	if err != nil {
		return fmt.Errorf("look at the file system of %s: %w", dir, err)
	}
	if kind != "" && !force {
		return newProblem(codeUsage, "set data_dir in server.yaml to a folder on a local disk, or start with --force-network-fs and risk the database",
			"%s is on %s, where a database can be lost", dir, kind)
	}
	return nil
}

// ensureTokens makes the admin token (server.yaml) and this machine's agent token (tokens/agent-local) what the database knows: minted by
// the first start, put back after a restore.
func (s *server) ensureTokens(ctx context.Context, home string) error {
	agentPath := filepath.Join(s.cfg.DataDir, agentTokenFile)
	kept, err := os.ReadFile(agentPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the agent's token: %w", err)
	}
	var admin, agent string
	if err := s.store.write(ctx, func(t *tx) (err error) {
		if admin, err = ensureTokenTx(t, adminTokenName, scopeAdmin, s.cfg.AdminToken); err != nil {
			return err
		}
		agent, err = ensureTokenTx(t, agentTokenName, scopeAgent, strings.TrimSpace(string(kept)))
		return err
	}); err != nil {
		return fmt.Errorf("make tokens: %w", err)
	}
	if agent != strings.TrimSpace(string(kept)) {
		if err := writeAtomic(agentPath, []byte(agent+"\n")); err != nil {
			return err
		}
	}
	path := filepath.Join(home, serverYAML)
	if admin == s.cfg.AdminToken {
		s.closeToOthers(path)
		return nil
	}
	s.cfg.AdminToken = admin
	return setAdminToken(path, admin)
}

// closeToOthers takes the rights of others from a file that holds the admin token: its owner may have written it by an open umask.
func (s *server) closeToOthers(path string) {
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm()&0o077 == 0 {
		return // no file: the token came from elsewhere
	}
	s.log.Warn("server.yaml was open to others and holds the admin token", "mode", fmt.Sprintf("%04o", st.Mode().Perm()))
	if err := os.Chmod(path, 0o600); err != nil {
		s.log.Warn("close server.yaml to others", keyErr, err)
	}
}

// setAdminToken puts the token into server.yaml, mode 0600, in the place of an empty one or at the end, and leaves the rest of the file as
// its owner wrote it. A file that would not be read back so is refused: the next start could not use it.
func setAdminToken(path, token string) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if text, err = withYAMLLine(text, "admin_token", token); err != nil {
		return err
	}
	var back serverConfig
	if err := parseYAML(path, text, &back); err != nil || back.AdminToken != token {
		return newProblem(codeUsage, "write the line admin_token: a-long-random-text into it yourself, or remove the file",
			"%s has no place where the admin token could be written", path)
	}
	return writeAtomic(path, text)
}
