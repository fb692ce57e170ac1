package tests

// Slots: who comes when, who waits for what, which cards.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPriorityOrder(t *testing.T) {
	t.Parallel()
	promise(t, "three jobs for one slot run one after the other in priority order")
	p := newPlane(t)
	p.write(filepath.Join(p.home, "agent.yaml"), "cpu_lane: 1\n")
	p.up()
	gate := filepath.Join(p.work, "gate")
	first := p.submit("-g", "0", "-n", "first", "--", p.script("hold.sh", "#!/bin/sh\nwhile [ ! -e gate ]; do sleep 0.05; done\n"))
	p.waitState(first, 20*time.Second, "RUNNING")
	mark := p.script("mark.sh", "#!/bin/sh\necho $1 >> order\n")
	low := p.submit("-g", "0", "-n", "low", "--priority", "-5", "--", mark, "low")
	plainA := p.submit("-g", "0", "-n", "plain-a", "--", mark, "plain-a")
	high := p.submit("-g", "0", "-n", "high", "--priority", "5", "--", mark, "high")
	plainB := p.submit("-g", "0", "-n", "plain-b", "--", mark, "plain-b")
	p.write(gate, "")
	for _, id := range []int64{first, low, plainA, high, plainB} {
		wantEnd(t, p.waitOver(id, 30*time.Second), "SUCCEEDED", "", 0)
	}
	b, err := os.ReadFile(filepath.Join(p.work, "order"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(b)); !slices.Equal(got, []string{"high", "plain-a", "plain-b", "low"}) {
		t.Errorf("order %v", got)
	}
	order := []int64{first, high, plainA, plainB, low}
	for i := range order[1:] {
		before, after := p.job(order[i]), p.job(order[i+1])
		if *before.EndedMS > *after.StartedMS {
			t.Errorf("job %d started before job %d ended", after.ID, before.ID)
		}
	}
}

func TestThirdWaitsAndSaysWhy(t *testing.T) {
	t.Parallel()
	promise(t, "two cpu jobs run side by side, the third waits and job why says for what")
	p := newPlane(t)
	p.up()
	hold := p.script("hold.sh", "#!/bin/sh\nwhile [ ! -e gate ]; do sleep 0.05; done\n")
	a, b, c := p.submit("-g", "0", "--", hold), p.submit("-g", "0", "--", hold), p.submit("-g", "0", "--", hold)
	p.waitState(a, 20*time.Second, "RUNNING")
	p.waitState(b, 20*time.Second, "RUNNING")
	if j := p.job(c); j.State != "QUEUED" || deref(j.WaitReason) == "" {
		t.Errorf("third job: %s, wait_reason %q", j.State, deref(j.WaitReason))
	}
	var why struct {
		State    string
		Summary  string
		Position int
		Reasons  []struct{ Type, Node, Detail string }
	}
	p.mustGet(fmt.Sprintf("/api/v1/jobs/%d/why", c), &why)
	if why.State != "QUEUED" || why.Position != 1 || why.Summary == "" || len(why.Reasons) == 0 || why.Reasons[0].Type != "cpu_lane_busy" {
		t.Errorf("why: %+v", why)
	}
	text := p.ok("job", "why", fmt.Sprint(c))
	if !strings.Contains(text, fmt.Sprintf("%d", a)) && !strings.Contains(text, "cpu") {
		t.Errorf("job why does not say for what: %s", text)
	}
	p.write(filepath.Join(p.work, "gate"), "")
	for _, id := range []int64{a, b, c} {
		wantEnd(t, p.waitOver(id, 30*time.Second), "SUCCEEDED", "", 0)
	}
}

// fakeGPUs writes a card file and returns its path.
func (p *plane) fakeGPUs(n int) string {
	p.t.Helper()
	var cards []map[string]any
	for i := range n {
		cards = append(cards, map[string]any{"uuid": fmt.Sprintf("GPU-fake-%d", i), "model": "Fake 24G", "memory_bytes": 24 << 30})
	}
	b, err := json.Marshal(cards)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.write(filepath.Join(p.work, "cards.json"), string(b))
}

func TestTwoCardsOfOneNode(t *testing.T) {
	t.Parallel()
	promise(t, "a 2-GPU job gets two distinct slots of one node, and sees exactly those cards")
	p := newPlane(t)
	d := p.up("--fake-gpus", p.fakeGPUs(3))
	if !strings.Contains(strings.ToLower(d.output()), "fake") {
		t.Error("fake cards are not said loudly")
	}
	show := p.script("show.sh", "#!/bin/sh\necho $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER > $1\nwhile [ ! -e gate ]; do sleep 0.05; done\n")
	two := p.submit("-g", "2", "--", show, "two")
	p.waitState(two, 20*time.Second, "RUNNING")
	one := p.submit("--", show, "one") // -g 1 is the default
	p.waitState(one, 20*time.Second, "RUNNING")
	none := p.submit("-g", "1", "--", show, "none")
	cpu := p.submit("-g", "0", "--", show, "cpu")
	p.waitState(cpu, 20*time.Second, "RUNNING")
	r2, r1 := p.run(fmt.Sprintf("%d.1", two)), p.run(fmt.Sprintf("%d.1", one))
	if len(r2.Slots) != 2 || len(r1.Slots) != 1 {
		t.Fatalf("slots %+v and %+v", r2.Slots, r1.Slots)
	}
	seen := map[string]bool{}
	for _, s := range append(r2.Slots, r1.Slots...) {
		if s.Lane != "gpu" || seen[s.UUID] {
			t.Errorf("slot %+v is no card, or given twice", s)
		}
		seen[s.UUID] = true
	}
	if j := p.job(none); j.State != "QUEUED" {
		t.Errorf("fourth card of three: %s", j.State)
	}
	want := map[string]string{
		"two": fmt.Sprintf("%d,%d PCI_BUS_ID", r2.Slots[0].Idx, r2.Slots[1].Idx),
		"one": fmt.Sprintf("%d PCI_BUS_ID", r1.Slots[0].Idx),
		"cpu": "PCI_BUS_ID",
	}
	for name, text := range want {
		waitFor(t, 10*time.Second, name+" wrote its cards", func() bool {
			b, err := os.ReadFile(filepath.Join(p.work, name))
			return err == nil && len(b) > 0
		})
		b, err := os.ReadFile(filepath.Join(p.work, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(string(b)), " "); got != text {
			t.Errorf("%s sees %q, want %q", name, got, text)
		}
	}
	p.write(filepath.Join(p.work, "gate"), "")
	for _, id := range []int64{two, one, none, cpu} {
		wantEnd(t, p.waitOver(id, 30*time.Second), "SUCCEEDED", "", 0)
	}
}

func TestNotThatManyCards(t *testing.T) {
	t.Parallel()
	promise(t, "a job that no node can serve says so at once, with -g 0 as the hint, and still queues")
	p := newPlane(t)
	p.up()
	r := p.cli("job", "submit", "-g", "4", "--", "true")
	if r.code != 0 || !strings.Contains(r.err, "-g 0") {
		t.Errorf("exit %d, stderr %q", r.code, r.err)
	}
	if j := p.job(1); j.State != "QUEUED" {
		t.Errorf("job is %s", j.State)
	}
	if r := p.cli("job", "cancel", "1"); r.code != 0 {
		t.Errorf("cancel: %+v", r)
	}
	if j := p.job(1); j.State != "CANCELLED" || len(j.Runs) != 0 {
		t.Errorf("cancelled while queued: %+v", j)
	}
}
