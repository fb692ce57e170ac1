package main

// The environment that was captured from a submitter's shell. It goes along to nodes of the submitter's machine only: elsewhere its paths
// mean something else, or nothing.

import (
	"encoding/json"
	"fmt"
	"maps"
)

// keepCaptureTx stores what was captured for a job.
func keepCaptureTx(t *tx, jobID int64, k *envCapture) error {
	if k == nil || len(k.Env) == 0 {
		return nil
	}
	env, err := json.Marshal(k.Env)
	if err != nil {
		return fmt.Errorf("encode captured environment: %w", err)
	}
	if _, err := t.exec("INSERT INTO captures (job_id, machine, env) VALUES (?,?,?)", jobID, k.Machine, string(env)); err != nil {
		return fmt.Errorf("store captured environment: %w", err)
	}
	return nil
}

// withCapture adds what was captured for a job to its environment, when nodeID is on the machine of the capture. What the job names itself
// stays.
func withCapture(c *conn, jobID, nodeID int64, env map[string]string) (map[string]string, error) {
	var text string
	found, err := c.one(`SELECT k.env FROM captures k JOIN nodes n ON json_extract(n.fingerprint, '$.machine_id') = k.machine
		WHERE k.job_id = ? AND n.id = ?`, []any{jobID, nodeID}, &text)
	if err != nil || !found {
		return env, err
	}
	all := map[string]string{}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("read captured environment of job %d: %w", jobID, err)
	}
	maps.Copy(all, env)
	return all, nil
}
