//! Shell text taken apart: every simple command and every redirection in it, or the reason why that is unclear.
//!
//! The text is read twice, by a parser of the whole language and by our own strict reader of tokens and quotes
//! (`lex`). Only what both understand alike is judged; everything else is [`Unclear`], and unclear means *ask*.

mod lex;
mod walk;
mod word;

use brush_parser::{
    ParserImpl, ParserOptions, Token as Parsed, parse_tokens, uncached_tokenize_str,
};

pub(crate) use word::ShellWord;

/// Texts longer than this many bytes are not parsed.
pub(crate) const MAX_TEXT: usize = 64 * 1024;

/// Brackets, substitutions and compound commands may nest this deep. Beyond it the text is not parsed: the parser
/// recurses.
pub(crate) const MAX_NESTING: usize = 24;

/// A text may have this many `((` in it, or `( (`.
const MAX_DOUBLED: usize = 6;

/// Why a text cannot be judged piece by piece.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unclear {
    /// The text itself.
    #[error("the command has {0}, which cannot be judged safely")]
    Text(&'static str),
    /// More bytes than [`MAX_TEXT`].
    #[error("the command is longer than 64 KiB")]
    TooLong,
    /// Deeper than [`MAX_NESTING`].
    #[error("the command is nested too deeply to be judged")]
    TooDeep,
    /// The parser refused it.
    #[error("the command cannot be parsed as shell text: {0}")]
    Syntax(String),
}

/// One simple command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SimpleCommand {
    /// `NAME=value` words before the command: the name and the whole word.
    pub assignments: Vec<(String, ShellWord)>,
    /// The command and its arguments.
    pub words: Vec<ShellWord>,
}

/// What a redirection does with its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedirectKind {
    /// Opened for reading.
    Read,
    /// Created, truncated or appended to.
    Write,
}

/// One thing a script does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Runs a command.
    Run(SimpleCommand),
    /// Opens a file.
    Redirect {
        /// How.
        kind: RedirectKind,
        /// Which.
        target: ShellWord,
        /// Whether the script changes its directory somewhere, so that a relative target is unknown.
        moved: bool,
    },
    /// Does something that cannot be judged.
    Unclear(Unclear),
}

/// Takes a script apart. Steps come in the order of the text; scripts inside words come before the command.
///
/// # Errors
/// [`Unclear`] when the text as a whole cannot be read.
pub(crate) fn steps(text: &str) -> Result<Vec<Step>, Unclear> {
    let mut steps = Vec::new();
    walk::script(text, 0, &mut steps)?;
    let moves = |step: &Step| match step {
        Step::Run(command) => command.words.first().is_some_and(|word| {
            !word.literal || matches!(word.text.as_str(), "cd" | "pushd" | "popd")
        }),
        _ => false,
    };
    if steps.iter().any(moves) {
        for step in &mut steps {
            if let Step::Redirect { moved, .. } = step {
                *moved = true;
            }
        }
    }
    Ok(steps)
}

/// Splits one line into literal words, for patterns. `None` when it is more than a plain command.
pub(crate) fn plain_words(text: &str) -> Option<Vec<ShellWord>> {
    let tokens = lex::Lexer::new(text).tokens().ok()?;
    tokens
        .iter()
        .map(|token| match token {
            lex::Token::Word(raw) => word::read_word(raw).ok(),
            lex::Token::Operator(_) => None,
        })
        .collect()
}

/// Parses a text that both readers understand alike.
fn parse(text: &str) -> Result<brush_parser::ast::Program, Unclear> {
    if text.len() > MAX_TEXT {
        return Err(Unclear::TooLong);
    }
    let odd = |c: char| {
        (c.is_control() && !matches!(c, '\t' | '\n')) || (!c.is_ascii() && c.is_whitespace())
    };
    if text.contains(odd) {
        return Err(Unclear::Text("control characters or unusual blanks"));
    }
    let ours = lex::Lexer::new(text).tokens()?;
    check_nesting(&ours)?;
    let options = ParserOptions {
        enable_extended_globbing: false,
        posix_mode: false,
        sh_mode: false,
        tilde_expansion_at_word_start: true,
        tilde_expansion_after_colon: false,
        parser_impl: ParserImpl::Peg,
    };
    let theirs = uncached_tokenize_str(text, &options.tokenizer_options())
        .map_err(|error| Unclear::Syntax(error.to_string()))?;
    let alike = ours.len() == theirs.len()
        && ours.iter().zip(&theirs).all(|pair| match pair {
            (lex::Token::Operator(a), Parsed::Operator(b, _))
            | (lex::Token::Word(a), Parsed::Word(b, _)) => a == b,
            _ => false,
        });
    if !alike {
        return Err(Unclear::Text(
            "text that two readers of shell syntax understand differently",
        ));
    }
    parse_tokens(&theirs, &options).map_err(|error| Unclear::Syntax(error.to_string()))
}

/// Counts words and operators that open a nested construct, whether or not they stand where they have that meaning.
fn check_nesting(tokens: &[lex::Token]) -> Result<(), Unclear> {
    let mut depth = 0_usize;
    let mut doubled = 0_usize;
    let mut last = "";
    for token in tokens {
        let (lex::Token::Operator(text) | lex::Token::Word(text)) = token;
        // The parser tries each `((` both as arithmetic and as two subshells.
        doubled += usize::from(last == "(" && text == "(");
        last = text;
        match text.as_str() {
            // The parser's time doubles with each `case` inside another.
            "case" => depth += 4,
            "esac" => depth = depth.saturating_sub(4),
            "(" | "{" | "if" | "while" | "until" | "for" | "select" | "coproc" | "function"
            | "!" | "[[" => depth += 1,
            ")" | "}" | "fi" | "done" | "]]" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_NESTING || doubled > MAX_DOUBLED {
            return Err(Unclear::TooDeep);
        }
    }
    Ok(())
}
