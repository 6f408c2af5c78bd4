//! Whose answer is printed: several prompts in one session, and answers that must have a form.

use crate::support::*;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

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

/// Forwards to the scripted model, and keeps its answers back until it is told to give them.
struct HeldModel {
    url: String,
    gate: Arc<(Mutex<bool>, Condvar)>,
    asked: Receiver<()>,
}

impl HeldModel {
    fn before(model: &tenure_scripted::Handle) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let url = model
            .base_url()
            .replace(&model.addr().to_string(), &own.to_string());
        let (to, gate) = (model.addr(), Arc::new((Mutex::new(false), Condvar::new())));
        let (tell, asked) = channel();
        let held = gate.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(to).unwrap());
                let (mut from, mut into) =
                    (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut into));
                let (tell, held) = (tell.clone(), held.clone());
                std::thread::spawn(move || answer(&held, &tell, server, client));
            }
        });
        Self { url, gate, asked }
    }

    /// Waits until the model has answered, which is kept back.
    fn has_answered(&self) {
        self.asked.recv_timeout(PATIENCE).unwrap();
    }

    fn gives(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }
}

fn answer(
    gate: &(Mutex<bool>, Condvar),
    tell: &Sender<()>,
    mut server: TcpStream,
    mut client: TcpStream,
) {
    // The first bytes are there: it has been asked, and answers.
    if server.peek(&mut [0]).unwrap_or(0) == 0 {
        return;
    }
    let _ = tell.send(());
    let open = gate.1.wait_while(gate.0.lock().unwrap(), |open| !*open);
    drop(open.unwrap());
    let _ = std::io::copy(&mut server, &mut client);
}

/// Told to end while the model gives its last answer, `run` lets it finish: then that is the answer, and has the form
/// or has not.
#[test]
fn real_an_answer_that_is_finished_on_the_way_out_is_printed_and_judged() {
    for (said, code) in [("{\"n\": 3}", 0), ("{\"m\": 3}", 1)] {
        let place = Place::new(&format!(
            "version = 1\n[[turn]]\npart = [{{ text = '{said}' }}]\n"
        ));
        place.write("project/form.json", FORM);
        let held = HeldModel::before(place.model());
        let config = std::fs::read_to_string(place.config()).unwrap();
        place.write_config(&config.replace(&place.model().base_url(), &held.url));
        let run = place.start(&["run", "count", "--output-schema", "form.json"]);
        held.has_answered();
        signal(&run, "TERM");
        // It lets go: from here on nothing is followed any more.
        wait("its drain", || {
            let nodes = place.run(&["nodes", "--json"]).exits(0).lines();
            nodes
                .iter()
                .any(|node| node["state"] == "draining")
                .then_some(())
        });
        held.gives();
        let out = finish(run).exits(code);
        let session = place.only_session();
        let types = place.types(&session);
        assert!(
            types.iter().any(|t| t == "execution.succeeded"),
            "{types:?}"
        );
        if code == 0 {
            assert_eq!(out.stdout, "{\"n\": 3}\n");
        } else {
            assert_eq!(out.stdout, "");
            assert!(
                out.stderr.contains("does not have the form"),
                "{}",
                out.stderr
            );
        }
    }
}

/// The same without a form: what was said on the way out is not kept from a pipe.
#[test]
fn real_words_that_come_on_the_way_out_are_printed() {
    let place = Place::new(HELLO);
    let held = HeldModel::before(place.model());
    let config = std::fs::read_to_string(place.config()).unwrap();
    place.write_config(&config.replace(&place.model().base_url(), &held.url));
    let run = place.start(&["run", "hi"]);
    held.has_answered();
    signal(&run, "TERM");
    wait("its drain", || {
        let nodes = place.run(&["nodes", "--json"]).exits(0).lines();
        nodes
            .iter()
            .any(|node| node["state"] == "draining")
            .then_some(())
    });
    held.gives();
    assert_eq!(finish(run).exits(0).stdout, "Hello from the model.\n");
}
