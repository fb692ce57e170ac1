package main

import (
	"strings"
	"testing"
)

// TestReadBar: lines as the programs write them. -1 is not known.
func TestReadBar(t *testing.T) {
	for _, c := range []struct {
		line string
		want barMeter
	}{
		{"100%|██████████| 120/120 [00:12<00:00,  9.85it/s]", barMeter{"", 120, 120, 12_000, 0}},
		{" 45%|████▌     | 54/120 [00:01<00:01, 45.2it/s]", barMeter{"", 54, 120, 1000, 1000}},
		{"train:  12%|█▏        | 120/1000 [00:12<01:30, 9.80it/s, loss=0.312, acc=0.9]", barMeter{"train", 120, 1000, 12_000, 90_000}},
		{"120/1000 [00:12<01:30, 9.80it/s]", barMeter{"", 120, 1000, 12_000, 90_000}},
		{"  5%|▌         | 500/10000 [1:01:23<19:26:17,  7.37s/it]", barMeter{"", 500, 10_000, 3_683_000, 69_977_000}},
		{"  0%|          | 0/1000 [00:00<?, ?it/s]", barMeter{"", 0, 1000, 0, -1}},
		{"120it [00:12,  9.85it/s]", barMeter{"", 120, -1, 12_000, -1}},
		{"pretrain: 120it [00:12,  9.85it/s, loss=0.3]", barMeter{"pretrain", 120, -1, 12_000, -1}},
		{"1.25kit [00:12, 98.5it/s]", barMeter{"", 1250, -1, 12_000, -1}},
		{" 12%|█▏        | 1.20k/10.0k [00:12<01:30, 98.0it/s]", barMeter{"", 1200, 10_000, 12_000, 90_000}},
		{"Epoch 3:  45%|████▌     | 450/1000 [00:12<00:14, 38.40it/s, v_num=0, train_loss=0.21]", barMeter{"Epoch 3", 450, 1000, 12_000, 14_000}},
		{"epoch 3/20:  45%|####      | 54/120 [00:01<00:01, 45.2it/s, loss=0.312]", barMeter{"epoch 3/20", 54, 120, 1000, 1000}},
		{"Batches:  30%|███       | 3/10 [00:03<00:07,  1.02batch/s]", barMeter{"Batches", 3, 10, 3000, 7000}},
		{" 45%|████▌     | 54/120 [00:01<00:01, 45.2it/s]{'loss': 2.31, 'grad_norm': [1, 2]}", barMeter{"", 54, 120, 1000, 1000}},
		{"\x1b[A\x1b[32m 45%|████▌     | 54/120\x1b[0m [00:01<00:01, 45.2it/s]\x1b[K", barMeter{"", 54, 120, 1000, 1000}},
		{" 45%|████▌     | 54/120 [00:01<00:01, 45.2it/s, k=[3]]", barMeter{"", 54, 120, 1000, 1000}},
		{"100%|██████████| 3/3 [00:00<00:00]", barMeter{"", 3, 3, 0, 0}},
		{" 120/1000 [==>...........................] - ETA: 1:30 - loss: 0.4321 - accuracy: 0.8512", barMeter{"", 120, 1000, -1, 90_000}},
		{"  1/1000 [..............................] - ETA: 3:04:05 - loss: 2.3", barMeter{"", 1, 1000, -1, 11_045_000}},
		{"1000/1000 [==============================] - 12s 12ms/step - loss: 0.4 - val_loss: 0.5", barMeter{"", 1000, 1000, 12_000, 0}},
		{"\x1b[1m 120/1000\x1b[0m \x1b[32m━━\x1b[0m\x1b[37m━━━━━━━━━━━━━━━━━━\x1b[0m \x1b[1m45s\x1b[0m 52ms/step - accuracy: 0.85 - loss: 0.43", barMeter{"", 120, 1000, -1, 45_000}},
		{"1000/1000 ━━━━━━━━━━━━━━━━━━━━ 52s 52ms/step - accuracy: 0.85", barMeter{"", 1000, 1000, 52_000, 0}},
		{"    120/Unknown 12s 102ms/step - loss: 0.4", barMeter{"", 120, -1, -1, -1}},
	} {
		if got, ok := readBar(c.line); !ok || got != c.want {
			t.Errorf("%q:\n%+v, want\n%+v (%t)", c.line, got, c.want, ok)
		}
	}
	for _, line := range []string{
		"",
		" 12%|█▏        | 1.20M/10.0M [00:01<00:05, 2.10MB/s]",
		"model.safetensors: 100%|██████████| 440M/440M [00:04<00:00, 101MB/s]",
		"  0%|          | 0.00/440M [00:00<?, ?B/s]",
		" 12%|█▏        | 120/1000 [00:12<01:30, 9.8kiB/s]",
		"     ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 12.3/45.6 MB 10.2 MB/s eta 0:00:04",
		"Map:  45%|████▌     | 540/1200 [00:01<00:01, 450.12 examples/s]",
		"Generating train split: 540 examples [00:01, 450.12 examples/s]",
		"Resolving data files: 100%|██████████| 25/25 [00:00<00:00, 98.1files/s]",
		"epoch 3/20 train_loss=0.1 lr=0.01",
		"loss 120/1000 acc 0.5",
		"see [3] and [4/5]",
		"120/1000",
		"12/24/2024 [info] started",
		"2024/12 [10:30, what]",
		"[12:30:45] INFO 3/4 done",
		"30/60 [00:12<01:3x, 1it/s]",
		"1/2 [=x=]",
		"-5/10 [00:01<00:01, 1it/s]",
		"0/0 [00:01<00:01, 1it/s]",
		"99999999999999999999/999999999999999999999 [00:01<00:01, 1it/s]",
		strings.Repeat("[", 10_000),
		"\x1b[", "\x1b", "\x1b[31", "[00:01<",
	} {
		if got, ok := readBar(line); ok {
			t.Errorf("%.80q is no count of steps: %+v", line, got)
		}
	}
}

func FuzzReadBar(f *testing.F) {
	f.Add(" 45%|████▌     | 54/120 [00:01<00:01, 45.2it/s]")
	f.Add("120/1000 ━━━━ 1:30 102ms/step")
	f.Fuzz(func(t *testing.T, line string) {
		if m, ok := readBar(line); ok && (m.step < 0 || m.total < -1 || m.total == 0 || m.spentMS < -1 || m.leftMS < -1) {
			t.Errorf("%q: %+v", line, m)
		}
		p, ok := progressOfLines([]string{line, "Epoch 3/20", line}, false)
		if ok && (p.step < 0 || p.total < -1 || p.leftMS < -1) {
			t.Errorf("%q: %+v", line, p)
		}
	})
}
