package main

// Shapes of the REST contract (DESIGN section 10): what /api/v1 takes and gives. Shared by server, CLI and, later, MCP. Fields may be
// added, these stay; null where unknown. No logic but defaults and written forms.

import (
	"encoding/json"
	"strconv"
)

// jobRequest is POST /api/v1/jobs. Fields left out take the defaults of withDefaults; unknown fields are refused.
type jobRequest struct {
	Argv           []string          `json:"argv"`
	WorkingDir     string            `json:"working_dir"`
	GPUs           *int              `json:"gpus"` // default 1; 0 = cpu lane
	Name           string            `json:"name"` // default: base name of the first argument that names a script, else of argv[0]
	Project        string            `json:"project"`
	Experiment     string            `json:"experiment"`
	Env            map[string]string `json:"env"`
	Capture        *envCapture       `json:"capture"` // beside env; of a name in both env's counts
	Venv           string            `json:"venv"`
	Conda          string            `json:"conda"`
	Node           string            `json:"node"`
	GPUModel       string            `json:"gpu_model"`
	GPUMemoryBytes int64             `json:"gpu_memory_bytes"`
	Priority       int               `json:"priority"`
	MaxAttempts    int               `json:"max_attempts"` // default 3
	MaxTimeS       float64           `json:"max_time_s"`
	SignalBeforeS  float64           `json:"signal_before_s"`
	GraceS         *float64          `json:"grace_s"` // default 5
	Watch          []string          `json:"watch"`
	TB             []string          `json:"tb"`
	TotalSteps     *int64            `json:"total_steps"`
	EvalArgv       []string          `json:"eval_argv"`
	PrimaryMetric  *primaryMetric    `json:"primary_metric"`
	Config         map[string]any    `json:"config"`
	Tags           []string          `json:"tags"`
	Reason         string            `json:"reason"`
}

// envCapture is what makes `python` the same python as in the submitter's shell. It goes along to nodes of Machine only (machine_id of a
// node).
type envCapture struct {
	Machine string            `json:"machine"`
	Env     map[string]string `json:"env"`
}

type primaryMetric struct {
	Name string `json:"name"`
	Goal string `json:"goal"` // min | max
}

// jobView is a job as every door shows it.
type jobView struct {
	ID          int64          `json:"id"`
	UID         string         `json:"uid"`
	Name        string         `json:"name"`
	State       string         `json:"state"`
	Reason      *string        `json:"reason"`
	Detail      *string        `json:"detail"`
	ExitCode    *int64         `json:"exit_code"` // of the newest run
	Signal      *int64         `json:"signal"`    // likewise
	WaitReason  *string        `json:"wait_reason"`
	Argv        []string       `json:"argv"`
	WorkingDir  string         `json:"working_dir"`
	EnvNames    []string       `json:"env_names"` // values are never shown
	GPUs        int            `json:"gpus"`
	Node        *string        `json:"node"` // where the newest run is or was; the constraint while queued
	Priority    int            `json:"priority"`
	MaxAttempts int            `json:"max_attempts"`
	MaxTimeS    float64        `json:"max_time_s"`
	GraceS      float64        `json:"grace_s"`
	Project     string         `json:"project"`
	Experiment  *string        `json:"experiment"`
	Tags        []string       `json:"tags"`
	Config      map[string]any `json:"config"`
	SubmittedBy string         `json:"submitted_by"`
	CreatedMS   int64          `json:"created_ms"`
	StartedMS   *int64         `json:"started_ms"` // of the newest run
	EndedMS     *int64         `json:"ended_ms"`
	Runs        []string       `json:"runs"`               // oldest first, "12.1"
	Drained     bool           `json:"drained"`            // the newest run's sources are all taken
	Warnings    []string       `json:"warnings,omitempty"` // of a submit
}

