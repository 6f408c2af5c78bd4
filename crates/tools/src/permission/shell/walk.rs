//! Walks a parsed script and lists what it runs and which files it opens.

use brush_parser::ast::{
    AndOr, Assignment, AssignmentName, AssignmentValue, BinaryPredicate, CaseItem, Command,
    CommandPrefixOrSuffixItem, CompoundCommand, CompoundList, ExtendedTestExpr, IoFileRedirectKind,
    IoFileRedirectTarget, IoRedirect, Pipeline, RedirectList, SimpleCommand as Simple,
    UnaryPredicate, Word,
};

use super::word::{ShellWord, check_arithmetic, read_here_document, read_word};
use super::{MAX_NESTING, RedirectKind, SimpleCommand, Step, Unclear, parse};
use crate::permission::variables;

/// Adds the steps of `text` to `steps`; `depth` counts the substitutions around it.
pub(super) fn script(text: &str, depth: usize, steps: &mut Vec<Step>) -> Result<(), Unclear> {
    if depth > MAX_NESTING {
        return Err(Unclear::TooDeep);
    }
    let program = parse(text)?;
    let mut walk = Walk { depth, steps };
    let empty = program.complete_commands.is_empty();
    for list in &program.complete_commands {
        walk.list(list);
    }
    if empty && depth == 0 {
        walk.steps.push(Step::Run(SimpleCommand::default()));
    }
    Ok(())
}

struct Walk<'a> {
    depth: usize,
    steps: &'a mut Vec<Step>,
}

