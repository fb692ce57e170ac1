package main

// Everything that crosses between agent and server, with its limits. No I/O, no clock: structs and their validation only.
// The protocol is DESIGN section 5: every source is a file, the cursor is a byte offset in it.

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Limits of the wire. Sizes in bytes.
const (
	batchTargetBytes     = 256 << 10 // an agent fills a batch with whole lines up to this, but always at least one line
	batchLineMaxBytes    = 512 << 10 // one ndjson line, raw; worst JSON escaping of a 32 KiB read is 192 KiB
	batchMaxBytes        = 1 << 20   // request body as sent (compressed or not)
	batchMaxInflated     = 8 << 20   // after gunzip; counted, so that a bomb is refused and not truncated
	readChunkBytes       = 32 << 10  // one read of a source makes one wire line
	printBytes           = 1 << 10   // how much of head and tail a fingerprint covers
	factMaxBytes         = 64 << 10  // one fact, JSON
	logPieceMaxBytes     = 256 << 10 // one piece of a log read through to the agent
	logRingLines         = 2000      // lines a run keeps on the server
	logHeadLines         = 200       // first lines of a run, kept beside the ring
	logLineBytes         = 8 << 10   // a longer line is split, marked continued
	skipBacklogBytes     = 4 << 20   // a log backlog beyond this, and beyond logRingLines lines, is skipped with a count
	pollWaitMaxSeconds   = 25        // longest wait of any request; longer waits are loops on the client's side
	helloMaxBytes        = 4 << 20
	agentHelloEverySec   = 60
	commandAnswerMaxByte = 1 << 20
)

// Header names. A strict proxy blanks Authorization, so the token travels twice.
const (
	headerToken       = "X-GPUCTL-Token"
	headerIdempotency = "Idempotency-Key"
	headerRequestID   = "X-Request-Id"
	ndjsonType        = "application/x-ndjson"
	problemType       = "application/problem+json"
)

// wireCursor is all that anybody remembers of a source. It is stored by the server in the transaction that stores the rows it
// stands for. Off is a byte offset in the file of generation Gen; Print is a fingerprint of what lies before Off, opaque to
// the server ("" at offset 0); N counts lines or records so far over all generations, skipped ones included; Done is set by
// the line that carried end.
type wireCursor struct {
	Gen   int64  `json:"gen"`
	Off   int64  `json:"off"`
	Print string `json:"print"`
	N     int64  `json:"n"`
	Done  bool   `json:"done,omitempty"`
}

// Kinds of a batch line.
const (
	kindLog    = "log"    // Items: []logItem
	kindFacts  = "facts"  // Items: []factItem
	kindNode   = "node"   // Items: []nodeSample
	kindPoints = "points" // Items: []pointColumns, of a tb or sdk source
	kindSkip   = "skip"   // N lines or records were left out, Why says why
	kindLive   = "live"   // Items: []logItem of one, the unfinished last line; shown, never stored, never acked; From, To, Prev, Print unset
)

// Kinds of sources whose lines are points.
const (
	sourceTB  = "tb"
	sourceSDK = "sdk"
)

// batchLine is one ndjson line of POST /api/v1/agent/batch: the bytes [From, To) of generation Gen of source Src, decoded.
// It applies only when (Gen, From, Prev) is the stored cursor, or, with Reset, when From is 0, Gen is one more than the cursor's
// and (Old, Prev) name exactly the cursor it replaces. To >= From always.
type batchLine struct {
	Src   string          `json:"src"`
	Gen   int64           `json:"gen"`
	From  int64           `json:"from"`
	To    int64           `json:"to"`
	Prev  string          `json:"prev"`
	Print string          `json:"print"`
	Kind  string          `json:"kind"`
	Items json.RawMessage `json:"items,omitempty"`
	N     int64           `json:"n,omitempty"`
	Why   string          `json:"why,omitempty"`
	End   bool            `json:"end,omitempty"`
	Reset bool            `json:"reset,omitempty"`
	Old   int64           `json:"old,omitempty"`
}

// logItem is one line of a log as a terminal would show it. More: the line goes on in the next item (cut at logLineBytes).
// AtMS is the agent's clock when the line was read, Unix ms; 0 when it is not known (read long after it was written).
type logItem struct {
	Text string `json:"t"`
	More bool   `json:"m,omitempty"`
	AtMS int64  `json:"at,omitempty"`
}

