//! Finding the owner of a session and waking it, with a memory that an answer corrects.

use super::{Peer, Peers, Unreached, Woken};
use crate::environment::Environment;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure_core::id::{Incarnation, SessionId};
use tenure_store::{SessionState, Store};

/// Entries a memory holds; beyond them it begins anew.
const REMEMBERED: usize = 4096;
/// A wake is a hint: whoever sends one waits no longer than this for the answer.
const COURTESY: Duration = Duration::from_millis(100);

/// The ways to other nodes of a store.
pub(crate) struct Reach {
    pub store: Arc<dyn Store>,
    pub env: Arc<dyn Environment>,
    pub peers: Arc<dyn Peers>,
    owners: Memory<SessionId, Peer>,
    /// An incarnation's address never changes.
    addresses: Memory<Incarnation, Option<String>>,
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
        })
    }

    /// The owner as the store has it now, with its epoch, if it can be reached at all.
    pub async fn owner(&self, session: &SessionId) -> Option<(Peer, u64)> {
        let row = self.store.session(session).await.ok()??;
        let SessionState::Owned { owner, epoch, .. } = row.state else {
            self.owners.forget(session);
            return None;
        };
        let peer = self.peer(&owner).await?;
        self.owners.keep(session.clone(), peer.clone());
        Some((peer, epoch))
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

    /// Makes the owner look at the session. True when a node that runs it was reached.
    pub async fn wake(&self, session: &SessionId) -> bool {
        let remembered = self.owners.get(session);
        if let Some(peer) = &remembered {
            match self.peers.wake(peer, session).await {
                Woken::Looking { .. } => return true,
                // It may be the right one all the same: nobody is asked twice for a hint.
                Woken::Unreached(Unreached::Silent) => return false,
                Woken::NotOwner { .. } | Woken::Unreached(_) => self.owners.forget(session),
            }
        }
        match self.owner(session).await {
            Some((peer, _)) if remembered.as_ref() != Some(&peer) => self.ask(&peer, session).await,
            _ => false,
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
