-- The whole present schema. Times: integer Unix milliseconds, UTC, suffix _ms. Sizes: bytes, suffix _bytes. Durations: seconds, suffix _s.
-- Booleans are 0/1. JSON columns say their shape. States and reasons: model.go. Every table is STRICT.

-- One row: what a restored database is recognised by (the incarnation file knows the newest), and whether RECOVERY is on.
CREATE TABLE server_state (
  id                INTEGER PRIMARY KEY CHECK (id = 1),
  start_counter     INTEGER NOT NULL CHECK (start_counter >= 0), -- starts of the server on this database
  grant_no          INTEGER NOT NULL CHECK (grant_no >= 0),      -- number of the last grant, ascending for ever
  recovery_since_ms INTEGER,                                     -- not NULL: RECOVERY; nothing is dispatched or granted, no timers
  recovery_why      TEXT,
  CHECK ((recovery_since_ms IS NULL) = (recovery_why IS NULL))
) STRICT;

CREATE TABLE nodes (
  id                INTEGER PRIMARY KEY AUTOINCREMENT,
  uid               TEXT NOT NULL UNIQUE,            -- random, made by the agent's first start
  name              TEXT NOT NULL UNIQUE,
  fingerprint       TEXT NOT NULL CHECK (json_valid(fingerprint)), -- wireFingerprint
  boot_id           TEXT NOT NULL DEFAULT '',
  instance          TEXT NOT NULL DEFAULT '',        -- agent process that has the newest session
  session           INTEGER NOT NULL DEFAULT 0 CHECK (session >= 0),
  heard_incarnation TEXT NOT NULL DEFAULT '',        -- incarnation to which it said a complete hello; reconciled when it is the present one
  recovery_skip     TEXT NOT NULL DEFAULT '',        -- incarnation whose RECOVERY does not wait for this node
  version           TEXT NOT NULL DEFAULT '',
  os                TEXT NOT NULL DEFAULT '',
  user              TEXT NOT NULL DEFAULT '',        -- account that runs the agent
  cpus              INTEGER NOT NULL DEFAULT 0,
  memory_bytes      INTEGER NOT NULL DEFAULT 0,
  problems          TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(problems)), -- [string], told by the agent
  unsent_bytes      INTEGER NOT NULL DEFAULT 0,
  skew_ms           INTEGER NOT NULL DEFAULT 0,      -- agent's wall clock minus the server's; shown, orders nothing
  cordoned          INTEGER NOT NULL DEFAULT 0 CHECK (cordoned IN (0, 1)),
  last_seen_ms      INTEGER NOT NULL,                -- of the last hello; the newest contact is known to the server process
  created_ms        INTEGER NOT NULL
) STRICT;

-- What can be handed out, one job at a time. From the grant on only the node's own word, or its new boot_id, sets run_id to NULL.
CREATE TABLE slots (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  node_id      INTEGER NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
  lane         TEXT NOT NULL CHECK (lane IN ('gpu', 'cpu')),
  idx          INTEGER NOT NULL CHECK (idx >= 0),     -- gpu: PCI order of the present boot; cpu: 0, 1, ...
  uuid         TEXT NOT NULL,                         -- gpu: the card's UUID; cpu: 'cpu-0', 'cpu-1', ...
  model        TEXT NOT NULL DEFAULT '',
  memory_bytes INTEGER NOT NULL DEFAULT 0 CHECK (memory_bytes >= 0),
  fake         INTEGER NOT NULL DEFAULT 0 CHECK (fake IN (0, 1)), -- from --fake-gpus
  health       TEXT NOT NULL DEFAULT 'ok' CHECK (health IN ('ok', 'unhealthy', 'gone')), -- gone: the node does not list it any more
  cordoned     INTEGER NOT NULL DEFAULT 0 CHECK (cordoned IN (0, 1)),
  run_id       INTEGER REFERENCES runs (id),          -- NULL = free
  held_ms      INTEGER,                               -- since when run_id holds it
  UNIQUE (node_id, lane, uuid),
  CHECK ((run_id IS NULL) = (held_ms IS NULL))
) STRICT;
CREATE INDEX slots_run ON slots (run_id) WHERE run_id IS NOT NULL;
-- A run's slots are all on one node.
CREATE TRIGGER slots_one_node BEFORE UPDATE OF run_id ON slots WHEN NEW.run_id IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'slot is held by another run') WHERE OLD.run_id IS NOT NULL AND OLD.run_id <> NEW.run_id;
  SELECT RAISE(ABORT, 'slots of one run on two nodes') FROM runs WHERE runs.id = NEW.run_id AND runs.node_id IS NOT NEW.node_id;
