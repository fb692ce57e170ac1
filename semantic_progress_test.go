package main

import (
	"strings"
	"testing"
)

func TestProgressOfLines(t *testing.T) {
	for _, c := range []struct {
		name, lines string
		want        logProgress // line is not looked at
	}{
		{"one bar", " 12%|█▏        | 120/1000 [00:12<01:30, 9.80it/s]", logProgress{step: 120, total: 1000, leftMS: 90_000}},
		{"the newest drawing", "  1%|▏| 10/1000 [00:01<02:00, 9.80it/s]\n{'loss': 2}\n 12%|█▏| 120/1000 [00:12<01:30, 9.80it/s]", logProgress{step: 120, total: 1000, leftMS: 90_000}},
		{"without a total", "120it [00:12,  9.85it/s]", logProgress{step: 120, total: -1, leftMS: -1}},
		{"nested", "epochs:  30%|███       | 3/10 [10:00<23:20, 200.00s/it]\nbatches:  45%|████▌     | 54/120 [01:30<01:50, 0.6it/s]", logProgress{step: 3, total: 10, leftMS: 1_400_000}},
		{
			"trainer with an evaluation inside", "  5%|▌         | 500/10000 [1:23<26:17,  6.02it/s]\n{'loss': 2.31}\n 45%|████▌     | 54/120 [00:03<00:04, 15.0it/s]",
			logProgress{step: 500, total: 10_000, leftMS: 1_577_000},
		},
		{"epochs in the label", "epoch 3/20:  50%|#####     | 60/120 [00:10<00:10, 6.0it/s, loss=0.312]", logProgress{step: 300, total: 2400, leftMS: 10_000 + 17*20_000}},
		{"last epoch", "Epoch [20/20]:  50%|#####     | 60/120 [00:10<00:10, 6.0it/s]", logProgress{step: 2340, total: 2400, leftMS: 10_000}},
		{"an epoch ends", "epoch 3/20: 100%|##########| 120/120 [00:20<00:00, 6.0it/s]\nepoch 3/20 train_loss=0.1", logProgress{step: 360, total: 2400, leftMS: 17 * 20_000}},
		{"keras", "Epoch 3/5\n 250/1000 [=====>........................] - ETA: 1:30 - loss: 0.4", logProgress{step: 2250, total: 5000, leftMS: 90_000 + 2*120_000}},
		{"keras 3", "Epoch 1/5\n1000/1000 ━━━━━━━━━━━━━━━━━━━━ 52s 52ms/step - loss: 0.4\nEpoch 2/5\n\x1b[1m 500/1000\x1b[0m ━━━━━━━━━━━━━━━━━━━━ 26s 52ms/step", logProgress{step: 1500, total: 5000, leftMS: 26_000 + 3*52_000}},
		{"lightning", "Epoch 3:  45%|████▌     | 450/1000 [00:12<00:14, 38.40it/s, v_num=0]", logProgress{step: 450, total: 1000, leftMS: -1, partly: true, part: "Epoch 3"}},
		{
			"validation of lightning", "Epoch 3: 100%|██████████| 1000/1000 [00:26<00:00, 38.40it/s]\nValidation DataLoader 0:  45%|████▌     | 9/20 [00:01<00:01, 9it/s]",
			logProgress{step: 1000, total: 1000, leftMS: -1, partly: true, part: "Epoch 3"},
		},
		{"a bar again and again", "100%|██| 120/120 [00:20<00:00, 6it/s]\nloss 0.3\n100%|██| 120/120 [00:21<00:00, 6it/s]\n 50%|█ | 60/120 [00:10<00:10, 6it/s]", logProgress{step: 60, total: 120, leftMS: -1, partly: true}},
		{"a summary line is no heading", "epoch 2/20 loss=0.3\n 50%|█ | 60/120 [00:10<00:10, 6it/s]", logProgress{step: 60, total: 120, leftMS: 10_000}},
		{"only an evaluation", "Evaluating:  45%|████▌     | 54/120 [00:03<00:04, 15.0it/s]", logProgress{step: 54, total: 120, leftMS: 4000}},
		{"after a download", "model: 100%|██| 440M/440M [00:04<00:00, 101MB/s]\n 12%|█▏| 120/1000 [00:12<01:30, 9.80it/s]", logProgress{step: 120, total: 1000, leftMS: 90_000}},
		{"one that was left behind", "warm-up:  10%|█ | 10/100 [00:01<00:09, 10it/s]\n 12%|█▏| 120/1000 [00:12<01:30, 9.80it/s]", logProgress{step: 120, total: 1000, leftMS: 90_000}},
		{"ended", "100%|██████████| 1000/1000 [01:42<00:00, 9.8it/s]\n100%|██████████| 1000/1000 [01:42<00:00, 9.8it/s]", logProgress{step: 1000, total: 1000, leftMS: -1, partly: true}},
	} {
		got, ok := progressOfLines(strings.Split(c.lines, "\n"), false)
		got.line = 0
		if !ok || got != c.want {
			t.Errorf("%s: %+v (%t), want %+v", c.name, got, ok, c.want)
		}
	}
	for _, lines := range []string{
		"", "a\nb", "Map:  45%|████▌     | 540/1200 [00:01<00:01, 450.12 it/s]", "Loading checkpoint shards:  50%|█████     | 2/4 [00:03<00:03,  1.52s/it]",
		"Fetching 5 files:  40%|████      | 2/5 [00:01<00:01,  1.9it/s]", "model: 12%|█▏| 1.20M/10.0M [00:01<00:05, 2.10MB/s]", "Epoch 3/20",
	} {
		if got, ok := progressOfLines(strings.Split(lines, "\n"), false); ok {
			t.Errorf("%q is no progress: %+v", lines, got)
		}
	}
}

