-- The first schema. `@` stands for the store's own schema. One row per session orders and fences everything (R1).
CREATE TABLE @.cluster(
  one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one),
  secret BYTEA NOT NULL,
  created_ms BIGINT NOT NULL
);
-- The clock leases are judged by: the server's, and never frozen at a transaction's start (R7).
CREATE FUNCTION @.lease_clock() RETURNS BIGINT LANGUAGE sql VOLATILE PARALLEL RESTRICTED AS
  $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT $$;
CREATE TABLE @.node(
  incarnation TEXT COLLATE "C" PRIMARY KEY,
  name TEXT NOT NULL,
  address TEXT,
  labels TEXT[] NOT NULL,
  roots TEXT[] NOT NULL,
  state BIGINT NOT NULL,           -- 0 active, 1 draining, 2 dead (terminal)
  pid BIGINT NOT NULL,
  presence BIGINT,                 -- the advisory lock held while the process lives; null behind a pooler
  lease_ms BIGINT NOT NULL,
  lease_until BIGINT NOT NULL,     -- by lease_clock()
  renewal_no BIGINT NOT NULL,
  joined_ms BIGINT NOT NULL,
  ended_ms BIGINT,
  resigned BOOLEAN NOT NULL DEFAULT FALSE  -- it stopped by itself: what it held is not charged
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE SEQUENCE @.next_sid;
CREATE SEQUENCE @.next_activity;
CREATE TABLE @.session(
  sid BIGINT PRIMARY KEY,
  id TEXT COLLATE "C" NOT NULL UNIQUE,
  deleted BOOLEAN NOT NULL DEFAULT FALSE,
  rev BIGINT NOT NULL,
  head BIGINT NOT NULL,            -- -1 while there is none
  base BIGINT NOT NULL,            -- the first seq of its own; below it the events are the parent's
  parent BIGINT,                   -- sid that holds base - 1
  epoch BIGINT NOT NULL,
  owner TEXT COLLATE "C",
  claim_id TEXT COLLATE "C",
  write_no BIGINT NOT NULL,
  phase BIGINT,                    -- 0 safe, 1 active, 2 cancelling; null when nobody owns it
  attempts BIGINT NOT NULL,
  quarantine TEXT,
  handed_until BIGINT,             -- by lease_clock(): until when only the named successor may accept
  runnable BOOLEAN NOT NULL,       -- without an owner it would be claimable
  activity BIGINT NOT NULL,        -- the order of user activity, whatever the clock did
  title TEXT,
  directory TEXT NOT NULL,
  last_line TEXT NOT NULL,
  rest TEXT NOT NULL               -- what no query looks into, as JSON
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
-- A turn's appends change no column of an index: their new row versions stay on the page.
CREATE INDEX session_activity ON @.session(activity) WHERE NOT deleted;
CREATE INDEX session_runnable ON @.session(activity) WHERE runnable AND owner IS NULL;
CREATE INDEX session_owner ON @.session(owner) WHERE owner IS NOT NULL;
CREATE INDEX session_handed ON @.session(handed_until) WHERE handed_until IS NOT NULL;
CREATE INDEX session_parent ON @.session(parent) WHERE parent IS NOT NULL;
CREATE INDEX session_deleted ON @.session(sid) WHERE deleted;
CREATE TABLE @.claim(
  sid BIGINT PRIMARY KEY,
  assistant_message_id TEXT,
  assistant_seq BIGINT,
  recovery_input_id TEXT,
  recovery_error TEXT,
  wake_pending BOOLEAN NOT NULL,
  created_ms BIGINT NOT NULL
) WITH (fillfactor = 70);
CREATE TABLE @.event(
  sid BIGINT NOT NULL,
  seq BIGINT NOT NULL,
  id TEXT COLLATE "C" NOT NULL,
  epoch BIGINT,
  created_ms BIGINT NOT NULL,
  type TEXT COLLATE "C" NOT NULL,
  version BIGINT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY(sid, seq)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX event_id ON @.event(id);  -- unique, but for an import of a fork beside what it shares
CREATE INDEX event_setting ON @.event(sid, seq) WHERE type IN
  ('session.created', 'session.renamed', 'model.selected', 'attachment.replaced', 'session.forked');
CREATE TABLE @.inbox(
  sid BIGINT NOT NULL,
  input TEXT COLLATE "C" NOT NULL,
  seq BIGINT NOT NULL,
  delivery BIGINT NOT NULL,        -- 0 steer, 1 queue
  state BIGINT NOT NULL,           -- 0 pending, 1 promoted, 2 cancelled
  fenced BOOLEAN NOT NULL,
  PRIMARY KEY(sid, input)
);
CREATE INDEX inbox_pending ON @.inbox(sid, seq) WHERE state = 0;
CREATE TABLE @.effect(
  sid BIGINT NOT NULL,
  message TEXT COLLATE "C" NOT NULL,
  call TEXT COLLATE "C" NOT NULL,
  epoch BIGINT NOT NULL,
  generation BIGINT NOT NULL,
  pid BIGINT,
  pid_start BIGINT,
  boot_id TEXT,
  PRIMARY KEY(sid, message, call)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE TABLE @.receipt(
  key TEXT COLLATE "C" PRIMARY KEY,  -- an interrupt's id
  sid BIGINT NOT NULL,
  answer TEXT NOT NULL
);
CREATE INDEX receipt_session ON @.receipt(sid);
CREATE TABLE @.checkpoint(
  sid BIGINT NOT NULL,
  version BIGINT NOT NULL,
  through BIGINT NOT NULL,
  bytes BYTEA NOT NULL,
  PRIMARY KEY(sid, version, through)
);