END;
CREATE TRIGGER slots_made_free BEFORE INSERT ON slots WHEN NEW.run_id IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'a slot is made free');
END;
CREATE TRIGGER slots_stay BEFORE UPDATE OF node_id ON slots WHEN NEW.node_id <> OLD.node_id
BEGIN
  SELECT RAISE(ABORT, 'a slot stays on its node');
END;

CREATE TABLE projects (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  name       TEXT NOT NULL UNIQUE,
  created_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE experiments (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  project_id INTEGER NOT NULL REFERENCES projects (id),
  name       TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  UNIQUE (project_id, name),
  UNIQUE (id, project_id)                            -- for the foreign keys of jobs and runs
) STRICT;

-- What was asked. One row for ever; each attempt is a run.
CREATE TABLE jobs (
  id               INTEGER PRIMARY KEY AUTOINCREMENT,
  uid              TEXT NOT NULL UNIQUE,             -- 32 hex; what an agent tells is matched by it, never by number
  kind             TEXT NOT NULL DEFAULT 'TRAIN' CHECK (kind IN ('TRAIN', 'EVALUATE')),
  name             TEXT NOT NULL CHECK (name <> ''),
  state            TEXT NOT NULL CHECK (state IN ('QUEUED', 'DISPATCHING', 'RUNNING', 'CANCELLING', 'LOST', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
  reason           TEXT,                             -- of FAILED and CANCELLED; NULL else
  detail           TEXT,                             -- one line a node for START_FAILED
  state_ms         INTEGER NOT NULL,                 -- when it came into this state
  argv             TEXT NOT NULL CHECK (json_valid(argv)),   -- [string]
  working_dir      TEXT NOT NULL,
  env              TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(env)), -- {name: value}; values are never shown
  venv             TEXT NOT NULL DEFAULT '',
  conda            TEXT NOT NULL DEFAULT '',
  gpus             INTEGER NOT NULL CHECK (gpus BETWEEN 0 AND 64),     -- 0 = cpu lane
  node             TEXT NOT NULL DEFAULT '',         -- constraint by name, '' = any
  gpu_model        TEXT NOT NULL DEFAULT '',         -- constraint: substring, case-insensitive, '' = any
  gpu_memory_bytes INTEGER NOT NULL DEFAULT 0 CHECK (gpu_memory_bytes >= 0), -- constraint: at least, a card
  priority         INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN -1000 AND 1000), -- higher first
  rank             INTEGER NOT NULL DEFAULT 0,       -- within a priority, lower first, then id
  max_attempts     INTEGER NOT NULL DEFAULT 3 CHECK (max_attempts BETWEEN 1 AND 100),
  max_time_s       REAL NOT NULL DEFAULT 0 CHECK (max_time_s >= 0),      -- 0 = none
  signal_before_s  REAL NOT NULL DEFAULT 0 CHECK (signal_before_s >= 0),
  grace_s          REAL NOT NULL DEFAULT 5 CHECK (grace_s BETWEEN 0 AND 86400),
  watch            TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(watch)), -- [folder]
  tb               TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(tb)),    -- [folder]
  total_steps      INTEGER,
  eval_argv        TEXT CHECK (eval_argv IS NULL OR json_valid(eval_argv)),
  primary_metric   TEXT CHECK (primary_metric IS NULL OR json_valid(primary_metric)), -- {name, goal}
  config           TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(config)),
  tags             TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(tags)),  -- [string]
  submit_reason    TEXT NOT NULL DEFAULT '',
  project_id       INTEGER NOT NULL REFERENCES projects (id),
  experiment_id    INTEGER,
  attempts         INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0), -- grants that were used; number of the newest attempt
  tries_left_from  INTEGER NOT NULL DEFAULT 0,       -- attempts at the last retry by hand: max_attempts counts from here
  offer_failures   INTEGER NOT NULL DEFAULT 0,       -- offers in a row that nobody claimed
  not_before_ms    INTEGER NOT NULL DEFAULT 0,       -- back-off, begin
  cancel_ms        INTEGER,                          -- when somebody asked to cancel; NULL = nobody
  run_id           INTEGER,                          -- the run that this job has now (OFFERED .. LOST); NULL = none
  submitted_by     TEXT NOT NULL,                    -- name of the token
  created_ms       INTEGER NOT NULL,
  FOREIGN KEY (run_id, id) REFERENCES runs (id, job_id),             -- its run is a run of this job
  FOREIGN KEY (experiment_id, project_id) REFERENCES experiments (id, project_id),
  CHECK ((state IN ('DISPATCHING', 'RUNNING', 'LOST')) <= (run_id IS NOT NULL)),
  CHECK ((state IN ('QUEUED', 'SUCCEEDED', 'FAILED', 'CANCELLED')) <= (run_id IS NULL)),
  CHECK ((state IN ('FAILED', 'CANCELLED')) <= (reason IS NOT NULL)),
  CHECK ((reason IS NOT NULL) <= (state IN ('SUCCEEDED', 'FAILED', 'CANCELLED')))
) STRICT;
CREATE INDEX jobs_queue ON jobs (priority DESC, rank, id) WHERE state = 'QUEUED';
-- What the queue asks for, each kind in queue order: a pass looks only at the heads of kinds that fit somewhere.
CREATE INDEX jobs_shape ON jobs (gpus, node, gpu_model, gpu_memory_bytes, priority DESC, rank, id, not_before_ms) WHERE state = 'QUEUED';
CREATE INDEX jobs_state ON jobs (state, id);
CREATE INDEX jobs_name ON jobs (name, id);

