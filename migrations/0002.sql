-- Metrics, checkpoints, one-time codes.

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

-- A token of a page knows the one that it came from: both end together.
ALTER TABLE tokens ADD COLUMN parent_id INTEGER REFERENCES tokens (id) ON DELETE CASCADE;
-- Environment captured from a submitter's shell: goes along to nodes of that machine only.
CREATE TABLE captures (
  job_id  INTEGER PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
  machine TEXT NOT NULL CHECK (machine <> ''),       -- hash of its machine-id, as machine_id of a node's fingerprint
  env     TEXT NOT NULL CHECK (json_valid(env))      -- {name: value}; values are never shown
) STRICT;
