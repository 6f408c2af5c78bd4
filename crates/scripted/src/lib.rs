//! A scripted model served over HTTP, with strict validators of each vendor's request rules.
//!
//! A [`Script`] says turn by turn what the model answers: text, reasoning, tool calls, delays and faults. A
//! [`ScriptedModel`] serves it over real sockets in the wire forms of all vendors at once: OpenAI Chat Completions and
//! Responses, Anthropic Messages, Google Gemini, Bedrock ConverseStream. Each request is first checked by [`validate`]; what
//! a vendor would refuse is answered with 400 in that vendor's own error form, naming the rules broken. The format is documented in `docs/scripted-model.md`.
//!
//! ```
//! use tenure_scripted::{Part, Script, ScriptedModel, Turn};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let script = Script::new([
//!     Turn::default().and(Part::reasoning("Look first.")).and(Part::call("read", serde_json::json!({"path": "a"}))),
//!     Turn::text("It says hello."),
//! ]);
//! let model = ScriptedModel::builder(script).bind("127.0.0.1:0".parse()?).await?;
//! // Point a client at `model.base_url()`, run it, and then look at what it sent:
//! assert!(model.requests().is_empty());
//! assert_eq!(model.overlaps(), []);
//! model.shutdown().await;
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! This crate shares no code with the encoders it checks and depends on nothing else of the workspace.

mod answer;
mod cli;
mod encode;
mod http;
mod issue;
mod measure;
mod pieces;
mod play;
mod record;
mod route;
mod script;
mod select;
mod server;
mod sigv4;
mod stream;
pub mod validate;
mod vendor;
mod whole;

pub use cli::{CliError, CliOptions, serve_cli};
pub use encode::event_frames::event as event_frame;
pub use issue::SEAL_PREFIX;
pub use measure::measure;
pub use record::{Ended, Recorded, Verdict};
pub use script::{
    CutHow, Fault, Finish, Input, Part, Script, ScriptError, Seal, Select, Times, Turn, Usage,
    WireShape,
};
pub use select::TurnId;
pub use server::{Builder, Handle, ScriptedModel};
pub use vendor::Vendor;
