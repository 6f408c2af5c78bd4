//! The `--json` schema, as docs/events.md describes it.

use crate::support::*;

const SCRIPT: &str = r#"
version = 1
select = "history"
[[turn]]
skip_if_contains = "the output"
part = [{ text = "I look." }, { call = { name = "bash", input = { command = "echo the $(echo output)" } } }]
usage = { input = 100, output = 10, cache_read = 80 }
[[turn]]
part = [{ text = "Done." }]
usage = { input = 200, output = 5 }
"#;

#[test]
fn a_run_has_the_documented_shape() {
    let place = Place::new(SCRIPT);
    let out = place.run(&["run", "go", "--json"]).exits(0);
    let mut shape = String::new();
    for line in out.lines() {
        assert_eq!(line["v"], 1);
        let kind = line["kind"].as_str().unwrap();
        let keys: Vec<_> = line
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .filter(|k| *k != "v" && *k != "kind")
            .collect();
        match kind {
            // Live items come as the network cuts them.
            "live" => continue,
            "event" => {
                let data: Vec<_> = line["data"]
                    .as_object()
                    .unwrap()
                    .keys()
                    .map(String::as_str)
                    .collect();
                shape.push_str(&format!(
                    "event {} v{} {}\n",
                    line["type"].as_str().unwrap(),
                    line["version"],
                    data.join(" ")
                ));
            }
            kind => shape.push_str(&format!("{kind}: {}\n", keys.join(" "))),
        }
    }
    // How often text is checkpointed depends on time.
    let shape = shape.replace(
        "event fragment.chunk v1 message part text\nevent fragment.chunk v1 message part text\n",
        "event fragment.chunk v1 message part text\n",
    );
    insta::assert_snapshot!(shape);
    let result = out.lines().pop().unwrap();
    assert_eq!(
        result["usage"],
        serde_json::json!({"input": 220, "output": 15, "cache_read": 80})
    );
    // 220 at 1 and 80 cached at 1 (no price of their own), 15 at 2, per million.
    assert_eq!(
        (result["cost"].as_u64(), result["cost_incomplete"].as_bool()),
        (Some(330), Some(false))
    );
    assert_eq!(result["steps"], 2);
}

#[test]
fn live_text_comes_before_or_with_its_durable_text_and_adds_up_to_it() {
    let place = Place::new(
        "version = 1\n[[turn]]\nchunk_delay_ms = 2\npart = [{ text = \"one two three four five six\" }]\n",
    );
    let lines = place.run(&["run", "go", "--json"]).exits(0).lines();
    let text = |kind: &str, path: &[&str]| -> String {
        lines
            .iter()
            .filter(|l| l["kind"] == kind)
            .filter_map(|l| {
                path.iter()
                    .try_fold(l, |v, k| v.get(k))
                    .and_then(|v| v.as_str())
            })
            .collect()
    };
    assert_eq!(
        text("event", &["data", "text"]).replace("go", ""),
        "one two three four five six"
    );
    assert_eq!(text("live", &["text"]), "one two three four five six");
}

#[test]
fn every_line_of_every_command_has_a_version_and_a_kind() {
    let place = Place::new(SCRIPT);
    place.run(&["run", "go"]).exits(0);
    let session = place.only_session();
    let commands: [(&[&str], &str); 10] = [
        (&["sessions"], "session_row"),
        (&["show", &session], "session_row"),
        (&["log", &session], "event"),
        (&["limits", &session], "limits"),
        (&["interrupt", &session], "interrupt"),
        (&["resume", &session], "session"),
        (&["models"], "model"),
        (&["config"], "config"),
        (&["doctor", "--offline"], "doctor"),
        (&["gc"], "gc"),
    ];
    let described =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/events.md"))
            .unwrap();
    for (args, kind) in commands {
        let out = place.run(&[args, &["--json"]].concat()).exits(0);
        let lines = out.lines();
        assert_eq!(lines[0]["kind"], kind, "{args:?}");
        assert!(
            lines.iter().all(|l| l["v"] == 1 && l["kind"].is_string()),
            "{args:?}: {}",
            out.stdout
        );
        assert!(described.contains(&format!("`{kind}`")), "{kind}");
    }
}

#[test]
fn the_description_names_every_event_type_and_kind() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/events.md"))
            .unwrap();
    for (name, version) in tenure_core::EventBody::KNOWN {
        assert!(
            text.contains(&format!("`{name}`")),
            "docs/events.md lacks {name}"
        );
        assert_eq!(*version, 1, "docs/events.md describes version 1 of {name}");
    }
    for kind in [
        "session",
        "event",
        "live",
        "synced",
        "result",
        "delta",
        "tool_output",
        "lagged",
    ] {
        assert!(
            text.contains(&format!("`{kind}`")),
            "docs/events.md lacks {kind}"
        );
    }
}
