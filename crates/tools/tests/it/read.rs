//! The read tool: windows of lines, encodings, bounds.

use serde_json::json;
use tenure_tools::ToolError;

use crate::support::{Place, run};

#[tokio::test]
async fn lines_have_numbers_and_windows_say_where_they_are() {
    let place = Place::new();
    place.put("a.txt", "one\ntwo\nthree\n");
    let all = place.run("read", json!({"path": "a.txt"})).await.unwrap();
    assert_eq!(all.text, "     1\tone\n     2\ttwo\n     3\tthree\n");
    assert_eq!(all.metadata["complete"], true);
    let part = place
        .run("read", json!({"path": "a.txt", "offset": 2, "limit": 1}))
        .await
        .unwrap();
    assert_eq!(
        part.text,
        "     2\ttwo\n[lines 2 to 2 of 3, 14 bytes in all; go on with offset=3]"
    );
    let beyond = place
        .run("read", json!({"path": "a.txt", "offset": 9}))
        .await
        .unwrap_err();
    assert!(beyond.to_string().contains("has 3 lines"), "{beyond}");
}

#[tokio::test]
async fn empty_files_missing_line_ends_and_invalid_text_are_told() {
    let place = Place::new();
    place.put("empty", "");
    assert_eq!(
        place
            .run("read", json!({"path": "empty"}))
            .await
            .unwrap()
            .text,
        "[the file is empty]"
    );
    place.put("open", "a\nb");
    let open = place
        .run("read", json!({"path": "open"}))
        .await
        .unwrap()
        .text;
    assert!(
        open.ends_with("b\n[no line end after the last line]"),
        "{open}"
    );
    place.put("latin", b"caf\xe9\n");
    let latin = place
        .run("read", json!({"path": "latin"}))
        .await
        .unwrap()
        .text;
    assert!(
        latin.contains("caf\u{fffd}") && latin.contains("not all of it is valid text"),
        "{latin}"
    );
}

#[tokio::test]
async fn utf_16_with_a_mark_is_text_and_other_nuls_are_binary() {
    let place = Place::new();
    let wide: Vec<u8> = "\u{feff}hi\nthére\n"
        .encode_utf16()
        .flat_map(u16::to_be_bytes)
        .collect();
    place.put("wide.txt", wide);
    let text = place
        .run("read", json!({"path": "wide.txt"}))
        .await
        .unwrap()
        .text;
    assert_eq!(text, "     1\thi\n     2\tthére\n");
    place.put("prog", b"\x7fELF\0\0\0");
    let error = place
        .run("read", json!({"path": "prog"}))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ToolError::Refused { .. }) && error.to_string().contains("binary"),
        "{error:?}"
    );
}

#[tokio::test]
async fn long_lines_are_cut_at_a_character_and_pages_end_at_the_bound() {
    let place = Place::new();
    let long = "日本".repeat(5000);
    place.put("long.txt", format!("{long}\nshort\n"));
    let text = place
        .run("read", json!({"path": "long.txt"}))
        .await
        .unwrap()
        .text;
    assert!(text.contains("[… line of 30000 bytes]") && text.contains("     2\tshort"));
    assert!(text.len() < 2300 && !text.contains('\u{fffd}'));
    place.put("many.txt", "0123456789\n".repeat(10_000));
    let page = place
        .run("read", json!({"path": "many.txt", "limit": 10_000}))
        .await
        .unwrap();
    assert!(page.text.len() < 31 * 1024);
    let shown = page.metadata["lines"].as_u64().unwrap();
    assert!(
        page.text
            .contains(&format!("go on with offset={}", shown + 1))
    );
    // Going on shows every line once.
    let next = place
        .run(
            "read",
            json!({"path": "many.txt", "offset": shown + 1, "limit": 1}),
        )
        .await
        .unwrap();
    assert!(next.text.starts_with(&format!("{:>6}\t", shown + 1)));
}

#[tokio::test]
async fn a_huge_file_is_not_read_to_its_end() {
    let place = Place::new();
    let file = std::fs::File::create(place.path("huge")).unwrap();
    std::io::Write::write_all(&mut &file, "line\n".repeat(5000).as_bytes()).unwrap();
    // Sparse: it would be read as NULs, after the beginning that says it is text.
    file.set_len(1 << 40).unwrap();
    let page = place
        .run("read", json!({"path": "huge", "limit": 10}))
        .await
        .unwrap();
    assert!(
        page.text.contains("lines 1 to 10 of more than 10"),
        "{}",
        page.text
    );
}

#[tokio::test]
async fn control_characters_are_shown_not_sent() {
    let place = Place::new();
    place.put("esc", "a\x1b[31mred\rx\n");
    let text = place
        .run("read", json!({"path": "esc"}))
        .await
        .unwrap()
        .text;
    assert_eq!(text, "     1\ta\\x1b[31mred\\rx\n");
}

#[tokio::test]
async fn directories_are_listed_and_special_files_refused() {
    let place = Place::new();
    place.put("d/b.txt", "");
    place.put("d/a/x", "");
    std::os::unix::fs::symlink("b.txt", place.path("d/l")).unwrap();
    let text = place.run("read", json!({"path": "d"})).await.unwrap().text;
    assert!(
        text.ends_with("a/\nb.txt\nl@") && text.contains("3 entries"),
        "{text}"
    );
    nix::unistd::mkfifo(
        &place.path("pipe"),
        nix::sys::stat::Mode::from_bits_truncate(0o600),
    )
    .unwrap();
    let error = place
        .run("read", json!({"path": "pipe"}))
        .await
        .unwrap_err();
    assert!(matches!(error, ToolError::Refused { .. }), "{error:?}");
}

#[tokio::test]
async fn a_long_read_stops_when_the_call_is_cancelled() {
    let place = Place::new();
    std::fs::File::create(place.path("huge"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    std::fs::write(place.path("start"), "x").unwrap();
    // Text for longer than is looked at for NULs, then a line that never ends.
    let mut head = "a".repeat(64 * 1024).into_bytes();
    head.truncate(64 * 1024);
    let file = std::fs::File::options()
        .write(true)
        .open(place.path("huge"))
        .unwrap();
    std::io::Write::write_all(&mut &file, &head).unwrap();
    let cx = place.cx();
    let running = tokio::spawn({
        let cx = cx.clone();
        async move { run(&cx, "read", json!({"path": "huge", "offset": 2})).await }
    });
    tokio::task::yield_now().await;
    cx.cancel.cancel();
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, ToolError::Interrupted { .. }), "{error:?}");
}
