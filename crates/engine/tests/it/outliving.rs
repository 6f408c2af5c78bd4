//! No process outlives its call (P4, R10): what a stopped call left is found by its row, whoever comes next.

use crate::fakes::Echo;
use crate::support::*;
use crate::weather::Weather;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tenure_core::id::SessionId;
use tenure_engine::*;
use tenure_store::mutation::{Mutation, Mutations};
use tenure_store::{Acquire, OpenOptions};
use tenure_tools::guardian::{boot_id, pid_start};
use tenure_tools::permission::Access;
use tenure_tools::{AtWork, Spawned, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};

/// The processes of the calls of [`Leaves`].
#[derive(Clone, Default)]
struct Family(Arc<Mutex<Vec<Member>>>);

/// A process, and the mark of its call while somebody follows it.
type Member = (Child, Option<AtWork>);

impl Family {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn alive(&self) -> usize {
        let mut all = self.0.lock().unwrap();
        let alive = all.iter_mut().map(|(child, _)| child.try_wait().unwrap());
        alive.filter(Option::is_none).count()
    }

    /// Nothing follows the processes any more.
    fn let_go(&self) {
        self.0
            .lock()
            .unwrap()
            .iter_mut()
            .for_each(|all| all.1 = None);
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        for (child, _) in self.0.lock().unwrap().iter_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spec(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: "A tool of the tests.".to_owned(),
        input_schema: json!({"type": "object"}),
    }
}

/// Starts a process that goes on when the call is stopped, as below a guardian that was stopped.
struct Leaves(Family, &'static str);

#[async_trait]
impl Tool for Leaves {
    fn spec(&self) -> ToolSpec {
        spec("leaves")
    }

    fn access(&self, _: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(Vec::new())
    }

    fn reports_spawn(&self) -> bool {
        true
    }

    async fn run(&self, cx: ToolCx, _: Value) -> Result<ToolOutput, ToolError> {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let spawned = Spawned {
            pid: child.id(),
            pid_start: pid_start(child.id()).unwrap(),
            boot_id: match self.1 {
                "" => boot_id().unwrap(),
                elsewhere => elsewhere.to_owned(),
            },
        };
        cx.spawned.as_ref().unwrap().report(spawned).await.unwrap();
        let at_work = cx.at_work.clone();
        self.0.0.lock().unwrap().push((child, at_work));
        std::future::pending().await
    }
}

/// Says how many of the family are alive when it begins.
struct Counts(Family);

#[async_trait]
impl Tool for Counts {
    fn spec(&self) -> ToolSpec {
        spec("counts")
    }

    fn access(&self, _: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(Vec::new())
    }

    async fn run(&self, _: ToolCx, _: Value) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput {
            text: format!("{} alive", self.0.alive()),
            ..ToolOutput::default()
        })
    }
}

fn bed_with(options: OpenOptions, boot_id: &'static str) -> (Bed, Family) {
    let family = Family::default();
    let plays = [
        Play::Answer(calls([call("a", "leaves", "{}")])),
        Play::Answer(calls([call("b", "counts", "{}")])),
        Play::Answer(text("done")),
    ];
    let mut bed = Bed::with_options(plays, options)
        .with_tool(Leaves(family.clone(), boot_id))
        .with_tool(Counts(family.clone()))
        .with_tool(Echo);
    bed.config.scope = Scope::Any;
    (bed, family)
}

fn bed() -> (Bed, Family) {
    bed_with(OpenOptions::default(), "")
}

async fn rows(bed: &Bed, session: &SessionId) -> usize {
    bed.store.effects(session).await.unwrap().len()
}

/// A call whose process goes on is interrupted and settled.
async fn stopped(bed: &Bed, family: &Family) -> SessionId {
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("leave something")).await;
    eventually("the first call", async || family.count() == 1).await;
    bed.interrupt(&session).await;
    bed.until(&session, "execution.interrupted").await;
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_row_of_a_stopped_call_goes_when_nothing_of_it_is_at_work() {
    let (bed, family) = bed();
    let engine = bed.engine().await;
    let session = stopped(&bed, &family).await;
    engine.idle().await;
    assert_eq!(bed.store.claims().await.unwrap(), []);
    assert_eq!((rows(&bed, &session).await, family.alive()), (1, 1));
    // Whoever followed it gives up: it is ended by its identity.
    family.let_go();
    eventually("the end of the row", async || {
        rows(&bed, &session).await == 0
    })
    .await;
    assert_eq!(family.alive(), 0);
    bed.assert_at_rest(&session).await;
}

