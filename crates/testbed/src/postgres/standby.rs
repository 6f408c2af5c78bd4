//! A streaming copy of a cluster: to be promoted, with or without the last commits of the original.

use std::ops::Deref;

use super::Tls;
use super::cluster::{Cluster, Place, ROLE, succeeded};
use crate::{Error, wait};

/// A server that follows another, until it is promoted. It answers reads.
#[derive(Debug)]
pub struct Standby {
    cluster: Cluster,
    /// Where it streams from.
    source: String,
}

impl Standby {
    pub(super) fn of(primary: &Cluster) -> Result<Self, Error> {
        let from = primary.place();
        let (place, leash) = Place::new(from.password.clone())?;
        let mode = match primary.tls() {
            Tls::Required => "require",
            Tls::Off | Tls::Offered => "prefer",
        };
        let source = format!(
            "host=127.0.0.1 port={} user={ROLE} password={} sslmode={mode} application_name=standby",
            primary.address().port(),
            from.password
        );
        let output = place
            .command("pg_basebackup")
            .arg("--pgdata")
            .arg(place.data())
            .args(["--dbname", &source])
            .args(["--wal-method", "stream", "--checkpoint", "fast"])
            .args(["--write-recovery-conf", "--no-sync"])
            .output()
            .map_err(Error::system("start pg_basebackup"))?;
        succeeded("pg_basebackup", &output)?;
        let cluster = Cluster::run(place, leash, primary.tls())?;
        Ok(Standby { cluster, source })
    }

    /// Waits until everything that `primary` has committed so far is here too.
    ///
    /// # Errors
    /// It does not come: is the standby held back, or the primary paused?
    pub fn catch_up(&self, primary: &Cluster) -> Result<(), Error> {
        let target = primary
            .server()
            .value("SELECT pg_current_wal_flush_lsn()")?
            .unwrap_or_default();
        let there = format!("SELECT pg_last_wal_replay_lsn() >= '{target}'");
        wait::until("a standby that has caught up", wait::PATIENCE, || {
            Ok((self.server().value(&there)?.as_deref() == Some("t")).then_some(()))
        })
    }

    /// Stops following: what the primary commits from now on is not here, should this one be promoted.
    ///
    /// Returns when the stream is down. What was received before is replayed.
    ///
    /// # Errors
    /// The server refuses.
    pub fn hold_back(&self) -> Result<(), Error> {
        self.stream_from("")?;
        let streams = "SELECT count(*) FROM pg_stat_wal_receiver";
        wait::until("the end of the stream", wait::PATIENCE, || {
            Ok((self.server().value(streams)?.as_deref() == Some("0")).then_some(()))
        })
    }

    /// Follows again.
    ///
    /// # Errors
    /// The server refuses.
    pub fn follow_again(&self) -> Result<(), Error> {
        let source = self.source.clone();
        self.stream_from(&source)
    }

    fn stream_from(&self, source: &str) -> Result<(), Error> {
        self.server()
            .execute(&format!("ALTER SYSTEM SET primary_conninfo = '{source}'"))?;
        self.server().value("SELECT pg_reload_conf()")?;
        Ok(())
    }

    /// Makes it a server of its own, on the next timeline; returns when it takes writes.
    ///
    /// # Errors
    /// It does not within a minute.
    pub fn promote(self) -> Result<Cluster, Error> {
        let promoted = self.server().value("SELECT pg_promote(true, 60)")?;
        if promoted.as_deref() != Some("t") {
            return Err(Error::Failed {
                program: "pg_promote".into(),
                detail: self.cluster.log(),
            });
        }
        Ok(self.cluster)
    }
}

impl Deref for Standby {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}