-- Environment captured from a submitter's shell: goes along to nodes of that machine only.
CREATE TABLE captures (
  job_id  INTEGER PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
  machine TEXT NOT NULL CHECK (machine <> ''),       -- hash of its machine-id, as machine_id of a node's fingerprint
  env     TEXT NOT NULL CHECK (json_valid(env))      -- {name: value}; values are never shown
) STRICT;

-- Nodes that refused a job: not asked again until a retry.
CREATE TABLE job_exclusions (
  job_id  INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
  node_id INTEGER NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
  why     TEXT NOT NULL,                             -- no_dir | no_exec | policy | foreign | low_disk
  detail  TEXT NOT NULL,
  at_ms   INTEGER NOT NULL,
  PRIMARY KEY (job_id, node_id)
) STRICT, WITHOUT ROWID;

-- What happened. Written 12.2 (job 12, attempt 2), r40 when it has no job; a BURNED run has no written form.
CREATE TABLE runs (
  id               INTEGER PRIMARY KEY AUTOINCREMENT,
  uid              TEXT NOT NULL UNIQUE,             -- 32 hex, random: the fencing token
  job_id           INTEGER REFERENCES jobs (id),
  attempt          INTEGER CHECK (attempt >= 1),     -- given with the grant
  source           TEXT NOT NULL CHECK (source IN ('job', 'sdk', 'import', 'observe', 'adopt')),
  name             TEXT NOT NULL,
  node_id          INTEGER REFERENCES nodes (id),
  state            TEXT NOT NULL CHECK (state IN ('OFFERED', 'STARTING', 'ALIVE', 'EXITING', 'ENDED', 'LOST', 'BURNED', 'IMPORTED', 'ENDED_UNKNOWN')),
  reason           TEXT,                             -- of an end, NULL for code 0
  detail           TEXT,
  exit_code        INTEGER CHECK (exit_code BETWEEN 0 AND 255), -- NULL = unknown, or ended by signal
  signal           INTEGER CHECK (signal BETWEEN 1 AND 64),
  argv             TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(argv)),
  env              TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(env)),
  working_dir      TEXT NOT NULL DEFAULT '',
  slots            TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(slots)), -- [slotRef]: what it was given; slots.run_id says what it holds
  grant_no         INTEGER UNIQUE,                   -- orders the runs of a job
  grant_instance   TEXT NOT NULL DEFAULT '',         -- agent instance that was granted
  boot_id          TEXT NOT NULL DEFAULT '',         -- boot in which it was granted or last told alive
  told_incarnation TEXT NOT NULL DEFAULT '',         -- incarnation in which an agent said that it lives
  listed           INTEGER NOT NULL DEFAULT 1 CHECK (listed IN (0, 1)), -- 0: the node's newest hello omitted it, verify
  fenced           INTEGER NOT NULL DEFAULT 0 CHECK (fenced IN (0, 1)), -- ended by an operator; slots wait for the node's word
  left_alone       TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(left_alone)), -- [string]
  exit_info        TEXT CHECK (exit_info IS NULL OR json_valid(exit_info)),   -- exitInfo as told
  offered_ms       INTEGER,
  granted_ms       INTEGER,
  started_ms       INTEGER,                          -- first instruction, node's clock corrected by its skew
  ended_ms         INTEGER,
  duration_s       REAL,                             -- monotonic
  env_snapshot     TEXT CHECK (env_snapshot IS NULL OR json_valid(env_snapshot)),
  config           TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(config)),
  project_id       INTEGER NOT NULL REFERENCES projects (id),
  experiment_id    INTEGER,
  drained_ms       INTEGER,                          -- when the last of its sources was done (or given up)
  sealed_ms        INTEGER,                          -- when its log lines became one blob
  UNIQUE (job_id, attempt),
  UNIQUE (id, job_id),                               -- for the foreign key of jobs
  FOREIGN KEY (experiment_id, project_id) REFERENCES experiments (id, project_id),
  CHECK (source <> 'job' OR state IN ('OFFERED', 'BURNED') OR attempt IS NOT NULL),
  CHECK (sealed_ms IS NULL OR drained_ms IS NOT NULL),
  CHECK ((source = 'job') = (job_id IS NOT NULL)),
  CHECK (exit_code IS NULL OR signal IS NULL)
) STRICT;
CREATE TRIGGER runs_stay BEFORE UPDATE OF node_id, job_id ON runs WHEN NEW.node_id IS NOT OLD.node_id OR NEW.job_id IS NOT OLD.job_id
BEGIN
  SELECT RAISE(ABORT, 'a run stays on its node and of its job');
