//! The contract between a tool and whoever runs it: specification, context, result and error.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::guardian::GuardianCommand;
use crate::output::{OutputLimits, Truncation};
use crate::permission::Access;
use crate::seen::SeenFiles;
use crate::todo::TodoList;

/// Something the model can call.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    /// Name, description and input schema. Must not change while the tool is registered: request prefixes are kept
    /// byte-stable for the provider's cache.
    fn spec(&self) -> ToolSpec;

    /// What this call would touch, for the permission rules. Changes nothing; it may look at the file system to
    /// resolve paths.
    ///
    /// # Errors
    /// [`ToolError::InvalidInput`] when the input does not fit; [`ToolError::Io`] when a path cannot be resolved.
    fn access(&self, cx: &ToolCx, input: &Value) -> Result<Vec<Access>, ToolError>;

    /// Whether [`Tool::run`] reports a guardian to [`ToolCx::spawned`] and has no effect before the answer. Whoever
    /// runs the tool may then make the start durable in that answer, together with the process.
    fn reports_spawn(&self) -> bool {
        false
    }

    /// Runs the call.
    ///
    /// Dropping the future stops the call: child processes are killed, and a file is either as before or completely
    /// written.
    ///
    /// # Errors
    /// Every error's text is meant for the model and says what to do next.
    async fn run(&self, cx: ToolCx, input: Value) -> Result<ToolOutput, ToolError>;
}

/// How a tool is described to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Unique name in one [`ToolSet`](crate::ToolSet).
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// A JSON schema of type `object`.
    pub input_schema: Value,
}

/// Everything one call may know. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ToolCx {
    /// The session's id.
    pub session: String,
    /// The call's id; also names the file that keeps a long output.
    pub call: String,
    /// The session's directory, canonical. Relative paths start here.
    pub workspace: PathBuf,
    /// Further canonical directories that count as inside.
    pub extra_roots: Vec<PathBuf>,
    /// Where whole outputs are kept; made with mode 0700 when first needed.
    pub output_dir: PathBuf,
    /// Cancelled when the call must stop. The tool then ends with [`ToolError::Interrupted`].
    pub cancel: CancellationToken,
    /// Told of output while a call runs.
    pub progress: Option<ProgressSink>,
    /// Told who the guardian process is before the command begins.
    pub spawned: Option<SpawnSink>,
    /// How to start the guardian process.
    pub guardian: GuardianCommand,
    /// Bounds of what the model sees and of what is kept.
    pub limits: OutputLimits,
    /// Names of environment variables never given to child processes.
    pub env_remove: Vec<String>,
    /// What the permission rules let this call touch, as [`Tool::access`] said it. The tool resolves its paths again
    /// when it runs and refuses when they lead elsewhere by then. `None` means no rules were asked: then only what
    /// lies in the workspace and the extra roots may be touched.
    pub granted: Option<Arc<[Access]>>,
    /// Files whose content a search must not show, though they lie in a tree that may be searched. `None` hides none.
    pub unreadable: Option<PathFilter>,
    /// The session's task list.
    pub todo: TodoList,
    /// What the session's model has read, by content.
    pub seen: SeenFiles,
    /// Kept by whatever may still do something for this call, also after the call's future was dropped: its thread,
    /// its processes. `None` when nobody asks.
    pub at_work: Option<AtWork>,
}

impl ToolCx {
    /// A context with defaults for everything but where the call runs.
    ///
    /// `workspace` is made canonical; `output_dir` is not touched before it is needed.
    ///
    /// # Errors
    /// When the workspace cannot be resolved.
    pub fn new(
        session: impl Into<String>,
        call: impl Into<String>,
        workspace: &Path,
        output_dir: impl Into<PathBuf>,
        guardian: GuardianCommand,
    ) -> std::io::Result<Self> {
        Ok(Self {
            session: session.into(),
            call: call.into(),
            workspace: workspace.canonicalize()?,
            extra_roots: Vec::new(),
            output_dir: output_dir.into(),
            cancel: CancellationToken::new(),
            progress: None,
            spawned: None,
            guardian,
            limits: OutputLimits::default(),
            env_remove: Vec::new(),
            granted: None,
            unreadable: None,
            todo: TodoList::default(),
            seen: SeenFiles::default(),
            at_work: None,
        })
    }

