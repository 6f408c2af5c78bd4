-- The first schema. One row per session orders and fences everything (R1); each event byte is stored once.
CREATE TABLE migration(
  version INTEGER PRIMARY KEY,
  checksum TEXT NOT NULL,
  applied_ms INTEGER NOT NULL
);
CREATE TABLE node(
  incarnation TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  address TEXT,
  state INTEGER NOT NULL,          -- 0 active, 1 draining, 2 dead (terminal)
  pid INTEGER NOT NULL,
  boot_id TEXT NOT NULL,
  lease_ms INTEGER NOT NULL,
  lease_until INTEGER NOT NULL,    -- boot-time clock, milliseconds
  renewal_no INTEGER NOT NULL,
  joined_ms INTEGER NOT NULL,
  ended_ms INTEGER
) WITHOUT ROWID;
CREATE TABLE session(
  sid INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  deleted INTEGER NOT NULL DEFAULT 0,
  rev INTEGER NOT NULL,
  -- the log
  head INTEGER NOT NULL,
  base INTEGER NOT NULL,           -- the first seq of its own; below it the events are the parent's
  parent INTEGER,                  -- sid that holds base - 1
  forked_from TEXT,
  forked_through INTEGER,
  -- the fence
  epoch INTEGER NOT NULL,
  owner TEXT,
  claim_id TEXT,
  write_no INTEGER NOT NULL,
  phase INTEGER,                   -- 0 safe, 1 active, 2 cancelling; null when nobody owns it
  loading INTEGER NOT NULL,
  cancel INTEGER NOT NULL,         -- an interrupt was accepted while nobody owned an open execution
  attempts INTEGER NOT NULL,
  quarantine TEXT,
  parked_through INTEGER,
  dormant INTEGER NOT NULL,        -- imported: rests until somebody wakes it
  interrupt_seq INTEGER,
  generation INTEGER NOT NULL,
  -- what is open
  execution TEXT,
  last_outcome TEXT,
  open_step TEXT,
  open_compaction TEXT,
  open_text TEXT,
  pending INTEGER NOT NULL,
  busy INTEGER NOT NULL,           -- an owner, an open execution or a pending input
  -- what lists show
  title TEXT,
  directory TEXT NOT NULL,
  provider TEXT NOT NULL,
  model TEXT NOT NULL,
  tokens_input INTEGER NOT NULL,
  tokens_output INTEGER NOT NULL,
  tokens_reasoning INTEGER NOT NULL,
  tokens_cache_read INTEGER NOT NULL,
  tokens_cache_write INTEGER NOT NULL,
  cost INTEGER NOT NULL,
  cost_incomplete INTEGER NOT NULL,
  last_line TEXT NOT NULL,
  line_done INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL,
  activity INTEGER NOT NULL        -- a counter: the order of user activity, whatever the clock did
);
CREATE INDEX session_activity ON session(activity) WHERE deleted = 0;
CREATE INDEX session_busy ON session(sid) WHERE busy = 1;
CREATE INDEX session_owner ON session(owner) WHERE owner IS NOT NULL;
CREATE INDEX session_parent ON session(parent) WHERE parent IS NOT NULL;
CREATE INDEX session_deleted ON session(sid) WHERE deleted = 1;
CREATE TABLE claim(
  sid INTEGER PRIMARY KEY,
  assistant_message_id TEXT,
  assistant_seq INTEGER,
  recovery_input_id TEXT,
  recovery_error TEXT,
  wake_pending INTEGER NOT NULL,
  created_ms INTEGER NOT NULL
);
CREATE TABLE event(
  key INTEGER PRIMARY KEY,         -- sid << 32 | seq
  id TEXT NOT NULL,
  epoch INTEGER,
  created_ms INTEGER NOT NULL,
  type TEXT NOT NULL,
  version INTEGER NOT NULL,
  body TEXT NOT NULL
);
CREATE INDEX event_id ON event(id);  -- unique, but for an import of a fork beside what it shares
CREATE INDEX event_setting ON event(key) WHERE type IN
  ('session.created', 'session.renamed', 'model.selected', 'attachment.replaced', 'session.forked');
CREATE TABLE inbox(
  sid INTEGER NOT NULL,
  input TEXT NOT NULL,
  seq INTEGER NOT NULL,
  delivery INTEGER NOT NULL,       -- 0 steer, 1 queue
  state INTEGER NOT NULL,          -- 0 pending, 1 promoted, 2 cancelled
  fenced INTEGER NOT NULL,
  PRIMARY KEY(sid, input)
) WITHOUT ROWID;
CREATE INDEX inbox_pending ON inbox(sid, seq) WHERE state = 0;
CREATE TABLE effect(
  sid INTEGER NOT NULL,
  message TEXT NOT NULL,
  call TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  pid INTEGER,
  pid_start INTEGER,
  boot_id TEXT,
  PRIMARY KEY(sid, message, call)
) WITHOUT ROWID;
CREATE TABLE receipt(
  key TEXT PRIMARY KEY,            -- an interrupt's id
  sid INTEGER NOT NULL,
  answer TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX receipt_session ON receipt(sid);
CREATE TABLE checkpoint(
  sid INTEGER NOT NULL,
  version INTEGER NOT NULL,
  through INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY(sid, version, through)
);
