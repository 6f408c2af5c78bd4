//! The edit tool: exact and unique, or a reason; everything else in the file stays as it was.

use serde_json::json;
use tenure_tools::ToolError;

use crate::support::{Place, run};

async fn refused(place: &Place, input: serde_json::Value) -> String {
    match place.run("edit", input).await {
        Err(ToolError::Refused { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn bc_s_096_a_crlf_file_is_read_and_edited_twice() {
    let place = Place::new();
    place.put("a.txt", "one\r\ntwo\r\nthree\r\nfour\r\n");
    let cx = place.cx();
    let seen = run(&cx, "read", json!({"path": "a.txt"})).await.unwrap();
    assert!(seen.text.contains("CR LF"), "{}", seen.text);
    let first = json!({"path": "a.txt", "old_string": "two\nthree", "new_string": "2\n2b\n3"});
    run(&cx, "edit", first).await.unwrap();
    assert_eq!(place.text("a.txt"), "one\r\n2\r\n2b\r\n3\r\nfour\r\n");
    // A time stamp that lies must not matter: only content does.
    let file = std::fs::File::options()
        .write(true)
        .open(place.path("a.txt"))
        .unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let second = json!({"path": "a.txt", "old_string": "four", "new_string": "4\n5"});
    run(&cx, "edit", second).await.unwrap();
    assert_eq!(place.text("a.txt"), "one\r\n2\r\n2b\r\n3\r\n4\r\n5\r\n");
}

#[tokio::test]
async fn bc_s_096_the_guard_compares_content() {
    let place = Place::new();
    place.put("a.txt", "one\ntwo\n");
    let cx = place.cx();
    run(&cx, "read", json!({"path": "a.txt"})).await.unwrap();
    place.put("a.txt", "one\r\ntwo\r\n");
    let input = json!({"path": "a.txt", "old_string": "two", "new_string": "2"});
    let error = run(&cx, "edit", input.clone())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("changed since you read it"), "{error}");
    assert_eq!(place.text("a.txt"), "one\r\ntwo\r\n");
    run(&cx, "read", json!({"path": "a.txt"})).await.unwrap();
    run(&cx, "edit", input).await.unwrap();
    assert_eq!(place.text("a.txt"), "one\r\n2\r\n");
}

#[tokio::test]
async fn bc_s_097_an_invented_middle_is_refused() {
    let place = Place::new();
    let lines: Vec<String> = (1..=400)
        .map(|n| match n {
            5 | 200 => "fn begin() {".to_owned(),
            209 | 390 => "} // end".to_owned(),
            n => format!("    line {n};"),
        })
        .collect();
    let before = lines.join("\n");
    place.put("big.rs", &before);
    let mut block: Vec<String> = lines[199..209].to_vec();
    block[4] = "    invented();".to_owned();
    let input = json!({"path": "big.rs", "old_string": block.join("\n"), "new_string": "gone"});
    let reason = refused(&place, input).await;
    assert!(
        reason.contains("not in `big.rs`") && reason.contains("line 5"),
        "{reason}"
    );
    // Only the ends of the block, without the middle.
    let ends =
        json!({"path": "big.rs", "old_string": "fn begin() {\n} // end", "new_string": "gone"});
    refused(&place, ends).await;
    assert_eq!(place.text("big.rs"), before);
}

#[tokio::test]
async fn bc_s_098_each_refusal_has_its_own_reason() {
    let place = Place::new();
    let before = "let total = 1;\nlet totals = 2;\n";
    place.put("a.rs", before);
    let near = json!({"path": "a.rs", "old_string": "let tota = 1", "new_string": "x"});
    let empty = json!({"path": "a.rs", "old_string": "", "new_string": "x"});
    let same = json!({"path": "a.rs", "old_string": "let total", "new_string": "let total"});
    let mut reasons = vec![
        refused(&place, near).await,
        refused(&place, empty).await,
        refused(&place, same).await,
    ];
    assert!(reasons[0].contains("nearest line is 1"), "{}", reasons[0]);
    reasons.dedup();
    assert_eq!(reasons.len(), 3);
    assert_eq!(place.text("a.rs"), before);
}

#[tokio::test]
async fn several_matches_name_their_lines_and_replace_all_takes_them() {
    let place = Place::new();
    place.put("a.txt", "x\ny\nx\nz x");
    let reason = refused(
        &place,
        json!({"path": "a.txt", "old_string": "x", "new_string": "w"}),
    )
    .await;
    assert!(reason.contains("3 times (lines 1, 3, 4)"), "{reason}");
    let all = json!({"path": "a.txt", "old_string": "x", "new_string": "w", "replace_all": true});
    let done = place.run("edit", all).await.unwrap();
    assert_eq!(place.text("a.txt"), "w\ny\nw\nz w");
    assert!(
        done.text.contains("3 places replaced, first at line 1"),
        "{}",
        done.text
    );
    assert_eq!(done.metadata["replacements"], 3);
}

#[tokio::test]
async fn other_white_space_is_told_not_taken() {
    let place = Place::new();
    place.put("a.py", "def f():\n\treturn 1\n");
    let input =
        json!({"path": "a.py", "old_string": "def f():\n    return 1", "new_string": "pass"});
    let reason = refused(&place, input).await;
    assert!(
        reason.contains("other white space is at line 1"),
        "{reason}"
    );
}

#[tokio::test]
async fn marks_encodings_and_final_line_ends_are_kept() {
    let place = Place::new();
    place.put("bom.txt", b"\xef\xbb\xbfa\r\nb");
    let edit = |path: &str| json!({"path": path, "old_string": "a\nb", "new_string": "c\nd\u{e9}"});
    place.run("edit", edit("bom.txt")).await.unwrap();
    assert_eq!(place.get("bom.txt"), "\u{feff}c\r\nd\u{e9}".as_bytes());
    let wide = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    place.put("wide.txt", wide("\u{feff}a\nb\n"));
    place.run("edit", edit("wide.txt")).await.unwrap();
    assert_eq!(place.get("wide.txt"), wide("\u{feff}c\nd\u{e9}\n"));
    place.put("latin.txt", b"a\nb \xe9");
    refused(&place, edit("latin.txt")).await;
    assert_eq!(place.get("latin.txt"), b"a\nb \xe9");
}

#[tokio::test]
async fn mode_is_kept_and_nothing_is_left_beside_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.put("run.sh", "#!/bin/sh\necho 1\n");
    std::fs::set_permissions(place.path("run.sh"), std::fs::Permissions::from_mode(0o750)).unwrap();
    place
        .run(
            "edit",
            json!({"path": "run.sh", "old_string": "1", "new_string": "2"}),
        )
        .await
        .unwrap();
    let mode = std::fs::metadata(place.path("run.sh"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o750);
    assert_eq!(std::fs::read_dir(place.workspace()).unwrap().count(), 1);
}

#[tokio::test]
async fn parallel_edits_of_one_file_lose_none() {
    let place = Place::new();
    let text: String = (0..20).map(|n| format!("<{n}>\n")).collect();
    place.put("a.txt", text);
    let cx = place.cx();
    run(&cx, "read", json!({"path": "a.txt"})).await.unwrap();
    let mut edits = tokio::task::JoinSet::new();
    for n in 0..20 {
        let cx = cx.clone();
        edits.spawn(async move {
            let input = json!({"path": "a.txt", "old_string": format!("<{n}>"), "new_string": format!("[{n}]")});
            run(&cx, "edit", input).await.unwrap();
        });
    }
    edits.join_all().await;
    assert_eq!(
        place.text("a.txt"),
        (0..20).map(|n| format!("[{n}]\n")).collect::<String>()
    );
}

#[tokio::test]
async fn a_missing_file_has_near_names() {
    let place = Place::new();
    place.put("settings.toml", "");
    let error = place
        .run(
            "edit",
            json!({"path": "setings.toml", "old_string": "a", "new_string": "b"}),
        )
        .await;
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("does not exist") && text.contains("settings.toml"),
        "{text}"
    );
}
