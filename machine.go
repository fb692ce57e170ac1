package main

// Which machine this is: one salted hash that the agent puts into its fingerprint and the CLI compares with the nodes of its server. The
// raw machine-id never leaves the machine. Nothing else about the machine here.

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// machineIDFiles are read in this order; the second one is for systems with D-Bus and without systemd.
var machineIDFiles = [...]string{"/etc/machine-id", "/var/lib/dbus/machine-id"}

// machineID names this machine: hex SHA-256 of a salt and its machine-id, or of its host name where there is none (macOS).
func machineID() (string, error) {
	for _, path := range machineIDFiles {
		if b, err := os.ReadFile(path); err == nil && len(strings.TrimSpace(string(b))) > 0 {
			return hashMachine(string(b)), nil
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this machine: %w", err)
	}
	return hashMachine("hostname:" + host), nil
}

// hashMachine is the salted hash of an identity. The salt keeps it apart from what other programs make of the same machine-id.
func hashMachine(identity string) string {
	sum := sha256.Sum256([]byte("gpuctl machine-id v1\n" + strings.TrimSpace(identity)))
	return hex.EncodeToString(sum[:])
}