// runView is a run as every door shows it.
type runView struct {
	ID          string          `json:"id"` // "12.2" or "r40"
	UID         string          `json:"uid"`
	JobID       *int64          `json:"job_id"`
	Attempt     *int64          `json:"attempt"`
	Source      string          `json:"source"`
	Name        string          `json:"name"`
	State       string          `json:"state"`
	Reason      *string         `json:"reason"`
	Detail      *string         `json:"detail"`
	ExitCode    *int64          `json:"exit_code"`
	Signal      *int64          `json:"signal"`
	Drained     bool            `json:"drained"`
	Node        *string         `json:"node"`
	Slots       []slotRef       `json:"slots"`
	Argv        []string        `json:"argv"`
	WorkingDir  string          `json:"working_dir"`
	EnvNames    []string        `json:"env_names"`
	Project     string          `json:"project"`
	Experiment  *string         `json:"experiment"`
	Config      map[string]any  `json:"config"`
	StartedMS   *int64          `json:"started_ms"`
	EndedMS     *int64          `json:"ended_ms"`
	DurationS   *float64        `json:"duration_s"`
	Usage       *exitInfo       `json:"usage"` // as told by the node
	LeftAlone   []string        `json:"left_alone"`
	Log         logStats        `json:"log"`
	LastStep    *int64          `json:"last_step"` // of the series that got a point last
	LastStepMS  *int64          `json:"last_step_ms"`
	Progress    *runProgress    `json:"progress"`
	Metrics     []metricView    `json:"metrics"`
	Checkpoints int64           `json:"checkpoints"` // how many lie there (not GONE, not OVERWRITTEN)
	EnvSnapshot json.RawMessage `json:"env_snapshot"`
}

// runProgress says how far a run is. Total and ETA are null where unknown. ETA is the time left, ms; null too when the run is over or
// stalled. Part is set when the bar in the log counts only a part of the run and nothing says how large the whole is: its label, like
// "Epoch 3", or "".
type runProgress struct {
	Step  int64   `json:"step"`
	Total *int64  `json:"total"`
	ETAMS *int64  `json:"eta_ms"`
	From  string  `json:"from"` // where Total comes from: total_steps | trainer_state | tqdm; "" without one
	Part  *string `json:"part"`
}

// metricView is one series of a run in short. Name is the one that is shown and asked for, Tag the one that was written. Goal is the
// direction that is better; GoalFrom says how it is known: job (primary_metric) | inferred | "" (not known: best is null).
type metricView struct {
	Name     string       `json:"name"`
	Source   string       `json:"source"` // tb | sdk
	Folder   string       `json:"folder"`
	Tag      string       `json:"tag"`
	Goal     *string      `json:"goal"` // min | max
	GoalFrom string       `json:"goal_from"`
	Primary  bool         `json:"primary"`
	Last     *metricPoint `json:"last"`
	Best     *metricPoint `json:"best"`
	Min      *metricPoint `json:"min"` // of finite values
	Max      *metricPoint `json:"max"`
	Count    int64        `json:"count"`
	NaNCount int64        `json:"nan_count"`
	InfCount int64        `json:"inf_count"`
	Rewinds  int64        `json:"rewinds"` // points whose step is below the step before
	Trend    *string      `json:"trend"`   // falling | rising | flat; null with fewer than 10 finite points
}

type metricPoint struct {
	Step  int64     `json:"step"`
	AtMS  int64     `json:"at_ms"`
	Value jsonFloat `json:"value"`
}

// Ways to see the attempts of a job (attempts= of GET /runs/{run}/metrics).
const (
	attemptsRun     = "run"     // the points of this run, in order of arrival, nothing hidden
	attemptsTrained = "trained" // one line over all attempts: what was trained again hides what it replaced
	attemptsAll     = "all"     // all attempts, each for itself
)

// metricsPage is GET /runs/{run}/metrics. Next is the number of points of the run (with attempts=all|trained: of all attempts): with
// after=<next>&wait=<seconds> the answer comes as soon as there are more. Done: nothing more will come.
type metricsPage struct {
	Items []metricSeries `json:"items"`
	Next  int64          `json:"next"`
	State string         `json:"state"` // of the run
	Done  bool           `json:"done"`
}

