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
