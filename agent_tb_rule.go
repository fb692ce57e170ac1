package main

// Which run an event file belongs to: the decision alone, out of what a look has found. No files, no processes, no clock.
//
// In this order: a process of the run has it open for writing; the pid in its name is or was one of the run; it lies below a --tb folder of
// the run and was changed after the start; it was made below the working_dir after the start, and nothing says that somebody else made it.
// Between two runs that are equally near, the one with the deeper folder; then, after a wait for evidence, the one that started last before
// the file was made: event files are made soon after the start of their run.

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	tbClockMS   = 20              // a file's time is that of the last tick of the kernel's coarse clock: 4 to 10 ms behind
	tbEndMS     = 1000            // the last file of a run may be a moment younger than the end that was noted
	tbCopiedS   = 60              // a name that is so much older than the start is that of a copied file
	tbEvidence  = 3 * time.Second // a file that two runs may have made waits so long for a process that has it open
	tbWhyOpen   = "open"          // written by a process of the run
	tbWhyPid    = "pid"           // named by a process of the run
	tbWhyTB     = "tb"            // below --tb
	tbWhyFolder = "working_dir"   // made below the working_dir
	tbMark      = "tfevents"      // what the name of an event file contains
	tbPrefix    = tbMark + "."    // and what stands before the time in it
	tbDocker    = 12              // digits of a container id, the host name in most containers
)

// tbName is what the name of an event file says: events.out.tfevents.<seconds>.<host>[.<pid>.<n>[.v2]], as TensorFlow, torch and tensorboardX
// write it (event_file_writer.py, events_writer.cc). Zero fields are not told.
type tbName struct {
	madeS int64
	pid   int  // of a process on this host, or on one that is not told
	away  bool // the host is told, and another one
}

// parseTBName reads the base name of an event file; host is the name of this machine. A container id as host says nothing of where.
func parseTBName(base, host string) tbName {
	var n tbName
	_, rest, ok := strings.Cut(base, tbPrefix)
	if !ok {
		return n
	}
	first, tail, _ := strings.Cut(rest, ".")
	s, err := strconv.ParseInt(first, 10, 64)
	if err != nil || len(first) < 9 || len(first) > 11 {
		return n
	}
	n.madeS = s
	parts := strings.Split(tail, ".")
	short, _, _ := strings.Cut(host, ".")
	mine := tail == host || strings.HasPrefix(tail, host+".") || short != "" && parts[0] == short && !tbDigits(short)
	if mine && strings.HasPrefix(tail, host) {
		parts = strings.Split(strings.TrimPrefix(strings.TrimPrefix(tail, host), "."), ".")
	} else if tail != "" {
		parts = parts[1:]
	}
	switch name, _, _ := strings.Cut(tail, "."); {
	case mine || name == "":
	case len(name) == tbDocker && strings.Trim(name, "0123456789abcdef") == "":
		return n
	default:
		n.away = true
		return n
	}
	for i := 0; i+1 < len(parts); i++ {
		if pid, err := strconv.Atoi(parts[i]); err == nil && pid > 0 && tbDigits(parts[i+1][:min(1, len(parts[i+1]))]) {
			n.pid = pid
			break
		}
	}
	return n
}

func tbDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// tbFile is an event file as a look found it. Times are Unix ms.
type tbFile struct {
	path      string // real
	dev, ino  uint64
	bornMS    int64 // 0: the file system does not tell
	changedMS int64
	name      tbName
	shared    bool // on a file system that other machines write too
}

// madeMS is when it was made, as well as that is known.
func (f tbFile) madeMS() int64 {
	switch {
	case f.bornMS > 0:
		return f.bornMS
	case f.name.madeS > 0:
		return f.name.madeS * 1000
	}
	return f.changedMS
}

