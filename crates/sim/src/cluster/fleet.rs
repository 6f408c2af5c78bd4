//! The fleet: nodes, model, sessions, and the harness's own client of their store.

use super::ground::Ground;
use super::judge::{self, Evidence, Overlaps};
use super::node::{Common, Node};
use super::watch::Watch;
use crate::place;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::{Event, Incarnation, MessageId, ModelRef, SessionId};
use tenure_engine::{Client, NewSession, Prompt, SystemEnvironment};
use tenure_scripted::{Handle, Script, ScriptedModel};
use tenure_server::{ClusterSecret, HttpPeers};
use tenure_store::{NodeRow, SessionQuery, SessionState, Store};
use tenure_tools::permission::Rules;

/// A busy machine may be slow; it is never this slow.
const PATIENCE: Duration = Duration::from_secs(120);
/// The pause between two looks at something that nobody announces.
const LOOK: Duration = Duration::from_millis(10);
/// What stands between a node's address and the machine it means.
const MACHINE: &str = "#machine=";
/// Events read at once.
const PAGE: usize = 5_000;

/// The lease of every node, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Lease {
    /// How often it is renewed.
    pub renew_ms: u64,
    /// How long it is good for.
    pub duration_ms: u64,
    /// How long before its end a node stops its own work.
    pub margin_ms: u64,
}

/// What a fleet is made of.
#[derive(Debug)]
pub struct Setup {
    /// How many nodes.
    pub nodes: usize,
    /// The store they share.
    pub ground: Ground,
    /// What the model answers.
    pub script: Script,
    /// The product's own lease when absent.
    pub lease: Option<Lease>,
    /// More lines for every node's configuration, before its first table.
    pub config: String,
}

/// Nodes on one store. Dropped, everything is killed and removed.
#[derive(Debug)]
pub struct Fleet {
    // Dropped in this order: processes before what they use.
    nodes: Vec<Node>,
    model: Handle,
    client: Harness,
    sessions: BTreeMap<SessionId, PathBuf>,
    acknowledged: Vec<(SessionId, MessageId)>,
    /// Kept for its end: the database is given back when nobody uses it any more.
    ground: Ground,
    folder: tempfile::TempDir,
    mark: String,
}

/// The harness's client.
struct Harness(Client);

impl std::fmt::Debug for Harness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Harness")
    }
}

/// How often a node is stopped until it is between two writes.
const TRIES_TO_PAUSE: usize = 20;
/// Longer than a write of a running process takes, and well within a lease.
const LONGEST_WRITE: Duration = Duration::from_secs(1);

impl Fleet {
    /// Makes the store, serves the model, and starts every node; returns when all have joined.
    ///
    /// # Errors
    /// There is no `tenure`, or a node does not join; with what it said.
    pub async fn start(setup: Setup) -> Result<Self> {
        let nodes = setup.nodes;
        let mut fleet = Self::at_rest_from(setup).await?;
        for node in 0..nodes {
            fleet.start_node(node).await?;
        }
        Ok(fleet)
    }

    /// The same, but no node runs yet.
    ///
    /// # Errors
    /// There is no `tenure`, or the store cannot be made.
    pub async fn at_rest_from(setup: Setup) -> Result<Self> {
        let tenure = place::tenure()?;
        let folder = tempfile::Builder::new().prefix("tn-").tempdir()?;
        let root = folder.path().canonicalize()?;
        let mark = root
            .file_name()
            .context("a temporary folder has a name")?
            .to_string_lossy()
            .into_owned();
        let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let model = ScriptedModel::builder(setup.script).bind(loopback).await?;
        let store = setup.ground.open(&root).await?;
        let client = Harness(Client::new(store, Arc::new(SystemEnvironment)));
        let common = Common {
            tenure,
            mark: mark.clone(),
        };
        let mut nodes = Vec::new();
        for index in 0..setup.nodes {
            let name = format!("node{index}");
            let proxy = setup.ground.proxy()?;
            let url = setup.ground.url(&root, proxy.as_ref());
            let text = config(&url, &model.base_url(), setup.lease, &setup.config);
            let home = root.join(&name);
            nodes.push(Node::new(common.clone(), name, home, proxy, &text)?);
        }
        Ok(Self {
            nodes,
            model,
            client,
            sessions: BTreeMap::new(),
            acknowledged: Vec::new(),
            ground: setup.ground,
            folder,
            mark,
        })
    }

    /// A client that calls the nodes directly, as the program's commands do, beside what the store tells them.
    ///
    /// # Errors
    /// The store keeps no secret for calls between nodes, or no node runs.
    pub async fn direct_client(&self) -> Result<Client> {
        let secret = self.store().cluster_secret().await?;
        let secret = secret.context("the store has no secret for calls between nodes")?;
        let secret = <[u8; 32]>::try_from(secret).ok().context("32 bytes")?;
        let addresses = self.store().nodes().await?.into_iter();
        let machine = addresses
            .filter_map(|node| Some(node.address?.split_once(MACHINE)?.1.to_owned()))
            .next()
            .context("no node names its machine")?;
        let peers = HttpPeers::new(ClusterSecret::new(secret), &machine)?;
        let store = Arc::clone(self.store());
        let env = Arc::new(SystemEnvironment);
        Ok(Client::with_peers(store, env, Arc::new(peers)))
    }

