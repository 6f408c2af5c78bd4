//! Engines on one store that reach each other over HTTP.

use crate::stores::Hurtable;
use crate::support::*;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::id::Incarnation;
use tenure_engine::{Client, Engine, EngineConfig, Peer};
use tenure_server::{Advertise, ClusterSecret, HttpPeers, Limits, NodeServer};
use tenure_store::Store;

pub const MACHINE: &str = "this-machine";

pub fn secret() -> ClusterSecret {
    ClusterSecret::new([7; 32])
}

pub async fn server_with(limits: Limits) -> NodeServer {
    let listen = "127.0.0.1:0".parse().unwrap();
    NodeServer::bind(listen, &Advertise::Listened, MACHINE, secret(), limits)
        .await
        .unwrap()
}

pub async fn server() -> NodeServer {
    server_with(Limits::default()).await
}

pub fn peers() -> HttpPeers {
    HttpPeers::new(secret(), MACHINE).unwrap()
}

/// The engine's settings for a node behind `server`. Nothing but a wake may be what delivers: the poll is slow.
pub fn config(bed: &Bed, server: &NodeServer) -> EngineConfig {
    EngineConfig {
        peers: Some(Arc::new(peers().served_by(server))),
        poll: Duration::from_secs(3600),
        ..bed.config.clone()
    }
}

pub async fn node(bed: &Bed, store: &Arc<dyn Hurtable>, server: &NodeServer) -> Engine {
    bed.engine_with(store, config(bed, server)).await
}

/// A client in another process, so to speak.
pub fn far(bed: &Bed) -> Client {
    Client::with_peers(bed.reopen(), bed.config.env.clone(), Arc::new(peers()))
}

pub async fn peer(store: &dyn Store, incarnation: &Incarnation) -> Peer {
    let nodes = store.nodes().await.unwrap();
    let node = nodes
        .iter()
        .find(|n| &n.incarnation == incarnation)
        .unwrap();
    Peer {
        incarnation: incarnation.clone(),
        address: node.address.clone().unwrap(),
    }
}
