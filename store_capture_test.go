package main

// Whose machine a captured environment goes along to.

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestCapture(t *testing.T) {
	f := newDoors(t)
	f.node("mine")
	f.node("other")
	f.sql(`UPDATE nodes SET fingerprint = '{"machine_id":"m2"}' WHERE name = 'other'`)
	body := `{"argv":["true"],"working_dir":"/w","gpus":0,"env":{"GIVEN":"g","PATH":"/given"},
		"capture":{"machine":"m1","env":{"PATH":"/captured","VIRTUAL_ENV":"/s3cret","GPUCTL_TOKEN":"x"}}}`
	w := f.check(t, apiCase{"", scopeWrite, "POST", "/api/v1/jobs", nil, body, 201, "", ""})
	var v jobView
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(v.EnvNames, []string{"GIVEN", "PATH", "VIRTUAL_ENV"}) || strings.Contains(w.Body.String(), "s3cret") {
		t.Errorf("shown: %s", w.Body)
	}
	given := map[string]string{"GIVEN": "g", "PATH": "/given"}
	for node, want := range map[int64]map[string]string{1: {"GIVEN": "g", "PATH": "/given", "VIRTUAL_ENV": "/s3cret"}, 2: given, 77: given} {
		f.write(func(x *tx) error {
			env, err := withCapture(x.conn, v.ID, node, given)
			if !maps.Equal(env, want) {
				t.Errorf("on node %d: %v", node, env)
			}
			return err
		})
	}
	for _, c := range []struct{ capture, has string }{
		{`{"env":{"A":"1"}}`, "capture.machine"},
		{`{"machine":"m1","env":{"1A":"1"}}`, `\"1A\"`},
		{`{"machine":"m1","env":{"A":"` + strings.Repeat("y", argsMostBytes) + `"}}`, "argv and env"},
	} {
		f.check(t, apiCase{"", scopeWrite, "POST", "/api/v1/jobs", nil, `{"argv":["a"],"working_dir":"/w","capture":` + c.capture + `}`, 422, codeInvalid, c.has})
	}
	v = f.submit("without") // none captured
	if len(v.EnvNames) != 0 {
		t.Errorf("%v", v.EnvNames)
	}
}
