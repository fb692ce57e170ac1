package main

// Made-up cards, for trying the scheduler where there are none (--fake-gpus FILE). Whoever loads them says so loudly.

import (
	"bytes"
	"encoding/json"
	"os"
)

// loadFakeGPUs reads a JSON list of {uuid, model, memory_bytes}. The index is the place in the list. Uuids are unique and not empty.
func loadFakeGPUs(path string) ([]wireDevice, error) {
	const hint = `write [{"uuid":"GPU-fake-0","model":"Fake 24G","memory_bytes":25769803776}]`
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, newProblem(codeUsage, hint, "fake cards: %v", err)
	}
	var list []struct {
		UUID        string `json:"uuid"`
		Model       string `json:"model"`
		MemoryBytes int64  `json:"memory_bytes"`
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&list); err != nil {
		return nil, newProblem(codeUsage, hint, "fake cards: %s: %v", path, err)
	}
	seen := map[string]bool{}
	out := make([]wireDevice, 0, len(list))
	for i, d := range list {
		if d.UUID == "" || seen[d.UUID] || d.MemoryBytes < 0 {
			return nil, newProblem(codeUsage, hint, "fake cards: %s: card %d has no uuid, one that is there twice, or negative memory", path, i)
		}
		seen[d.UUID] = true
		out = append(out, wireDevice{Idx: i, UUID: d.UUID, Model: d.Model, MemoryBytes: d.MemoryBytes, Healthy: true, Fake: true})
	}
	return out, nil
}
