//! Any bytes as server-sent events: no cut changes an event, and no event or buffer is larger than the limit.
#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;
use tenure_fuzz::invariants::cuts;

// The reader is private to its crate, and stays so: here it is a module.
#[path = "../../crates/provider/src/sse.rs"]
mod sse;

const LIMIT: usize = 256;

/// The events, and whether the limit stopped the reading.
fn read(body: &[u8], cuts: &[usize]) -> (Vec<(String, String)>, bool) {
    let mut reader = sse::SseReader::new(LIMIT);
    let mut events = Vec::new();
    let mut on = |event: sse::SseEvent<'_>| {
        // A byte that is no UTF-8 becomes a mark of three.
        assert!(event.data.len() + event.name.len() <= 3 * LIMIT);
        events.push((event.name.into_owned(), event.data.into_owned()));
        true
    };
    let mut from = 0;
    for cut in cuts.iter().copied().chain([body.len()]) {
        if reader.feed(&body[from..cut], &mut on).is_err() {
            return (events, true);
        }
        // The name is a line of its own.
        assert!(reader.buffered() <= 2 * LIMIT);
        from = cut;
    }
    reader.end(&mut on);
    (events, false)
}

fuzz_target!(|body: &[u8]| {
    let whole = read(body, &[]);
    for round in 0..3 {
        assert_eq!(read(body, &cuts(body, round)), whole);
    }
});
