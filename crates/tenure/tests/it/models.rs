//! `tenure models`: values with their origins, and a refresh that keeps the old table when anything is wrong.

use crate::support::*;
use std::io::{Read, Write};
use std::net::TcpListener;

/// A table in the format of models.dev, made by hand.
const API: &str = r#"{"anthropic": {"id": "anthropic", "models": {
  "claude-new": {"limit": {"context": 500000, "output": 64000}, "tool_call": true, "reasoning": true,
    "modalities": {"input": ["text", "image"], "output": ["text"]},
    "cost": {"input": 2, "output": 9.5, "cache_read": 0.2, "context_over_200k": {"input": 4, "output": 19}}},
  "claude-odd": {"limit": {"context": 1000, "output": 10}, "cost": {"input": "dear", "output": 1}}}}}"#;

const CONFIG: &str = "default_model = \"claude/claude-sonnet-4-5\"\n\
[providers.claude]\nprotocol = \"anthropic-messages\"\nbase_url = \"https://api.anthropic.com\"\n\
[providers.claude.models.mine]\ncontext = 9000\nprice = { input = 0.1, output = 0.2, cache_write_1h = 0.3, \
tiers = [{ above = 5000, input = 1, output = 2 }] }\nabilities = [\"tools\"]\n\
[providers.proxy]\nprotocol = \"anthropic-messages\"\nbase_url = \"https://proxy.example\"\n";

/// Answers one request with `status` and `body`; gives the address.
fn serve(status: &str, body: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/api.json", listener.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let read = stream.read(&mut request).unwrap();
        assert!(request[..read].starts_with(b"GET /api.json "));
        stream.write_all(answer.as_bytes()).unwrap();
    });
    url
}

fn model(place: &Place, name: &str) -> serde_json::Value {
    let out = place.run(&["models", "--all", "--json"]).exits(0);
    let lines = out.lines();
    let found = lines.iter().find(|line| line["model"] == name);
    found
        .unwrap_or_else(|| panic!("{name} in {lines:?}"))
        .clone()
}

#[test]
fn each_value_says_where_it_comes_from() {
    let place = Place::bare();
    place.write_config(CONFIG);
    let sonnet = model(&place, "claude/claude-sonnet-4-5");
    assert_eq!(sonnet["catalogue"], "anthropic");
    assert_eq!(sonnet["from"]["price"], "built-in");
    assert_eq!(sonnet["price"]["input"], 3.0);
    assert_eq!(sonnet["price"]["cache_write_1h"], 6.0);
    assert_eq!(sonnet["default"], true);
    let mine = model(&place, "claude/mine");
    assert_eq!(
        (&mine["context"], &mine["output"]),
        (&9000.into(), &serde_json::Value::Null)
    );
    assert_eq!(mine["from"]["context"], "configuration");
    assert_eq!(mine["from"]["output"], "unknown");
    assert_eq!(mine["price"]["tiers"][0]["above"], 5000);
    assert_eq!(mine["abilities"], serde_json::json!(["tools"]));
    let text = place.run(&["models"]).exits(0).stdout;
    assert!(
        text.contains("* claude/claude-sonnet-4-5  anthropic-messages, context 200000 (built-in)"),
        "{text}"
    );
    assert!(text.contains("built-in: PyPI package litellm "), "{text}");
    // A proxy is nobody, whatever it forwards to, until the user says so.
    assert!(
        text.contains("proxy/…  anthropic-messages, no model declared"),
        "{text}"
    );
    place.write_config(&format!("{CONFIG}catalogue = \"anthropic\"\n"));
    assert_eq!(
        model(&place, "proxy/claude-sonnet-4-5")["from"]["price"],
        "built-in"
    );
}

#[test]
fn a_refresh_is_stored_with_its_source_and_wins_over_the_built_in_table() {
    let place = Place::bare();
    place.write_config(CONFIG);
    let url = serve("200 OK", API);
    let out = place.run(&["models", "--refresh", &url, "--json"]).exits(0);
    assert!(
        out.stderr.contains("anthropic/claude-odd"),
        "{}",
        out.stderr
    );
    let line = &out.lines()[0];
    assert_eq!((&line["models"], &line["vendors"]), (&2.into(), &1.into()));
    let new = model(&place, "claude/claude-new");
    assert_eq!(new["from"]["price"], "refreshed");
    assert_eq!(
        (&new["price"]["output"], &new["context"]),
        (&9.5.into(), &500_000.into())
    );
    assert_eq!(new["price"]["tiers"][0]["input"], 4.0);
    assert_eq!(
        new["abilities"],
        serde_json::json!(["tools", "reasoning", "images"])
    );
    let odd = model(&place, "claude/claude-odd");
    assert_eq!(
        (&odd["from"]["price"], &odd["price"]),
        (&"unknown".into(), &serde_json::Value::Null)
    );
    let text = place.run(&["models"]).exits(0).stdout;
    assert!(text.contains(&format!("refreshed: {url}, 20")), "{text}");
    assert_eq!(
        model(&place, "claude/claude-sonnet-4-5")["from"]["price"],
        "built-in"
    );
}

#[test]
fn what_cannot_be_used_leaves_the_old_table_in_force() {
    let place = Place::bare();
    place.write_config(CONFIG);
    place
        .run(&["models", "--refresh", &serve("200 OK", API)])
        .exits(0);
    let stored = place.path("home/.local/share/tenure/models.tsv");
    let before = std::fs::read(&stored).unwrap();
    for (url, says) in [
        (
            serve("200 OK", "<html>not found</html>"),
            "not in the format of models.dev",
        ),
        (serve("200 OK", "{}"), "no provider in it"),
        (serve("500 Internal Server Error", "oops"), "status 500"),
        (serve("302 Found", ""), "status 302"),
        (
            "http://models.example/api.json".to_owned(),
            "must begin with https",
        ),
        ("file:///etc/passwd".to_owned(), "must begin with https"),
    ] {
        let out = place.run(&["models", "--refresh", &url]).exits(1);
        assert!(out.stderr.contains(says), "{says}: {}", out.stderr);
        assert!(out.stderr.contains("stays in force"), "{}", out.stderr);
        assert_eq!(std::fs::read(&stored).unwrap(), before, "{says}");
    }
    // A damaged file is named, and the built-in table stays in force.
    std::fs::write(&stored, "rubbish").unwrap();
    let out = place.run(&["models"]).exits(0);
    assert!(out.stderr.contains("cannot be used"), "{}", out.stderr);
    assert!(out.stdout.contains("built-in"), "{}", out.stdout);
}