    /// Whether a real path lies in the workspace or an extra root.
    #[must_use]
    pub fn is_inside(&self, real: &Path) -> bool {
        std::iter::once(&self.workspace)
            .chain(&self.extra_roots)
            .any(|root| real.starts_with(root))
    }

    /// Whether this call may touch `wanted`, judged by what was granted.
    ///
    /// # Errors
    /// [`ToolError::Refused`] that shows the given and the real path.
    pub fn permits(&self, wanted: &Access) -> Result<(), ToolError> {
        match &self.granted {
            Some(granted) if granted.iter().any(|g| same_target(g, wanted)) => Ok(()),
            Some(_) => Err(ToolError::refused(format!(
                "{} is not what was checked when this call was allowed (a link may have changed meanwhile). Nothing \
                 was done; make the call again.",
                describe(wanted)
            ))),
            None => match wanted {
                Access::Read { real, .. }
                | Access::Write { real, .. }
                | Access::Search { real, .. }
                    if !self.is_inside(real) =>
                {
                    Err(ToolError::refused(format!(
                        "{} is outside the workspace {}.",
                        describe(wanted),
                        self.workspace.display()
                    )))
                }
                Access::Command { cwd, .. } if !self.is_inside(cwd) => {
                    Err(ToolError::refused(format!(
                        "{} is outside the workspace {}.",
                        cwd.display(),
                        self.workspace.display()
                    )))
                }
                _ => Ok(()),
            },
        }
    }
}

/// Compares what is touched, not how it was spelt.
fn same_target(a: &Access, b: &Access) -> bool {
    match (a, b) {
        (Access::Read { real: a, .. }, Access::Read { real: b, .. })
        | (Access::Write { real: a, .. }, Access::Write { real: b, .. })
        | (Access::Search { real: a, .. }, Access::Search { real: b, .. }) => a == b,
        (a, b) => a == b,
    }
}

fn describe(access: &Access) -> String {
    match access {
        Access::Read { given, real }
        | Access::Write { given, real }
        | Access::Search { given, real } => {
            if Path::new(given) == real {
                format!("`{given}`")
            } else {
                format!("`{given}` (really `{}`)", real.display())
            }
        }
        Access::Command { command, .. } => {
            format!("the command `{}`", crate::output::cut(command, 200))
        }
        Access::Other { tool, pattern } => format!("{tool} {}", crate::output::cut(pattern, 200)),
    }
}

/// Says which real paths are hidden. Called once for each file of a search, so it must be quick.
#[derive(Clone)]
pub struct PathFilter(Arc<dyn Fn(&Path) -> bool + Send + Sync>);

impl PathFilter {
    /// Wraps a function that is true for hidden paths.
    pub fn new(hides: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(hides))
    }

    /// Whether a path is hidden.
    #[must_use]
    pub fn hides(&self, real: &Path) -> bool {
        (self.0)(real)
    }
}

impl fmt::Debug for PathFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PathFilter")
    }
}

/// Wraps what whoever runs a call wants to see dropped when nothing of the call can do anything any more. A tool that
/// works on after its future was dropped keeps a copy until then; all copies hold the same value.
#[derive(Clone)]
pub struct AtWork(
    #[expect(dead_code, reason = "only its drop matters")] Arc<dyn Any + Send + Sync>,
);

impl AtWork {
    /// Wraps a value; it is dropped with the last copy.
    pub fn new(value: impl Any + Send + Sync) -> Self {
        Self(Arc::new(value))
    }
}

