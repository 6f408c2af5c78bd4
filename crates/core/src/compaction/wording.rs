//! What the model that writes a summary is told, and what it must not answer.

use crate::error::SessionError;
use crate::provider::Finish;
use std::fmt::Write;

/// What begins every summarising request; scripted models and tests recognise it by this.
pub const SUMMARY_MARK: &str = "Summarise the conversation below";

/// The kind of error of a summary that cannot be used.
pub const UNUSABLE_SUMMARY: &str = "unusable_summary";

/// The sections of every summary, with what belongs into each.
pub const SECTIONS: [(&str, &str); 6] = [
    (
        "Goal and constraints",
        "what the user wants and forbids, quoted in the user's own words; newer words win over older ones",
    ),
    (
        "Decisions",
        "what was decided, and why; what was tried and rejected",
    ),
    (
        "Files",
        "each file that was read, written or is to be changed, with its path and its state now",
    ),
    (
        "Commands and results",
        "commands that were run and results that still matter, with exact names, numbers and error texts",
    ),
    (
        "Open questions",
        "what is unclear, unfinished, or waits for somebody",
    ),
    ("Next step", "what would have been done next, precisely"),
];

/// Bytes above which an answer is no summary, whatever its limit was.
const SUMMARY_MAX_BYTES: usize = 256 * 1024;

/// The privileged words of the request.
pub(super) const SYSTEM: &str =
    "You write precise summaries of coding sessions, so that the work can go on from them alone.";

/// The request's one message.
pub(super) fn instructions(earlier: Option<&str>, transcript: &str, firmly: bool) -> String {
    let mut out = format!(
        "{SUMMARY_MARK} for the agent that will continue it and will see nothing else of it. Use exactly these \
         sections, each with its heading; write \"none\" where there is nothing to say:\n"
    );
    for (heading, what) in SECTIONS {
        let _ = writeln!(out, "## {heading}\n({what})");
    }
    if earlier.is_some() {
        out.push_str(
            "\nThe conversation began with an earlier summary. Bring it up to date: keep what still holds, word \
             for word where it is exact (the user's words, paths, names, numbers); change what is no longer true; \
             drop only what is settled and will not be needed; add what is new. Do not summarise the summary.\n",
        );
    }
    out.push_str(
        "\nAnswer with the summary only, as text. Call no tool, and do not continue the work itself.\n",
    );
    if firmly {
        out.push_str(
            "An earlier try came back empty, cut off or as a tool call. Write the summary now, as plain text, in at \
             most 800 words.\n",
        );
    }
    if let Some(earlier) = earlier {
        let _ = write!(out, "\n<earlier_summary>\n{earlier}\n</earlier_summary>\n");
    }
    let _ = write!(out, "\n<conversation>\n{transcript}</conversation>\n");
    out
}

/// Judges an answer to a summarising request. `called`: it held a tool call.
///
/// # Errors
/// [`UNUSABLE_SUMMARY`], saying what is wrong with it.
pub fn usable_summary(text: &str, finish: Finish, called: bool) -> Result<(), SessionError> {
    let what = match finish {
        Finish::Length => "The summary ran into its output limit",
        Finish::ContentFilter => "The summary was stopped by the provider's content policy",
        _ if called || finish == Finish::ToolCalls => {
            "The model called a tool instead of writing a summary"
        }
        Finish::Pause | Finish::Error => "The model did not finish the summary",
        _ if text.trim().is_empty() => "The model returned an empty summary",
        _ if text.len() > SUMMARY_MAX_BYTES => "The summary is longer than any summary may be",
        _ => return Ok(()),
    };
    Err(SessionError::new(UNUSABLE_SUMMARY, what))
}