func TestTimeLeft(t *testing.T) {
	every := func(fromStep, toStep, by, fromMS, ms int64) []stepAt {
		var points []stepAt
		for s, at := fromStep, fromMS; s <= toStep; s, at = s+by, at+ms {
			points = append(points, stepAt{s, at})
		}
		return points
	}
	steady := every(0, 100, 10, 0, 1000) // 10 steps a second, newest at 10 s
	for _, c := range []struct {
		name   string
		points []stepAt
		total  int64
		now    int64
		want   int64
	}{
		{"at a point", steady, 200, 10_000, 10_000},
		{"between points", steady, 200, 10_600, 9400},
		{"clock behind", steady, 200, 9000, 10_000},
		{"stalled for twice the time", steady, 200, 10_000 + 11_000, 20_000 - 1000},
		{"stalled for a day", steady, 200, 10_000 + 86_400_000, 86_409_000 - 1000},
		{"resumed: from its own points", every(500, 600, 10, 5000, 2000), 1000, 25_000, 80_000},
		{"went back", append(every(900, 1000, 10, 0, 10), steady...), 200, 10_000, 10_000},
		{"there", steady, 100, 10_000, 0},
		{"beyond", steady, 50, 10_000, 0},
		{"one point", steady[:1], 100, 10_000, -1},
		{"none", nil, 100, 10_000, -1},
		{"the same step", []stepAt{{5, 0}, {5, 1000}}, 100, 1000, -1},
		{"at once", []stepAt{{5, 1000}, {6, 1000}}, 100, 1000, -1},
		{"for ever", []stepAt{{0, 0}, {1, 1e15}}, 1e18, 1e15, -1},
		{"a pause is not a stall", append(every(0, 50, 10, 0, 1000), every(60, 100, 10, 35_000, 1000)...), 200, 39_000 + 20_000, 39_000 - 20_000},
	} {
		if got := timeLeft(c.points, c.total, c.now); got != c.want {
			t.Errorf("%s: %d ms, want %d", c.name, got, c.want)
		}
	}
	last := int64(-1)
	for age := int64(1000); age < 1_000_000; age += 1000 {
		left := timeLeft(steady, 200, 10_000+age)
		if left < last || left < 0 {
			t.Fatalf("stalled for %d ms: %d ms left after %d", age, left, last)
		}
		last = left
	}
}