// metricSeries is one curve: points [step, at_ms, value] in order of arrival, or, when there are more than max_points, buckets
// [step, at_ms, min, max, mean, count]: first step and time of the bucket, min, max and mean over its finite values ("NaN" when it has
// none), count of all its points.
type metricSeries struct {
	Run     string        `json:"run"` // 12.2; with attempts=trained that of the newest attempt
	Name    string        `json:"name"`
	Source  string        `json:"source"`
	Folder  string        `json:"folder"`
	Tag     string        `json:"tag"`
	Count   int64         `json:"count"` // points in the asked range
	Points  []pointRow    `json:"points,omitempty"`
	Buckets []pointBucket `json:"buckets,omitempty"`
}

// pointRow is [step, at_ms, value] in JSON.
type pointRow struct {
	step  int64
	atMS  int64
	value float64
}

func (p pointRow) MarshalJSON() ([]byte, error) { return p.appendJSON(nil), nil }

// appendJSON writes what MarshalJSON gives: an answer of many points is written without encoding/json, which reads each again.
func (p pointRow) appendJSON(b []byte) []byte {
	b = strconv.AppendInt(append(b, '['), p.step, 10)
	b = strconv.AppendInt(append(b, ','), p.atMS, 10)
	b = appendJSONFloat(append(b, ','), p.value)
	return append(b, ']')
}

func (p *pointRow) UnmarshalJSON(b []byte) error {
	var v jsonFloat
	parts := []any{&p.step, &p.atMS, &v}
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	p.value = float64(v)
	return nil
}

// pointBucket is [step, at_ms, min, max, mean, count] in JSON.
type pointBucket struct {
	step, atMS     int64
	min, max, mean float64
	count          int64
}

func (p pointBucket) MarshalJSON() ([]byte, error) { return p.appendJSON(nil), nil }

func (p pointBucket) appendJSON(b []byte) []byte {
	b = strconv.AppendInt(append(b, '['), p.step, 10)
	b = strconv.AppendInt(append(b, ','), p.atMS, 10)
	b = appendJSONFloat(append(b, ','), p.min)
	b = appendJSONFloat(append(b, ','), p.max)
	b = appendJSONFloat(append(b, ','), p.mean)
	b = strconv.AppendInt(append(b, ','), p.count, 10)
	return append(b, ']')
}

func (p *pointBucket) UnmarshalJSON(b []byte) error {
	var least, most, mean jsonFloat
	parts := []any{&p.step, &p.atMS, &least, &most, &mean, &p.count}
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	p.min, p.max, p.mean = float64(least), float64(most), float64(mean)
	return nil
}

// checkpointView is a checkpoint as every door shows it. Metrics are the values of the run's series at its step (the newest at or before).
type checkpointView struct {
	ID          int64                `json:"id"`
	Run         string               `json:"run"`
	Path        string               `json:"path"`
	Kind        string               `json:"kind"` // file | folder
	Step        *int64               `json:"step"`
	StepFrom    *string              `json:"step_from"` // name | trainer_state | content
	SizeBytes   int64                `json:"size_bytes"`
	MtimeMS     int64                `json:"mtime_ms"`
	State       string               `json:"state"` // COMPLETE | INCOMPLETE | OVERWRITTEN | GONE
	StateMS     int64                `json:"state_ms"`
	Incomplete  *string              `json:"incomplete"` // why an INCOMPLETE one is not whole
	Fingerprint string               `json:"fingerprint"`
	Metrics     map[string]jsonFloat `json:"metrics"`
	Evaluations []any                `json:"evaluations"`
	Pinned      bool                 `json:"pinned"`
	FoundMS     int64                `json:"found_ms"`
}

// loginRequest is POST /login: a token of a person, or the code of a one-time link. The answer is a loginAnswer with a token of the
// page's own: read or write scope as the one it came from (admin gives write), 30 days.
type loginRequest struct {
	Token string `json:"token"`
	Code  string `json:"code"`
}

type loginAnswer struct {
	Token     string `json:"token"`
	Name      string `json:"name"`
	Scope     string `json:"scope"`
	ExpiresMS int64  `json:"expires_ms"`
}

// oneTimeCode is the answer of POST /login-links and POST /nodes:join-code. The code works once, until ExpiresMS.
type oneTimeCode struct {
	Code      string   `json:"code"`
	ExpiresMS int64    `json:"expires_ms"`
	URLs      []string `json:"urls"` // addresses of the server from outside, best first; login-links: with the code in the fragment
}