END;
CREATE INDEX runs_node ON runs (node_id, state);
CREATE INDEX runs_job ON runs (job_id, id);

-- What the server wants of an agent. Poll answers all open ones of the node.
CREATE TABLE commands (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  node_id    INTEGER NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
  kind       TEXT NOT NULL CHECK (kind IN ('start', 'stop', 'verify', 'signal')),
  run_id     INTEGER NOT NULL REFERENCES runs (id),
  payload    TEXT NOT NULL CHECK (json_valid(payload)),
  state      TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done')),
  created_ms INTEGER NOT NULL,
  closed_ms  INTEGER,
  answer     TEXT,
  CHECK ((state = 'done') = (closed_ms IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX commands_one_open ON commands (run_id, kind) WHERE state = 'open' AND kind <> 'signal';
CREATE INDEX commands_open ON commands (node_id, id) WHERE state = 'open';
CREATE INDEX commands_run ON commands (run_id);

-- How far each source is taken: wireCursor. Written in the transaction that stores the rows.
CREATE TABLE cursors (
  source     TEXT PRIMARY KEY,                       -- <kind>-<uid>
  kind       TEXT NOT NULL,                          -- log | tb | sdk | facts | node
  owner      TEXT NOT NULL,                          -- 'node:<id>' or 'token:<id>': the first that opened it
  run_id     INTEGER REFERENCES runs (id),           -- NULL for facts and node
  gen        INTEGER NOT NULL DEFAULT 0 CHECK (gen >= 0),
  off        INTEGER NOT NULL DEFAULT 0 CHECK (off >= 0), -- bytes
  print      TEXT NOT NULL DEFAULT '',
  n          INTEGER NOT NULL DEFAULT 0 CHECK (n >= 0), -- lines or records, all generations, skipped ones included
  done       INTEGER NOT NULL DEFAULT 0 CHECK (done IN (0, 1)),
  incomplete INTEGER NOT NULL DEFAULT 0 CHECK (incomplete IN (0, 1)), -- closed by the server: no carrier has it any more
  updated_ms INTEGER NOT NULL,
  CHECK (substr(source, 1, length(kind) + 1) = kind || '-'),
  CHECK (kind <> 'log' OR run_id IS NOT NULL),
  CHECK (incomplete <= done)
) STRICT, WITHOUT ROWID;
CREATE INDEX cursors_run ON cursors (run_id) WHERE run_id IS NOT NULL;

CREATE TABLE skips (                                 -- lines or records that were counted but not sent
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  source   TEXT NOT NULL,
  gen      INTEGER NOT NULL,
  from_off INTEGER NOT NULL,
  to_off   INTEGER NOT NULL,
  n        INTEGER NOT NULL,
  why      TEXT NOT NULL,
  at_ms    INTEGER NOT NULL
) STRICT;
CREATE INDEX skips_source ON skips (source);

CREATE TABLE truncations (                           -- a generation that a newer one replaced
  id     INTEGER PRIMARY KEY AUTOINCREMENT,
  source TEXT NOT NULL,
  gen    INTEGER NOT NULL,                           -- the old one
  off    INTEGER NOT NULL,                           -- how far it was taken
  at_ms  INTEGER NOT NULL
) STRICT;
CREATE INDEX truncations_source ON truncations (source);

CREATE TABLE rejects (                               -- records that could not be read or applied; newest 1,000 are kept
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  source   TEXT NOT NULL,
  gen      INTEGER NOT NULL,
  from_off INTEGER NOT NULL,
  to_off   INTEGER NOT NULL,
  why      TEXT NOT NULL,
  at_ms    INTEGER NOT NULL
) STRICT;

-- The last 2,000 lines of a run; one blob in log_seals once it has ended and is drained.
CREATE TABLE log_lines (
  run_id    INTEGER NOT NULL REFERENCES runs (id),
  n         INTEGER NOT NULL,                        -- 1, 2, ... over all generations, skipped lines counted
  at_ms     INTEGER NOT NULL,                        -- when the agent read it; 0 = not known
  text      TEXT NOT NULL,
  continued INTEGER NOT NULL CHECK (continued IN (0, 1)), -- the line goes on in the next one
  PRIMARY KEY (run_id, n)
) STRICT, WITHOUT ROWID;
CREATE TABLE log_heads (                             -- the first 200 lines, kept
  run_id    INTEGER NOT NULL REFERENCES runs (id),
  n         INTEGER NOT NULL,
  at_ms     INTEGER NOT NULL,
  text      TEXT NOT NULL,
  continued INTEGER NOT NULL CHECK (continued IN (0, 1)),
  PRIMARY KEY (run_id, n)
) STRICT, WITHOUT ROWID;
CREATE TABLE log_seals (
  run_id  INTEGER PRIMARY KEY REFERENCES runs (id),
  first_n INTEGER NOT NULL,
  last_n  INTEGER NOT NULL,
  data    BLOB NOT NULL                              -- DEFLATE of ndjson, one logItem a line, lines first_n .. last_n
) STRICT;

CREATE TABLE node_samples (                          -- one wide row a look, every 10 s; 1-minute means after 48 h
  node_id            INTEGER NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
  at_ms              INTEGER NOT NULL,               -- agent's clock
  cpu_permille       INTEGER NOT NULL,               -- 0..1000 of all cores, -1 unknown
  load1_milli        INTEGER NOT NULL,               -- 1-minute load average x 1000
  memory_used_bytes  INTEGER NOT NULL,
  memory_total_bytes INTEGER NOT NULL,
  swap_used_bytes    INTEGER NOT NULL,
  disk_free_bytes    INTEGER NOT NULL,               -- of the file system that holds GPUCTL_HOME
  disk_total_bytes   INTEGER NOT NULL,
  PRIMARY KEY (node_id, at_ms)
) STRICT, WITHOUT ROWID;

-- One curve of a run. Kept up to date by ingest in the transaction that stores its points, so that lists never scan points.
-- Values: NaN is stored as NULL; least, most are over finite values only.
CREATE TABLE series (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id      INTEGER NOT NULL REFERENCES runs (id),
  source      TEXT NOT NULL CHECK (source IN ('tb', 'sdk')),
  folder      TEXT NOT NULL DEFAULT '',              -- of its event file, below working_dir or the --tb folder; '' = that folder itself; absolute elsewhere
  name        TEXT NOT NULL CHECK (name <> ''),      -- the tag as it was written
  count       INTEGER NOT NULL DEFAULT 0 CHECK (count >= 0), -- points, NaN included; seq of the next one
  nan_count   INTEGER NOT NULL DEFAULT 0 CHECK (nan_count >= 0),
  inf_count   INTEGER NOT NULL DEFAULT 0 CHECK (inf_count >= 0),
  rewinds     INTEGER NOT NULL DEFAULT 0 CHECK (rewinds >= 0), -- points whose step is below the step before
  first_step  INTEGER,
  first_ms    INTEGER,
  last_step   INTEGER,
  last_ms     INTEGER,
  last_value  REAL,
  least_step  INTEGER,                               -- first point with the least value; NULL = no finite value yet
  least_ms    INTEGER,
  least_value REAL,
  most_step   INTEGER,
  most_ms     INTEGER,
  most_value  REAL,
  high_step   INTEGER,                               -- greatest so far
  ema_fast    REAL NOT NULL DEFAULT 0,               -- exponential averages of finite values, weights 2/21 and 2/101, begun at 0: the trend
  ema_slow    REAL NOT NULL DEFAULT 0,
  ema_dev     REAL NOT NULL DEFAULT 0,               -- and of the distance to ema_slow, weight 2/101
  hot_count   INTEGER NOT NULL DEFAULT 0 CHECK (hot_count BETWEEN 0 AND count), -- of the points, those that are rows in points
  sealed      INTEGER NOT NULL DEFAULT 0 CHECK (sealed IN (0, 1)), -- all points lie in chunks as full as they go; a late point opens it again
  UNIQUE (run_id, source, folder, name),
  CHECK (sealed = 0 OR hot_count = 0)
) STRICT;
CREATE INDEX series_open ON series (run_id) WHERE sealed = 0;

-- The newest points of a series, in order of arrival; older ones lie in chunks. A row costs 28 bytes.
CREATE TABLE points (
  series_id INTEGER NOT NULL,                        -- of series; no REFERENCES: checking it row by row doubles what a delete costs
  seq       INTEGER NOT NULL,                        -- 0, 1, ... in order of arrival
  step      INTEGER NOT NULL,
  at_ms     INTEGER NOT NULL,                        -- writer's clock, rounded to 100 ms
  value     ANY,                                     -- REAL; NULL = NaN. A REAL column would make 0 of -0
  PRIMARY KEY (series_id, seq)
) STRICT, WITHOUT ROWID;

-- Points first_seq .. first_seq + n - 1 of a series, packed (series.go has the format): 0.1 to 3.2 bytes a point.
CREATE TABLE chunks (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  series_id INTEGER NOT NULL REFERENCES series (id),
  first_seq INTEGER NOT NULL,
  n         INTEGER NOT NULL CHECK (n > 0),
  min_step  INTEGER NOT NULL,
  max_step  INTEGER NOT NULL,
  min_ms    INTEGER NOT NULL,
  max_ms    INTEGER NOT NULL,
  min_value REAL,                                    -- over finite values; NULL = none is
  max_value REAL,
  sum_value REAL NOT NULL,                           -- of finite values, for the mean of a bucket that is a whole chunk
  finite_n  INTEGER NOT NULL,                        -- of the n values, those that are neither NaN nor infinite
  data      BLOB NOT NULL,
  UNIQUE (series_id, first_seq)
) STRICT;

-- Files and folders that a watched training left. Never moved, never opened for writing. Another fingerprint at the same path is another
-- checkpoint.
CREATE TABLE checkpoints (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id      INTEGER NOT NULL REFERENCES runs (id),
  path        TEXT NOT NULL,                         -- absolute, on the run's node
  kind        TEXT NOT NULL CHECK (kind IN ('file', 'folder')),
  step        INTEGER,                               -- NULL = not known
  step_from   TEXT CHECK (step_from IN ('name', 'trainer_state', 'content')),
  total_steps INTEGER,                               -- max_steps of trainer_state.json
  size_bytes  INTEGER NOT NULL CHECK (size_bytes >= 0), -- of all files
  mtime_ms    INTEGER NOT NULL,                      -- newest of all files
  fingerprint TEXT NOT NULL,                         -- size, mtime, SHA-1 of the first and last MiB of each file; hex of SHA-1 over these
  state       TEXT NOT NULL CHECK (state IN ('COMPLETE', 'INCOMPLETE', 'OVERWRITTEN', 'GONE')),
  state_ms    INTEGER NOT NULL,                      -- when it came into its state, corrected by the node's skew
  incomplete  TEXT NOT NULL DEFAULT '',              -- why an INCOMPLETE one is not whole
  pinned      INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1)),
  found_ms    INTEGER NOT NULL,                      -- when the agent registered it, corrected likewise
  told_ms     INTEGER NOT NULL,                      -- at_ms of the newest fact about it, as told: an older one told again changes nothing
  UNIQUE (run_id, path, fingerprint),
  CHECK ((step IS NULL) = (step_from IS NULL)),
  CHECK ((state = 'INCOMPLETE') <= (incomplete <> ''))
) STRICT;
CREATE INDEX checkpoints_run ON checkpoints (run_id, state);
CREATE UNIQUE INDEX checkpoints_one ON checkpoints (run_id, path) WHERE state IN ('COMPLETE', 'INCOMPLETE');

-- One-time codes: of the login link of the page, and of a machine that joins.
CREATE TABLE codes (
  hash       TEXT PRIMARY KEY,                       -- SHA-256 of the code, hex
  kind       TEXT NOT NULL CHECK (kind IN ('login', 'join')),
  scope      TEXT NOT NULL,                          -- of the token it is exchanged for
  made_by    TEXT NOT NULL,                          -- name of the token that asked for it
  created_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  used_ms    INTEGER                                 -- NULL = not yet
) STRICT, WITHOUT ROWID;

-- Append only; the stream for pages, hooks and agents.
CREATE TABLE events (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms     INTEGER NOT NULL,
  type      TEXT NOT NULL,                           -- JOB_QUEUED, RUN_ENDED, LOG_TRUNCATED, ...
  severity  TEXT NOT NULL CHECK (severity IN ('info', 'notice', 'warning', 'critical')),
  job_id    INTEGER REFERENCES jobs (id),
  run_id    INTEGER REFERENCES runs (id),
  node_id   INTEGER REFERENCES nodes (id) ON DELETE SET NULL,
  actor     TEXT NOT NULL,                           -- token name, 'scheduler', 'agent', 'server'
  message   TEXT NOT NULL,
  data      TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(data)),
  dedup_key TEXT UNIQUE,                             -- NULL = never the same twice
  replayed  INTEGER NOT NULL DEFAULT 0 CHECK (replayed IN (0, 1)) -- older than a restore: pushed to nobody
) STRICT;
CREATE INDEX events_run ON events (run_id, id) WHERE run_id IS NOT NULL;
CREATE INDEX events_job ON events (job_id, id) WHERE job_id IS NOT NULL;