impl Walk<'_> {
    fn unclear(&mut self, reason: &'static str) {
        self.steps.push(Step::Unclear(Unclear::Text(reason)));
    }

    fn list(&mut self, list: &CompoundList) {
        for item in &list.0 {
            self.pipeline(&item.0.first);
            for next in &item.0.additional {
                match next {
                    AndOr::And(pipeline) | AndOr::Or(pipeline) => self.pipeline(pipeline),
                }
            }
        }
    }

    fn pipeline(&mut self, pipeline: &Pipeline) {
        for command in &pipeline.seq {
            self.command(command);
        }
    }

    fn command(&mut self, command: &Command) {
        match command {
            Command::Simple(simple) => self.simple(simple),
            Command::Compound(compound, redirects) => {
                self.compound(compound);
                self.redirects(redirects.as_ref());
            }
            Command::Function(function) => {
                // The body is judged here, as if it ran; calling the name is judged where it is called.
                if self.word(&function.fname).is_none_or(|name| !name.literal) {
                    self.unclear("a function without a plain name");
                }
                self.compound(&function.body.0);
                self.redirects(function.body.1.as_ref());
            }
            Command::ExtendedTest(test, redirects) => {
                self.test(&test.expr);
                self.marker("[[");
                self.redirects(redirects.as_ref());
            }
        }
    }

    /// A construct that runs no program still needs a rule that covers it.
    fn marker(&mut self, name: &str) {
        let word = ShellWord {
            text: name.to_owned(),
            literal: true,
            ..ShellWord::default()
        };
        self.steps.push(Step::Run(SimpleCommand {
            assignments: Vec::new(),
            words: vec![word],
        }));
    }

    fn compound(&mut self, compound: &CompoundCommand) {
        match compound {
            CompoundCommand::Arithmetic(arithmetic) => {
                self.arithmetic(&arithmetic.expr.value);
                self.marker("((");
            }
            CompoundCommand::ArithmeticForClause(clause) => {
                for part in [&clause.initializer, &clause.condition, &clause.updater]
                    .into_iter()
                    .flatten()
                {
                    self.arithmetic(&part.value);
                }
                self.list(&clause.body.list);
            }
            CompoundCommand::BraceGroup(group) => self.list(&group.list),
            CompoundCommand::Subshell(subshell) => self.list(&subshell.list),
            CompoundCommand::ForClause(clause) => {
                if variables::is_sensitive(&clause.variable_name) {
                    self.unclear("a loop over a variable that changes how programs behave");
                }
                for value in clause.values.iter().flatten() {
                    self.word(value);
                }
                self.list(&clause.body.list);
            }
            CompoundCommand::CaseClause(clause) => {
                self.word(&clause.value);
                for item in &clause.cases {
                    self.case(item);
                }
            }
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition);
                self.list(&clause.then);
                for branch in clause.elses.iter().flatten() {
                    if let Some(condition) = &branch.condition {
                        self.list(condition);
                    }
                    self.list(&branch.body);
                }
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.list(&clause.0);
                self.list(&clause.1.list);
            }
            CompoundCommand::Coprocess(coprocess) => {
                self.unclear("a coprocess");
                self.command(&coprocess.body);
            }
        }
    }

    fn case(&mut self, item: &CaseItem) {
        for pattern in &item.patterns {
            self.word(pattern);
        }
        if let Some(list) = &item.cmd {
            self.list(list);
        }
    }

    fn arithmetic(&mut self, expression: &str) {
        if let Err(unclear) = check_arithmetic(expression) {
            self.steps.push(Step::Unclear(unclear));
        }
    }

    fn test(&mut self, expression: &ExtendedTestExpr) {
        match expression {
            ExtendedTestExpr::And(left, right) | ExtendedTestExpr::Or(left, right) => {
                self.test(left);
                self.test(right);
            }
            ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => {
                self.test(inner)
            }
            ExtendedTestExpr::UnaryTest(predicate, word) => {
                self.word(word);
                if matches!(
                    predicate,
                    UnaryPredicate::ShellVariableIsSetAndAssigned
                        | UnaryPredicate::ShellVariableIsSetAndNameRef
                ) {
                    self.unclear("a test that evaluates a subscript");
                }
            }
            ExtendedTestExpr::BinaryTest(predicate, left, right) => {
                let arithmetic = matches!(
                    predicate,
                    BinaryPredicate::ArithmeticEqualTo
                        | BinaryPredicate::ArithmeticNotEqualTo
                        | BinaryPredicate::ArithmeticLessThan
                        | BinaryPredicate::ArithmeticLessThanOrEqualTo
                        | BinaryPredicate::ArithmeticGreaterThan
                        | BinaryPredicate::ArithmeticGreaterThanOrEqualTo
                );
                for word in [left, right] {
                    let known = self
                        .word(word)
                        .and_then(|word| word.known().map(str::to_owned));
                    if arithmetic && known.is_none_or(|text| check_arithmetic(&text).is_err()) {
                        self.unclear("a numeric test on something that is not a number");
                    }
                }
            }
        }
    }

    /// Reads a word and adds the scripts inside it. `None` when it is unclear (that is noted).
    fn word(&mut self, word: &Word) -> Option<ShellWord> {
        let read = read_word(&word.value);
        self.inner_scripts(read)
    }

    fn inner_scripts(&mut self, read: Result<ShellWord, Unclear>) -> Option<ShellWord> {
        match read {
            Ok(word) => {
                for inner in &word.scripts {
                    if let Err(unclear) = script(inner, self.depth + 1, self.steps) {
                        self.steps.push(Step::Unclear(unclear));
                    }
                }
                Some(word)
            }
            Err(unclear) => {
                self.steps.push(Step::Unclear(unclear));
                None
            }
        }
    }

    fn simple(&mut self, simple: &Simple) {
        let mut command = SimpleCommand::default();
        let mut redirects = Vec::new();
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            match item {
                CommandPrefixOrSuffixItem::AssignmentWord(assignment, word) => {
                    self.assignment(assignment, word, &mut command);
                }
                other => self.item(other, &mut command, &mut redirects),
            }
        }
        if let Some(name) = &simple.word_or_name {
            command.words.extend(self.word(name));
        }
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            self.item(item, &mut command, &mut redirects);
        }
        self.steps.push(Step::Run(command));
        for redirect in redirects {
            self.redirect(redirect);
        }
    }

    fn item<'b>(
        &mut self,
        item: &'b CommandPrefixOrSuffixItem,
        command: &mut SimpleCommand,
        redirects: &mut Vec<&'b IoRedirect>,
    ) {
        match item {
            CommandPrefixOrSuffixItem::IoRedirect(redirect) => redirects.push(redirect),
            CommandPrefixOrSuffixItem::Word(word) => command.words.extend(self.word(word)),
            CommandPrefixOrSuffixItem::AssignmentWord(assignment, word) => {
                // After the command name this is an argument.
                if matches!(assignment.value, AssignmentValue::Array(_)) {
                    self.unclear("an array given to a builtin");
                }
                command.words.extend(self.word(word));
            }
            CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                self.list(&subshell.list);
                command.words.push(ShellWord {
                    text: "<(…)".to_owned(),
                    ..ShellWord::default()
                });
            }
        }
    }

    fn assignment(&mut self, assignment: &Assignment, word: &Word, command: &mut SimpleCommand) {
        let name = match &assignment.name {
            AssignmentName::VariableName(name) => name.clone(),
            AssignmentName::ArrayElementName(name, _) => {
                self.unclear("an assignment to a subscript");
                name.clone()
            }
        };
        match &assignment.value {
            AssignmentValue::Scalar(_) => {
                if let Some(word) = self.word(word) {
                    command.assignments.push((name, word));
                }
            }
            AssignmentValue::Array(elements) => {
                for (key, value) in elements {
                    if key.is_some() {
                        self.unclear("an array with subscripts");
                    }
                    self.word(value);
                }
                let text = format!("{name}=(…)");
                command.assignments.push((
                    name,
                    ShellWord {
                        text,
                        ..ShellWord::default()
                    },
                ));
            }
        }
    }

    fn redirects(&mut self, redirects: Option<&RedirectList>) {
        for redirect in redirects.iter().flat_map(|list| &list.0) {
            self.redirect(redirect);
        }
    }

    fn redirect(&mut self, redirect: &IoRedirect) {
        match redirect {
            IoRedirect::File(_, kind, target) => match target {
                IoFileRedirectTarget::Filename(word) => {
                    let kinds: &[RedirectKind] = match kind {
                        IoFileRedirectKind::Read | IoFileRedirectKind::DuplicateInput => {
                            &[RedirectKind::Read]
                        }
                        IoFileRedirectKind::ReadAndWrite => {
                            &[RedirectKind::Read, RedirectKind::Write]
                        }
                        _ => &[RedirectKind::Write],
                    };
                    self.file(word, kinds);
                }
                IoFileRedirectTarget::Fd(_) => {}
                IoFileRedirectTarget::ProcessSubstitution(_, subshell) => self.list(&subshell.list),
                IoFileRedirectTarget::Duplicate(word) => {
                    self.duplicate(matches!(kind, IoFileRedirectKind::DuplicateInput), word)
                }
            },
            IoRedirect::HereDocument(_, document) => {
                if document.requires_expansion {
                    let read = read_here_document(&document.doc.value);
                    self.inner_scripts(read);
                }
            }
            IoRedirect::HereString(_, word) => {
                self.word(word);
            }
            IoRedirect::OutputAndError(word, _) => self.file(word, &[RedirectKind::Write]),
        }
    }

    /// `>&word`: a descriptor when it is a number or `-`, else a file.
    fn duplicate(&mut self, input: bool, word: &Word) {
        let digits = word.value.trim_end_matches('-');
        if digits.len() <= 4 && digits.bytes().all(|b| b.is_ascii_digit()) && !word.value.is_empty()
        {
            return;
        }
        self.file(
            word,
            if input {
                &[RedirectKind::Read]
            } else {
                &[RedirectKind::Write]
            },
        );
    }

    fn file(&mut self, word: &Word, kinds: &[RedirectKind]) {
        if let Some(target) = self.word(word) {
            for kind in kinds {
                self.steps.push(Step::Redirect {
                    kind: *kind,
                    target: target.clone(),
                    moved: false,
                });
            }
        }
    }
}