// madeAfter reports whether it was made after startMS: by the file system's word or, where its clock is another one, by that of the name.
func (f tbFile) madeAfter(startMS int64) bool {
	name, startS := f.name.madeS, startMS/1000
	switch {
	case name > 0 && name < startS-tbCopiedS:
		return false
	case f.bornMS >= startMS-tbClockMS:
		return true
	case name > 0:
		return name > startS || f.bornMS == 0 && name == startS
	}
	return f.bornMS == 0 && f.changedMS >= startMS-tbClockMS
}

// What the process says whose pid stands in a name, when it is one of this machine and of no run.
const (
	tbStrangerNone   = iota // no such process, or one that could not have made the file
	tbStrangerLives         // the same account's, older than the file
	tbStrangerWrites        // it has the file open for writing
)

// tbBond is what ties one run to one file.
type tbBond struct {
	uid            string
	startMS, endMS int64 // endMS 0: it lives
	writes         bool  // a process of the run has it open for writing
	named          bool  // the pid in its name is or was one of the run when the file was made
	tbDir          int   // length of the --tb folder that it lies below, 0 = none
	workDir        int   // likewise of the working_dir
}

func (b tbBond) over(f tbFile) bool { return b.endMS > 0 && f.madeMS() > b.endMS+tbEndMS }

// tbVerdict is whose a file is; uid "" = nobody's.
type tbVerdict struct {
	uid, why string
	wait     bool     // look again: two runs may have made it
	others   []string // runs that may have made it too
	older    []string // runs whose --tb folder it lies below and that started after its last change
}

// decideTB says whose a file is. waited is how long it is known.
func decideTB(f tbFile, bonds []tbBond, stranger int, waited time.Duration) tbVerdict {
	pick := func(why string, depth func(tbBond) int, ok func(tbBond) bool) (v tbVerdict, found bool) {
		var near []tbBond
		for _, b := range bonds {
			if !ok(b) || depth(b) == 0 {
				continue
			}
			if len(near) > 0 && depth(b) != depth(near[0]) {
				if depth(b) < depth(near[0]) {
					continue
				}
				near = near[:0]
			}
			near = append(near, b)
		}
		if len(near) == 0 {
			return v, false
		}
		slices.SortFunc(near, func(a, b tbBond) int { // the likeliest first
			late := func(x tbBond) int64 {
				if x.startMS > f.madeMS()+tbClockMS {
					return 0
				}
				return x.startMS
			}
			return cmp.Or(cmp.Compare(late(b), late(a)), cmp.Compare(a.uid, b.uid))
		})
		v.uid, v.why = near[0].uid, why
		for _, b := range near[1:] {
			v.others = append(v.others, b.uid)
		}
		return v, true
	}
	flat := func(tbBond) int { return 1 }
	if v, ok := pick(tbWhyOpen, flat, func(b tbBond) bool { return b.writes }); ok {
		v.others = nil // the innermost run of two
		return v
	}
	if v, ok := pick(tbWhyPid, flat, func(b tbBond) bool { return b.named }); ok {
		v.others = nil // a pid used twice: the file is younger than both
		return v
	}
	away := f.name.away && f.shared
	var v tbVerdict
	if away || stranger == tbStrangerWrites {
		return v
	}
	v, ok := pick(tbWhyTB, func(b tbBond) int { return b.tbDir }, func(b tbBond) bool {
		return !b.over(f) && (f.changedMS >= b.startMS-tbClockMS || f.madeAfter(b.startMS))
	})
	if !ok && stranger == tbStrangerNone {
		v, ok = pick(tbWhyFolder, func(b tbBond) int { return b.workDir }, func(b tbBond) bool { return !b.over(f) && f.madeAfter(b.startMS) })
	}
	if ok && len(v.others) > 0 && waited < tbEvidence {
		return tbVerdict{wait: true}
	}
	if !ok {
		for _, b := range bonds {
			if b.tbDir > 0 && f.changedMS < b.startMS-tbClockMS {
				v.older = append(v.older, b.uid)
			}
		}
	}
	return v
}
