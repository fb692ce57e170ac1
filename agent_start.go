package main

// Start: from the command to the supervisor that holds its grant. Order: refuse what cannot start before anything is written; write the
// folder; start the supervisor and ask for the grant at the same time; hand the grant over. Whatever goes wrong before that ends in a
// burned folder. The process itself is the supervisor's.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lowDiskBytes is what must be free where the run folders lie: a start on a full disk fails in the middle, with a torn log.
const lowDiskBytes = 256 << 20

// start handles a start command. It is over when the grant was handed on, or the run is burned or refused.
func (a *agent) start(era context.Context, inc, uid string, p startPayload) error {
	era, giveUp := context.WithCancel(era)
	defer giveUp()
	if !a.openClaim(uid, inc, giveUp) {
		return nil
	}
	dir := a.runFolder(uid)
	granted, err := a.startClaimed(era, inc, dir, p)
	a.closeClaim(uid, granted)
	if granted {
		a.watchBell.ring()
		a.tbBell.ring()
		return err
	}
	// Refused runs have no folder, and need none: the server burned them.
	if _, serr := os.Stat(string(dir)); serr == nil {
		err = errors.Join(err, a.burn(uid, time.Now(), "not granted"))
		a.helloBell.ring()
	}
	return err
}

// startClaimed does the work of start between opening and closing the claim.
func (a *agent) startClaimed(era context.Context, inc string, dir runDir, p startPayload) (granted bool, err error) {
	uid := dir.uid()
	if _, decided, err := dir.fate(); decided || err != nil {
		return false, err // it had its turn
	}
	spec, refuse := a.planRun(dir, p)
	if refuse == nil {
		spec.Incarnation = inc
		if err := writeRunFolder(dir, spec); err != nil {
			refuse = &claimRefuse{Why: refuseLowDisk, Detail: fmt.Sprintf("cannot write the run's folder: %v", err)}
		}
	}
	if refuse != nil {
		a.refuse(era, inc, uid, refuse)
		return false, nil
	}
	// The supervisor starts and the folder becomes durable while the claim travels: the fate allows it, and it halves the way to the first
	// instruction. A power cut on the way ends the run by the new boot, with or without a folder.
	asking, stopAsking := context.WithCancel(era)
	defer stopAsking()
	type started struct {
		grant io.WriteCloser
		err   error
	}
	ready := make(chan started, 1)
	a.work.Go(func() {
		w, _, err := a.spare.take(dir)
		if err != nil {
			stopAsking()
		}
		ready <- started{w, err}
	})
	durable := make(chan error, 1)
	a.work.Go(func() { durable <- syncRunFolder(dir) })
	ans, ok := a.askClaim(asking, inc, uid, nil)
	s, serr := <-ready, <-durable
	if s.err != nil {
		err := fmt.Errorf("start the supervisor: %w", s.err)
		a.refuse(era, inc, uid, &claimRefuse{Why: refuseNoExec, Detail: err.Error()})
		return false, err
	}
	if !ok || serr != nil { // end of file without a grant: the supervisor goes away
		return false, errors.Join(serr, closeGrant(s.grant))
	}
	err = giveGrant(s.grant, runGrantInfo{Run: ans.Run, JobID: ans.JobID, Attempt: ans.Attempt, Grant: ans.Grant, Incarnation: inc, Env: ans.Env})
	if err != nil {
		return false, errors.Join(fmt.Errorf("hand the grant over: %w", err), closeGrant(s.grant))
	}
	a.spareBell.ring()
	a.log.Info("run", keyRun, uid, keyState, "granted", "id", ans.Run, "grant", ans.Grant)
	return true, closeGrant(s.grant)
}

// closeGrant closes the way to the supervisor; it may be closed already by the one who wrote the grant.
func closeGrant(w io.Closer) error {
	if err := w.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// refuse tells the server why this node will not start a run.
func (a *agent) refuse(era context.Context, inc, uid string, r *claimRefuse) {
	a.log.Info("run", keyRun, uid, keyState, "refused", "why", r.Why, "detail", r.Detail)
	a.askClaim(era, inc, uid, r)
}

// planRun turns a start command into spec.json, or says why this node cannot run it.
func (a *agent) planRun(dir runDir, p startPayload) (runSpec, *claimRefuse) {
	if r := checkWorkingDir(p.WorkingDir); r != nil {
		return runSpec{}, r
	}
	if r := checkDisk(a.o.home); r != nil {
		return runSpec{}, r
	}
	env, r := buildJobEnv(jobEnvInput{
		agent: os.Environ(), host: a.host, defaults: a.o.defaultEnv, payload: p, devices: a.devices, byUUID: a.o.visibleByUUID, sdkFile: dir.file(sdkFile),
	})
	if r != nil {
		return runSpec{}, r
	}
	path, r := findProgram(p.Argv, env["PATH"], p.WorkingDir)
	if r != nil {
		return runSpec{}, r
	}
	return runSpec{
		UID: dir.uid(), JobUID: p.JobUID, JobID: p.JobID, Name: p.Name, Argv: p.Argv, Path: path, WorkingDir: p.WorkingDir, Env: envList(env),
		Slots: p.Slots, GraceS: p.GraceS, MaxTimeS: p.MaxTimeS, SignalBeforeS: p.SignalBeforeS,
		Watch: p.Watch, TB: p.TB,
	}, nil
}

// checkDisk refuses when the file system of the home is nearly full. A file system that cannot be asked is not a reason.
func checkDisk(home string) *claimRefuse {
	var st unix.Statfs_t
	if err := unix.Statfs(home, &st); err != nil {
		return nil
	}
	free := uint64(st.Bavail) * uint64(st.Bsize)
	if free >= lowDiskBytes {
		return nil
	}
	return &claimRefuse{Why: refuseLowDisk, Detail: fmt.Sprintf("%d MiB are free on the disk of %s, a start needs %d", free>>20, home, lowDiskBytes>>20)}
}

// writeRunFolder makes the folder with its spec.json, whole for whoever survives this process; syncRunFolder makes it survive a power cut.
// The folder may be there, from a start that was not answered.
func writeRunFolder(dir runDir, spec runSpec) error {
	if err := os.MkdirAll(string(dir), 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	tmp := dir.file(".spec.json.tmp")
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, dir.file("spec.json"))
}

func syncRunFolder(dir runDir) error {
	f, err := os.Open(dir.file("spec.json"))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), syncDir(string(dir)), syncDir(filepath.Dir(string(dir))))
}
