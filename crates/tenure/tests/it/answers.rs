//! Whose answer is printed: several prompts in one session, and answers that must have a form.

use crate::support::*;

const SCRIPT: &str = r#"
version = 1
select = "history"
[[turn]]
when = "another-one"
part = [{ text = '{"n": 2}' }]
[[turn]]
when = "first"
part = [{ text = "I wait." }, { call = { name = "bash", input = { command = "touch started; while [ ! -e go ]; do sleep 0.02; done; echo WAIT$(echo ED)" } } }]
[[turn]]
when = "count"
skip_if_contains = "WAITED"
part = [{ text = "I look." }, { call = { name = "bash", input = { command = "touch started; while [ ! -e go ]; do sleep 0.02; done; echo WAIT$(echo ED)" } } }]
[[turn]]
part = [{ text = '{"n": 1}' }]
"#;

const FORM: &str =
    r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}"#;

fn place() -> Place {
    let place = Place::new(SCRIPT);
    place.write("project/form.json", FORM);
    place
}

fn pending(place: &Place, session: &str, count: u64) {
    wait("the prompts", || {
        (place.row(session)["pending"] == count).then_some(())
    });
}

#[test]
fn a_prompt_answered_behind_it_does_not_stand_for_the_answer() {
    for as_json in [false, true] {
        let place = place();
        let mut args = vec!["run", "count", "--output-schema", "form.json"];
        args.extend(as_json.then_some("--json"));
        let mine = place.start(&args);
        wait_for_file(&place.path("project/started"));
        let session = place.only_session();
        let other = place.start(&["run", "another-one", "-s", &session, "--queue"]);
        pending(&place, &session, 1);
        place.write("project/go", "");
        let out = finish(mine).exits(0);
        if as_json {
            let result = out.lines().pop().unwrap();
            assert_eq!(result["answer"], serde_json::json!({"n": 1}), "{result}");
        } else {
            // The answer alone: not the words before the call, and nobody else's.
            assert_eq!(out.stdout, "{\"n\": 1}\n");
        }
        assert_eq!(finish(other).exits(0).stdout, "{\"n\": 2}\n");
    }
}

#[test]
fn a_prompt_that_joins_before_the_answer_takes_it() {
    let place = place();
    let mine = place.start(&["run", "count", "--output-schema", "form.json"]);
    wait_for_file(&place.path("project/started"));
    let session = place.only_session();
    let other = place.start(&["run", "another-one", "-s", &session]);
    pending(&place, &session, 1);
    place.write("project/go", "");
    let out = finish(mine).exits(1);
    assert_eq!(out.stdout, "");
    assert!(out.stderr.contains("joined before"), "{}", out.stderr);
    assert_eq!(finish(other).exits(0).stdout, "{\"n\": 2}\n");
}

#[test]
fn text_from_before_a_prompts_delivery_is_not_its_answer() {
    let place = place();
    let first = place.start(&["run", "first"]);
    wait_for_file(&place.path("project/started"));
    let session = place.only_session();
    let form = ["--output-schema", "form.json"];
    let queued = [
        &["run", "another-one", "-s", &session, "--queue"],
        &form[..],
    ]
    .concat();
    let asking = place.start(&queued);
    pending(&place, &session, 1);
    place.write("project/go", "");
    assert_eq!(finish(asking).exits(0).stdout, "{\"n\": 2}\n");
    // Whoever gave the first prompt waits for the end of the work, and is shown all of it.
    let out = finish(first).exits(0);
    assert!(
        out.stdout.starts_with("I wait.\n{\"n\": 1}\n"),
        "{}",
        out.stdout
    );
}

#[test]
fn nothing_is_printed_of_an_answer_without_the_form() {
    let place = Place::new("version = 1\n[[turn]]\npart = [{ text = '{\"m\": 1}' }]\n");
    place.write("project/form.json", FORM);
    let out = place
        .run(&["run", "count", "--output-schema", "form.json"])
        .exits(1);
    assert_eq!(out.stdout, "");
    assert!(
        out.stderr.contains("does not have the form") && out.stderr.contains("tenure show ses_"),
        "{}",
        out.stderr
    );
}
