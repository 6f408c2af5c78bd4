//! The `todo` tool: a task list the model keeps for itself and the user watches.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::input;
use crate::permission::Access;
use crate::tool::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec};

const MOST_ITEMS: usize = 200;
const LONGEST_CONTENT: usize = 1000;

/// One task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TodoItem {
    /// What is to be done.
    pub content: String,
    /// How far it is.
    pub status: TodoStatus,
}

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Being worked on.
    InProgress,
    /// Done.
    Completed,
    /// Given up.
    Cancelled,
}

/// A session's list, shared by its calls. To restore it after a restart, give [`TodoList::new`] the items of the
/// last successful call's metadata field `todos`.
#[derive(Debug, Clone, Default)]
pub struct TodoList(Arc<Mutex<Vec<TodoItem>>>);

impl TodoList {
    /// A list with these items.
    #[must_use]
    pub fn new(items: Vec<TodoItem>) -> Self {
        Self(Arc::new(Mutex::new(items)))
    }

    /// A copy of the items.
    #[must_use]
    pub fn items(&self) -> Vec<TodoItem> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn replace(&self, items: Vec<TodoItem>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = items;
    }
}

/// The tool.
#[derive(Debug, Clone, Copy)]
pub struct Todo;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    todos: Option<Vec<TodoItem>>,
}

impl Input {
    fn checked(value: &Value) -> Result<Self, ToolError> {
        let input: Self = input::read(value)?;
        let items = input.todos.as_deref().unwrap_or_default();
        if items.len() > MOST_ITEMS {
            return Err(ToolError::invalid(format!(
                "at most {MOST_ITEMS} tasks, not {}.",
                items.len()
            )));
        }
        for item in items {
            if item.content.trim().is_empty() || item.content.len() > LONGEST_CONTENT {
                return Err(ToolError::invalid(format!(
                    "each task's `content` must have 1 to {LONGEST_CONTENT} bytes."
                )));
            }
        }
        Ok(input)
    }
}

#[async_trait]
impl Tool for Todo {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "todo".into(),
            description: "Keeps your task list for this session. Send `todos` with the complete new list to replace \
                          it, or leave it out to read the list. Use it for work of three steps or more; keep one \
                          task in_progress and mark each completed as soon as it is."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "todos": {
                        "type": "array",
                        "description": "The complete new list.",
                        "items": {
                            "type": "object",
                            "properties": {
                                "content": { "type": "string", "minLength": 1 },
                                "status": {
                                    "type": "string",
                                    "enum": ["pending", "in_progress", "completed", "cancelled"]
                                }
                            },
                            "required": ["content", "status"],
                            "additionalProperties": false
                        }
                    }
                },
                "additionalProperties": false
            }),
        }
    }

    fn access(&self, _cx: &ToolCx, input: &Value) -> Result<Vec<Access>, ToolError> {
        Input::checked(input)?;
        Ok(vec![Access::Other {
            tool: "todo".into(),
            pattern: "*".into(),
        }])
    }

    async fn run(&self, cx: ToolCx, input: Value) -> Result<ToolOutput, ToolError> {
        if let Some(items) = Input::checked(&input)?.todos {
            cx.todo.replace(items);
        }
        let items = cx.todo.items();
        let open = items
            .iter()
            .filter(|i| matches!(i.status, TodoStatus::Pending | TodoStatus::InProgress))
            .count();
        let mut text = String::new();
        for item in &items {
            let mark = match item.status {
                TodoStatus::Pending => "[ ]",
                TodoStatus::InProgress => "[>]",
                TodoStatus::Completed => "[x]",
                TodoStatus::Cancelled => "[-]",
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{mark} {}", item.content);
        }
        if text.is_empty() {
            text.push_str("The task list is empty.");
        }
        Ok(ToolOutput {
            text,
            title: format!("{open} of {} tasks open", items.len()),
            metadata: json!({ "todos": items }),
            truncation: None,
        })
    }
}
