//! Finding the owner of a session and waking it, with a memory that an answer corrects.

use super::{Peer, Peers, Woken};
use crate::engine::rank::{first_of, takes};
use crate::environment::Environment;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tenure_core::id::{Incarnation, SessionId};
use tenure_store::{NodeRow, SessionRow, SessionState, Store};

/// Entries a memory holds; beyond them it begins anew.
const REMEMBERED: usize = 4096;
/// A wake is a hint: whoever sends one waits no longer than this for the answer.
const COURTESY: Duration = Duration::from_millis(100);

/// How long the nodes of one look are believed for a hint, in milliseconds.
const BELIEVED_MS: u64 = 500;

/// The ways to other nodes of a store.
pub(crate) struct Reach {
    pub store: Arc<dyn Store>,
    pub env: Arc<dyn Environment>,
    pub peers: Arc<dyn Peers>,
    owners: Memory<SessionId, Peer>,
    /// An incarnation's address never changes.
    addresses: Memory<Incarnation, Option<String>>,
    /// Who takes sessions, and when that was read.
    takers: Mutex<Option<(u64, Arc<[NodeRow]>)>>,
}

impl Reach {
    pub fn new(
        store: Arc<dyn Store>,
        env: Arc<dyn Environment>,
        peers: Arc<dyn Peers>,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            env,
            peers,
            owners: Memory::default(),
            addresses: Memory::default(),
            takers: Mutex::default(),
        })
    }

    /// The owner as the store has it now, with its epoch, if it can be reached at all.
    pub async fn owner(&self, session: &SessionId) -> Option<(Peer, u64)> {
        let row = self.store.session(session).await.ok()??;
        self.owner_in(session, row.state).await
    }

    async fn owner_in(&self, session: &SessionId, state: SessionState) -> Option<(Peer, u64)> {
        let SessionState::Owned { owner, epoch, .. } = state else {
            self.owners.forget(session);
            return None;
        };
        let peer = self.peer(&owner).await?;
        self.owners.keep(session.clone(), peer.clone());
        Some((peer, epoch))
    }

    /// Who is to take a session that nobody owns: the one that all nodes agree comes first for it.
    async fn taker(&self, row: &SessionRow) -> Option<Peer> {
        let takers = self.takers().await?;
        let first = first_of(row, takers.iter())?;
        Some(Peer {
            incarnation: first.incarnation.clone(),
            address: first.address.clone()?,
        })
    }

    async fn takers(&self) -> Option<Arc<[NodeRow]>> {
        let now = self.env.boot_ms();
        if let Some((read_ms, takers)) = &*self.known_takers()
            && now.saturating_sub(*read_ms) < BELIEVED_MS
        {
            return Some(takers.clone());
        }
        let mut rows = self.store.nodes().await.ok()?;
        rows.retain(takes);
        let takers: Arc<[NodeRow]> = rows.into();
        *self.known_takers() = Some((now, takers.clone()));
        Some(takers)
    }

    fn known_takers(&self) -> MutexGuard<'_, Option<(u64, Arc<[NodeRow]>)>> {
        self.takers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn peer(&self, incarnation: &Incarnation) -> Option<Peer> {
        let known = self.addresses.get(incarnation);
        let address = match known {
            Some(address) => address,
            None => {
                let nodes = self.store.nodes().await.ok()?;
                let node = nodes.into_iter().find(|n| &n.incarnation == incarnation)?;
                self.addresses
                    .keep(incarnation.clone(), node.address.clone());
                node.address
            }
        };
        Some(Peer {
            incarnation: incarnation.clone(),
            address: address?,
        })
    }

    /// Makes the owner look at the session; where nobody owns it, the node that comes first for it. True when a
    /// node that runs it was reached.
    pub async fn wake(&self, session: &SessionId) -> bool {
        let remembered = self.owners.get(session);
        if let Some(peer) = &remembered {
            match self.peers.wake(peer, session).await {
                Woken::Looking { .. } => return true,
                // One that is silent may be the right one all the same, or a machine that is gone: the store knows.
                Woken::NotOwner { .. } | Woken::Unreached(_) => self.owners.forget(session),
            }
        }
        let Ok(Some(row)) = self.store.session(session).await else {
            return false;
        };
        let to = match &row.state {
            SessionState::Claimable { .. } => self.taker(&row).await,
            // Asked a moment ago: nobody is asked twice for a hint.
            state => {
                let owner = self.owner_in(session, state.clone()).await;
                let owner = owner.map(|(peer, _)| peer);
                owner.filter(|peer| remembered.as_ref() != Some(peer))
            }
        };
        match to {
            Some(peer) => self.ask(&peer, session).await,
            None => false,
        }
    }

    /// As [`Reach::wake`], where the owner is known.
    pub async fn wake_at(&self, owner: &Incarnation, session: &SessionId) -> bool {
        match self.peer(owner).await {
            Some(peer) => self.ask(&peer, session).await,
            None => false,
        }
    }

    async fn ask(&self, peer: &Peer, session: &SessionId) -> bool {
        matches!(self.peers.wake(peer, session).await, Woken::Looking { .. })
    }

    /// Sends a wake on its way and does not wait for it.
    pub fn hint_later(self: &Arc<Self>, session: &SessionId) {
        let (reach, session) = (self.clone(), session.clone());
        self.env.spawn(Box::pin(async move {
            reach.wake(&session).await;
        }));
    }

    /// Sends a wake on its way and waits a moment for it: a program that ends next should have sent it, and
    /// nobody should wait for a node that is cut off.
    pub async fn hint(self: &Arc<Self>, session: &SessionId, owner: Option<&Incarnation>) {
        let (sent, arrived) = tokio::sync::oneshot::channel();
        let (reach, session, owner) = (self.clone(), session.clone(), owner.cloned());
        self.env.spawn(Box::pin(async move {
            let woken = match &owner {
                Some(owner) => reach.wake_at(owner, &session).await,
                None => reach.wake(&session).await,
            };
            // Whoever asked may have stopped waiting.
            let _ = sent.send(woken);
        }));
        tokio::select! {
            biased;
            _ = arrived => {}
            () = self.env.sleep(COURTESY) => {}
        }
    }
}

/// A bounded memory of facts that can be asked for again.
struct Memory<K, V>(Mutex<HashMap<K, V>>);

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Memory<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).cloned()
    }

    fn keep(&self, key: K, value: V) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED && !known.contains_key(&key) {
            known.clear();
        }
        known.insert(key, value);
    }

    fn forget(&self, key: &K) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(key);
    }
}
