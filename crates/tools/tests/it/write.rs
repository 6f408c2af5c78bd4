//! The write tool: whole files in one step.

use serde_json::json;
use tenure_tools::ToolError;

use crate::support::{Place, run};

#[tokio::test]
async fn creates_with_parents_and_tells_sizes() {
    let place = Place::new();
    let made = place
        .run(
            "write",
            json!({"path": "a/b/c.txt", "content": "one\ntwo\n"}),
        )
        .await
        .unwrap();
    assert_eq!(place.text("a/b/c.txt"), "one\ntwo\n");
    assert!(
        made.text.contains("Created a/b/c.txt: 8 bytes, 2 lines"),
        "{}",
        made.text
    );
    assert_eq!(made.metadata["directories_made"], 2);
    let again = place
        .run("write", json!({"path": "a/b/c.txt", "content": ""}))
        .await
        .unwrap();
    assert!(
        again.text.contains("8 bytes before, now 0 bytes"),
        "{}",
        again.text
    );
    assert_eq!(place.text("a/b/c.txt"), "");
}

#[tokio::test]
async fn a_file_that_changed_since_it_was_read_is_not_overwritten() {
    let place = Place::new();
    place.put("a.txt", "one");
    let cx = place.cx();
    run(&cx, "read", json!({"path": "a.txt"})).await.unwrap();
    place.put("a.txt", "two");
    let error = run(&cx, "write", json!({"path": "a.txt", "content": "three"}))
        .await
        .unwrap_err();
    assert!(matches!(error, ToolError::Refused { .. }), "{error:?}");
    assert_eq!(place.text("a.txt"), "two");
}

#[tokio::test]
async fn directories_and_special_files_are_refused() {
    let place = Place::new();
    place.put("dir/f", "");
    nix::unistd::mkfifo(
        &place.path("pipe"),
        nix::sys::stat::Mode::from_bits_truncate(0o600),
    )
    .unwrap();
    for path in ["dir", "pipe", "."] {
        let error = place
            .run("write", json!({"path": path, "content": "x"}))
            .await
            .unwrap_err();
        assert!(
            matches!(error, ToolError::Refused { .. }),
            "{path}: {error:?}"
        );
    }
}

#[tokio::test]
async fn a_file_in_the_way_of_a_directory_is_an_error() {
    let place = Place::new();
    place.put("a", "file");
    let error = place
        .run("write", json!({"path": "a/b", "content": "x"}))
        .await
        .unwrap_err();
    assert!(matches!(error, ToolError::Io { .. }), "{error:?}");
    assert_eq!(place.text("a"), "file");
}

#[tokio::test]
async fn a_cancelled_write_does_not_begin() {
    let place = Place::new();
    let cx = place.cx();
    cx.cancel.cancel();
    let error = run(&cx, "write", json!({"path": "a", "content": "x"}))
        .await
        .unwrap_err();
    assert!(matches!(error, ToolError::Interrupted { .. }), "{error:?}");
    assert!(!place.path("a").exists());
}
