//! The rows of the write transaction, by statements.

use super::event;
use super::head::{insert, load, save};
use super::node;
use super::rows;
use super::tx::{Tx, first, int, key, uint};
use crate::Switches;
use crate::api::{EffectRow, ProcessId};
use crate::machine::Failure;
use crate::machine::event::{Encoded, Stored};
use crate::machine::head::Head;
use crate::machine::rows::{Kin, NodeFacts, Rows, Setting, Taken};
use rusqlite::{Connection, params};
use tenure_core::event::EventBody;
use tenure_core::event::body::Delivery;
use tenure_core::id::{CallId, EventId, MessageId, SessionId};

/// How a delivery is stored.
fn delivery_number(delivery: Delivery) -> i64 {
    match delivery {
        Delivery::Steer => 0,
        Delivery::Queue => 1,
    }
}

/// Setting events of a stretch of the log: a handful of rows, found by their own index.
fn settings_of(conn: &Connection, from: i64, to: i64) -> rusqlite::Result<Vec<Setting>> {
    let mut statement = conn.prepare_cached(
        "SELECT type, version, body FROM event INDEXED BY event_setting WHERE key BETWEEN ?1 AND ?2 \
         AND type IN ('session.created', 'session.renamed', 'model.selected', 'attachment.replaced', \
         'session.forked') ORDER BY key",
    )?;
    let rows = statement.query_map([from, to], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    rows.collect()
}

impl Rows for Tx<'_> {
    fn switches(&self) -> &Switches {
        self.switches
    }

    fn wall_ms(&self) -> i64 {
        self.wall_ms
    }

    fn lease_ms(&self) -> i64 {
        self.boot_ms
    }

    fn head(&self, session: &SessionId) -> Result<Option<Head>, Failure> {
        Ok(load(self.conn, session)?)
    }

    fn new_head(&self, session: &SessionId) -> Result<Head, Failure> {
        Ok(insert(self, session)?)
    }

    fn save(&self, head: &mut Head) -> Result<(), Failure> {
        Ok(save(self, head)?)
    }

    fn next_activity(&self, now: i64) -> Result<i64, Failure> {
        let newest = self
            .first(
                "SELECT activity FROM session WHERE deleted = 0 ORDER BY activity DESC LIMIT 1",
                [],
                |row| row.get::<_, i64>(0),
            )?
            .unwrap_or(0);
        Ok(if newest != now || newest == 0 {
            newest + 1
        } else {
            now
        })
    }

    fn event(&self, sid: i64, id: &EventId) -> Result<Option<Stored>, Failure> {
        Ok(event::by_id(self.conn, sid, id)?)
    }

    fn put_event(
        &self,
        sid: i64,
        seq: u64,
        epoch: Option<u64>,
        event: &Encoded,
    ) -> Result<(), Failure> {
        Ok(event::insert(self, sid, seq, epoch, event)?)
    }

    fn events_from(&self, head: &Head, from: u64, limit: usize) -> Result<Vec<Stored>, Failure> {
        let chain = event::segments(self.conn, head)?;
        let mut stored = Vec::new();
        event::scan(self.conn, &chain, from, |row| {
            if stored.len() < limit {
                stored.push(row);
            }
            stored.len() < limit
        })?;
        Ok(stored)
    }

    fn holder(&self, head: &Head, seq: u64) -> Result<Option<i64>, Failure> {
        let chain = event::segments(self.conn, head)?;
        let holder = chain.iter().find(|s| s.from <= seq && seq <= s.to);
        Ok(holder.map(|segment| segment.sid))
    }

    fn settings(&self, head: &Head, through: u64) -> Result<Vec<Setting>, Failure> {
        let mut all = Vec::new();
        for segment in event::segments(self.conn, head)? {
            if segment.from <= through {
                let (from, to) = (segment.from, segment.to.min(through));
                all.extend(settings_of(
                    self.conn,
                    key(segment.sid, from),
                    key(segment.sid, to),
                )?);
            }
        }
        Ok(all)
    }

    fn kin(&self, sid: i64) -> Result<Option<Kin>, Failure> {
        let id = self.first("SELECT id FROM session WHERE sid = ?1", [sid], |row| {
            row.get::<_, String>(0)
        })?;
        let Some(id) = id else { return Ok(None) };
        let settings = settings_of(self.conn, sid << 32, (sid << 32) | 0xffff_ffff)?;
        let parents = settings.into_iter().filter_map(|(name, version, body)| {
            match EventBody::decode(&name, version, &body) {
                Ok(EventBody::SessionForked(forked)) => Some(forked.parent.to_string()),
                _ => None,
            }
        });
        Ok(Some(Kin {
            parents: parents.collect(),
            id,
        }))
    }

    fn open_claim(&self, sid: i64, created_ms: i64) -> Result<Option<String>, Failure> {
        let continuation: Option<String> = self
            .first(
                "SELECT recovery_input_id FROM claim WHERE sid = ?1",
                [sid],
                |row| row.get(0),
            )?
            .flatten();
        self.exec(
            "INSERT INTO claim(sid, wake_pending, created_ms) VALUES (?1, 0, ?2) \
             ON CONFLICT(sid) DO UPDATE SET wake_pending = 0, created_ms = excluded.created_ms",
            params![sid, created_ms],
        )?;
        Ok(continuation)
    }

    fn close_claim(&self, sid: i64) -> Result<(), Failure> {
        self.exec("DELETE FROM claim WHERE sid = ?1", [sid])?;
        Ok(())
    }

    fn set_wake_pending(&self, sid: i64) -> Result<bool, Failure> {
        let wake = "UPDATE claim SET wake_pending = 1 WHERE sid = ?1 AND wake_pending = 0";
        Ok(self.exec(wake, [sid])? > 0)
    }

    fn set_step(
        &self,
        sid: i64,
        message: Option<&MessageId>,
        seq: Option<u64>,
    ) -> Result<(), Failure> {
        self.exec(
            "UPDATE claim SET assistant_message_id = ?2, assistant_seq = ?3 WHERE sid = ?1",
            params![sid, message.map(MessageId::as_str), seq.map(int)],
        )?;
        Ok(())
    }

    fn set_continuation(&self, sid: i64, input: &MessageId) -> Result<(), Failure> {
        let sql = "UPDATE claim SET recovery_input_id = ?2 WHERE sid = ?1";
        self.exec(sql, params![sid, input.as_str()])?;
        Ok(())
    }

    fn set_recovery_error(&self, sid: i64, message: &str) -> Result<(), Failure> {
        let sql = "UPDATE claim SET recovery_error = ?2 WHERE sid = ?1";
        self.exec(sql, params![sid, message])?;
        Ok(())
    }

    fn admit(
        &self,
        sid: i64,
        input: &MessageId,
        seq: u64,
        delivery: Delivery,
        fenced: bool,
    ) -> Result<bool, Failure> {
        let inserted = self.exec(
            "INSERT INTO inbox(sid, input, seq, delivery, state, fenced) \
             VALUES (?1, ?2, ?3, ?4, 0, ?5) ON CONFLICT DO NOTHING",
            params![
                sid,
                input.as_str(),
                int(seq),
                delivery_number(delivery),
                fenced
            ],
        )?;
        Ok(inserted > 0)
    }

    fn take_input(
        &self,
        sid: i64,
        input: &MessageId,
        taken: Taken,
    ) -> Result<Option<u64>, Failure> {
        let seq = self.first(
            "SELECT seq FROM inbox WHERE sid = ?1 AND input = ?2 AND state = 0",
            params![sid, input.as_str()],
            |row| row.get::<_, i64>(0),
        )?;
        if seq.is_some() {
            let state = match taken {
                Taken::Promoted => 1,
                Taken::Cancelled => 2,
            };
            self.exec(
                "UPDATE inbox SET state = ?3 WHERE sid = ?1 AND input = ?2",
                params![sid, input.as_str(), state],
            )?;
        }
        Ok(seq.map(uint))
    }

    fn redeliver(&self, sid: i64, input: &MessageId, delivery: Delivery) -> Result<bool, Failure> {
        let changed = self.exec(
            "UPDATE inbox SET delivery = ?3 WHERE sid = ?1 AND input = ?2 AND state = 0",
            params![sid, input.as_str(), delivery_number(delivery)],
        )?;
        Ok(changed > 0)
    }

    fn is_pending(&self, sid: i64, after: Option<u64>, by_users: bool) -> Result<bool, Failure> {
        let sql = if by_users {
            "SELECT 1 FROM inbox WHERE sid = ?1 AND state = 0 AND seq > ?2 AND fenced = 0 LIMIT 1"
        } else {
            "SELECT 1 FROM inbox WHERE sid = ?1 AND state = 0 AND seq > ?2 LIMIT 1"
        };
        let found = first(self.conn, sql, [sid, after.map_or(-1, int)], |_| Ok(()))?;
        Ok(found.is_some())
    }

    fn clear_inbox(&self, sid: i64) -> Result<(), Failure> {
        self.exec("DELETE FROM inbox WHERE sid = ?1", [sid])?;
        Ok(())
    }

    fn start_effect(
        &self,
        sid: i64,
        message: &MessageId,
        call: &CallId,
        epoch: u64,
        generation: u64,
    ) -> Result<bool, Failure> {
        let inserted = self.exec(
            "INSERT INTO effect(sid, message, call, epoch, generation) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT DO NOTHING",
            params![
                sid,
                message.as_str(),
                call.as_str(),
                int(epoch),
                int(generation)
            ],
        )?;
        Ok(inserted > 0)
    }

    fn set_process(
        &self,
        sid: i64,
        message: &MessageId,
        call: &CallId,
        process: &ProcessId,
    ) -> Result<(), Failure> {
        self.exec(
            "UPDATE effect SET pid = ?4, pid_start = ?5, boot_id = ?6 \
             WHERE sid = ?1 AND message = ?2 AND call = ?3",
            params![
                sid,
                message.as_str(),
                call.as_str(),
                process.pid,
                int(process.pid_start),
                process.boot_id
            ],
        )?;
        Ok(())
    }

    fn end_effect(&self, sid: i64, message: &MessageId, call: &CallId) -> Result<(), Failure> {
        self.exec(
            "DELETE FROM effect WHERE sid = ?1 AND message = ?2 AND call = ?3",
            params![sid, message.as_str(), call.as_str()],
        )?;
        Ok(())
    }

    fn effects(&self, sid: i64) -> Result<Vec<EffectRow>, Failure> {
        Ok(rows::effects_of(self.conn, sid)?)
    }

    fn node(&self, incarnation: &str) -> Result<Option<NodeFacts>, Failure> {
        Ok(node::facts(self.conn, incarnation, self.boot_ms)?)
    }

    fn receipt(&self, key: &str) -> Result<Option<(i64, String)>, Failure> {
        Ok(self.first(
            "SELECT sid, answer FROM receipt WHERE key = ?1",
            [key],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?)
    }

    fn put_receipt(&self, key: &str, sid: i64, answer: &str) -> Result<(), Failure> {
        self.exec(
            "INSERT OR REPLACE INTO receipt(key, sid, answer) VALUES (?1, ?2, ?3)",
            params![key, sid, answer],
        )?;
        Ok(())
    }
}
