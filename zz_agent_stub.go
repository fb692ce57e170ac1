package main

// Stand-ins for the supervisor and the sources, so that the agent's core builds and is tested alone. Dropped at the merge.

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func machineID() (string, error) {
	sum := sha256.Sum256([]byte("gpuctl machine-id v1\nstub"))
	return hex.EncodeToString(sum[:]), nil
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func startSupervisor(self string, dir runDir) (io.WriteCloser, int, error) {
	c := exec.Command(self, "supervise", string(dir))
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.Stderr = os.Stderr
	w, err := c.StdinPipe()
	if err != nil {
		return nil, 0, err
	}
	if err := c.Start(); err != nil {
		return nil, 0, err
	}
	go func() {
		if err := c.Wait(); err != nil {
			return
		}
	}()
	return w, c.Process.Pid, nil
}

func giveGrant(w io.WriteCloser, g runGrantInfo) error {
	return errors.Join(json.NewEncoder(w).Encode(g), w.Close())
}

// stubSupervise is the life of a supervisor: grant, fate, fork, wait, exit.json.
func stubSupervise(path string, stdin io.Reader) int {
	dir := runDir(path)
	lock, err := lockFile(dir.lockPath())
	for i := 0; err != nil && i < 50; i++ {
		time.Sleep(10 * time.Millisecond)
		lock, err = lockFile(dir.lockPath())
	}
	if err != nil {
		return 1
	}
	defer lock.Close()
	line, err := bufio.NewReader(stdin).ReadBytes('\n')
	if err != nil {
		return 0
	}
	var g runGrantInfo
	if json.Unmarshal(line, &g) != nil {
		return 1
	}
	if f, err := dir.decide(runFate{Fate: fateStart, AtMS: time.Now().UnixMilli(), Grant: &g}); err != nil || f.Fate != fateStart {
		return 1
	}
	spec, _, _ := dir.spec()
	out, err := os.OpenFile(dir.logPath(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	c := &exec.Cmd{Path: spec.Path, Args: spec.Argv, Dir: spec.WorkingDir, Env: spec.Env, Stdout: out, Stderr: out}
	start := time.Now()
	if err := c.Start(); err != nil {
		writeAtomicJSON(dir.file("exit.json"), runExit{exitInfo: exitInfo{Code: -1, Reason: reasonStartFailed, Detail: err.Error()}})
		return 0
	}
	writeAtomicJSON(dir.file("pid.json"), runPid{Pid: c.Process.Pid, BootID: bootID(), SupervisorPid: os.Getpid(), StartedMS: start.UnixMilli()})
	c.Wait()
	e := runExit{exitInfo: exitInfo{Code: c.ProcessState.ExitCode(), StartedMS: start.UnixMilli(), EndedMS: time.Now().UnixMilli(), LogSize: dir.logSize()}}
	if ws := c.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		e.Code, e.Signal = -1, int(ws.Signal())
		e.Reason = reasonSignal
		if s, ok, _ := dir.stop(); ok {
			e.Reason = s.Reason
		}
	}
	writeOnce(dir.file("exit.json"), mustJSON(e))
	return 0
}

func mustJSON(v any) []byte { b, _ := json.Marshal(v); return b }

func markedRuns() (map[string][]int, error) {
	out := map[string][]int{}
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for _, kv := range strings.Split(string(b), "\x00") {
			if uid, ok := strings.CutPrefix(kv, "GPUCTL_RUN_UID="); ok && isUID(uid) {
				pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
				out[uid] = append(out[uid], pid)
			}
		}
	}
	return out, nil
}

func treeAlive(dir runDir) (bool, string, error) {
	if held, err := dir.supervised(); err != nil || held {
		return held, "supervisor", err
	}
	m, err := markedRuns()
	return len(m[dir.uid()]) > 0, "marker", err
}

func signalTree(dir runDir, sig int) error {
	m, err := markedRuns()
	for _, pid := range m[dir.uid()] {
		err = errors.Join(err, syscall.Kill(pid, syscall.Signal(sig)))
	}
	return err
}

func requestStop(dir runDir, s runStop) error {
	return errors.Join(writeAtomicJSON(dir.file("stop.json"), s), signalTree(dir, 15))
}

func concludeRun(dir runDir, boot string) (runExit, error) {
	e := runExit{exitInfo: exitInfo{Code: -1, Reason: reasonSupervisorLost, LogSize: dir.logSize()}}
	if p, ok, _ := dir.pid(); ok && p.BootID != boot {
		e.Reason = reasonNodeReboot
	}
	return e, writeOnce(dir.file("exit.json"), mustJSON(e))
}

type batchSender func(ctx context.Context, body []byte) (batchAnswer, error)

type retryAfter struct {
	after time.Duration
	err   error
}

func (e *retryAfter) Error() string { return e.err.Error() }
func (e *retryAfter) Unwrap() error { return e.err }

type uploader struct {
	send batchSender
	on   func(string)

	mu    sync.Mutex
	logs  map[string]*stubLog
	facts []factItem
}

type stubLog struct {
	known, ended bool
	size         int64
}

func newUploader(home string, send batchSender, log *slog.Logger, onIncarnation func(string)) (*uploader, error) {
	return &uploader{send: send, on: onIncarnation, logs: map[string]*stubLog{}}, nil
}

func (u *uploader) addLog(dir runDir) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.logs[dir.uid()] = &stubLog{}
}

func (u *uploader) finishLog(uid string, size int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l := u.logs[uid]; l != nil {
		l.ended, l.size = true, size
	}
}

func (u *uploader) dropLog(uid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.logs, uid)
}

func (u *uploader) addFact(f factItem) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.facts = append(u.facts, f)
	return nil
}

func (u *uploader) addNodeSample(nodeSample) {}

func (u *uploader) unknown() (out []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for uid, l := range u.logs {
		if !l.known {
			out = append(out, sourceName(kindLog, uid))
		}
	}
	return out
}

func (u *uploader) sources() (out []helloSource) {
	for _, s := range u.unknown() {
		out = append(out, helloSource{Src: s})
	}
	return out
}

func (u *uploader) align(cursors map[string]wireCursor) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for uid, l := range u.logs {
		if _, ok := cursors[sourceName(kindLog, uid)]; ok {
			l.known = true
		}
	}
}

func (u *uploader) logDone(uid string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := u.logs[uid]
	return l != nil && l.known && l.ended
}

func (u *uploader) unsent() int64 { return 0 }

func (u *uploader) run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

type hostWatch struct {
	home string
	add  func(nodeSample)
}

func (h *hostWatch) step(_ context.Context, now time.Time) (time.Duration, error) {
	h.add(h.sample(now))
	return 10 * time.Second, nil
}

func (*hostWatch) sample(now time.Time) nodeSample {
	return nodeSample{AtMS: now.UnixMilli(), MemoryTotalBytes: 1 << 30}
}