    /// A client of the store that goes past all proxies.
    pub fn client(&self) -> &Client {
        &self.client.0
    }

    /// The store, past all proxies.
    pub fn store(&self) -> &Arc<dyn Store> {
        self.client.0.store()
    }

    /// The model, with every request it got.
    pub fn model(&self) -> &Handle {
        &self.model
    }

    /// The mark in the environment of everything that nodes start.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// How many nodes there are, running or not.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// A fleet without nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// One node. An index out of range panics, as with a slice.
    pub fn node(&mut self, index: usize) -> &mut Node {
        &mut self.nodes[index]
    }

    /// SIGSTOP at a moment when the node holds no lock that others need: one that sleeps inside a write to the shared
    /// file is another story, which ends with its death (R6). The wall-clock milliseconds just before it.
    ///
    /// # Errors
    /// It does not run, or is inside a write each time it is looked at.
    pub fn pause_between_writes(&mut self, index: usize) -> Result<i64> {
        for _ in 0..TRIES_TO_PAUSE {
            let at = self.nodes[index].pause()?;
            // The others' own writes come and go; that of a sleeper stays.
            if self
                .ground
                .takes_writes(self.folder.path(), LONGEST_WRITE)?
            {
                return Ok(at);
            }
            self.nodes[index].resume()?;
        }
        anyhow::bail!("node {index} was inside a write each of {TRIES_TO_PAUSE} times")
    }

    /// One more node, a copy of `index` in everything: name, folder, configuration, proxy's target. It does not run yet.
    ///
    /// # Errors
    /// No proxy can be had.
    pub fn clone_node(&mut self, index: usize) -> Result<usize> {
        let proxy = self.ground.proxy()?;
        let twin = self.nodes[index].twin(proxy)?;
        self.nodes.push(twin);
        Ok(self.nodes.len() - 1)
    }