// factItem is something the agent knows and the server shall keep. Key is a natural key: the same fact told twice is one.
// Kinds: "env" (data: environment snapshot of run RunUID), "event" (data: wireEvent), "checkpoint" (data: wireCheckpoint) and
// "checkpoint_gone" (data: wireCheckpointGone). Rej: the record could not be read, why.
type factItem struct {
	Key    string          `json:"key"`
	Kind   string          `json:"kind"`
	RunUID string          `json:"run_uid,omitempty"`
	AtMS   int64           `json:"at_ms"`
	Data   json.RawMessage `json:"data,omitempty"`
	Rej    string          `json:"r,omitempty"`
}

// wireEvent is the data of a factItem of kind "event".
type wireEvent struct {
	Type     string          `json:"type"`
	Severity string          `json:"severity"`
	Message  string          `json:"message"`
	Data     json.RawMessage `json:"data,omitempty"`
}

// nodeSample is one look at the host: every 10 s. Ratios are per mille (0..1000), -1 where unknown.
type nodeSample struct {
	AtMS             int64  `json:"at_ms"`
	CPUPermille      int64  `json:"cpu"`
	Load1Milli       int64  `json:"load1"`
	MemoryUsedBytes  int64  `json:"mem_used"`
	MemoryTotalBytes int64  `json:"mem_total"`
	SwapUsedBytes    int64  `json:"swap_used"`
	DiskFreeBytes    int64  `json:"disk_free"`  // of the file system that holds GPUCTL_HOME
	DiskTotalBytes   int64  `json:"disk_total"` // likewise
	Rej              string `json:"r,omitempty"`
}

// batchAnswer answers a batch: the cursor of every source named in it, applied or refused. Refused and Why are for people.
type batchAnswer struct {
	Gpuctl      int                   `json:"gpuctl"` // always 1: an answer without it is no answer (a proxy's page)
	Acks        map[string]wireCursor `json:"acks"`
	Refused     map[string]string     `json:"refused,omitempty"`
	Incarnation string                `json:"incarnation"`
}

// pointColumns are points of one series in order of arrival: either the plain columns, all of one length, or Packed, which holds
// the same columns in the chunk coding of series.go. AtMS is the writer's clock, Unix ms. Folder is that of the event file below the
// working_dir or the --tb folder with "/" between, "" = that folder itself, absolute elsewhere. An item with Rej alone is a record
// that could not be read.
type pointColumns struct {
	Name   string      `json:"name,omitempty"`
	Folder string      `json:"folder,omitempty"`
	Steps  []int64     `json:"steps,omitempty"`
	AtMS   []int64     `json:"at_ms,omitempty"`
	Values []jsonFloat `json:"values,omitempty"`
	Packed []byte      `json:"packed,omitempty"` // base64 in JSON
	Rej    string      `json:"r,omitempty"`
}

// Limits of points. Names longer than nameMaxBytes are rejects.
const (
	nameMaxBytes   = 1 << 10
	packedMaxCount = 1 << 16 // points in one Packed
)

// wireCheckpoint is the data of a factItem of kind "checkpoint": a file or folder that lay still long enough, or lies where nobody writes
// any more. Key of the fact: ckpt-<run uid>-<SHA-1 of path, 16 hex>-<fingerprint>. AtMS of facts about one run only ever grows: an older one
// is one told again.
type wireCheckpoint struct {
	Path        string `json:"path"` // absolute; bytes that are no UTF-8 are written \xNN
	Kind        string `json:"kind"` // file | folder
	Step        *int64 `json:"step,omitempty"`
	StepFrom    string `json:"step_from,omitempty"` // name | trainer_state | content (a JSON checkpoint's own "step"), with Step
	TotalSteps  *int64 `json:"total_steps,omitempty"`
	SizeBytes   int64  `json:"size_bytes"`
	MtimeMS     int64  `json:"mtime_ms"`
	Fingerprint string `json:"fingerprint"`
	Incomplete  string `json:"incomplete,omitempty"` // why it is not whole, "" = it is
	Grew        bool   `json:"grew,omitempty"`       // a folder to which files came; those told before are unchanged: still the same checkpoint
}

// wireCheckpointGone is the data of a factItem of kind "checkpoint_gone": what was registered lies there no more.
type wireCheckpointGone struct {
	Path        string `json:"path"`
	Fingerprint string `json:"fingerprint"`
}