// loginPath is where the page takes a login code. In the fragment: a browser sends that to nobody.
func loginPath(code string) string { return "/login#code=" + code }

// joinCodeRequest is POST /nodes:join-code; no body is needed. URL is the address by which the machine reaches this server when only the
// asker knows it (ssh tunnel, proxy, another agent on the server's machine): it takes the place of the server's own ones.
type joinCodeRequest struct {
	URL string `json:"url"`
}

// joinRequest is POST /agent/join; joinAnswer gives the machine its token.
type joinRequest struct {
	Code string `json:"code"`
	Name string `json:"name"` // of the machine, for the token's name
}

type joinAnswer struct {
	Token string `json:"token"`
	Name  string `json:"name"` // of the token
}

// logStats says how much of a run's log the server has counted.
type logStats struct {
	Lines       int64 `json:"lines"` // all generations, skipped ones included
	Bytes       int64 `json:"bytes"` // of the present generation taken so far
	Generation  int64 `json:"generation"`
	Skipped     int64 `json:"skipped"` // lines counted but not stored
	Truncations int64 `json:"truncations"`
	Done        bool  `json:"done"`
	Incomplete  bool  `json:"incomplete"`
}

// logLine is one line of a log; logPage a page of them, oldest first. AtMS is null when it was read too long after it was written. Next is
// the n to ask after; Live the unfinished last line.
type logLine struct {
	N         int64  `json:"n"`
	AtMS      *int64 `json:"at_ms"`
	Text      string `json:"text"`
	Continued bool   `json:"continued"`
}

type logPage struct {
	Items []logLine `json:"items"`
	Next  int64     `json:"next"`
	Live  *string   `json:"live"`
	State string    `json:"state"` // of the run
	Done  bool      `json:"done"`  // nothing more will come: the run is over and drained
}

// eventView is one event.
type eventView struct {
	ID       int64           `json:"id"`
	AtMS     int64           `json:"at_ms"`
	Type     string          `json:"type"`
	Severity string          `json:"severity"`
	Run      *string         `json:"run"`
	JobID    *int64          `json:"job_id"`
	Node     *string         `json:"node"`
	Actor    string          `json:"actor"`
	Message  string          `json:"message"`
	Data     json.RawMessage `json:"data"`
}

// slotView is a slot with its holder.
type slotView struct {
	Node        string  `json:"node"`
	Lane        string  `json:"lane"`
	Idx         int     `json:"idx"`
	UUID        string  `json:"uuid"`
	Model       string  `json:"model"`
	MemoryBytes int64   `json:"memory_bytes"`
	Fake        bool    `json:"fake"`
	Run         *string `json:"run"` // "12.2"; "offered to job 12" has run null and job_id set
	JobID       *int64  `json:"job_id"`
	HeldMS      *int64  `json:"held_ms"`
	Cordoned    bool    `json:"cordoned"`
	Health      string  `json:"health"`
}

// nodeView is a node with its slots. State: ready | unreachable (45 s silent) | recovering (no hello to this incarnation yet).
type nodeView struct {
	Name       string      `json:"name"`
	UID        string      `json:"uid"`
	State      string      `json:"state"`
	StateMS    *int64      `json:"state_ms"` // since when; null when it was not heard since this server started
	JoinedMS   int64       `json:"joined_ms"`
	LastSeenMS int64       `json:"last_seen_ms"`
	Version    string      `json:"version"`
	OS         string      `json:"os"`
	User       string      `json:"user"`
	BootID     string      `json:"boot_id"`
	MachineID  string      `json:"machine_id"` // hash, as in wireFingerprint: the CLI knows its own machine by it
	CPUs       int         `json:"cpus"`
	Cordoned   bool        `json:"cordoned"`
	SkewMS     int64       `json:"skew_ms"`
	Unsent     int64       `json:"unsent"` // bytes the agent had not got acknowledged at its last hello
	Problems   []string    `json:"problems"`
	Slots      []slotView  `json:"slots"`
	CPU        *float64    `json:"cpu"`    // 0..1, newest sample
	Memory     *usedTotal  `json:"memory"` // bytes, newest sample
	Disks      []usedTotal `json:"disks"`
	SampleMS   *int64      `json:"sample_ms"`
}

