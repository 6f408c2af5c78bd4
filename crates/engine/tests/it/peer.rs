//! Peers on one machine: live items and wakes over the Unix socket.

use crate::support::*;
use std::time::Duration;
use tenure_core::provider::ProviderEvent;
use tenure_engine::{LiveItem, Prompt};
use tenure_store::Interrupted;

fn begun() -> Answer {
    vec![Ok(vec![
        ProviderEvent::TextStart { id: "t".to_owned() },
        ProviderEvent::TextDelta {
            id: "t".to_owned(),
            text: "thinking aloud".to_owned(),
        },
    ])]
}

#[tokio::test]
async fn another_handle_sees_live_text_and_its_interrupt_arrives_by_the_socket() {
    let mut bed = Bed::new([]);
    bed.config.socket_dir = Some(bed.dir.path().to_owned());
    // The poll alone must not be what delivers the interrupt.
    bed.config.poll = Duration::from_secs(3600);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let client = bed.client();
    let mut live = client.follow_live(&session);
    // The reader must be connected before the text comes: hold the model back until it is.
    bed.model.push(Play::Hang(Vec::new()));
    client.admit(&session, Prompt::steer("go")).await.unwrap();
    engine.run(&session);
    bed.until(&session, "attempt.started").await;
    let connected = async {
        while !engine.hub().has_readers(&session) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), connected)
        .await
        .unwrap();
    let receipt = client.interrupt(&session, None, "test").await.unwrap();
    assert!(matches!(
        receipt,
        Interrupted::Accepted {
            after_takeover: false,
            ..
        }
    ));
    bed.until(&session, "execution.interrupted").await;
    engine.idle().await;
    assert_eq!(bed.store.claims().await.unwrap(), []);

    bed.model.push(Play::Hang(begun()));
    let mut second = client.follow_live(&session);
    client
        .admit(&session, Prompt::steer("again"))
        .await
        .unwrap();
    engine.run(&session);
    let text = async {
        loop {
            let item = tokio::select! {
                item = live.recv() => item,
                item = second.recv() => item,
            };
            if let Some(LiveItem::Delta { text, .. }) = item {
                return text;
            }
        }
    };
    // A reader that connects late has the text from the log: the checkpoint comes within 100 ms.
    let chunk = bed.until(&session, "fragment.chunk");
    let seen = tokio::time::timeout(Duration::from_secs(10), async {
        tokio::select! {
            text = text => text,
            event = chunk => event.body.encode(),
        }
    });
    assert!(seen.await.unwrap().contains("thinking aloud"));
}
