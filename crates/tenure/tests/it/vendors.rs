//! One session from the command line over every protocol: what a prompt brings arrives as each vendor takes it,
//! what a vendor refuses once does not end the session, and consecutive requests begin with the same bytes.
//!
//! Every test here runs over all of [`ALL`]: a new protocol joins by a row there.

use crate::support::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tenure_scripted::{Recorded, SEAL_PREFIX, Verdict};

/// A grey PNG of one pixel, as base64 and as it is.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==";
const PNG_BYTES: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0:~\x9bU\0\0\0\nIDATx\x9cc`\0\0\0\x02\0\x01H\xaf\xa4q\0\0\0\0IEND\xaeB`\x82";

const SCHEMA: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}"#;

/// One protocol and where its requests keep things.
struct Row {
    provider: &'static str,
    model: &'static str,
    protocol: &'static str,
    /// More of the provider's configuration.
    more: &'static str,
    /// Which path of the server.
    path: &'static str,
    messages: &'static str,
    image: fn() -> Value,
    schema: &'static str,
    /// Where `--effort high` stands, and as what.
    effort: (&'static str, fn() -> Value),
}

const ALL: &[Row] = &[
    Row {
        provider: "anthropic",
        model: "claude-sonnet-4-6",
        protocol: "anthropic-messages",
        more: "",
        path: "/v1",
        messages: "messages",
        image: || json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}),
        schema: "/output_config/format/schema",
        effort: ("/output_config/effort", || json!("high")),
    },
    Row {
        provider: "openai",
        model: "gpt-5.4",
        protocol: "openai-responses",
        more: "",
        path: "/v1",
        messages: "input",
        image: || json!({"type": "input_image", "image_url": format!("data:image/png;base64,{PNG}")}),
        schema: "/text/format/schema",
        effort: ("/reasoning/effort", || json!("high")),
    },
    Row {
        provider: "router",
        model: "anthropic/claude-sonnet-4.5",
        protocol: "openai-chat",
        more: "dialect = \"openrouter\"\n",
        path: "/dialect/openrouter/v1",
        messages: "messages",
        image: || json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PNG}")}}),
        schema: "/response_format/json_schema/schema",
        effort: ("/reasoning/effort", || json!("high")),
    },
    Row {
        provider: "google",
        model: "gemini-3.1-pro-preview",
        protocol: "gemini",
        more: "",
        path: "/v1",
        messages: "contents",
        image: || json!({"inlineData": {"mimeType": "image/png", "data": PNG}}),
        schema: "/generationConfig/responseJsonSchema",
        effort: ("/generationConfig/thinkingConfig/thinkingLevel", || {
            json!("high")
        }),
    },
    #[cfg(feature = "bedrock")]
    Row {
        provider: "aws",
        model: "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        protocol: "bedrock-converse",
        more: "region = \"us-east-1\"\n",
        path: "/v1",
        messages: "messages",
        image: || json!({"image": {"format": "png", "source": {"bytes": PNG}}}),
        schema: "/outputConfig/textFormat/structure/jsonSchema/schema",
        effort: ("/additionalModelRequestFields/thinking/type", || {
            json!("enabled")
        }),
    },
];

impl Row {
    /// A place whose default model is this one, following `script`.
    fn place(&self, script: &str) -> Place {
        let place = Place::new(script);
        let url = place.model().base_url().replace("/v1", self.path);
        place.write_config(&format!(
            "default_model = \"{provider}/{model}\"\n[providers.{provider}]\nprotocol = \"{protocol}\"\n\
             base_url = \"{url}\"\n{more}[providers.{provider}.models.\"{model}\"]\nhosted = [\"web_search\"]\n\
             [permissions]\nbash = \"allow\"\n",
            provider = self.provider,
            model = self.model,
            protocol = self.protocol,
            more = self.more,
        ));
        let bytes = place.path("project/picture.png");
        std::fs::write(bytes, PNG_BYTES).unwrap();
        place.write("project/form.json", SCHEMA);
        place
    }

    /// Runs it; AWS wants keys, others none.
    fn run(&self, place: &Place, args: &[&str]) -> Out {
        let mut command = place.command(args);
        command
            .env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
            .env("AWS_SECRET_ACCESS_KEY", "EXAMPLEKEY");
        finish(command.spawn().unwrap())
    }
}

