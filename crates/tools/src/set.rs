//! The tools one model request offers, by name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::permission::Access;
use crate::tool::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec};
use crate::{bash, edit, glob, grep, input, nearest, output, read, schema, todo, write};

/// A set of tools with unique names. Cheap to clone: a request keeps the set it advertised, so that a later change
/// does not touch calls already under way.
#[derive(Clone, Default)]
pub struct ToolSet {
    tools: BTreeMap<String, Registered>,
}

#[derive(Clone)]
struct Registered {
    spec: Arc<ToolSpec>,
    tool: Arc<dyn Tool>,
}

impl ToolSet {
    /// No tools.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// `bash`, `edit`, `glob`, `grep`, `read`, `todo` and `write`.
    #[must_use]
    pub fn builtin() -> Self {
        Self::empty()
            .with(Arc::new(bash::Bash))
            .with(Arc::new(edit::Edit))
            .with(Arc::new(glob::Glob))
            .with(Arc::new(grep::Grep))
            .with(Arc::new(read::Read))
            .with(Arc::new(todo::Todo))
            .with(Arc::new(write::Write))
    }

    /// Adds a tool; one of the same name is replaced.
    #[must_use]
    pub fn with(mut self, tool: Arc<dyn Tool>) -> Self {
        let spec = Arc::new(tool.spec());
        self.tools
            .insert(spec.name.clone(), Registered { spec, tool });
        self
    }

    /// Leaves a tool out.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.tools.remove(name);
        self
    }

    /// The tool of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.tools.get(name).map(|r| Arc::clone(&r.tool))
    }

    /// All specifications, in the order of their names.
    #[must_use]
    pub fn specs(&self) -> Vec<Arc<ToolSpec>> {
        self.tools.values().map(|r| Arc::clone(&r.spec)).collect()
    }

    /// Names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    /// Checks name and input of a call and says what it would touch.
    ///
    /// # Errors
    /// [`ToolError::UnknownTool`] with near names, [`ToolError::InvalidInput`] with everything that does not fit,
    /// or what [`Tool::access`] gives.
    pub fn access(&self, name: &str, cx: &ToolCx, input: &Value) -> Result<Vec<Access>, ToolError> {
        let (registered, input) = self.checked(name, input)?;
        registered
            .tool
            .access(cx, &input)
            .map_err(ToolError::cleaned)
    }

    /// Checks and runs a call, and bounds its result whatever the tool did.
    ///
    /// Dropping the future stops the call as [`Tool::run`] says.
    ///
    /// # Errors
    /// As [`ToolSet::access`], and what [`Tool::run`] gives.
    pub async fn run(
        &self,
        name: &str,
        cx: ToolCx,
        input: &Value,
    ) -> Result<ToolOutput, ToolError> {
        let (registered, input) = self.checked(name, input)?;
        let result = registered
            .tool
            .run(cx.clone(), input)
            .await
            .map_err(ToolError::cleaned)?;
        if result.text.len() <= 1024 * 1024 {
            return Ok(output::bound(&cx, result));
        }
        tokio::task::spawn_blocking(move || output::bound(&cx, result))
            .await
            .map_err(|_| ToolError::failed("The result was lost while it was being shortened."))
    }

    fn checked(&self, name: &str, input: &Value) -> Result<(&Registered, Value), ToolError> {
        let registered = self.tools.get(name).ok_or_else(|| ToolError::UnknownTool {
            name: output::clean(output::cut(name, 100)).into_owned(),
            near: nearest::names(name, self.names()),
        })?;
        let input = input::normalise(input.clone())?;
        let problems = schema::problems(&registered.spec.input_schema, &input);
        if problems.is_empty() {
            Ok((registered, input))
        } else {
            Err(ToolError::invalid(format!("{}.", problems.join("; "))).cleaned())
        }
    }
}

impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.tools.keys()).finish()
    }
}
