//! The script format: what is read, what is refused with a clear message, and the examples of its documentation.

use std::path::PathBuf;

use tenure_scripted::{Script, Select};

fn refusal(text: &str) -> String {
    Script::parse(text).expect_err(text).to_string()
}

#[test]
fn json_is_the_same_as_toml() {
    let toml = "version = 1\nselect = \"history\"\n[[turn]]\nparts = [{ call = { name = \"a\", input = { x = 1 } } }]";
    let json = r#"{"version": 1, "select": "history",
                   "turns": [{"part": [{"call": {"name": "a", "input": {"x": 1}}}]}]}"#;
    let (a, b) = (Script::parse(toml).unwrap(), Script::parse(json).unwrap());
    assert_eq!(a.select, Select::History);
    assert_eq!(a.turns[0].parts, b.turns[0].parts);
}

#[test]
fn mistakes_are_named() {
    assert!(refusal("version = 2").contains("version = 1"));
    assert!(refusal("[[turn]]").contains("version"));
    assert!(refusal("version = 1\n[[turn]]\nwhen = \"x\"").contains("neither parts nor a fault"));
    assert!(refusal("version = 1\n[[turn]]\npart = [{ txt = \"x\" }]").contains("txt"));
    assert!(
        refusal("version = 1\n[[turn]]\npart = [{ text = \"x\", reasoning = \"y\" }]")
            .contains("exactly one of")
    );
    assert!(
        refusal("version = 1\n[[turn]]\npart = [{ text = \"x\", signature = true }]")
            .contains("signature")
    );
    assert!(
        refusal("version = 1\n[[turn]]\ntimes = 0\npart = [{ text = \"x\" }]").contains("times")
    );
    assert!(
        refusal("version = 1\n[[turn]]\npart = [{ call = { name = \"a\", input = 3 } }]")
            .contains("call a")
    );
    assert!(refusal("version = 1\n[[turn]]\nfault = { kind = \"explode\" }").contains("explode"));
    assert!(
        refusal("version = 1\n[[turn]]\nfault = { kind = \"cut\", after = 3 }").contains("after")
    );
    assert!(
        refusal("version = 1\n[[turn]]\nfault = { kind = \"status\", status = 9 }")
            .contains("100 to 599")
    );
    assert!(refusal("version = 1\nturns = [{ text = \"x\" }]").contains("text"));
    assert!(refusal("{").contains("docs/scripted-model.md"));
    let missing = Script::load(&PathBuf::from("/nowhere/script.toml"))
        .unwrap_err()
        .to_string();
    assert!(missing.contains("/nowhere/script.toml"));
}

#[test]
fn every_example_of_the_documentation_is_a_script() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/scripted-model.md");
    let text = std::fs::read_to_string(path).unwrap();
    let examples: Vec<&str> = text
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(examples.len() >= 4);
    for example in examples {
        Script::parse(example).unwrap_or_else(|e| panic!("{e}\n{example}"));
    }
}

#[test]
fn every_rule_is_in_the_documentation() {
    use tenure_scripted::validate;
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/scripted-model.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rules = [
        validate::openai_chat_rules(),
        validate::openai_chat_dialect_rules(),
        validate::openai_responses_rules(),
        validate::anthropic_messages_rules(),
    ];
    for rule in rules.concat() {
        assert!(
            text.contains(&format!("`{rule}`")),
            "{rule} is not documented"
        );
    }
}
