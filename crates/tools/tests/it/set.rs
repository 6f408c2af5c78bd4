//! The tool set: names, inputs, and the task list.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use tenure_tools::input::parse_arguments;
use tenure_tools::permission::Access;
use tenure_tools::{Tool, ToolCx, ToolError, ToolOutput, ToolSet, ToolSpec};

use crate::support::{Place, run};

struct Echo {
    required: bool,
}

#[async_trait]
impl Tool for Echo {
    fn spec(&self) -> ToolSpec {
        let required = if self.required {
            json!(["what"])
        } else {
            json!([])
        };
        let input_schema = json!({"type": "object", "properties": {"what": {"type": "string"}}, "required": required});
        ToolSpec {
            name: "echo".into(),
            description: "Echoes.".into(),
            input_schema,
        }
    }

    fn access(&self, _: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(Vec::new())
    }

    async fn run(&self, _: ToolCx, input: Value) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput {
            text: input.to_string(),
            ..ToolOutput::default()
        })
    }
}

#[tokio::test]
async fn bc_s_051_nothing_is_the_empty_object_and_what_is_missing_is_named() {
    let place = Place::new();
    let free = ToolSet::empty().with(Arc::new(Echo { required: false }));
    let strict = ToolSet::empty().with(Arc::new(Echo { required: true }));
    for raw in [Some(""), Some("{}"), Some(" "), Some("null"), None] {
        let input = parse_arguments(raw).unwrap();
        assert_eq!(input, json!({}));
        assert_eq!(
            free.run("echo", place.cx(), &input).await.unwrap().text,
            "{}"
        );
        let error = strict.run("echo", place.cx(), &input).await.unwrap_err();
        assert!(matches!(error, ToolError::InvalidInput { .. }), "{error:?}");
        assert!(error.to_string().contains("`what` is missing"), "{error}");
    }
    // As parsed by somebody else.
    for value in [Value::Null, json!(" ")] {
        assert_eq!(
            free.run("echo", place.cx(), &value).await.unwrap().text,
            "{}"
        );
    }
}

#[tokio::test]
async fn bc_s_052_cut_arguments_are_named_with_their_length_and_never_repaired() {
    let raw = r#"{"path":"a.txt","content":"line 1\nline 2"#;
    let error = parse_arguments(Some(raw)).unwrap_err().to_string();
    assert!(
        error.contains("cut off") && error.contains(&format!("{} bytes", raw.len())),
        "{error}"
    );
    assert!(parse_arguments(Some("[1]")).is_err());
    assert!(parse_arguments(Some("{'a': 1}")).is_err());
}

#[tokio::test]
async fn bc_s_056_an_unknown_name_lists_near_ones() {
    let place = Place::new();
    let error = place.run("bsh", json!({})).await.unwrap_err();
    assert!(matches!(error, ToolError::UnknownTool { .. }));
    assert_eq!(
        error.to_string(),
        "Not executed: there is no tool `bsh`. Did you mean: bash?"
    );
    let all = place
        .run("research", json!({}))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        all.contains("bash, edit, glob, grep, read, todo, write"),
        "{all}"
    );
}

#[tokio::test]
async fn inputs_are_checked_before_anything_runs() {
    let place = Place::new();
    for (tool, input, part) in [
        (
            "read",
            json!({"path": 1}),
            "`path` must be of type string, not number",
        ),
        (
            "read",
            json!({"path": "a", "offset": 0}),
            "`offset` must be at least 1",
        ),
        (
            "read",
            json!({"path": "a", "lines": 3}),
            "unknown parameter `lines`",
        ),
        ("write", json!({"path": "a"}), "`content` is missing"),
        (
            "grep",
            json!({"pattern": "a", "mode": "x"}),
            "must be one of",
        ),
        (
            "todo",
            json!({"todos": [{"content": "a"}]}),
            "`todos[0].status` is missing",
        ),
        ("bash", json!([]), "must be a JSON object"),
    ] {
        let error = place.run(tool, input).await.unwrap_err();
        assert!(matches!(error, ToolError::InvalidInput { .. }), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(!place.path("a").exists());
}

#[tokio::test]
async fn errors_quote_nothing_unsafe_and_nothing_endless() {
    let place = Place::new();
    let long = "x".repeat(1_000_000);
    for (tool, input) in [
        ("read", json!({"path": "a\u{1b}[2Jb"})),
        ("read", json!({ "path": long })),
        ("glob", json!({"pattern": format!("/\u{1b}{long}")})),
        ("grep", json!({"pattern": format!("({long}")})),
        (
            "todo",
            json!({ "todos": [{"content": "a", "status": "pending", long.as_str(): 1}] }),
        ),
        (long.as_str(), json!({})),
        ("na\u{7}me", json!({})),
    ] {
        let text = place.run(tool, input).await.unwrap_err().to_string();
        assert!(text.len() < 6000, "{tool:.10}: {}", text.len());
        assert!(
            !text.chars().any(|c| c.is_control() && c != '\n'),
            "{text:?}"
        );
    }
}

#[test]
fn specifications_are_stable_and_complete() {
    let set = ToolSet::builtin();
    let names: Vec<_> = set.specs().iter().map(|s| s.name.clone()).collect();
    assert_eq!(
        names,
        ["bash", "edit", "glob", "grep", "read", "todo", "write"]
    );
    for spec in set.specs() {
        assert_eq!(spec.input_schema["type"], "object", "{}", spec.name);
        assert!(!spec.description.contains("  "), "{}", spec.description);
    }
    assert!(set.clone().without("bash").get("bash").is_none());
    assert_eq!(set.with(Arc::new(Echo { required: true })).specs().len(), 8);
}

#[tokio::test]
async fn the_task_list_is_kept_and_returned_whole() {
    let place = Place::new();
    let cx = place.cx();
    let todos = json!([
        {"content": "first", "status": "completed"},
        {"content": "second", "status": "in_progress"},
    ]);
    let set = run(&cx, "todo", json!({ "todos": todos })).await.unwrap();
    assert_eq!(set.text, "[x] first\n[>] second\n");
    let read = run(&cx, "todo", json!({})).await.unwrap();
    assert_eq!((read.text, &read.metadata["todos"]), (set.text, &todos));
    run(&cx, "todo", json!({"todos": []})).await.unwrap();
    assert_eq!(
        run(&cx, "todo", json!({})).await.unwrap().text,
        "The task list is empty."
    );
}
