//! Glob and grep: what is found, what is left out, bounds.

use serde_json::json;
use tenure_tools::{PathFilter, ToolError};

use crate::support::{Place, run};

fn tree() -> Place {
    let place = Place::new();
    place.put(".gitignore", "target/\n*.log\n");
    place.put(".git/config", "needle");
    place.put(".github/ci.yml", "needle here\n");
    place.put("src/main.rs", "fn main() {\n    needle();\n}\n");
    place.put("src/deep/mod.rs", "// nothing\nNeedle\nneedle needle\n");
    place.put("target/out.rs", "needle\n");
    place.put("a.log", "needle\n");
    place
}

#[tokio::test]
async fn glob_finds_by_path_and_name_and_respects_ignore_files() {
    let place = tree();
    let glob = |pattern: &str| json!({ "pattern": pattern });
    let found = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let names = place.run("glob", glob("*.rs")).await.unwrap();
    assert_eq!(found(&names.text), ["src/deep/mod.rs", "src/main.rs"]);
    let direct = place.run("glob", glob("src/*.rs")).await.unwrap();
    assert_eq!(found(&direct.text), ["src/main.rs"]);
    let all = place.run("glob", glob("**/*")).await.unwrap();
    assert_eq!(
        found(&all.text),
        [
            ".github/ci.yml",
            ".gitignore",
            "src/deep/mod.rs",
            "src/main.rs"
        ]
    );
    let below = place
        .run("glob", json!({"pattern": "**/*.rs", "path": "src/deep"}))
        .await
        .unwrap();
    assert_eq!(found(&below.text), ["src/deep/mod.rs"]);
    let none = place.run("glob", glob("*.zig")).await.unwrap();
    assert_eq!(none.text, "No file matches.");
    for bad in ["/etc/*", "../*", "a/../../b", "a[", "{a"] {
        let error = place.run("glob", glob(bad)).await.unwrap_err();
        assert!(
            matches!(error, ToolError::InvalidInput { .. }),
            "{bad}: {error:?}"
        );
    }
}

#[tokio::test]
async fn bc_s_099_more_than_the_limit_says_so() {
    let place = Place::new();
    for n in 0..150 {
        place.put(&format!("d{}/f{n}.txt", n % 7), "");
    }
    let hundred = place
        .run("glob", json!({"pattern": "*.txt"}))
        .await
        .unwrap();
    assert_eq!(
        hundred.text.lines().filter(|l| l.ends_with(".txt")).count(),
        100
    );
    assert!(hundred.text.contains("more exist"), "{}", hundred.text);
    assert_eq!(hundred.metadata["more"], true);
    let all = place
        .run("glob", json!({"pattern": "*.txt", "limit": 150}))
        .await
        .unwrap();
    assert!(!all.text.contains("more exist"));
    assert!(all.text.lines().is_sorted());
}

#[tokio::test]
async fn bc_s_100_grep_searches_the_workspace_by_default() {
    let place = tree();
    let out = place
        .run("grep", json!({"pattern": "needle"}))
        .await
        .unwrap();
    assert_eq!(
        out.text,
        ".github/ci.yml\n     1: needle here\n\nsrc/deep/mod.rs\n     3: needle needle\n\nsrc/main.rs\n     2:     needle();"
    );
    assert_eq!(
        (
            out.metadata["matches"].as_u64(),
            out.metadata["files"].as_u64()
        ),
        (Some(3), Some(3))
    );
}

#[tokio::test]
async fn grep_modes_and_options() {
    let place = tree();
    let grep = |input| place.run("grep", input);
    let files = grep(json!({"pattern": "needle", "mode": "files", "include": "*.rs"}))
        .await
        .unwrap();
    assert_eq!(files.text, "src/deep/mod.rs\nsrc/main.rs");
    let count =
        grep(json!({"pattern": "needle", "mode": "count", "ignore_case": true, "path": "src"}))
            .await
            .unwrap();
    assert_eq!(count.text, "src/deep/mod.rs: 2\nsrc/main.rs: 1");
    let literal = grep(json!({"pattern": "needle()", "literal": true}))
        .await
        .unwrap();
    assert_eq!(literal.text, "src/main.rs\n     2:     needle();");
    let context = grep(json!({"pattern": "needle", "path": "src/main.rs", "context": 1}))
        .await
        .unwrap();
    assert_eq!(
        context.text,
        "src/main.rs\n     1- fn main() {\n     2:     needle();\n     3- }"
    );
    let none = grep(json!({"pattern": "absent"})).await.unwrap();
    assert_eq!(none.text, "No line matches.");
    let bad = grep(json!({"pattern": "a(b"})).await.unwrap_err();
    assert!(
        matches!(bad, ToolError::InvalidInput { .. }) && bad.to_string().contains("literal"),
        "{bad}"
    );
}

#[tokio::test]
async fn grep_is_bounded_in_lines_and_in_their_length() {
    let place = Place::new();
    place.put("many.txt", "match\n".repeat(500));
    let out = place
        .run("grep", json!({"pattern": "match"}))
        .await
        .unwrap();
    assert_eq!(
        out.text.lines().filter(|l| l.contains(": match")).count(),
        100
    );
    assert!(out.text.contains("100 shown; more exist"), "{}", out.text);
    place.put("many.txt", "");
    place.put(
        "wide.txt",
        format!("{}needle{}", "日".repeat(50_000), "本".repeat(50_000)),
    );
    let wide = place
        .run("grep", json!({"pattern": "needle"}))
        .await
        .unwrap();
    assert!(
        wide.text.contains("needle") && wide.text.len() < 1000,
        "{}",
        wide.text
    );
    assert!(
        wide.text.contains("[line of 300006 bytes]") && !wide.text.contains('\u{fffd}'),
        "{}",
        wide.text
    );
}

#[tokio::test]
async fn hidden_content_is_not_shown_by_a_search() {
    let place = Place::new();
    place.put(".env", "KEY=secret\n");
    place.put("a.txt", "secret\n");
    let mut cx = place.cx();
    let hidden = place.path(".env");
    cx.unreadable = Some(PathFilter::new(move |path| path == hidden));
    let out = run(&cx, "grep", json!({"pattern": "secret"}))
        .await
        .unwrap();
    assert_eq!(out.text, "a.txt\n     1: secret");
}

#[tokio::test]
async fn binary_files_are_left_out_and_utf_16_is_searched() {
    let place = Place::new();
    place.put("prog", b"needle\0needle\n");
    let wide: Vec<u8> = "\u{feff}a\nneedle\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    place.put("wide.txt", wide);
    let out = place
        .run("grep", json!({"pattern": "needle", "mode": "files"}))
        .await
        .unwrap();
    assert_eq!(out.text, "wide.txt");
}
