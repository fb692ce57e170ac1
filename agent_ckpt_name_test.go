package main

import (
	"slices"
	"testing"
)

func TestCkptNameStep(t *testing.T) {
	const none = -1
	for name, want := range map[string]int64{
		"checkpoint-500": 500, "step_1000": 1000, "epoch=3-step=200": 200, "epoch=3-step=200.ckpt": 200, "epoch=3-step=200-v1.ckpt": 200,
		"global_step1000": 1000, "model_0007.pt": 7, "iter_0000100": 100, "ckpt_5.pth": 5, "ckpt5.pth": 5, "rl_model_10000_steps.zip": 10000,
		"model.ckpt-1500": 1500, "ckpt-12.index": 12, "1000": 1000, "checkpoint_000010": 10, "model-step-20240131.pt": 20240131, "resnet50_100.pt": 100,
		"checkpoint-500.pt": 500, "step=7-val_loss=0.25.ckpt": 7, "step=1200-loss=1.ckpt": 1200, "model_epoch_3_step_400.bin": 400, "checkpoint-0": 0,
		// no step
		"epoch=3.ckpt": none, "epoch-001.json": none, "model_epoch_5.pt": none, "epoch_3_loss_0.25.pt": none, "epoch=03-val_loss=0.35.ckpt": none,
		"model_20240131.pt": none, "model_2024-01-31.pt": none, "model_20240131_123005.pt": none, "ckpt-20240131-1230.pt": none, "model_1706700000.pt": none,
		"model_1706700000123.pt": none, "model_a1b2c3d4.pt": none, "model_9f86d081.pt": none, "best.pt": none, "last-v1.ckpt": none, "resnet50.pt": none,
		"model_seed_3.pt": none, "fold-2.pt": none, "model-00001-of-00003.safetensors": none, "100k.pt": none, "step_100.5.pt": none, "": none,
		"model_99999999999999999999.pt": none, "step_99999999999999999999.pt": none,
	} {
		got, ok := ckptNameStep(name)
		if !ok {
			got = none
		}
		if got != want {
			t.Errorf("%q: step %d, want %d", name, got, want)
		}
	}
}

func TestCkptNames(t *testing.T) {
	for name, want := range map[string]bool{
		"model.pt": true, "x.pth": true, "a.ckpt": true, "weights.h5": true, "x.npz": true, "x.gguf": true, "epoch-001.json": true, "best.json": true,
		"pytorch_model.bin": true, "policy.pkl": true, "model_3.npy": true, "ckpt-100": true, "model.ckpt-100": true, "rl_model_10000_steps.zip": true,
		"ein name\n.pt": true, "bad\xff.pt": true, "MODEL_5.PT": true, "checkpoint-7.msgpack": true,
		"train.log": false, "events.out.tfevents.1.model.2.0": false, ".model.pt": false, "model.pt.tmp": false, "model.pt.tmp.123": false, "tmp-model.pt": false,
		"model.tmp.pt": false, "model.pt.tmpk2j3h4k5": false, "tmpab12cd34.pt": false, "model.pt.partial": false, "model.pt.part": false, "model.pt.lock": false,
		"config.json": false, "metrics.json": false, "trainer_state.json": false, "optimizer.pt": false, "rng_state_0.pth": false, "training_args.bin": false,
		"model.safetensors.index.json": false, "step_100.png": false, "best_metrics.json": false, "step_100_results.json": false, "latest": false, "model": false,
		"features.npy": false, "step_100.yaml": false, "README.md": false, "model.pt~": false, "model_temperature.pt": true, "final.txt": false, "": false,
	} {
		if got := ckptFileName(name); got != want {
			t.Errorf("file %q: %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]bool{
		"checkpoint-500": true, "step_1000": true, "epoch=3-step=200.ckpt": true, "global_step1000": true, "ckpt_5": true, "iter_0000100": true, "x.ckpt": true,
		"checkpoints": false, "version_0": false, "tmp-checkpoint-500": false, "checkpoint-500.tmp": false, "checkpoint-500.tmp-1": false, "run_3": false,
		"model_1": false, "100.orbax-checkpoint-tmp-123": false, ".checkpoint-5": false, "steps": false, "footsteps3": false, "best": false,
	} {
		if got := ckptFolderName(name); got != want {
			t.Errorf("folder %q: %v, want %v", name, got, want)
		}
	}
}

func TestCkptNatural(t *testing.T) {
	names := []string{"epoch-100.pt", "epoch-10.pt", "epoch-2.pt", "epoch-02.pt", "a", "epoch-2", ""}
	slices.SortStableFunc(names, ckptNatural)
	want := []string{"", "a", "epoch-2", "epoch-2.pt", "epoch-02.pt", "epoch-10.pt", "epoch-100.pt"}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}
