package main

// Who and where this agent is: the fingerprint that tells one machine from another, and the facts about the host that hello carries.

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/user"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// agentHost is what hello says of the host and what jobs inherit of the account.
type agentHost struct {
	name   string // host name
	os     string // "linux 6.18 amd64"
	user   string
	home   string // of the account
	memory int64  // bytes
}

// agentFingerprint is of this machine. The DMI uuid is readable for root only; without it, it stays empty and decides nothing.
func agentFingerprint(devices []wireDevice) (wireFingerprint, error) {
	id, err := machineID()
	if err != nil {
		return wireFingerprint{}, err
	}
	f := wireFingerprint{MachineID: id, GPUs: []string{}}
	if b, err := os.ReadFile("/sys/class/dmi/id/product_uuid"); err == nil {
		if t := strings.ToLower(strings.TrimSpace(string(b))); t != "" {
			sum := sha256.Sum256([]byte("gpuctl dmi v1\n" + t))
			f.DMI = hex.EncodeToString(sum[:])
		}
	}
	for _, d := range devices {
		f.GPUs = append(f.GPUs, d.UUID)
	}
	slices.Sort(f.GPUs)
	return f, nil
}

// lookAtHost never errs: what cannot be known stays empty.
func lookAtHost() agentHost {
	h := agentHost{os: runtime.GOOS + " " + runtime.GOARCH}
	if n, err := os.Hostname(); err == nil {
		h.name = n
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		release, _, _ := strings.Cut(unix.ByteSliceToString(u.Release[:]), "-")
		if p := strings.SplitN(release, ".", 3); len(p) > 2 {
			release = p[0] + "." + p[1]
		}
		h.os = runtime.GOOS + " " + release + " " + runtime.GOARCH
	}
	if me, err := user.Current(); err == nil {
		h.user, h.home = me.Username, me.HomeDir
	}
	return h
}
