//! The command line's grammar.

use crate::amounts::{Bound, LimitsChange, Money, Time, Tokens};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use tenure_core::request::Effort;

/// A durable runtime for LLM coding-agent sessions.
#[derive(Debug, Parser)]
#[command(
    name = "tenure",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Default, Args)]
pub struct Global {
    /// Configuration file (else TENURE_CONFIG, else tenure.toml in the user's configuration folder)
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        help_heading = "Options of every command"
    )]
    pub config: Option<PathBuf>,
    /// Where sessions are kept: sqlite:PATH or postgres://USER@HOST/DATABASE (else TENURE_STORE, else the
    /// configuration)
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help_heading = "Options of every command"
    )]
    pub store: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send a prompt and follow the work to its end
    Run(RunArgs),
    /// Go on with a session that was stopped, parked or left behind
    Resume(ResumeArgs),
    /// Stop what a session is doing, durably
    Interrupt(InterruptArgs),
    /// Answer a permission question of a session, or list those that wait
    Answer(AnswerArgs),
    /// Take back an input that still waits
    Cancel(CancelArgs),
    /// List sessions with their state, age, cost and last line
    Sessions(SessionsArgs),
    /// Print a session as a readable transcript
    Show(ShowArgs),
    /// Print a session's events; with --follow, re-attach to it
    Log(LogArgs),
    /// Make a session that shares another one's history
    Fork(ForkArgs),
    /// Delete sessions
    Delete(DeleteArgs),
    /// Give back the space of deleted sessions
    Gc(JsonOnly),
    /// Let a quarantined session go on
    Release(ReleaseArgs),
    /// Write a session as JSON lines, secrets masked
    Export(ExportArgs),
    /// Read sessions written by `export`
    Import(ImportArgs),
    /// Check configuration, store and model endpoints, and say what to do
    Doctor(DoctorArgs),
    /// Show a crash and a recovery, without a key or a network
    Demo(DemoArgs),
    /// Print the configuration in force and where each value comes from
    Config(ConfigArgs),
    /// Let this folder's own .tenure/config.toml take full effect
    Trust(TrustArgs),
    /// Say what is known of each model and from where, or refresh the table of models
    Models(ModelsArgs),
    /// Show or change what a session may cost, use and last
    Limits(LimitsArgs),
    /// Serve a scripted model over HTTP, for tests and demos
    ScriptedModel(ScriptedArgs),
    /// Run the store's sessions, beside the other nodes of the store
    Node(NodeArgs),
    /// List the store's nodes
    Nodes(JsonOnly),
    /// List who holds which session since when, and every runnable session that nobody holds
    Claims(JsonOnly),
    /// Make a node hand its sessions over and end
    Drain(DrainArgs),
}

/// Arguments of `run`.
#[derive(Debug, Default, Args)]
pub struct RunArgs {
    /// The prompt; `-` reads it from standard input
    #[arg(value_name = "PROMPT")]
    pub prompt: Option<String>,
    /// Print one JSON object a line instead of text (docs/events.md)
    #[arg(long)]
    pub json: bool,
    /// Go on in this session
    #[arg(long, short = 's', value_name = "ID", conflicts_with = "continue_last")]
    pub session: Option<String>,
    /// Go on in the session last used in this folder
    #[arg(long = "continue", short = 'c')]
    pub continue_last: bool,
    /// Wait until the session would be idle, instead of steering the work under way
    #[arg(long)]
    pub queue: bool,
    /// The model, as provider/model
    #[arg(long, short = 'm', value_name = "MODEL")]
    pub model: Option<String>,
    /// The folder to work in (default: the current one)
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// What it may take
    #[command(flatten)]
    pub limits: LimitFlags,
    /// Attach a text file, an image (PNG, JPEG, GIF, WebP) or a PDF to the prompt (may be repeated)
    #[arg(
        long = "file",
        visible_alias = "attach",
        short = 'f',
        value_name = "PATH"
    )]
    pub files: Vec<PathBuf>,
    /// The answer must be JSON that fits the JSON Schema in this file
    #[arg(long, value_name = "FILE")]
    pub output_schema: Option<PathBuf>,
    /// How hard the model should think about this prompt: off, low, medium or high
    #[arg(long, value_name = "LEVEL", value_parser = effort)]
    pub effort: Option<Effort>,
    /// Allow every tool call without asking: for trusted automation only
    #[arg(long)]
    pub allow_all: bool,
    /// Leave the work to the background and return at once
    #[arg(long)]
    pub detach: bool,
    /// Only nodes with this label may run the session (may be repeated; `none` for any node)
    #[arg(long, value_name = "KEY=VALUE")]
    pub requires: Vec<String>,
    /// A title for a new session
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["session", "continue_last"])]
    pub title: Option<String>,
}