/// Its node is killed before the process is gone. Nobody prompts: a node of the machine finds it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stopped_call_of_a_lost_node_left_is_ended_by_any_node_of_the_machine() {
    let (bed, family) = bed();
    let victim = bed.victim().await;
    let session = stopped(&bed, &family).await;
    victim.engine.idle().await;
    victim.kill().await;
    assert_eq!((rows(&bed, &session).await, family.alive()), (1, 1));
    let _heir = bed.engine().await;
    eventually("the end of the row", async || {
        rows(&bed, &session).await == 0
    })
    .await;
    assert_eq!(family.alive(), 0);
}

/// What is told of the first call when the second one begins, by an heir that looks only at what it takes.
async fn told_by_the_next_call(bed: &Bed, family: &Family) -> String {
    let victim = bed.victim().await;
    let session = stopped(bed, family).await;
    victim.engine.idle().await;
    victim.kill().await;
    let (store, sky) = Weather::over(&bed.store);
    sky.unswept.store(true, Ordering::SeqCst);
    let heir = bed.engine_on(store, bed.config.clone()).await;
    assert_eq!(family.alive(), 1);
    let next = bed.admit(&session, Prompt::steer("go on")).await;
    assert_eq!(outcome(&heir, &session, &next).await, Outcome::Succeeded);
    eventually("the end of the row", async || {
        rows(bed, &session).await == 0
    })
    .await;
    heir.idle().await;
    bed.assert_at_rest(&session).await;
    bed.last_results().pop().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_call_begins_when_what_a_lost_node_left_has_been_ended() {
    let (bed, family) = bed();
    assert_eq!(told_by_the_next_call(&bed, &family).await, "0 alive");
}

/// On another machine nothing is proven, nor harmed: the row stays for a node that comes back there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_on_another_machine_is_waited_for() {
    let (bed, family) = bed_with(OpenOptions::default(), "elsewhere");
    let victim = bed.victim().await;
    let session = stopped(&bed, &family).await;
    victim.engine.idle().await;
    victim.kill().await;
    let other = bed.raw_node().await;
    let taken = bed.store.acquire(&session, &other, true).await.unwrap();
    let Acquire::Acquired(tenure) = taken else {
        panic!("{taken:?}")
    };
    assert_eq!(tenure.left.len(), 1);
    assert!(tenure.quiet_ms > 0);
    assert_eq!(family.alive(), 1);
}

/// However little of its word the store's clock says is left: the next call waits for a lease and a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_on_another_machine_is_waited_for_by_the_takers_own_clock() {
    let (mut bed, family) = bed_with(OpenOptions::default(), "elsewhere");
    // Nothing here goes on by time.
    bed.config.lease = std::time::Duration::from_secs(60);
    let victim = bed.victim().await;
    let session = stopped(&bed, &family).await;
    victim.engine.idle().await;
    victim.kill().await;
    let (store, sky) = Weather::over(&bed.store);
    sky.quiet_ms.store(1, Ordering::SeqCst);
    let _heir = bed.engine_on(store, bed.config.clone()).await;
    bed.admit(&session, Prompt::steer("go on")).await;
    bed.until_nth(&session, "tool.called", 2).await;
    for _ in 0..100 {
        bed.log(&session).await;
    }
    assert_eq!(bed.count(&session, "tool.started").await, 1);
}

/// The rows are what it rests on: without them nobody looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_row_nothing_would_be_found() {
    let options = OpenOptions {
        mutations: Mutations::only(Mutation::EffectForgotten),
        ..OpenOptions::default()
    };
    let (bed, family) = bed_with(options, "");
    let victim = bed.victim().await;
    let session = stopped(&bed, &family).await;
    victim.engine.idle().await;
    victim.kill().await;
    assert_eq!((rows(&bed, &session).await, family.alive()), (0, 1));
}
