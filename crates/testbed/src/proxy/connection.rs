//! One connection through the proxy, from the client's arrival to the last byte.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::commits::{End, Talk};
use super::flow::carry;
use super::plan::{Flow, Plan, Shared, Way};

/// Carries one client's connection to its end.
pub(super) async fn run(client: TcpStream, shared: Arc<Shared>) {
    serve(client, &shared).await;
    shared.open.fetch_sub(1, Ordering::SeqCst);
}

async fn serve(mut client: TcpStream, shared: &Shared) {
    // Small messages are the rule, and waiting for more of them would be a fault nobody ordered.
    let _ = client.set_nodelay(true);
    let plan = shared.plan.subscribe();
    let (cuts, deliveries) = {
        let plan = plan.borrow();
        (plan.cuts, plan.deliveries)
    };
    let cut = cut_ordered(plan.clone(), cuts);
    tokio::pin!(cut);
    let mut server = tokio::select! {
        biased;
        () = &mut cut => return reset(client),
        server = reach(&mut client, plan.clone()) => match server {
            Some(server) => server,
            None => return reset(client),
        },
    };
    let talk = Talk::default();
    let end = {
        let (client_reads, client_writes) = client.split();
        let (server_reads, server_writes) = server.split();
        let both = async {
            tokio::try_join!(
                carry(Way::Up, client_reads, server_writes, &talk, shared),
                carry(Way::Down, server_reads, client_writes, &talk, shared),
            )
        };
        tokio::select! {
            biased;
            () = &mut cut => Err(End::Cut),
            ended = both => ended,
        }
    };
    match end {
        Ok(((), ())) => {}
        Err(End::Cut) => {
            reset(client);
            reset(server);
        }
        Err(End::Commit) => {
            reset(client);
            drop(server);
            shared.fault_met();
        }
        Err(End::Late(bytes)) => {
            shared.held.fetch_add(1, Ordering::SeqCst);
            reset(client);
            shared.fault_met();
            deliver(server, &bytes, &talk, plan, deliveries).await;
            shared.held.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Connects to the target as the switches stand: at once, when they let something through, or never.
async fn reach(client: &mut TcpStream, mut plan: watch::Receiver<Plan>) -> Option<TcpStream> {
    loop {
        let (target, flow) = {
            let plan = plan.borrow_and_update();
            (plan.target, plan.up)
        };
        match flow {
            Flow::Stall => plan.changed().await.ok()?,
            Flow::Swallow => {
                let mut lost = [0; 4096];
                while client.read(&mut lost).await.is_ok_and(|read| read > 0) {}
                // Even the client's farewell is lost; only an order ends this.
                std::future::pending::<()>().await;
            }
            Flow::Pass | Flow::Delay(_) | Flow::CutAfter(_) => {
                let server = TcpStream::connect(target).await.ok()?;
                let _ = server.set_nodelay(true);
                return Some(server);
            }
        }
    }
}

/// Returns when every connection that was open at `cuts` is to end.
async fn cut_ordered(mut plan: watch::Receiver<Plan>, cuts: u64) {
    // An error means that the proxy itself is gone.
    let _ = plan.wait_for(|plan| plan.cuts > cuts || plan.over).await;
}

/// Hands over late bytes once they are ordered, and waits for the answer, unless the server loses patience first.
async fn deliver(
    mut server: TcpStream,
    bytes: &[u8],
    talk: &Talk,
    mut plan: watch::Receiver<Plan>,
    deliveries: u64,
) {
    let mut buffer = [0; 4096];
    loop {
        tokio::select! {
            biased;
            ordered = plan.wait_for(|plan| plan.deliveries > deliveries || plan.over) => {
                if ordered.is_err() {
                    return;
                }
                break;
            }
            read = server.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return,
                Ok(length) => {
                    talk.ends(&buffer[..length]);
                }
            },
        }
    }
    if server.write_all(bytes).await.is_err() {
        return;
    }
    while let Ok(length) = server.read(&mut buffer).await {
        if length == 0 || talk.ends(&buffer[..length]) {
            return;
        }
    }
}

/// Closes with a reset: the peer sees an error, not an end.
fn reset(stream: TcpStream) {
    // A stream that is broken already needs no reset.
    let _ = stream.set_zero_linger();
}