/// What a session may take.
#[derive(Debug, Default, Args)]
pub struct LimitFlags {
    /// Model turns without new input from you; the last one may not call tools
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_steps: Option<u32>,
    /// What the session may cost, in dollars (`1.50`), or `none`
    #[arg(long, value_name = "DOLLARS")]
    pub max_cost: Option<Bound<Money>>,
    /// Tokens the session may use, sent and generated (`200k`, `2M`), or `none`
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<Bound<Tokens>>,
    /// How long a turn may take (`90s`, `15m`, `2h`), or `none`
    #[arg(long, value_name = "TIME")]
    pub max_time: Option<Bound<Time>>,
}

impl From<&LimitFlags> for LimitsChange {
    fn from(flags: &LimitFlags) -> Self {
        Self {
            steps: flags.max_steps,
            cost: flags.max_cost,
            tokens: flags.max_tokens,
            time: flags.max_time,
        }
    }
}

/// Arguments of `limits`.
#[derive(Debug, Args)]
pub struct LimitsArgs {
    /// The session
    pub session: String,
    /// What to change
    #[command(flatten)]
    pub limits: LimitFlags,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `models`.
#[derive(Debug, Args)]
pub struct ModelsArgs {
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// List every model that is known of the configured providers' vendors
    #[arg(long)]
    pub all: bool,
    /// Download the newest table in the format of models.dev (default address: models.dev's own)
    #[arg(long, value_name = "URL", num_args = 0..=1, conflicts_with = "all")]
    pub refresh: Option<Option<String>>,
}

/// Arguments of `resume`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["session", "all"]))]
pub struct ResumeArgs {
    /// The session
    pub session: Option<String>,
    /// Every session that has something to do
    #[arg(long)]
    pub all: bool,
    /// First replace old history by a summary
    #[arg(long, conflicts_with = "all")]
    pub compact: bool,
    /// What the session may take from here on
    #[command(flatten)]
    pub limits: LimitFlags,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Leave the work to the background and return at once
    #[arg(long)]
    pub detach: bool,
}

/// Arguments of `interrupt`.
#[derive(Debug, Args)]
pub struct InterruptArgs {
    /// The session
    pub session: String,
    /// Only this execution
    #[arg(long, value_name = "ID")]
    pub execution: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `answer`.
#[derive(Debug, Args)]
pub struct AnswerArgs {
    /// The session
    pub session: String,
    /// y: once; a, a2 …: always, as offered; n: no, words after it are told to the model (default: list the questions)
    #[arg(value_name = "ANSWER")]
    pub answer: Vec<String>,
    /// The call that is asked about, when several are
    #[arg(long, value_name = "ID")]
    pub call: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `cancel`.
#[derive(Debug, Args)]
pub struct CancelArgs {
    /// The session
    pub session: String,
    /// The waiting input (see `tenure show`)
    pub input: String,
}

/// Arguments of `sessions`.
#[derive(Debug, Args)]
pub struct SessionsArgs {
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Only sessions of the current folder
    #[arg(long)]
    pub here: bool,
    /// Only sessions whose title or last line contains this
    #[arg(long, value_name = "TEXT")]
    pub search: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
}

/// Arguments of `show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The session
    pub session: String,
    /// Print the session's state and pending inputs as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print tool inputs and outputs whole
    #[arg(long)]
    pub full: bool,
}

/// Arguments of `log`.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// The session
    pub session: String,
    /// Stay attached and print what happens
    #[arg(long)]
    pub follow: bool,
    /// Only events after this seq
    #[arg(long, value_name = "SEQ")]
    pub after: Option<u64>,
    /// With --follow: end when the session has nothing more to do
    #[arg(long, requires = "follow")]
    pub until_idle: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `fork`.
#[derive(Debug, Args)]
pub struct ForkArgs {
    /// The session to share
    pub session: String,
    /// The last shared event (default: the last one)
    #[arg(long, value_name = "SEQ")]
    pub at: Option<u64>,
}

/// Arguments of `delete`.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// The sessions
    #[arg(required = true)]
    pub sessions: Vec<String>,
}

/// Arguments of commands that only choose their output.
#[derive(Debug, Args)]
pub struct JsonOnly {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// The session
    pub session: String,
}

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The session
    pub session: String,
    /// Write here instead of to standard output
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Leave secrets as they are
    #[arg(long)]
    pub raw: bool,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file; `-` reads standard input
    pub file: PathBuf,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Do not contact model endpoints
    #[arg(long)]
    pub offline: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Keep the temporary folder and say where it is
    #[arg(long)]
    pub keep: bool,
}

