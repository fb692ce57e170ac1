package main

// One supervisor that is started already and waits to be told which run is its own: starting this program takes 3-5 ms, the larger half of
// the way from submit to the first instruction. It holds nothing, and goes away with the agent (end of file). No run depends on it.

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// spareFolder in place of a folder's path: the first line of stdin tells it (spareOrder).
const spareFolder = "-"

// spareOrder is that line.
type spareOrder struct {
	Dir string `json:"dir"` // absolute
}

// spareSupervisor starts supervisors from self and keeps one ahead. Safe for use by several goroutines.
type spareSupervisor struct {
	self string

	mu     sync.Mutex
	in     io.WriteCloser // of the waiting one; nil = none
	pid    int
	taken  time.Time // when the last one was
	closed bool
}

func (s *spareSupervisor) lastTaken() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// take gives the waiting supervisor to a run, or starts one. As startSupervisor.
func (s *spareSupervisor) take(dir runDir) (grant io.WriteCloser, pid int, err error) {
	s.mu.Lock()
	in, pid := s.in, s.pid
	s.in, s.taken = nil, time.Now()
	s.mu.Unlock()
	if in == nil {
		return startSupervisor(s.self, dir)
	}
	b, err := json.Marshal(spareOrder{Dir: string(dir)})
	if err == nil {
		_, err = in.Write(append(b, '\n'))
	}
	if err == nil {
		return in, pid, nil
	}
	if cerr := in.Close(); cerr != nil && !errors.Is(cerr, os.ErrClosed) {
		return nil, 0, cerr
	}
	return startSupervisor(s.self, dir) // somebody killed it while it waited
}

// refill starts the next one unless one waits.
func (s *spareSupervisor) refill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in != nil || s.closed {
		return nil
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	s.in, s.pid, err = spawnSupervisor(s.self, spareFolder, null)
	return err
}

// close sends the waiting one away, for good.
func (s *spareSupervisor) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.in == nil {
		return nil
	}
	in := s.in
	s.in = nil
	return in.Close()
}

// spawnSupervisor starts `self supervise ARG` in a session of its own; what it says goes to out. The pipe is its stdin.
func spawnSupervisor(self, arg string, out *os.File) (io.WriteCloser, int, error) {
	cmd := exec.Command(self, "supervise", arg)
	cmd.Dir = "/" // it holds no mount
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, markerName+"=") { // this agent may itself have been started inside of a run
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "GOMAXPROCS=1") // of the supervisor alone: fewer threads to start, 0.5 ms of CPU
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, 0, fmt.Errorf("start a supervisor: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("start a supervisor: %w", err), in.Close())
	}
	go func() {
		// How it ended is in the folder; this only keeps it from staying a zombie.
		if _, err := cmd.Process.Wait(); err != nil {
			return
		}
	}()
	return in, cmd.Process.Pid, nil
}

// awaitFolder is the other end: the supervisor waits for its run's folder and speaks to its supervisor.log from then on.
func (s *supervision) awaitFolder(stdin *bufio.Reader) (told bool, err error) {
	line, err := stdin.ReadBytes('\n')
	if err != nil {
		return false, err // the end of file is how it is sent away
	}
	var o spareOrder
	if err := json.Unmarshal(line, &o); err != nil {
		return false, err
	}
	s.dir = runDir(o.Dir)
	log, err := os.OpenFile(s.dir.file(supervisorLog), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	defer log.Close()
	return true, becomeFD(log, 2)
}
