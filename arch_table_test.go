package main

// The table file -> side: the one place that says which side of the program a Go file is on and what a side may name. It feeds the
// side check, the size check and the map in ARCHITECTURE.md (arch_test.go). No checks here.

import "strings"

// Sides.
const (
	sideClient = "client" // CLI: speaks REST through client.go, knows neither server nor agent
	sideRoot   = "root"   // commands that build a server, an agent or a supervisor out of flags
	sideServer = "server" // owns the database
	sideAgent  = "agent"  // owns the machine
	sideLeaf   = "leaf"   // pure functions: no I/O, no clock
	sideShared = "shared" // what crosses between the others, and small tools
)

// archSides is the order of the map, with what each side is and which sides it may name besides itself.
var archSides = []struct {
	side  string
	may   []string
	about string
}{
	{sideClient, []string{sideShared, sideRoot}, "the command line; thin over REST"},
	{sideRoot, []string{sideShared, sideClient, sideServer, sideAgent}, "commands that build a side; nobody else names both"},
	{sideServer, []string{sideShared, sideLeaf}, "database, scheduler, HTTP"},
	{sideAgent, []string{sideShared, sideLeaf}, "run folders, processes, sources"},
	{sideLeaf, []string{sideShared}, "pure functions: no I/O, no clock; of the shared files only wire.go and model.go"},
	{sideShared, nil, "what crosses between the sides, and small tools"},
}

// archFiles names files that their family does not place. It wins over archFamilies.
var archFiles = map[string]string{
	"cmd_server.go":    sideRoot,
	"cmd_agent.go":     sideRoot,
	"cmd_up.go":        sideRoot,
	"cmd_supervise.go": sideRoot,
	"rundir.go":        sideAgent,
	"contacts.go":      sideServer,
	"log_relay.go":     sideServer,
	"ref.go":           sideServer,
	"machine.go":       sideShared,
}

// archFamilies places a file by the first word of its name: store.go, store_conn.go and store_jobs.go are all "store".
var archFamilies = map[string]string{
	// client
	"main": sideClient, "cmd": sideClient, "print": sideClient,
	// server
	"server": sideServer, "store": sideServer, "ingest": sideServer, "sched": sideServer, "http": sideServer, "hub": sideServer,
	"incarnation": sideServer, "events": sideServer,
	// agent
	"agent": sideAgent, "supervise": sideAgent, "proc": sideAgent, "spool": sideAgent, "gpu": sideAgent, "source": sideAgent,
	"host": sideAgent,
	// leaf
	"logfold": sideLeaf, "tb": sideLeaf, "series": sideLeaf, "semantic": sideLeaf,
	// shared
	"api": sideShared, "atomicfile": sideShared, "backoff": sideShared, "client": sideShared, "config": sideShared, "ids": sideShared,
	"logging": sideShared, "loop": sideShared, "model": sideShared, "problem": sideShared, "regexps": sideShared, "units": sideShared, "version": sideShared,
	"wire": sideShared,
}

// leafMayName are the shared files whose names a leaf may use.
var leafMayName = map[string]bool{"wire.go": true, "model.go": true}

// leafImports are the standard packages that a leaf may import: none of them touches the outside or the clock.
var leafImports = map[string]bool{
	"bytes": true, "cmp": true, "encoding/base64": true, "encoding/binary": true, "encoding/hex": true, "encoding/json": true,
	"errors": true, "fmt": true, "io": true, "hash": true, "hash/crc32": true, "iter": true, "maps": true, "math": true, "math/bits": true,
	"slices": true, "sort": true, "strconv": true, "strings": true, "unicode": true, "unicode/utf8": true, "crypto/sha256": true,
	"compress/flate": true,
}

// archSide finds the side of a file name, "" when no rule places it.
func archSide(name string) string {
	if s, ok := archFiles[name]; ok {
		return s
	}
	family, _, _ := strings.Cut(strings.TrimSuffix(name, ".go"), "_")
	return archFamilies[family]
}