// jsonFloat is a float64 that JSON can carry: NaN and the infinities are the strings "NaN", "Infinity", "-Infinity".
type jsonFloat float64

func (f jsonFloat) MarshalJSON() ([]byte, error) { return appendJSONFloat(nil, float64(f)), nil }

func (f *jsonFloat) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case `"NaN"`:
		*f = jsonFloat(math.NaN())
	case `"Infinity"`:
		*f = jsonFloat(math.Inf(1))
	case `"-Infinity"`:
		*f = jsonFloat(math.Inf(-1))
	default:
		v, err := strconv.ParseFloat(string(b), 64)
		if err != nil {
			return fmt.Errorf("%s is no number; not finite ones are \"NaN\", \"Infinity\", \"-Infinity\"", b)
		}
		*f = jsonFloat(v)
	}
	return nil
}

// appendJSONFloat writes v in the shortest form that reads back as the same bits.
func appendJSONFloat(b []byte, v float64) []byte {
	switch {
	case math.IsNaN(v):
		return append(b, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(b, `"-Infinity"`...)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// wireDevice is one GPU of a node. Key is UUID; Idx is the PCI-order index of this boot.
type wireDevice struct {
	Idx         int    `json:"idx"`
	UUID        string `json:"uuid"`
	Model       string `json:"model"`
	MemoryBytes int64  `json:"memory_bytes"`
	Healthy     bool   `json:"healthy"`
	Fake        bool   `json:"fake,omitempty"`
}

// wireFingerprint tells one machine from another. Two fingerprints are of different machines when the machine ids differ, the
// DMI uuids are both known and differ, or both have GPUs and share none (a single card may fail or be swapped).
type wireFingerprint struct {
	MachineID string   `json:"machine_id"` // SHA-256 of /etc/machine-id with our salt, hex; "" where there is none
	DMI       string   `json:"dmi"`        // SHA-256 of the DMI product uuid, hex; "" where not readable
	GPUs      []string `json:"gpus"`       // UUIDs, sorted
}

// differs reports whether b is certainly another machine than a.
func (a wireFingerprint) differs(b wireFingerprint) bool {
	if a.MachineID != b.MachineID || a.DMI != "" && b.DMI != "" && a.DMI != b.DMI {
		return true
	}
	if len(a.GPUs) == 0 || len(b.GPUs) == 0 {
		return false
	}
	for _, x := range a.GPUs {
		for _, y := range b.GPUs {
			if x == y {
				return false
			}
		}
	}
	return true
}

// Truths that a hello tells of a run.
const (
	tellPending = "pending" // folder written, claim under way, nothing decided
	tellAlive   = "alive"   // a supervisor or a process of the run lives, whatever the files say
	tellExiting = "exiting" // the leader ended (Exit is set), the rest of the tree still lives
	tellEnded   = "ended"   // over; Exit is set, the tree is empty
	tellGone    = "gone"    // never started here and never will: fate says burn
)

// runTell is what an agent says of one run folder (or of a process found by its marker without a folder).
type runTell struct {
	UID         string    `json:"uid"`
	JobUID      string    `json:"job_uid"`
	JobID       int64     `json:"job_id"`
	Attempt     int64     `json:"attempt"` // 0 when never granted
	Grant       int64     `json:"grant"`   // 0 when never granted
	Truth       string    `json:"truth"`
	StartedMS   int64     `json:"started_ms,omitempty"`
	Exit        *exitInfo `json:"exit,omitempty"`
	LeftAlone   []string  `json:"left_alone,omitempty"`  // "tmux: server (pid 991)": subtrees not ours to kill
	Unkillable  []int     `json:"unkillable,omitempty"`  // pids that survived SIGKILL; the slot stays held
	Name        string    `json:"name,omitempty"`        // from spec.json, for a run this server does not know
	Argv        []string  `json:"argv,omitempty"`        // likewise
	WorkingDir  string    `json:"working_dir,omitempty"` // likewise
	Slots       []slotRef `json:"slots,omitempty"`       // likewise
	LogSize     int64     `json:"log_size,omitempty"`
	DetailError string    `json:"detail_error,omitempty"` // a file of the folder that could not be read
}

// exitInfo is how a run ended. Exactly one of Code and Signal is meaningful; Code is -1 when it is not known.
type exitInfo struct {
	Code        int     `json:"code"`             // 0..255, -1 unknown or ended by signal
	Signal      int     `json:"signal"`           // 0 none
	Reason      string  `json:"reason,omitempty"` // reason constant of model.go when the node knows it (CANCELLED, TIMEOUT, START_FAILED, ...)
	Detail      string  `json:"detail,omitempty"` // one line: the cause of START_FAILED, the OOM evidence
	StartedMS   int64   `json:"started_ms"`
	EndedMS     int64   `json:"ended_ms"`
	DurationS   float64 `json:"duration_s"` // by the monotonic clock of the supervisor
	UserS       float64 `json:"user_s"`
	SystemS     float64 `json:"system_s"`
	MaxRSSBytes int64   `json:"max_rss_bytes"`
	OOM         string  `json:"oom,omitempty"` // evidence that the kernel killed for memory, "" = none
	LogSize     int64   `json:"log_size"`      // final size of log.txt: the log source ends there
}

// slotRef names a slot within a node.
type slotRef struct {
	Lane string `json:"lane"` // gpu | cpu
	Idx  int    `json:"idx"`
	UUID string `json:"uuid"`
}

// helloSource tells the cursor that this agent instance saw acknowledged last. A server that is behind it was rolled back.
type helloSource struct {
	Src string `json:"src"`
	Gen int64  `json:"gen"`
	Off int64  `json:"off"`
}

// helloRequest is POST /api/v1/agent/hello: who I am, what is alive here. Always complete for what is unsettled; with All also
// every settled run folder (demanded on a new incarnation or session).
type helloRequest struct {
	UID         string          `json:"uid"`         // of the node, random, made by the agent's first start
	Instance    string          `json:"instance"`    // of this agent process, random
	Session     int64           `json:"session"`     // number the server gave this instance, 0 at first
	Incarnation string          `json:"incarnation"` // last one heard, "" at first
	All         bool            `json:"all"`
	Fingerprint wireFingerprint `json:"fingerprint"`
	Name        string          `json:"name"`
	BootID      string          `json:"boot_id"`
	Version     string          `json:"version"`
	OS          string          `json:"os"`   // "linux 6.18 amd64"
	User        string          `json:"user"` // account that runs the agent
	CPUs        int             `json:"cpus"`
	MemoryBytes int64           `json:"memory_bytes"`
	CPULane     int             `json:"cpu_lane"` // slots of the cpu lane
	Devices     []wireDevice    `json:"devices"`
	Runs        []runTell       `json:"runs"`
	Sources     []helloSource   `json:"sources"`  // unfinished ones
	NowMS       int64           `json:"now_ms"`   // wall clock of the agent
	Unsent      int64           `json:"unsent"`   // bytes not yet acknowledged
	Problems    []string        `json:"problems"` // one line each: what the agent cannot do
}

// helloAnswer answers a hello. Accepted is false when the session or incarnation was not the newest: say hello again with the
// ones given here (and All). Settled names runs told as ended or gone that the server has stored for this incarnation.
type helloAnswer struct {
	Gpuctl      int                   `json:"gpuctl"`
	Accepted    bool                  `json:"accepted"`
	Incarnation string                `json:"incarnation"`
	Session     int64                 `json:"session"`
	Node        string                `json:"node"` // name
	Cursors     map[string]wireCursor `json:"cursors"`
	Settled     []string              `json:"settled"`
	NowMS       int64                 `json:"now_ms"`
}

// Kinds of a command. Commands are levels, not edges: poll repeats every open one that is not in `have`.
const (
	cmdStart  = "start"  // payload startPayload
	cmdStop   = "stop"   // payload stopPayload
	cmdVerify = "verify" // payload verifyPayload: tell the truth of this run by hello, burn it if it has no fate
	cmdSignal = "signal" // payload signalPayload, once
	cmdRead   = "read"   // payload readPayload; not a row: negative id, lives 30 s in the server's memory
)

// wireCommand is what the server wants of an agent.
type wireCommand struct {
	ID      int64           `json:"id"`
	Kind    string          `json:"kind"`
	RunUID  string          `json:"run_uid"`
	Payload json.RawMessage `json:"payload"`
}

type pollAnswer struct {
	Gpuctl      int           `json:"gpuctl"`
	Commands    []wireCommand `json:"commands"`
	Incarnation string        `json:"incarnation"`
	NowMS       int64         `json:"now_ms"`
}

// startPayload is everything that is needed to run, but for what only the grant says (run id, attempt).
type startPayload struct {
	RunUID        string            `json:"run_uid"`
	JobUID        string            `json:"job_uid"`
	JobID         int64             `json:"job_id"`
	Name          string            `json:"name"`
	Argv          []string          `json:"argv"`
	WorkingDir    string            `json:"working_dir"`
	Env           map[string]string `json:"env"` // captured or given at submit; GPUCTL_* never in it
	Venv          string            `json:"venv,omitempty"`
	Conda         string            `json:"conda,omitempty"`
	Slots         []slotRef         `json:"slots"` // gpu slots, or one cpu slot
	GraceS        float64           `json:"grace_s"`
	MaxTimeS      float64           `json:"max_time_s,omitempty"`
	SignalBeforeS float64           `json:"signal_before_s,omitempty"`
	Watch         []string          `json:"watch,omitempty"` // folders with checkpoints, relative ones below WorkingDir
	TB            []string          `json:"tb,omitempty"`    // folders with event files, likewise
}

type stopPayload struct {
	Reason string  `json:"reason"` // CANCELLED, FENCED
	GraceS float64 `json:"grace_s"`
}

type verifyPayload struct{}

type signalPayload struct {
	Signal int `json:"signal"`
}

// readPayload asks for log.txt bytes [Off, Off+Len). Off < 0 counts from the end. Len <= logPieceMaxBytes.
type readPayload struct {
	Off int64 `json:"off"`
	Len int64 `json:"len"`
}

// commandAnswer is POST /api/v1/agent/commands/{id}.
type commandAnswer struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	Off   int64  `json:"off,omitempty"`  // read: where Data begins
	Size  int64  `json:"size,omitempty"` // read: size of the file now
	Data  []byte `json:"data,omitempty"` // read: base64 in JSON
}

// claimRequest is POST /api/v1/agent/claim: may I start this, or why I will not. Repeated until answered.
type claimRequest struct {
	UID         string       `json:"uid"`
	Instance    string       `json:"instance"`
	Session     int64        `json:"session"`
	Incarnation string       `json:"incarnation"`
	BootID      string       `json:"boot_id"`
	Refuse      *claimRefuse `json:"refuse,omitempty"`
}

// Why an agent refuses to start a run.
const (
	refuseNoDir   = "no_dir"
	refuseNoExec  = "no_exec"
	refusePolicy  = "policy"
	refuseForeign = "foreign"
	refuseLowDisk = "low_disk"
)

type claimRefuse struct {
	Why    string `json:"why"`
	Detail string `json:"detail"`
}

// claimAnswer: Verdict grant | deny | later (the server is in RECOVERY or has another incarnation: hello first).
type claimAnswer struct {
	Gpuctl      int               `json:"gpuctl"`
	Verdict     string            `json:"verdict"`
	Incarnation string            `json:"incarnation"`
	Run         string            `json:"run,omitempty"` // "12.2"
	JobID       int64             `json:"job_id,omitempty"`
	Attempt     int64             `json:"attempt,omitempty"`
	Grant       int64             `json:"grant,omitempty"`
	Env         map[string]string `json:"env,omitempty"` // GPUCTL_RESUME_FROM and kin
}

const (
	verdictGrant = "grant"
	verdictDeny  = "deny"
	verdictLater = "later"
)

// sourceName builds the key of a cursor: <kind>-<uid>. For log and sdk uid is the run's; for tb it is <run uid>-<inode, hex>; facts and
// node have a uid of their own.
func sourceName(kind, uid string) string { return kind + "-" + uid }

// parseSource splits a source name. It errors on anything that is not a known kind with a hex uid.
func parseSource(src string) (kind, uid string, err error) {
	kind, uid, ok := strings.Cut(src, "-")
	if ok {
		switch kind {
		case kindLog, kindFacts, kindNode, sourceSDK, sourceTB:
			if len(src) <= 128 && uid != "" && strings.Trim(uid, "0123456789abcdef-") == "" {
				return kind, uid, nil
			}
		}
	}
	return "", "", fmt.Errorf("source %q is not <kind>-<hex>", src)
}

// sourceRun is the uid of the run that a source is of; false for facts and samples, which have a uid of their own.
func sourceRun(kind, uid string) (string, bool) {
	switch kind {
	case sourceTB:
		uid, _, _ = strings.Cut(uid, "-")
		return uid, true
	case kindLog, sourceSDK:
		return uid, true
	}
	return "", false
}
