package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
)

func goldenCheckpoints() list[checkpointView] {
	return list[checkpointView]{Items: []checkpointView{
		{
			ID: 31, Run: "12.2", Path: "/data/out/checkpoint-1000", Kind: "folder", Step: ptr(int64(1000)), StepFrom: ptr("trainer_state"), SizeBytes: 3 << 30, State: "INCOMPLETE",
			Incomplete: ptr("model.safetensors.index.json names 1 of 3 shards that are missing"), StateMS: *agoMS(time.Minute), FoundMS: *agoMS(time.Hour), MtimeMS: *agoMS(2 * time.Hour),
			Fingerprint: "0123456789abcdef", Metrics: map[string]jsonFloat{"loss": 0.25, "acc": jsonFloat(math.NaN())},
		},
		{ID: 4, Run: "12.2", Path: "/data/out/best\x1b[2J.pt", Kind: "file", SizeBytes: 5, State: "COMPLETE", FoundMS: *agoMS(time.Second)},
	}}
}

func TestGoldenCheckpoints(t *testing.T) {
	var out bytes.Buffer
	p := goldenPrinter(&out, outTable)
	l := goldenCheckpoints()
	if err := printList(p, l, p.ckptColumns(), ckptID); err != nil {
		t.Fatal(err)
	}
	if want := `
ID  STEP   SIZE  AGE        STATE       KIND    PATH
31  1000  3 GiB  1h00m ago  INCOMPLETE  folder  /data/out/checkpoint-1000
 4     -    5 B  1.0s ago   COMPLETE    file    /data/out/best\x1b[2J.pt
`; "\n"+out.String() != want {
		t.Errorf("\n%s", out.String())
	}
	out.Reset()
	if err := printOne(p, l.Items[0], ckptID, p.ckptFields(l.Items[0])); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1000 (from its trainer_state.json)", "names 1 of 3 shards", "acc=NaN loss=0.25", "0123456789abcdef", "12.2"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := printOne(p, l.Items[1], ckptID, p.ckptFields(l.Items[1])); err != nil || strings.Contains(out.String(), "step") || strings.Contains(out.String(), "not whole") {
		t.Errorf("what is not known is not shown: %v\n%s", err, out.String())
	}
}

func TestCkptCommands(t *testing.T) {
	f := newFakeAPI(t)
	l := goldenCheckpoints()
	f.json("GET /runs/12/checkpoints", l)
	f.json("GET /checkpoints/31", l.Items[0])
	token := []string{"GPUCTL_TOKEN=gpc_read_1_x"}
	if r := runCLI(t, f.URL, token, "ckpt", "list", "12", "--state", "gone,complete", "-o", "name"); r.code != 0 || r.out != "31\n4\n" {
		t.Errorf("%+v", r)
	}
	if q := f.requests("GET /runs/12"); len(q) != 1 || !strings.Contains(q[0].query, "state=GONE%2CCOMPLETE") {
		t.Errorf("asked %+v", q)
	}
	if r := runCLI(t, f.URL, token, "ckpt", "show", "31", "-o", "json"); r.code != 0 || !strings.Contains(r.out, `"acc": "NaN"`) {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"ckpt", "list"}, {"ckpt", "show"}, {"ckpt", "list", "1", "2"}} {
		if r := runCLI(t, f.URL, token, args...); r.code != 2 {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