/// The requests of this row's form, all of which its vendor took.
fn taken(row: &Row, place: &Place) -> Vec<Recorded> {
    let requests = place.model().requests();
    for request in &requests {
        assert_eq!(
            request.verdict,
            Verdict::Accepted,
            "{}: {:#}",
            row.protocol,
            request.body
        );
    }
    requests
}

/// Is there an object in `body` with all that `wanted` has?
fn holds(body: &Value, wanted: &Value) -> bool {
    has(body, wanted)
        || match body {
            Value::Object(fields) => fields.values().any(|value| holds(value, wanted)),
            Value::Array(values) => values.iter().any(|value| holds(value, wanted)),
            _ => false,
        }
}

fn has(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(fields), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| fields.get(key).is_some_and(|value| has(value, wanted))),
        _ => value == wanted,
    }
}

#[test]
fn an_attached_picture_goes_out_as_each_vendor_s_image() {
    for row in ALL {
        let place = row.place(HELLO);
        row.run(&place, &["run", "what is it?", "--attach", "picture.png"])
            .exits(0);
        let requests = taken(row, &place);
        assert_eq!(requests.len(), 1, "{}", row.protocol);
        assert!(
            holds(&requests[0].body, &(row.image)()),
            "{}: {:#}",
            row.protocol,
            requests[0].body
        );
        assert!(requests[0].body.to_string().contains("what is it?"));
    }
}

#[test]
fn the_form_of_an_answer_is_asked_for_and_checked() {
    for row in ALL {
        let place = row.place(
            "version = 1\n[[turn]]\npart = [{ text = '{\"n\": 1}' }]\n[[turn]]\npart = [{ text = '{\"m\": 1}' }]\n\
             [[turn]]\npart = [{ text = 'It is one.' }]\n",
        );
        let ask = |args: &[&str]| {
            let all = [&["run", "count", "--output-schema", "form.json"], args].concat();
            row.run(&place, &all)
        };
        let right = ask(&[]).exits(0);
        assert_eq!(right.stdout, "{\"n\": 1}\n", "{}", row.protocol);
        let wrong = ask(&["--json"]).exits(1);
        let last = wrong.lines().pop().unwrap();
        assert_eq!(last["error"]["kind"], "output_mismatch", "{last}");
        assert!(
            last["error"]["message"].as_str().unwrap().contains('n'),
            "{last}"
        );
        let none = ask(&[]).exits(1);
        assert!(none.stderr.contains("it is not JSON"), "{}", none.stderr);
        for request in taken(row, &place) {
            let sent = request.body.pointer(row.schema);
            let found = sent.is_some_and(|schema| match schema {
                Value::String(text) => text.contains("\"n\""),
                schema => schema.pointer("/properties/n").is_some(),
            });
            assert!(found, "{}: {:#}", row.protocol, request.body);
        }
    }
}

#[test]
fn a_form_is_checked_by_who_waits_so_nobody_may_leave() {
    let place = ALL[0].place(HELLO);
    let out = place
        .run(&["run", "count", "--output-schema", "form.json", "--detach"])
        .exits(2);
    assert!(out.stderr.contains("--detach"), "{}", out.stderr);
    assert_eq!(place.model().requests().len(), 0);
    assert!(!place.store().exists(), "nothing was changed");
}

#[test]
fn an_effort_of_a_prompt_is_asked_for_in_each_vendor_s_words() {
    for row in ALL {
        let place = row.place(HELLO);
        row.run(&place, &["run", "think", "--effort", "high"])
            .exits(0);
        row.run(&place, &["run", "as usual", "--continue"]).exits(0);
        let requests = taken(row, &place);
        let (at, word) = row.effort;
        assert_eq!(
            requests[0].body.pointer(at),
            Some(&word()),
            "{}: {:#}",
            row.protocol,
            requests[0].body
        );
        assert_ne!(
            requests[1].body.pointer(at),
            Some(&word()),
            "{}: an effort is of one prompt",
            row.protocol
        );
    }
}

