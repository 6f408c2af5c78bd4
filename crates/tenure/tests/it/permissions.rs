//! Permissions without a terminal: what would be asked for is denied, with the reason, and said in the output.

use crate::support::*;

const WANTS_BASH: &str = r#"
version = 1
select = "history"
[[turn]]
skip_if_contains = "Permission denied"
part = [{ call = { name = "bash", input = { command = "touch made" } } }]
[[turn]]
part = [{ text = "It was not allowed." }]
"#;

const RUNS_BASH: &str = r#"
version = 1
select = "history"
[[turn]]
skip_if_contains = "MADE-IT"
part = [{ call = { name = "bash", input = { command = "touch made; echo MADE-$(echo IT)" } } }]
[[turn]]
part = [{ text = "Done." }]
"#;

#[test]
fn bc_s_103_headless_ask_is_denied_at_once_with_the_reason() {
    let place = Place::with(WANTS_BASH, "");
    let out = place.run(&["run", "go", "--json"]).exits(0);
    let failed = out
        .lines()
        .into_iter()
        .find(|l| l["type"] == "tool.failed")
        .unwrap();
    assert_eq!(failed["data"]["failure"], "denied");
    let text = failed["data"]["text"].as_str().unwrap();
    assert!(
        text.contains("nobody can be asked here") && text.contains("--allow-all"),
        "{text}"
    );
    assert!(!place.path("project/made").exists());
    assert_eq!(out.lines().pop().unwrap()["denied"], 1);
}

#[test]
fn bc_s_103_a_piped_run_says_what_was_denied() {
    let place = Place::with(WANTS_BASH, "");
    let out = place.run(&["run", "go"]).exits(0);
    assert_eq!(out.stdout, "It was not allowed.\n");
    let told: Vec<&str> = out
        .stderr
        .lines()
        .filter(|l| l.contains("1 tool call was denied by a rule: bash touch made — allow it with"))
        .collect();
    assert_eq!(told.len(), 1, "{}", out.stderr);
    assert!(
        told[0].contains("[permissions.bash]") && told[0].contains("tenure show ses_"),
        "{}",
        out.stderr
    );
}

#[test]
fn allow_all_runs_it_and_a_denial_still_holds() {
    let place = Place::with(RUNS_BASH, "");
    place.run(&["run", "go", "--allow-all"]).exits(0);
    assert!(place.path("project/made").exists());
    let place = Place::with(
        "version = 1\nselect = \"history\"\n[[turn]]\nskip_if_contains = \"Denied\"\n\
         part = [{ call = { name = \"bash\", input = { command = \"touch made\" } } }]\n[[turn]]\npart = [{ text = \"No.\" }]\n",
        "[permissions]\nbash = \"deny\"\n",
    );
    let out = place.run(&["run", "go", "--allow-all"]).exits(0);
    assert_eq!(out.stdout, "No.\n");
    assert!(!place.path("project/made").exists());
}

#[test]
fn bc_s_126_tools_do_not_see_the_keys() {
    let place = Place::with(
        "version = 1\nselect = \"history\"\n[[turn]]\nskip_if_contains = \"KEY-IS\"\n\
         part = [{ call = { name = \"bash\", input = { command = \"echo KEY-IS-${LOCAL_API_KEY:-hidden}\" } } }]\n\
         [[turn]]\npart = [{ text = \"Seen.\" }]\n",
        "[permissions]\nbash = \"allow\"\n",
    );
    let config = std::fs::read_to_string(place.config()).unwrap();
    place.write_config(&config.replace(
        "[providers.local.models.m1]",
        "api_key_env = \"LOCAL_API_KEY\"\n[providers.local.models.m1]",
    ));
    let mut command = place.command(&["run", "go", "--json"]);
    let out = finish(
        command
            .env("LOCAL_API_KEY", "sk-very-secret-key-indeed")
            .spawn()
            .unwrap(),
    )
    .exits(0);
    assert!(out.stdout.contains("KEY-IS-hidden"), "{}", out.stdout);
    assert!(!out.stdout.contains("very-secret"), "{}", out.stdout);
}

#[test]
fn a_pattern_that_is_no_command_is_refused_with_its_place() {
    let place = Place::with(HELLO, "[permissions.bash]\n\"a | b\" = \"allow\"\n");
    let out = place.run(&["run", "x"]).exits(2);
    assert!(
        out.stderr.contains("tenure.toml:10:") && out.stderr.contains("not one plain command"),
        "{}",
        out.stderr
    );
    assert!(!place.store().exists());
}

#[test]
fn a_rule_for_a_tool_that_does_not_exist_is_told_with_the_nearest_tool() {
    let place = Place::with(HELLO, "[permissions]\nbsah = \"deny\"\nBash = \"allow\"\n");
    for args in [&["run", "x"][..], &["config"]] {
        let out = place.run(args).exits(0);
        let told: Vec<&str> = out
            .stderr
            .lines()
            .filter(|l| l.contains("never applies; did you mean `bash`?"))
            .collect();
        assert_eq!(told.len(), 2, "{}", out.stderr);
        assert!(told[0].contains("tenure.toml:10"), "{}", out.stderr);
    }
    let out = place.run(&["doctor", "--offline"]).exits(1);
    assert!(
        out.stdout.contains("✗ permissions") && out.stdout.contains("! permissions"),
        "{}",
        out.stdout
    );
    assert!(!out.stdout.contains("✓ permissions"), "{}", out.stdout);
}

#[test]
fn bc_s_126_a_configured_key_in_a_prompt_is_neither_stored_nor_sent() {
    const KEY: &str = "tk-4f8a1c7e9b2d6053";
    let place = Place::new(HELLO);
    let config = std::fs::read_to_string(place.config()).unwrap();
    let config = config.replace(
        "[providers.local.models.m1]",
        "api_key_env = \"THE_KEY\"\n[providers.local.models.m1]",
    );
    place.write_config(&config);
    place.write("project/notes.txt", &format!("key={KEY}"));
    let mut command = place.command(&[
        "run",
        &format!("Is {KEY} valid?"),
        "--file",
        "notes.txt",
        "--title",
        KEY,
    ]);
    command.env("THE_KEY", KEY);
    let out = finish(command.spawn().unwrap()).exits(0);
    assert_eq!(out.stderr.matches("notice: the prompt held").count(), 1);
    let log = place
        .run(&["log", &place.only_session(), "--json"])
        .exits(0)
        .stdout;
    assert!(log.contains("Is [key] valid?"), "{log}");
    assert!(!log.contains(KEY), "{log}");
    let body = place.model().requests()[0].body.to_string();
    assert!(body.contains("[key]") && !body.contains(KEY), "{body}");
}