impl fmt::Debug for AtWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtWork")
    }
}

/// A piece of output of a call that is still running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// New text, safe to show: control characters are escaped.
    pub text: String,
    /// Bytes of output so far.
    pub total_bytes: u64,
}

/// Receives [`Progress`]. It must return quickly and may drop what it is given.
#[derive(Clone)]
pub struct ProgressSink(Arc<dyn Fn(Progress) + Send + Sync>);

impl ProgressSink {
    /// Wraps a function.
    pub fn new(f: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(f))
    }

    /// Hands one piece over.
    pub fn send(&self, progress: Progress) {
        (self.0)(progress);
    }
}

impl fmt::Debug for ProgressSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgressSink")
    }
}

/// The identity of a guardian process: enough to find it, and only it, after a crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawned {
    /// Process id of the guardian; also its session and process group.
    pub pid: u32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/<pid>/stat`).
    pub pid_start: u64,
    /// The boot it belongs to.
    pub boot_id: String,
}

type SpawnFuture = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Told of a guardian before its command begins. The command begins only if the answer is `Ok`; an error text is
/// given to the model and nothing runs.
#[derive(Clone)]
pub struct SpawnSink(Arc<dyn Fn(Spawned) -> SpawnFuture + Send + Sync>);

impl SpawnSink {
    /// Wraps an async function.
    pub fn new<F, Fut>(f: F) -> Self
    where
        F: Fn(Spawned) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self(Arc::new(move |spawned| Box::pin(f(spawned))))
    }

    /// Reports a guardian and waits for leave to begin.
    ///
    /// # Errors
    /// The receiver's reason why the command must not begin.
    pub async fn report(&self, spawned: Spawned) -> Result<(), String> {
        (self.0)(spawned).await
    }
}

impl fmt::Debug for SpawnSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpawnSink")
    }
}

/// What a finished call gives.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// What the model sees: bounded, valid text without control characters other than tab and newline.
    pub text: String,
    /// One line for people.
    pub title: String,
    /// Facts for programs (exit code, counts, a diff), bounded.
    pub metadata: Value,
    /// Set when `text` is not everything.
    pub truncation: Option<Truncation>,
}

/// Why a call gave no result. The `Display` text is what the model is told.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The input does not fit the schema; the tool did not run.
    #[error("Not executed: {problem}")]
    InvalidInput {
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// No such tool.
    #[error("Not executed: there is no tool `{name}`. {}", near_tools(.near))]
    UnknownTool {
        /// The name asked for.
        name: String,
        /// Near names, best first, else all names.
        near: Vec<String>,
    },
    /// A file or directory is not there.
    #[error("`{path}` does not exist.{hint}")]
    NotFound {
        /// The path as given.
        path: String,
        /// Empty, or a sentence that begins with a space.
        hint: String,
    },
    /// The tool would not do it; nothing changed.
    #[error("Refused: {reason}")]
    Refused {
        /// Why, and what to do instead.
        reason: String,
    },
    /// It ran and failed.
    #[error("{text}")]
    Failed {
        /// What happened.
        text: String,
        /// Facts for programs.
        metadata: Value,
        /// Set when the text is not everything.
        truncation: Option<Truncation>,
    },
    /// Its time limit passed; everything it started is dead.
    #[error("{text}")]
    TimedOut {
        /// What happened, with the output up to then.
        text: String,
        /// Facts for programs.
        metadata: Value,
        /// Set when the output shown is not everything.
        truncation: Option<Truncation>,
    },
    /// It was interrupted; everything it started is dead.
    #[error("{text}")]
    Interrupted {
        /// What happened, with the output up to then.
        text: String,
        /// Facts for programs.
        metadata: Value,
        /// Set when the output shown is not everything.
        truncation: Option<Truncation>,
    },
    /// The system refused.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, to what.
        doing: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

fn near_tools(near: &[String]) -> String {
    if near.is_empty() {
        "No tools are available.".into()
    } else {
        format!("Did you mean: {}?", near.join(", "))
    }
}

impl ToolError {
    /// [`ToolError::InvalidInput`].
    pub fn invalid(problem: impl Into<String>) -> Self {
        Self::InvalidInput {
            problem: problem.into(),
        }
    }

    /// [`ToolError::Refused`].
    pub fn refused(reason: impl Into<String>) -> Self {
        Self::Refused {
            reason: reason.into(),
        }
    }

    /// [`ToolError::Failed`] with a text only.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed {
            text: text.into(),
            metadata: Value::Null,
            truncation: None,
        }
    }

    /// [`ToolError::Io`].
    pub fn io(doing: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io {
            doing: doing.into(),
            source,
        }
    }

    /// [`ToolError::Interrupted`] for a tool that keeps no partial output.
    pub fn interrupted(what: &str) -> Self {
        Self::Interrupted {
            text: format!("{what} was interrupted before it finished."),
            metadata: Value::Null,
            truncation: None,
        }
    }

    /// The same error with all its texts safe to store, send and print: they may quote what the model sent.
    #[must_use]
    pub fn cleaned(mut self) -> Self {
        let texts: Vec<&mut String> = match &mut self {
            Self::InvalidInput { problem: text }
            | Self::Refused { reason: text }
            | Self::Io { doing: text, .. } => {
                vec![text]
            }
            Self::UnknownTool { name, near } => near.iter_mut().chain([name]).collect(),
            Self::NotFound { path, hint } => vec![path, hint],
            Self::Failed { text, .. }
            | Self::TimedOut { text, .. }
            | Self::Interrupted { text, .. } => vec![text],
        };
        for text in texts {
            if let std::borrow::Cow::Owned(clean) = crate::output::clean(text) {
                *text = clean;
            }
        }
        self
    }

    /// A short stable name of the kind, for events and filters.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidInput { .. } => "invalid_input",
            Self::UnknownTool { .. } => "unknown_tool",
            Self::NotFound { .. } => "not_found",
            Self::Refused { .. } => "refused",
            Self::Failed { .. } => "failed",
            Self::TimedOut { .. } => "timed_out",
            Self::Interrupted { .. } => "interrupted",
            Self::Io { .. } => "io",
        }
    }

    /// Facts for programs, when the kind carries any.
    #[must_use]
    pub fn metadata(&self) -> Option<&Value> {
        match self {
            Self::Failed { metadata, .. }
            | Self::TimedOut { metadata, .. }
            | Self::Interrupted { metadata, .. } => Some(metadata),
            _ => None,
        }
    }

    /// What was cut from the text, when anything was.
    #[must_use]
    pub fn truncation(&self) -> Option<&Truncation> {
        match self {
            Self::Failed { truncation, .. }
            | Self::TimedOut { truncation, .. }
            | Self::Interrupted { truncation, .. } => truncation.as_ref(),
            _ => None,
        }
    }
}

/// Runs blocking work on a thread for it. When the future is dropped the context's token is cancelled: work not yet
/// begun never begins, and long work that looks at the token stops. A write already begun completes.
pub(crate) async fn off_thread<T: Send + 'static>(
    mut cx: ToolCx,
    work: impl FnOnce(&ToolCx) -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let token = cx.cancel.child_token();
    let _cancels_when_dropped = token.clone().drop_guard();
    cx.cancel = token;
    let work = tokio::task::spawn_blocking(move || {
        if cx.cancel.is_cancelled() {
            Err(ToolError::interrupted("The call"))
        } else {
            work(&cx)
        }
    });
    match work.await {
        Ok(result) => result,
        Err(error) if error.is_panic() => Err(ToolError::failed(
            "The tool failed inside (a defect, not your input). Try another way.",
        )),
        Err(_) => Err(ToolError::interrupted("The call")),
    }
}
