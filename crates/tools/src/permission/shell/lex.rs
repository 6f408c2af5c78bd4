//! A strict reader of shell text, used to cross-check the parser's own tokens: where the two differ, we ask.
//!
//! It follows the quoting rules of bash and gives up (`Unclear`) on whatever is rare or ambiguous. A difference
//! between this reader and the parser means that one of them misreads the text, and bash may then run something
//! neither judged.

use super::word::{ShellWord, WordBuilder, check_arithmetic};
use super::{MAX_NESTING, Unclear};

/// A token of the text: an operator or a raw word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Operator(String),
    Word(String),
}

/// Operators, longest first.
const OPERATORS: &[&str] = &[
    "&>>", "<<<", "<<-", ";;&", "&&", "||", ";;", ";&", "|&", "&>", ">>", ">|", ">&", "<<", "<&",
    "<>", "&", "|", ";", "<", ">", "(", ")", "\n",
];

/// A here-document whose body has not been read yet.
struct Pending {
    /// Where in the token list its body belongs.
    at: usize,
    marker: String,
    strip_tabs: bool,
    expands: bool,
}

/// The reader, over one text.
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// The raw form of the word being read: the source without line continuations.
    raw: String,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            depth: 0,
            raw: String::new(),
        }
    }

    pub(super) fn at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn take(&mut self, prefix: &str) -> bool {
        let found = self.rest().starts_with(prefix);
        if found {
            self.at += prefix.len();
        }
        found
    }

    fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Unclear>,
    ) -> Result<T, Unclear> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(Unclear::TooDeep);
        }
        let outer = std::mem::take(&mut self.raw);
        let result = read(self);
        self.raw = outer;
        self.depth -= 1;
        result
    }

    /// All tokens of the text.
    pub(super) fn tokens(&mut self) -> Result<Vec<Token>, Unclear> {
        self.tokens_until(false)
    }

    /// Tokens up to the end or, in a substitution, an unbalanced `)`, which is not consumed. A `case` inside a
    /// substitution ends it too early; the parser then refuses what is left.
    fn tokens_until(&mut self, close: bool) -> Result<Vec<Token>, Unclear> {
        let mut tokens = Vec::new();
        let mut pending: Vec<Pending> = Vec::new();
        let mut marker_of: Option<bool> = None;
        let mut open = 0_usize;
        loop {
            self.skip_blanks();
            let Some(c) = self.peek() else { break };
            if close && c == ')' && open == 0 {
                break;
            }
            if let Some(operator) = self.operator() {
                if marker_of.is_some() {
                    return Err(Unclear::Text("a here-document without a marker"));
                }
                match operator {
                    "(" => open += 1,
                    ")" => open = open.saturating_sub(1),
                    "<<" => marker_of = Some(false),
                    "<<-" => marker_of = Some(true),
                    _ => {}
                }
                if open > MAX_NESTING {
                    return Err(Unclear::TooDeep);
                }
                if operator == "\n" {
                    for document in std::mem::take(&mut pending) {
                        let body = self.here_document(&document)?;
                        if let Some(slot) = tokens.get_mut(document.at) {
                            *slot = Token::Word(body);
                        }
                    }
                }
                tokens.push(Token::Operator(operator.to_owned()));
                continue;
            }
            let start = self.at;
            let word = self.word()?;
            if self.at == start {
                return Err(Unclear::Text("a character we cannot place"));
            }
            self.guard_number(&word)?;
            let raw = std::mem::take(&mut self.raw);
            if let Some(strip_tabs) = marker_of.take() {
                let marker = word
                    .known()
                    .ok_or(Unclear::Text("a here-document marker with an expansion"))?
                    .to_owned();
                tokens.push(Token::Word(raw.clone()));
                pending.push(Pending {
                    at: tokens.len(),
                    strip_tabs,
                    expands: !raw.contains(['\'', '"', '\\']),
                    marker: marker.clone(),
                });
                tokens.push(Token::Word(String::new()));
                tokens.push(Token::Word(marker));
            } else {
                tokens.push(Token::Word(raw));
            }
        }
        if !pending.is_empty() || marker_of.is_some() {
            return Err(Unclear::Text("a here-document without its end"));
        }
        if open > 0 {
            Err(Unclear::Text("an unfinished parenthesis"))
        } else {
            Ok(tokens)
        }
    }

    /// The parser reads digits before a redirection as a descriptor number and cannot take a large one.
    fn guard_number(&self, word: &ShellWord) -> Result<(), Unclear> {
        let digits = !word.text.is_empty() && word.text.bytes().all(|b| b.is_ascii_digit());
        if digits && word.text.len() > 4 && matches!(self.peek(), Some('<' | '>')) {
            return Err(Unclear::Text("a descriptor number out of range"));
        }
        Ok(())
    }

    fn skip_blanks(&mut self) {
        loop {
            if self.take(" ") || self.take("\t") || self.take("\\\n") {
                continue;
            }
            if self.peek() == Some('#') {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.next();
                }
                continue;
            }
            return;
        }
    }

    fn operator(&mut self) -> Option<&'static str> {
        OPERATORS
            .iter()
            .copied()
            .find(|operator| self.take(operator))
    }

    fn here_document(&mut self, document: &Pending) -> Result<String, Unclear> {
        let mut body = String::new();
        while !self.at_end() {
            let rest = self.rest();
            let (line, ends) = rest
                .split_once('\n')
                .map_or((rest, false), |(line, _)| (line, true));
            self.at += line.len() + usize::from(ends);
            let line = if document.strip_tabs {
                line.trim_start_matches('\t')
            } else {
                line
            };
            if line == document.marker {
                if document.expands && body.contains("\\\n") {
                    return Err(Unclear::Text("a continued line in a here-document"));
                }
                return Ok(body);
            }
            body.push_str(line);
            if ends {
                body.push('\n');
            }
        }
        Err(Unclear::Text("a here-document without its end"))
    }

    /// One word, up to an unquoted blank or operator. Leaves its raw form in `self.raw`.
    pub(super) fn word(&mut self) -> Result<ShellWord, Unclear> {
        let mut builder = WordBuilder::default();
        self.raw.clear();
        while let Some(c) = self.peek() {
            let start = self.at;
            match c {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => break,
                '\\' => {
                    self.next();
                    match self.next() {
                        Some('\n') => continue,
                        Some(c) => builder.quoted(c),
                        None => return Err(Unclear::Text("a backslash at the end")),
                    }
                }
                '\'' => {
                    self.next();
                    self.single_quoted(&mut builder)?;
                }
                '"' => {
                    self.next();
                    self.double_quoted(&mut builder)?;
                    self.push_raw_without_continuations(start);
                    continue;
                }
                '$' | '`' => {
                    self.expansion(&mut builder, false)?;
                    self.push_raw_without_continuations(start);
                    continue;
                }
                c => {
                    self.next();
                    builder.plain(c);
                }
            }
            let text = self.text;
            self.raw.push_str(text.get(start..self.at).unwrap_or(""));
        }
        guard_subscript(&self.raw)?;
        Ok(builder.finish())
    }

    fn push_raw_without_continuations(&mut self, start: usize) {
        let text = self.text.get(start..self.at).unwrap_or("");
        self.raw.push_str(&text.replace("\\\n", ""));
    }

    fn single_quoted(&mut self, builder: &mut WordBuilder) -> Result<(), Unclear> {
        loop {
            match self.next() {
                Some('\'') => return Ok(()),
                Some(c) => builder.quoted(c),
                None => return Err(Unclear::Text("an unfinished single quote")),
            }
        }
    }

    fn double_quoted(&mut self, builder: &mut WordBuilder) -> Result<(), Unclear> {
        loop {
            match self.peek() {
                Some('"') => {
                    self.next();
                    return Ok(());
                }
                Some('$' | '`') => self.expansion(builder, true)?,
                Some('\\') => {
                    self.next();
                    match self.next() {
                        Some('\n') => {}
                        Some(c @ ('$' | '`' | '"' | '\\')) => builder.quoted(c),
                        Some(c) => {
                            builder.quoted('\\');
                            builder.quoted(c);
                        }
                        None => return Err(Unclear::Text("an unfinished double quote")),
                    }
                }
                Some(c) => {
                    self.next();
                    builder.quoted(c);
                }
                None => return Err(Unclear::Text("an unfinished double quote")),
            }
        }
    }

    /// The body of an expanding here-document, to the end of the text.
    pub(super) fn here_document_body(&mut self) -> Result<ShellWord, Unclear> {
        let mut builder = WordBuilder::default();
        while let Some(c) = self.peek() {
            match c {
                '$' | '`' => self.expansion(&mut builder, true)?,
                '\\' => {
                    self.next();
                    if let Some(c) = self.next() {
                        builder.quoted(c);
                    }
                }
                c => {
                    self.next();
                    builder.quoted(c);
                }
            }
        }
        Ok(builder.finish())
    }

    /// `$…` or a backquote. `quoted` inside double quotes.
    fn expansion(&mut self, builder: &mut WordBuilder, quoted: bool) -> Result<(), Unclear> {
        let start = self.at;
        if self.take("`") {
            let script = self.backquoted()?;
            builder.script(script);
        } else if self.take("$((") {
            self.arithmetic()?;
        } else if self.take("$(") {
            let inner = self.at;
            self.deeper(|lexer| lexer.tokens_until(true))?;
            let script = self.text.get(inner..self.at).unwrap_or("").to_owned();
            if !self.take(")") {
                return Err(Unclear::Text("an unfinished command substitution"));
            }
            builder.script(script);
        } else if self.take("${") {
            let scripts = self.deeper(|lexer| lexer.parameter(quoted))?;
            builder.scripts(scripts);
        } else if self.take("$[") {
            return Err(Unclear::Text("old arithmetic `$[`"));
        } else if !quoted && self.rest().starts_with("$\"") {
            return Err(Unclear::Text("a translated string"));
        } else if !quoted && self.take("$'") {
            return self.ansi_quoted(builder);
        } else {
            self.next();
            match self.peek() {
                Some(c) if c == '_' || c.is_ascii_alphabetic() => {
                    while self
                        .peek()
                        .is_some_and(|c| c == '_' || c.is_ascii_alphanumeric())
                    {
                        self.next();
                    }
                }
                Some(c) if c.is_ascii_digit() || "@*#?-$!".contains(c) => {
                    self.next();
                    if c == '@' {
                        builder.expansion("$@", false);
                        return Ok(());
                    }
                }
                Some('\'' | '"') if !quoted => {
                    return Err(Unclear::Text("a dollar before a quote"));
                }
                _ => {
                    builder.quoted('$');
                    return Ok(());
                }
            }
        }
        let source = self.text.get(start..self.at).unwrap_or("");
        let one_word = quoted && !source.contains('@');
        builder.expansion(source, one_word);
        Ok(())
    }

    fn backquoted(&mut self) -> Result<String, Unclear> {
        let rest = self.rest();
        let end = rest
            .find('`')
            .ok_or(Unclear::Text("an unfinished backquote"))?;
        let script = rest.get(..end).unwrap_or("");
        if script.contains('\\') {
            return Err(Unclear::Text("a backslash inside backquotes"));
        }
        self.at += end + 1;
        Ok(script.to_owned())
    }

    /// After `$((`: to the closing `))`.
    fn arithmetic(&mut self) -> Result<(), Unclear> {
        let start = self.at;
        let mut open = 0_usize;
        loop {
            match self.peek() {
                Some('(') => open += 1,
                Some(')') if open > 0 => open -= 1,
                Some(')') => break,
                Some(_) => {}
                None => return Err(Unclear::Text("unfinished arithmetic")),
            }
            if open > MAX_NESTING {
                return Err(Unclear::TooDeep);
            }
            self.next();
        }
        check_arithmetic(self.text.get(start..self.at).unwrap_or(""))?;
        if self.take("))") {
            Ok(())
        } else {
            Err(Unclear::Text("`$((` that may be a command"))
        }
    }

    /// After `$'`: only the escapes that every shell reads alike.
    fn ansi_quoted(&mut self, builder: &mut WordBuilder) -> Result<(), Unclear> {
        loop {
            match self.next() {
                Some('\'') => return Ok(()),
                Some('\\') => match self.next() {
                    Some('n') => builder.quoted('\n'),
                    Some('t') => builder.quoted('\t'),
                    Some('r') => builder.quoted('\r'),
                    Some(c @ ('\\' | '\'' | '"')) => builder.quoted(c),
                    _ => return Err(Unclear::Text("an escape in `$'…'` that hides text")),
                },
                Some(c) => builder.quoted(c),
                None => return Err(Unclear::Text("an unfinished quote")),
            }
        }
    }

    /// After `${`: to the closing brace. Returns the scripts inside.
    fn parameter(&mut self, quoted: bool) -> Result<Vec<String>, Unclear> {
        self.take("#");
        let name = self.parameter_name();
        if name.is_empty() {
            return Err(Unclear::Text("an unusual parameter expansion"));
        }
        if self.take("}") {
            return Ok(Vec::new());
        }
        const FORMS: &[&str] = &[
            ":-", ":+", ":?", "-", "+", "?", "##", "#", "%%", "%", "//", "/", "^^", "^", ",,", ",",
        ];
        if !FORMS.iter().any(|form| self.take(form)) {
            // Indirection, transformation, assignment, subscripts and offsets evaluate text we do not see.
            return Err(Unclear::Text(
                "a parameter expansion that evaluates or assigns",
            ));
        }
        let mut builder = WordBuilder::default();
        loop {
            match self.peek() {
                Some('}') => {
                    self.next();
                    return Ok(builder.finish().scripts);
                }
                Some('$' | '`') => self.expansion(&mut builder, quoted)?,
                Some('\'' | '"' | '\\' | '<' | '>' | '{' | '(' | ')' | '\n' | '#') | None => {
                    return Err(Unclear::Text(
                        "quotes or operators inside a parameter expansion",
                    ));
                }
                Some(c) => {
                    self.next();
                    builder.quoted(c);
                }
            }
        }
    }

    fn parameter_name(&mut self) -> &'a str {
        let start = self.at;
        match self.peek() {
            Some(c) if c == '_' || c.is_ascii_alphabetic() => {
                while self
                    .peek()
                    .is_some_and(|c| c == '_' || c.is_ascii_alphanumeric())
                {
                    self.next();
                }
                if !self.take("[@]") {
                    self.take("[*]");
                }
            }
            Some(c) if c.is_ascii_digit() => {
                while self.peek().is_some_and(|c| c.is_ascii_digit()) {
                    self.next();
                }
            }
            Some('@' | '*') => {
                self.next();
            }
            _ => {}
        }
        self.text.get(start..self.at).unwrap_or("")
    }
}

/// `name[…]` with expansions in the subscript: evaluated as arithmetic, and costly for the parser.
fn guard_subscript(raw: &str) -> Result<(), Unclear> {
    let name = raw.trim_start_matches(|c: char| c == '_' || c.is_ascii_alphanumeric());
    if name.len() < raw.len() && name.starts_with('[') && name.contains(['$', '`', '\'', '"', '\\'])
    {
        return Err(Unclear::Text("a subscript with quotes or expansions"));
    }
    Ok(())
}
