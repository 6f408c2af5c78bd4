//! What sessions that wait cost: memory, processor, reads and writes, measured.

use crate::fakes::*;
use crate::support::*;
use crate::weather::Weather;
use std::time::Duration;
use tenure_core::event::body::Phase;
use tenure_engine::*;
use tenure_tools::permission::Rules;

const SESSIONS: usize = 10_000;

/// Kilobytes of memory, and milliseconds of processor time, that this process has taken.
fn taken() -> (u64, u64) {
    let field = |text: &str, at: usize| -> u64 {
        let fields: Vec<&str> = text.split_whitespace().collect();
        fields[at].parse().unwrap()
    };
    let pages = field(&std::fs::read_to_string("/proc/self/statm").unwrap(), 1);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    // Clock ticks of 10 ms.
    let ticks = field(after_name, 11) + field(after_name, 12);
    (pages * 4, ticks * 10)
}

/// Run by hand: `cargo nextest run -p tenure-engine --run-ignored only ten_thousand --no-capture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement of about two minutes"]
async fn ten_thousand_sessions_that_wait() {
    let asks = || Play::Answer(calls([call("a", "asks", "{}")]));
    let mut bed = Bed::new((0..SESSIONS).map(|_| asks())).with_tool(Asks);
    bed.config.approvals = Approvals::Wait;
    bed.config.scope = Scope::Any;
    bed.config.poll = Duration::from_secs(1);
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(bed.session_with(Rules::default(), 0).await);
    }
    let (before, _) = taken();
    let (store, sky) = Weather::over(&bed.store);
    let engine = bed.engine_on(store, bed.config.clone()).await;
    for session in &sessions {
        bed.admit(session, Prompt::steer("hi")).await;
    }
    let waiting = async || {
        let held = bed.store.held(&engine.incarnation()).await.unwrap();
        held.iter()
            .filter(|claim| claim.phase == Phase::Active)
            .count()
            == SESSIONS
    };
    while !waiting().await {
        // tidy: sleep ok because it is the pause between looks at a condition that no event tells of
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // Until every question is asked and every watcher is content.
    bed.model.requests.lock().unwrap().clear();
    // tidy: sleep ok because this measures what happens when nothing does
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (memory, cpu) = taken();
    sky.take_asked();
    const SECONDS: u64 = 20;
    // tidy: sleep ok because this measures what happens when nothing does
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let (_, cpu_after) = taken();
    println!(
        "{SESSIONS} sessions that wait: {} kB each, {} ms of processor time a second, asked in {SECONDS} s: {:?}",
        memory.saturating_sub(before) / SESSIONS as u64,
        (cpu_after - cpu) / SECONDS,
        sky.take_asked()
    );
    engine.shutdown_now().await.unwrap();
}
