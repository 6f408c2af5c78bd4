//! Bedrock from outside: a build with the feature runs a whole session over it, one without says what is missing.

use crate::support::*;

const CONFIG: &str = "default_model = \"aws/us.anthropic.claude-sonnet-4-5-20250929-v1:0\"\n[providers.aws]\nprotocol = \"bedrock-converse\"\nregion = \"us-east-1\"\n";

#[test]
fn keys_of_aws_are_for_bedrock_alone_and_go_together() {
    let place = Place::bare();
    place.write_config(
        "[providers.p]\nprotocol = \"openai-chat\"\nbase_url = \"http://x/v1\"\nregion = \"us-east-1\"\n",
    );
    let out = place.run(&["config"]).exits(2);
    assert!(
        out.stderr
            .contains("providers.p.region is for bedrock-converse alone"),
        "{}",
        out.stderr
    );
    place.write_config(&format!("{CONFIG}access_key_id_env = \"MY_ID\"\n"));
    let out = place.run(&["config"]).exits(2);
    assert!(
        out.stderr.contains("secret_access_key_env"),
        "{}",
        out.stderr
    );
    place.write_config(&format!(
        "{CONFIG}profile = \"work\"\naccess_key_id_env = \"MY_ID\"\nsecret_access_key_env = \"MY_SECRET\"\n"
    ));
    let out = place.run(&["config"]).exits(0);
    for line in [
        "(the region's own)",
        "us-east-1",
        "work",
        "MY_ID (not set)",
        "MY_SECRET (not set)",
    ] {
        assert!(out.stdout.contains(line), "{line}: {}", out.stdout);
    }
}

#[cfg(not(feature = "bedrock"))]
#[test]
fn a_build_without_bedrock_names_the_feature() {
    let place = Place::bare();
    place.write_config(CONFIG);
    let out = place.run(&["run", "hi"]);
    assert!(out.stderr.contains("--features bedrock"), "{}", out.stderr);
    let out = place.run(&["doctor"]).exits(1);
    assert!(out.stdout.contains("--features bedrock"), "{}", out.stdout);
}

#[cfg(feature = "bedrock")]
mod built {
    use super::*;
    use serde_json::Value;
    use std::net::SocketAddr;
    use tenure_scripted::{Handle, Script, ScriptedModel};

    /// The example keys of the vendor's documentation; they open nothing.
    const ID: &str = "AKIDEXAMPLE";
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

    const WORK: &str = r#"
version = 1
[[turn]]
part = [{ reasoning = "Look first." }, { text = "I look." },
  { call = { name = "bash", input = { command = "echo seen $AWS_SECRET_ACCESS_KEY; pwd" } } },
  { call = { name = "read", input = { path = "missing.txt" } } }]
usage = { input = 1000, output = 20, cache_read = 600, cache_write = 100 }
[[turn]]
part = [{ reasoning = "", redacted = true }, { text = "Half of an" }]
fault = { kind = "error_event", after_events = 3, error_type = "throttlingException" }
[[turn]]
part = [{ text = "All done." }]
"#;

    struct Bedrock {
        runtime: tokio::runtime::Runtime,
        handle: Option<Handle>,
    }

    impl Bedrock {
        fn serve(script: &str) -> Self {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap();
            let model = ScriptedModel::builder(Script::parse(script).unwrap())
                .api_key(format!("{ID}:{SECRET}"))
                .strict_seals(true);
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let handle = runtime.block_on(model.bind(any)).unwrap();
            Self {
                runtime,
                handle: Some(handle),
            }
        }

        fn handle(&self) -> &Handle {
            self.handle.as_ref().unwrap()
        }
    }

    impl Drop for Bedrock {
        fn drop(&mut self) {
            if let Some(handle) = self.handle.take() {
                self.runtime.block_on(handle.shutdown());
            }
        }
    }

    fn run(place: &Place, args: &[&str], secret: &str) -> Out {
        let mut command = place.command(args);
        command
            .env("AWS_ACCESS_KEY_ID", ID)
            .env("AWS_SECRET_ACCESS_KEY", secret);
        finish(command.spawn().unwrap())
    }

    #[test]
    fn a_session_runs_over_bedrock_from_its_first_word_to_its_last() {
        let bedrock = Bedrock::serve(WORK);
        let place = Place::bare();
        place.write_config(&format!(
            "{CONFIG}base_url = \"{}\"\n[permissions]\nbash = \"allow\"\n",
            bedrock.handle().base_url()
        ));
        let out = run(&place, &["run", "look around"], SECRET).exits(0);
        assert!(out.stdout.contains("All done."), "{}", out.stdout);
        let session = place.only_session();
        let requests = bedrock.handle().requests();
        assert_eq!(requests.len(), 3);
        assert!(requests.iter().all(
            |r| r.path.ends_with("-v1%3A0/converse-stream") && r.header("x-amz-date").is_some()
        ),);
        let last = requests[2].body.to_string();
        assert!(
            last.contains("tnscripted.b."),
            "signed reasoning goes back: {last}"
        );
        assert!(last.contains("\"status\":\"error\""), "{last}");
        assert!(
            last.contains("seen") && !last.contains(SECRET),
            "tools see no key"
        );
        let ended: Vec<Value> = place
            .events(&session)
            .into_iter()
            .filter(|event| event["type"] == "attempt.ended")
            .collect();
        assert_eq!(ended.len(), 3);
        let usage = &ended[0]["data"]["usage"];
        assert_eq!(
            (&usage["input"], &usage["cache_read"], &usage["cache_write"]),
            (&300.into(), &600.into(), &100.into()),
            "{}",
            ended[0]
        );
        assert_eq!(
            ended[1]["data"]["error"]["class"], "rate_limit",
            "{}",
            ended[1]
        );
        let stored = format!("{:?}", place.events(&session));
        assert!(!stored.contains(SECRET));
    }

    #[test]
    fn doctor_tells_good_keys_from_wrong_ones_and_none() {
        let bedrock = Bedrock::serve(WORK);
        let place = Place::bare();
        place.write_config(&format!(
            "{CONFIG}base_url = \"{}\"\n",
            bedrock.handle().base_url()
        ));
        let out = run(&place, &["doctor"], SECRET);
        assert!(out.stdout.contains("takes the key"), "{}", out.stdout);
        let out = run(&place, &["doctor"], "another").exits(1);
        assert!(
            out.stdout.contains("refuses the AWS keys"),
            "{}",
            out.stdout
        );
        let out = place.run(&["doctor"]).exits(1);
        assert!(out.stdout.contains("AWS_ACCESS_KEY_ID"), "{}", out.stdout);
    }
}