type usedTotal struct {
	Name  string `json:"name,omitempty"`
	Used  int64  `json:"used_bytes"`
	Total int64  `json:"total_bytes"`
}

// whyView is GET /jobs/{job}/why: why a job waits (or where it is), in words and typed.
type whyView struct {
	JobID    int64       `json:"job_id"`
	State    string      `json:"state"`
	Summary  string      `json:"summary"`  // one sentence
	Position int         `json:"position"` // 1 = next; 0 = not queued
	Reasons  []whyReason `json:"reasons"`
}

// whyReason. Types: no_node, no_such_node, not_enough_cards, slots_busy, cpu_lane_busy, node_refused, node_unreachable, cordoned,
// behind_others, backoff, recovery, ready.
type whyReason struct {
	Type   string `json:"type"`
	Node   string `json:"node,omitempty"`
	Detail string `json:"detail"`
}

// list is every list answer. Next is the id to continue with, null at the end.
type list[T any] struct {
	Items []T    `json:"items"`
	Next  *int64 `json:"next"`
}

// tokenView never holds the secret; Token is set once, in the answer to its creation.
type tokenView struct {
	ID         int64   `json:"id"`
	Name       string  `json:"name"`
	Scope      string  `json:"scope"`
	Node       *string `json:"node"`
	CreatedMS  int64   `json:"created_ms"`
	LastUsedMS *int64  `json:"last_used_ms"`
	ExpiresMS  *int64  `json:"expires_ms"`
	RevokedMS  *int64  `json:"revoked_ms"`
	Token      string  `json:"token,omitempty"`
}

type tokenRequest struct {
	Name    string  `json:"name"`
	Scope   string  `json:"scope"`
	Expires float64 `json:"expires_s"` // 0 = never
}

type whoami struct {
	Name     string  `json:"name"`
	Scope    string  `json:"scope"`
	CanWrite bool    `json:"can_write"`
	Node     *string `json:"node"`
}

type versionView struct {
	Version     string `json:"version"`
	Incarnation string `json:"incarnation"`
	SQLite      string `json:"sqlite"`
	Schema      int    `json:"schema"`
}

// statusView is GET /api/v1/status. NeedsYou lists what a person should look at, one line each; empty = all is well.
type statusView struct {
	Version     string           `json:"version"`
	Incarnation string           `json:"incarnation"`
	NowMS       int64            `json:"now_ms"`
	StartedMS   int64            `json:"started_ms"`
	Recovery    *string          `json:"recovery"` // why, null = none
	Jobs        map[string]int64 `json:"jobs"`     // by state
	Running     []jobView        `json:"running"`
	Queued      []jobView        `json:"queued"` // head of the queue, at most 20, with wait_reason
	Nodes       []nodeView       `json:"nodes"`
	NeedsYou    []string         `json:"needs_you"`
	Rejects     int64            `json:"rejects"`
	Skips       int64            `json:"skips"`
	Truncations int64            `json:"truncations"`
	DBBytes     int64            `json:"db_bytes"`
	WALBytes    int64            `json:"wal_bytes"`
	Loops       []loopState      `json:"loops"`
}

// cancelRequest, retryRequest, signalRequest are bodies of the verbs of a job; all fields are optional but Signal.
type cancelRequest struct {
	GraceS *float64 `json:"grace_s"`
	Reason string   `json:"reason"`
}

type retryRequest struct {
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env"`
}

type signalRequest struct {
	Signal string `json:"signal"` // USR1, SIGTERM, 10
}

// runLabel is the written form of a run: "12.2" with a job, "r40" without, "" for one that was never granted.
func runLabel(id int64, jobID, attempt *int64) string {
	switch {
	case jobID == nil:
		return "r" + strconv.FormatInt(id, 10)
	case attempt == nil:
		return ""
	}
	return strconv.FormatInt(*jobID, 10) + "." + strconv.FormatInt(*attempt, 10)
}
