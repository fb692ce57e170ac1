package main

// Random names: uids of jobs, runs, nodes, sources, and the secrets of tokens.

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
)

// newUID is 128 random bits as 32 hex digits.
func newUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// newSecret is 256 random bits as 43 characters of base64url.
func newSecret() string {
	var b [32]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// isUID reports whether s has the form of newUID. Folder names are made of uids that come over the wire: nothing else passes.
func isUID(s string) bool {
	if len(s) != 32 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