    /// Starts a node and waits until the store knows it.
    ///
    /// # Errors
    /// It ends instead, or does not join; with what it said.
    pub async fn start_node(&mut self, index: usize) -> Result<Incarnation> {
        self.nodes[index].launch()?;
        let pid = self.nodes[index].pid().context("it was just started")?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(row) = self.row_of(pid).await? {
                return Ok(row.incarnation);
            }
            let running = self.nodes[index].running()?;
            let ended = running.ended()?;
            if ended.is_some() || Instant::now() > deadline {
                let said = running.lines().join("\n");
                bail!("node{index} did not join ({ended:?}): {said}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The row of a living node, by its process.
    async fn row_of(&self, pid: u32) -> Result<Option<NodeRow>> {
        let rows = self.store().nodes().await?;
        Ok(rows
            .into_iter()
            .find(|row| row.pid == pid && row.lease_ms > 0))
    }

    /// The incarnation of a running node.
    ///
    /// # Errors
    /// It does not run, or the store does not know it.
    pub async fn incarnation(&self, index: usize) -> Result<Incarnation> {
        let pid = self.nodes[index].pid().context("the node does not run")?;
        let row = self.row_of(pid).await?;
        Ok(row.context("the store does not know the node")?.incarnation)
    }

    /// Makes a session with a workspace of its own, where everything is allowed.
    ///
    /// # Errors
    /// The store refuses.
    pub async fn create(&mut self) -> Result<SessionId> {
        let number = self.sessions.len();
        let workspace = self
            .folder
            .path()
            .canonicalize()?
            .join(format!("work{number}"));
        std::fs::create_dir_all(&workspace)?;
        let new = NewSession {
            id: None,
            directory: workspace.display().to_string(),
            model: ModelRef {
                provider: "local".to_owned(),
                model: "m1".to_owned(),
            },
            title: Some(format!("session {number}")),
            limits: tenure_core::event::body::Limits::default(),
            permissions: Rules::allow_all(),
        };
        let session = self.client().create(new).await?;
        self.sessions.insert(session.clone(), workspace);
        Ok(session)
    }

    /// Admits a prompt; [`Fleet::judge`] will ask for it.
    ///
    /// # Errors
    /// The store refuses.
    pub async fn prompt(&mut self, session: &SessionId, prompt: Prompt) -> Result<MessageId> {
        let admission = self.client().admit(session, prompt).await?;
        self.acknowledged
            .push((session.clone(), admission.input.clone()));
        Ok(admission.input)
    }

    /// So many sessions, each with one prompt.
    ///
    /// # Errors
    /// The store refuses.
    pub async fn busy(&mut self, sessions: usize) -> Result<Vec<SessionId>> {
        let mut all = Vec::new();
        for _ in 0..sessions {
            let session = self.create().await?;
            self.prompt(&session, Prompt::steer("Do all the steps."))
                .await?;
            all.push(session);
        }
        Ok(all)
    }

    /// The sessions made so far.
    pub fn sessions(&self) -> Vec<SessionId> {
        self.sessions.keys().cloned().collect()
    }

    /// A session's workspace.
    pub fn workspace(&self, session: &SessionId) -> Option<&PathBuf> {
        self.sessions.get(session)
    }

    /// Reads a session from its first event on.
    pub fn watch(&self, session: &SessionId) -> Watch {
        Watch::new(self.client().clone(), session)
    }

    /// The sessions that a node owns now.
    ///
    /// # Errors
    /// The store cannot be read, or the node does not run.
    pub async fn owned_by(&self, index: usize) -> Result<Vec<SessionId>> {
        let incarnation = self.incarnation(index).await?;
        let claims = self.store().claims().await?;
        Ok(claims
            .into_iter()
            .filter(|claim| claim.owner == incarnation)
            .map(|claim| claim.session)
            .collect())
    }

    /// The index of the running node that owns a session; none when nobody does.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn owner(&self, session: &SessionId) -> Result<Option<usize>> {
        let row = self.store().session(session).await?;
        let Some(SessionState::Owned { owner, .. }) = row.map(|row| row.state) else {
            return Ok(None);
        };
        let rows = self.store().nodes().await?;
        let pid = rows
            .iter()
            .find(|row| row.incarnation == owner)
            .map(|row| row.pid);
        Ok(self
            .nodes
            .iter()
            .position(|node| pid.is_some() && node.pid() == pid))
    }

    /// Waits until some node owns the session, and says which.
    ///
    /// # Errors
    /// Nobody does in time.
    pub async fn until_owned(&self, session: &SessionId) -> Result<usize> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(node) = self.owner(session).await? {
                return Ok(node);
            }
            if Instant::now() > deadline {
                let row = self.store().session(session).await?;
                bail!("nobody owns {session}: {:?}", row.map(|row| row.state));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until every session is idle.
    ///
    /// # Errors
    /// Some are not within `limit`, with their states; or one was quarantined.
    pub async fn at_rest(&self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let query = SessionQuery {
                limit: self.sessions.len().max(1),
                ..SessionQuery::default()
            };
            let rows = self.store().sessions(query).await?;
            let mut busy = rows.iter().filter(|row| row.state != SessionState::Idle);
            let Some(one) = busy.next() else {
                return Ok(());
            };
            if Instant::now() > deadline {
                bail!(
                    "{} sessions are busy after {limit:?}, {}: {:?}\n{}",
                    busy.count() + 1,
                    one.id,
                    one.state,
                    self.account().await
                );
            }
            tokio::time::sleep(LOOK * 5).await;
        }
    }

    /// What the store knows of the nodes, and what each has said last: for messages.
    pub async fn account(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        match self.store().nodes().await {
            Ok(rows) => rows.iter().for_each(|row| {
                let _ = writeln!(text, "{row:?}");
            }),
            Err(error) => {
                let _ = writeln!(text, "the nodes cannot be read: {error}");
            }
        }
        for node in &self.nodes {
            let _ = writeln!(text, "{} (pid {:?}) said:", node.name(), node.pid());
            for line in node.said().iter().rev().take(15).rev() {
                let _ = writeln!(text, "  {line}");
            }
        }
        text
    }

    /// A session's whole log.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn log(&self, session: &SessionId) -> Result<Vec<Event>> {
        let mut events: Vec<Event> = Vec::new();
        loop {
            let after = events.last().map(|event| event.seq);
            let page = self.store().read(session, after, PAGE).await?;
            if page.events.is_empty() {
                return Ok(events);
            }
            events.extend(page.events);
        }
    }

    /// The logs of all sessions.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn logs(&self) -> Result<BTreeMap<SessionId, Vec<Event>>> {
        let mut logs = BTreeMap::new();
        for session in self.sessions.keys() {
            logs.insert(session.clone(), self.log(session).await?);
        }
        Ok(logs)
    }

    /// Every broken promise, in words. To be asked when all sessions are at rest.
    ///
    /// # Errors
    /// The store or a workspace cannot be read.
    pub async fn judge(&self, overlaps: Overlaps) -> Result<Vec<String>> {
        let claims = self.store().claims().await?;
        let evidence = Evidence {
            logs: self.logs().await?,
            acknowledged: self.acknowledged.clone(),
            workspaces: self.sessions.clone(),
            requests: self.model.requests(),
            overlaps: self.model.overlaps(),
            claims: claims.iter().map(|claim| format!("{claim:?}")).collect(),
        };
        judge::judge(&evidence, overlaps)
    }
}

/// A node's configuration.
fn config(store: &str, base_url: &str, lease: Option<Lease>, more: &str) -> String {
    let mut text = format!(
        "default_model = \"local/m1\"\nstore = \"{store}\"\n{more}\n\
         [providers.local]\nprotocol = \"openai-chat\"\nbase_url = \"{base_url}\"\n\
         api_key_env = \"SIM_API_KEY\"\n\n[providers.local.models.m1]\ncontext = 200000\noutput = 32000\n"
    );
    if let Some(lease) = lease {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n[lease]\nrenew_ms = {}\nduration_ms = {}\nmargin_ms = {}\n",
            lease.renew_ms, lease.duration_ms, lease.margin_ms
        );
    }
    text
}