/// Arguments of `config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print an example file to start from
    #[arg(long)]
    pub example: bool,
    /// The folder whose project configuration applies
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
}

/// Arguments of `trust`.
#[derive(Debug, Args)]
pub struct TrustArgs {
    /// The folder (default: the current one)
    pub folder: Option<PathBuf>,
    /// Trust no longer
    #[arg(long)]
    pub revoke: bool,
    /// Print what the file asks for, and change nothing
    #[arg(long, conflicts_with = "revoke")]
    pub show: bool,
}

/// Arguments of `scripted-model`.
#[derive(Debug, Args)]
pub struct ScriptedArgs {
    /// The script (docs/scripted-model.md)
    #[arg(long, value_name = "FILE")]
    pub script: PathBuf,
    /// Listen here; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDR")]
    pub addr: std::net::SocketAddr,
    /// Append one JSON line per request here
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Require this API key
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,
}

/// Arguments of `node`.
#[derive(Debug, Args)]
pub struct NodeArgs {
    /// Leave when nothing is left to do
    #[arg(long)]
    pub until_idle: bool,
    /// Do not leave while somebody else still holds this session
    #[arg(long = "for", value_name = "ID")]
    pub waiting_for: Vec<String>,
    /// Take no other sessions than those of --for
    #[arg(long, requires = "waiting_for")]
    pub alone: bool,
    /// Listen for other nodes here; port 0 takes a free one (default: 127.0.0.1:0)
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<std::net::SocketAddr>,
    /// The address other nodes use, when it is not the one listened on
    #[arg(long, value_name = "HOST[:PORT]")]
    pub advertise: Option<String>,
    /// A label of this node (may be repeated)
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// Take only sessions below this folder (may be repeated; default: any)
    #[arg(long = "root", value_name = "DIR")]
    pub roots: Vec<PathBuf>,
    /// What people call this node
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// Arguments of `drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The node: its name, or the beginning of its incarnation
    pub node: String,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

fn effort(text: &str) -> Result<Effort, String> {
    crate::config::asks::effort(text).ok_or_else(|| "use off, low, medium or high".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn resume_wants_one_session_or_all() {
        assert!(Cli::try_parse_from(["tenure", "resume"]).is_err());
        assert!(Cli::try_parse_from(["tenure", "resume", "ses_1", "--all"]).is_err());
        assert!(Cli::try_parse_from(["tenure", "resume", "--all"]).is_ok());
        assert!(Cli::try_parse_from(["tenure", "resume", "--all", "--compact"]).is_err());
    }
}