/// A search with its result, and a text that cites it.
fn searched(citation: &Value) -> String {
    let citation: String = citation
        .as_object()
        .unwrap()
        .iter()
        .map(|(key, value)| format!("{key} = {value}"))
        .collect::<Vec<_>>()
        .join(", ");
    format!(
        "version = 1\n[[turn]]\npart = [{{ hosted = {{ name = \"web_search\", input = {{ query = \"q\" }}, \
         result = [{{ type = \"web_search_result\", url = \"https://a.example/1\", title = \"A\", \
         encrypted_content = \"ENC-1\" }}] }} }}, {{ text = \"It says so.\", citations = [{{ {citation} }}] }}]\n\
         [[turn]]\npart = [{{ text = \"Nothing more.\" }}]\n"
    )
}

#[test]
fn a_hosted_search_is_offered_and_goes_back_as_it_came() {
    let offered = [
        json!({"type": "web_search_20250305", "name": "web_search"}),
        json!({"type": "web_search"}),
        json!({"googleSearch": {}}),
    ];
    let citations = [
        json!({"type": "web_search_result_location", "url": "https://a.example/1", "title": "A",
               "encrypted_index": "IDX-1", "cited_text": "so"}),
        json!({"type": "url_citation", "url": "https://a.example/1", "title": "A", "start_index": 0,
               "end_index": 5}),
        json!({"type": "none"}),
    ];
    let returned: [&[Value]; 3] = [
        &[
            json!({"type": "server_tool_use", "name": "web_search", "input": {"query": "q"}}),
            json!({"type": "web_search_tool_result", "content": [{"type": "web_search_result",
                   "url": "https://a.example/1", "title": "A", "encrypted_content": "ENC-1"}]}),
        ],
        &[
            json!({"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}}),
        ],
        // What a search found is no part of this form's conversation: its text tells it.
        &[json!({"role": "model", "parts": [{"text": "It says so."}]})],
    ];
    let rows = ALL
        .iter()
        .filter(|row| ["anthropic", "openai", "google"].contains(&row.provider));
    for (((row, offered), citation), returned) in rows.zip(&offered).zip(&citations).zip(returned) {
        let place = row.place(&searched(citation));
        let out = row.run(&place, &["run", "what does it say?"]).exits(0);
        assert!(out.stdout.contains("It says so."), "{}", out.stdout);
        row.run(&place, &["run", "anything more?", "--continue"])
            .exits(0);
        let requests = taken(row, &place);
        assert_eq!(requests.len(), 2);
        for request in &requests {
            assert!(
                holds(&request.body["tools"], offered),
                "{}: {:#}",
                row.protocol,
                request.body
            );
        }
        let last = &requests[1];
        for wanted in returned {
            assert!(
                holds(&last.body, wanted),
                "{}: {wanted}\n{:#}",
                row.protocol,
                last.body
            );
        }
        if row.provider != "google" {
            let bytes = String::from_utf8_lossy(&last.bytes);
            assert!(
                bytes.contains(&citation.to_string()),
                "{}: {citation}\n{bytes}",
                row.protocol
            );
        }
    }
}

const REFUSED_PICTURE: &str = "fault = { kind = \"status\", status = 400, message = \"image dimensions exceed the allowed size\" }\n";

#[test]
fn bc_s_066_a_refused_picture_is_tried_without_once_and_the_session_goes_on() {
    for row in ALL {
        let answers = "[[turn]]\npart = [{ text = \"I see none.\" }]\n[[turn]]\npart = [{ text = \"Gladly.\" }]\n";
        let place = row.place(&format!(
            "version = 1\n[[turn]]\n{REFUSED_PICTURE}{answers}[[turn]]\n{REFUSED_PICTURE}[[turn]]\n{REFUSED_PICTURE}{answers}"
        ));
        let show = ["run", "what is it?", "--attach", "picture.png"];
        let out = row.run(&place, &show).exits(0);
        assert!(out.stdout.contains("I see none."), "{}", out.stdout);
        let out = row
            .run(&place, &["run", "then draw", "--continue"])
            .exits(0);
        assert!(out.stdout.contains("Gladly."), "{}", out.stdout);
        let requests = taken(row, &place);
        let shown: Vec<bool> = requests
            .iter()
            .map(|request| holds(&request.body, &(row.image)()))
            .collect();
        assert_eq!(shown, [true, false, false], "{}", row.protocol);
        assert!(requests[2].body.to_string().contains("picture.png"));
        // Refused without it as well: the picture was not what was wrong, and nobody tries for ever.
        let again = ["run", "this one?", "--attach", "picture.png", "--continue"];
        row.run(&place, &again).exits(1);
        assert_eq!(place.model().requests().len(), 5, "{}", row.protocol);
        row.run(&place, &["run", "well?", "--continue"]).exits(0);
        taken(row, &place);
    }
}

#[test]
fn bc_s_061_a_refused_signature_is_left_out_once_and_the_session_goes_on() {
    for row in ALL {
        let place = row.place(
            "version = 1\n[[turn]]\npart = [{ reasoning = \"Look first.\" }, { call = { name = \"bash\", input = { command = \"echo seen\" } } }]\n\
             [[turn]]\nfault = { kind = \"status\", status = 400, message = \"Invalid `signature` in `thinking` block\" }\n\
             [[turn]]\npart = [{ text = \"Seen.\" }]\n[[turn]]\npart = [{ text = \"Still here.\" }]\n",
        );
        let out = row.run(&place, &["run", "look"]).exits(0);
        assert!(out.stdout.contains("Seen."), "{}", out.stdout);
        row.run(&place, &["run", "and?", "--continue"]).exits(0);
        let signed: Vec<bool> = taken(row, &place)
            .iter()
            .map(|request| request.body.to_string().contains(SEAL_PREFIX))
            .collect();
        assert_eq!(signed, [false, true, false, false], "{}", row.protocol);
    }
}

/// The fields of a body as they came, without cache marks.
fn fields(request: &Recorded) -> BTreeMap<String, String> {
    let plain = String::from_utf8(request.bytes.to_vec())
        .unwrap()
        .replace("\"cache_control\":{\"type\":\"ephemeral\"},", "")
        .replace(",\"cache_control\":{\"type\":\"ephemeral\"}", "")
        .replace(",{\"cachePoint\":{\"type\":\"default\"}}", "");
    let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&plain).unwrap();
    let text = |(key, value): (String, Box<RawValue>)| (key, value.get().to_owned());
    fields.into_iter().map(text).collect()
}

const LONG: &str = r#"
version = 1
[[turn]]
part = [{ reasoning = "Look first." }, { text = "I look." },
  { call = { name = "bash", input = { command = "echo one" } } },
  { call = { name = "bash", input = { command = "echo two >&2; exit 3" } } }]
[[turn]]
part = [{ reasoning = "Go on." }, { call = { name = "read", input = { path = "missing.txt" } } }]
[[turn]]
part = [{ reasoning = "Enough." }, { text = "All done." }]
[[turn]]
part = [{ text = "Again." }, { call = { name = "read", input = { path = "form.json" } } }]
[[turn]]
part = [{ text = "All done again." }]
"#;

#[test]
fn each_recorded_request_begins_with_the_whole_of_the_one_before_it() {
    for row in ALL {
        let place = row.place(LONG);
        row.run(&place, &["run", "look around", "--attach", "picture.png"])
            .exits(0);
        // Another process: it knows only what the log tells.
        row.run(&place, &["run", "and now?", "--continue"]).exits(0);
        let requests = taken(row, &place);
        assert_eq!(requests.len(), 5, "{}", row.protocol);
        for pair in requests.windows(2) {
            let (mut before, mut after) = (fields(&pair[0]), fields(&pair[1]));
            let conversation = |fields: &mut BTreeMap<String, String>| {
                fields.remove(row.messages).expect("a conversation")
            };
            let (said, goes_on) = (conversation(&mut before), conversation(&mut after));
            assert_eq!(before, after, "{}", row.protocol);
            // The last message, and the last text in it, may go on.
            let said = said.trim_end_matches(['}', ']', '"']);
            assert!(
                goes_on.starts_with(said),
                "{}:\n{said}\n{goes_on}",
                row.protocol
            );
            assert!(goes_on.len() > said.len() + 20);
        }
    }
}
