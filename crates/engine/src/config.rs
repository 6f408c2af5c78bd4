//! What the embedding program decides: leases, limits, which sessions to run, how questions are answered.

use crate::environment::{Environment, SystemEnvironment};
use crate::peer::{Peers, UnixPeers};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::id::SessionId;
use tenure_core::placement::Serves;
use tenure_core::retry::RetryPolicy;
use tenure_provider::Secret;
use tenure_tools::guardian::GuardianCommand;

/// Which sessions this process may take ("whose rights", design §6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Only those it is asked to run.
    Asked,
    /// Every runnable session of the store.
    Any,
}

/// What happens when a permission rule says *ask*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approvals {
    /// Nobody is there: the call is denied, with the reason.
    Headless,
    /// The question becomes an event and waits for an answer from any client.
    Wait,
}

/// Starts a process that runs one session alone (R8).
pub type Isolate = Arc<dyn Fn(&SessionId) -> std::io::Result<()> + Send + Sync>;

/// The engine's settings.
#[derive(Clone)]
pub struct EngineConfig {
    /// A label for people.
    pub name: String,
    /// Which sessions to take without being asked.
    pub scope: Scope,
    /// How questions are answered.
    pub approvals: Approvals,
    /// How long a renewal is good for.
    pub lease: Duration,
    /// How often to renew.
    pub renew_every: Duration,
    /// How long before the lease's end this node stops its own work.
    pub margin: Duration,
    /// The poll that is always on.
    pub poll: Duration,
    /// How often to look for nodes that died: a peer's crash is found this fast, and the look is cheap.
    pub suspect_every: Duration,
    /// Sessions that may be acquired and loaded at once: a dead node's hundreds come in at this width.
    pub start_concurrency: usize,
    /// How long the named successor of a hand-over alone may accept it.
    pub accept_within: Duration,
    /// Local tools of one session that may run at once.
    pub tool_concurrency: usize,
    /// Steps without new input when the session says nothing else.
    pub max_steps: u32,
    /// Retrying of attempts.
    pub retry: RetryPolicy,
    /// How long a drain may take.
    pub drain_budget: Duration,
    /// Compact by itself when the window fills.
    pub auto_compaction: bool,
    /// Where whole tool outputs are kept.
    pub output_dir: PathBuf,
    /// Which locations and models this node serves. One that says whose models it asks ([`Serves::asking`]) leaves
    /// other sessions alone instead of failing them.
    pub serves: Serves,
    /// How tools' processes are guarded.
    pub guardian: GuardianCommand,
    /// Names of environment variables no tool may see.
    pub secret_env: Vec<String>,
    /// Keys this process knows: masked in what tools print before it is stored or shown to a model.
    pub secrets: Vec<Secret>,
    /// The user's own folder of instructions (`AGENTS.md`), if any.
    pub user_instructions: Option<PathBuf>,
    /// Further instructions, from configuration.
    pub extra_instructions: Vec<String>,
    /// How to run a session alone in its own process; `None` when this process is that.
    pub isolate: Option<Isolate>,
    /// Folder of the Unix socket where peers reach this node, when `peers` says nothing else; `None` for no
    /// socket.
    pub socket_dir: Option<PathBuf>,
    /// How this node reaches others and is reached; `None` for Unix sockets in `socket_dir`.
    pub peers: Option<Arc<dyn Peers>>,
    /// Time, ids, randomness.
    pub env: Arc<dyn Environment>,
    /// Rules broken on purpose.
    #[cfg(feature = "testing")]
    pub mutations: tenure_store::mutation::Mutations,
}

impl fmt::Debug for EngineConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineConfig")
            .field("name", &self.name)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// A setting that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl EngineConfig {
    /// Defaults of design §6 for a program that answers no questions.
    pub fn new(name: impl Into<String>, output_dir: PathBuf, guardian: GuardianCommand) -> Self {
        Self {
            name: name.into(),
            scope: Scope::Asked,
            approvals: Approvals::Headless,
            lease: Duration::from_millis(6_000),
            renew_every: Duration::from_millis(1_000),
            margin: Duration::from_millis(1_500),
            poll: Duration::from_millis(1_000),
            suspect_every: Duration::from_millis(200),
            start_concurrency: 32,
            accept_within: Duration::from_millis(2_000),
            tool_concurrency: 8,
            max_steps: 100,
            retry: RetryPolicy::default(),
            drain_budget: Duration::from_secs(30),
            auto_compaction: true,
            output_dir,
            serves: Serves::everywhere(),
            guardian,
            secret_env: Vec::new(),
            secrets: Vec::new(),
            user_instructions: None,
            extra_instructions: Vec::new(),
            isolate: None,
            socket_dir: None,
            peers: None,
            env: Arc::new(SystemEnvironment),
            #[cfg(feature = "testing")]
            mutations: tenure_store::mutation::Mutations::default(),
        }
    }

    /// The way to other nodes.
    pub(crate) fn peers(&self) -> Arc<dyn Peers> {
        match &self.peers {
            Some(peers) => peers.clone(),
            None => Arc::new(UnixPeers::new(self.socket_dir.clone())),
        }
    }

    /// Checks the durations against each other.
    ///
    /// # Errors
    /// Names the two that do not fit.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.margin >= self.lease {
            return Err(ConfigError(format!(
                "margin ({:?}) must be shorter than lease ({:?})",
                self.margin, self.lease
            )));
        }
        if self.renew_every * 2 > self.lease - self.margin {
            return Err(ConfigError(format!(
                "renew_every ({:?}) must fit twice into lease - margin ({:?})",
                self.renew_every,
                self.lease - self.margin
            )));
        }
        for (name, count) in [
            ("tool_concurrency", self.tool_concurrency),
            ("start_concurrency", self.start_concurrency),
        ] {
            if count == 0 {
                return Err(ConfigError(format!("{name} must be at least 1")));
            }
        }
        if self.suspect_every.is_zero() {
            return Err(ConfigError("suspect_every must not be 0".to_owned()));
        }
        Ok(())
    }
}

/// Sessions this process was asked to run.
pub(crate) type Asked = BTreeSet<SessionId>;
