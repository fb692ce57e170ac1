package main

// Version of this build.

import "runtime/debug"

// release is set by the release build (-ldflags "-X main.release=v0.1.0").
var release = "v0.1.0-dev"

// buildVersion is the release with the commit when the build knows it.
func buildVersion() string {
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return release + "+" + s.Value[:12]
			}
		}
	}
	return release
}
