package main

// Event files by Linux: who has one open for writing (/proc), when a file was made (statx), and a link to an open file.

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tbSeesProcs: processes of others can be looked into.
const tbSeesProcs = true

// ticksPerSecond is USER_HZ, 100 wherever Go runs: the unit of start times in /proc.
const ticksPerSecond = 100

// statTB looks at a file; ok is false when it is no regular file, or is not there.
func statTB(path string) (f tbFile, size int64, ok bool) {
	var st unix.Statx_t
	mask := unix.STATX_TYPE | unix.STATX_INO | unix.STATX_SIZE | unix.STATX_MTIME | unix.STATX_BTIME
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_SYNC_AS_STAT, mask, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return f, 0, false
	}
	f.dev, f.ino = unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino
	f.changedMS = st.Mtime.Sec*1000 + int64(st.Mtime.Nsec)/1e6
	if st.Mask&unix.STATX_BTIME != 0 {
		f.bornMS = st.Btime.Sec*1000 + int64(st.Btime.Nsec)/1e6
	}
	return f, int64(st.Size), true
}

// linkTB makes a hard link to a file by its path or by /proc/<pid>/fd/<n>.
func linkTB(via, link string) error {
	return unix.Linkat(unix.AT_FDCWD, via, unix.AT_FDCWD, link, unix.AT_SYMLINK_FOLLOW)
}

// sharedTB reports whether other machines may write the file system too: all that is not known as a local one.
func sharedTB(path string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return true
	}
	switch int64(st.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
		unix.RAMFS_MAGIC, 0x2fc12fc1, 0xca451a4e: // zfs, bcachefs
		return false
	}
	return true
}

// uptimeTicks is how long this machine is up, in the unit of start times.
func uptimeTicks() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return ts.Sec*ticksPerSecond + ts.Nsec*ticksPerSecond/1e9
}

// threadTime is the processor time that this thread has used.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// openTBs calls found for every event file that a process has open for writing, with its path and a path by which it can be opened even when
// it was removed. A process that may not be looked into has none.
func openTBs(pid int, buf []byte, found func(path, via string)) {
	d, err := os.Open(procPath(pid, "fd"))
	if err != nil {
		return
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return
	}
	for _, n := range names {
		via := d.Name() + "/" + n
		k, err := unix.Readlink(via, buf)
		if err != nil || k == len(buf) || !bytes.Contains(buf[:k], []byte(tbMark)) {
			continue
		}
		path := strings.TrimSuffix(string(buf[:k]), " (deleted)")
		if strings.HasPrefix(path, "/") && strings.Contains(filepath.Base(path), tbMark) && opensForWriting(pid, n) {
			found(path, via)
		}
	}
}

func opensForWriting(pid int, fd string) bool {
	b, err := os.ReadFile(procPath(pid, "fdinfo/"+fd))
	if err != nil {
		return false
	}
	_, flags, _ := strings.Cut(string(b), "flags:")
	flags, _, _ = strings.Cut(flags, "\n")
	n, err := strconv.ParseUint(strings.TrimSpace(flags), 8, 64)
	return err == nil && n&unix.O_ACCMODE != unix.O_RDONLY
}

// ownAccount reports whether a process runs under the account of this one, and has a program of its own (a thread of the kernel has none).
func ownAccount(pid int) bool {
	var st unix.Stat_t
	if err := unix.Stat(procPath(pid, ""), &st); err != nil || int(st.Uid) != os.Geteuid() {
		return false
	}
	return len(readArgv(pid)) > 0
}

// fileID is what names a file on this machine while it is there.
func fileID(st os.FileInfo) (dev, ino uint64) {
	if s, is := st.Sys().(*syscall.Stat_t); is {
		return uint64(s.Dev), s.Ino
	}
	return 0, 0
}
