//! One shell word, read strictly: its literal text, what stays unknown until it runs, and the commands inside it.

use super::Unclear;
use super::lex::Lexer;

/// A word as the rules see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ShellWord {
    /// The text after quotes are removed. Unknown parts appear as they were written.
    pub text: String,
    /// True when `text` is exactly what the program will get.
    pub literal: bool,
    /// True when the word may turn into something that starts with `-`, or into several words.
    pub may_be_option: bool,
    /// Scripts inside the word that the shell runs to build it.
    pub scripts: Vec<String>,
}

impl ShellWord {
    /// The word when its text is known.
    pub(crate) fn known(&self) -> Option<&str> {
        self.literal.then_some(self.text.as_str())
    }
}

/// Reads a whole raw word, as the parser stored it. Anything left over is unclear.
pub(crate) fn read_word(raw: &str) -> Result<ShellWord, Unclear> {
    let mut lexer = Lexer::new(raw);
    let word = lexer.word()?;
    if lexer.at_end() {
        Ok(word)
    } else {
        Err(Unclear::Text("an operator inside a word"))
    }
}

/// Reads the body of a here-document whose marker was not quoted: text with expansions.
pub(crate) fn read_here_document(body: &str) -> Result<ShellWord, Unclear> {
    Lexer::new(body).here_document_body()
}

/// Checks an arithmetic expression. Only numbers and operators pass: a name in it would be evaluated again by the
/// shell, and its value may hold a command substitution.
pub(crate) fn check_arithmetic(expression: &str) -> Result<(), Unclear> {
    let plain = |c: char| c.is_ascii_digit() || " \t\n+-*/%()<>=!&|^~?:,".contains(c);
    if expression.chars().all(plain) {
        Ok(())
    } else {
        Err(Unclear::Text("arithmetic with names or expansions in it"))
    }
}

/// Collects the parts of one word.
#[derive(Default)]
pub(super) struct WordBuilder {
    word: ShellWord,
    unknown: bool,
    opened_bracket: bool,
    opened_brace: bool,
    brace_list: bool,
    last_unquoted: Option<char>,
}

impl WordBuilder {
    fn started(&self) -> bool {
        !self.word.text.is_empty()
    }

    /// A character that is itself: quoted or escaped.
    pub(super) fn quoted(&mut self, c: char) {
        if !self.started() && c == '~' {
            // A quoted tilde is a file of that name, an unquoted one the home folder: keep them apart.
            self.word.text.push('\\');
        }
        self.word.text.push(c);
        self.last_unquoted = None;
    }

    /// An unquoted character: may be part of a glob or a brace expansion.
    pub(super) fn plain(&mut self, c: char) {
        match c {
            '*' | '?' => self.glob(),
            '[' => self.opened_bracket = true,
            ']' if self.opened_bracket => self.glob(),
            '{' => self.opened_brace = true,
            ',' if self.opened_brace => self.brace_list = true,
            '.' if self.opened_brace && self.last_unquoted == Some('.') => self.brace_list = true,
            '}' if self.brace_list => self.splits(),
            _ => {}
        }
        self.word.text.push(c);
        self.last_unquoted = Some(c);
    }

    fn glob(&mut self) {
        self.unknown = true;
        let prefix = self.word.text.trim_end_matches(['[', '*', '?']);
        if prefix.is_empty() || prefix.starts_with('-') {
            self.word.may_be_option = true;
        }
    }

    fn splits(&mut self) {
        self.unknown = true;
        self.word.may_be_option = true;
    }

    /// An expansion, shown as `source`. `one_word` when quotes keep it together.
    pub(super) fn expansion(&mut self, source: &str, one_word: bool) {
        self.unknown = true;
        if !one_word || !self.started() {
            self.word.may_be_option = true;
        }
        self.word.text.push_str(source);
        self.last_unquoted = None;
    }

    /// A script the shell runs while building the word.
    pub(super) fn script(&mut self, script: String) {
        self.word.scripts.push(script);
    }

    pub(super) fn scripts(&mut self, scripts: Vec<String>) {
        self.word.scripts.extend(scripts);
    }

    pub(super) fn finish(mut self) -> ShellWord {
        if self.word.text.starts_with('-') {
            self.word.may_be_option = true;
        }
        self.word.literal = !self.unknown;
        self.word
    }
}