CREATE TABLE audit (                                 -- writes by tokens; no secrets
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms      INTEGER NOT NULL,
  token      TEXT NOT NULL,                          -- name
  method     TEXT NOT NULL,
  path       TEXT NOT NULL,
  status     INTEGER NOT NULL,
  remote     TEXT NOT NULL,
  request_id TEXT NOT NULL
) STRICT;

CREATE TABLE tokens (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  name         TEXT NOT NULL UNIQUE,
  scope        TEXT NOT NULL CHECK (scope IN ('read', 'write', 'agent', 'sdk', 'admin')),
  hash         TEXT NOT NULL UNIQUE,                 -- SHA-256 of the whole token, hex
  node_id      INTEGER REFERENCES nodes (id) ON DELETE CASCADE, -- agent tokens: the node they speak for, bound by the first hello
  created_ms   INTEGER NOT NULL,
  last_used_ms INTEGER,
  expires_ms   INTEGER,
  revoked_ms   INTEGER,
  parent_id    INTEGER REFERENCES tokens (id) ON DELETE CASCADE, -- page tokens: the token that logged in; they end with it
  CHECK (node_id IS NULL OR scope = 'agent')
) STRICT;

CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL CHECK (json_valid(value))) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (                           -- kept 7 days
  token      TEXT NOT NULL,                          -- name
  key        TEXT NOT NULL,
  body_hash  TEXT NOT NULL,                          -- SHA-256 of the decoded request, hex
  job_id     INTEGER NOT NULL REFERENCES jobs (id),
  created_ms INTEGER NOT NULL,
  PRIMARY KEY (token, key)
) STRICT, WITHOUT ROWID;
