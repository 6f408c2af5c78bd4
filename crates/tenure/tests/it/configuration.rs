//! `tenure config` and `tenure models`: what is in force, and from where.

use crate::support::*;

fn value(out: &Out, key: &str) -> (String, String) {
    let all: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
    let line = all["settings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|l| l["key"] == key);
    let line = line.unwrap_or_else(|| panic!("{key} in {}", out.stdout));
    (
        line["value"].as_str().unwrap().to_owned(),
        line["from"].as_str().unwrap().to_owned(),
    )
}

#[test]
fn every_value_says_where_it_comes_from() {
    let place = Place::new(HELLO);
    let out = place.run(&["config", "--json"]).exits(0);
    let file = place.config().display().to_string();
    assert_eq!(
        value(&out, "default_model"),
        ("local/m1".into(), format!("{file}:1"))
    );
    assert_eq!(value(&out, "max_steps").1, "default");
    assert_eq!(
        value(&out, "permissions.bash"),
        ("allow".into(), format!("{file}:10"))
    );
    let mut command = place.command(&["config", "--json", "--store", "sqlite:/x.db"]);
    let out = finish(command.env("TENURE_MODEL", "local/m2").spawn().unwrap()).exits(0);
    assert_eq!(
        value(&out, "default_model"),
        ("local/m2".into(), "environment TENURE_MODEL".into())
    );
    assert_eq!(
        value(&out, "store"),
        ("sqlite:/x.db".into(), "--store".into())
    );
    let mut command = place.command(&["config", "--json"]);
    let out = finish(command.env("TENURE_STORE", "sqlite:/y.db").spawn().unwrap()).exits(0);
    assert_eq!(
        value(&out, "store"),
        ("sqlite:/y.db".into(), "environment TENURE_STORE".into())
    );
}

#[test]
fn bc_s_126_no_secret_is_printed() {
    let place = Place::bare();
    place.write_config(
        "[providers.p]\nprotocol = \"openai-chat\"\nbase_url = \"https://me:hunter2@h/v1?key=abc\"\n\
         api_key_env = \"MY_KEY\"\nheaders = { authorization = \"Bearer topsecret\" }\n",
    );
    let mut command = place.command(&["config"]);
    let out = finish(command.env("MY_KEY", "sk-verysecret").spawn().unwrap()).exits(0);
    assert!(out.stdout.contains("MY_KEY (set)"), "{}", out.stdout);
    for secret in ["hunter2", "abc", "topsecret", "verysecret"] {
        assert!(!out.stdout.contains(secret), "{}", out.stdout);
    }
}

#[test]
fn the_example_is_a_configuration() {
    let place = Place::bare();
    let example = place.run(&["config", "--example"]).exits(0);
    place.write_config(&example.stdout);
    place.run(&["config"]).exits(0);
    let models = place.run(&["models"]).exits(0);
    assert_eq!(
        models.stdout,
        "* local/m1  openai-chat, context 200000 (configuration), output 32000 (configuration), price unknown\n"
    );
}

#[test]
fn a_named_file_replaces_the_users() {
    let place = Place::new(HELLO);
    place.write("project/other.toml", "max_steps = 7\n");
    let out = place
        .run(&["config", "--json", "--config", "other.toml"])
        .exits(0);
    assert_eq!(value(&out, "max_steps").0, "7");
    assert_eq!(value(&out, "default_model").0, "(none)");
}
