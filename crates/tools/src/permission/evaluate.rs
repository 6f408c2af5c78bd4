//! From everything a call would touch to one verdict.

use std::path::{Path, PathBuf};

use super::access::Access;
use super::danger::{self, Effect, Nature};
use super::judge::{self, PathFacts, Redirect, Ruling};
use super::mode::Mode;
use super::pattern::SHELL;
use super::place::Place;
use super::rules::{Remembered, Rules};
use super::shell::{self, RedirectKind, ShellWord, SimpleCommand, Step};
use super::verdict::{Proposal, Question, Subject, Verdict};

/// Files a redirection may always name.
const HARMLESS_FILES: &[&str] = &["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin"];

/// Judges a call: the strictest answer over all accesses. Total: any input gives a verdict.
///
/// `workspace` must be canonical. Links in redirection targets of shell commands are not resolved; see
/// [`evaluate_at`].
#[must_use]
pub fn evaluate(rules: &Rules, tool: &str, accesses: &[Access], workspace: &Path) -> Verdict {
    evaluate_at(rules, tool, accesses, &Place::new(workspace))
}

/// [`evaluate`] with everything known about the place: extra roots, the home folder and a resolver of links.
#[must_use]
pub fn evaluate_at(rules: &Rules, tool: &str, accesses: &[Access], place: &Place<'_>) -> Verdict {
    if rules.allows_everything() {
        return Verdict::Allow;
    }
    let mut case = Case {
        rules,
        place,
        denied: None,
        asked: Vec::new(),
    };
    if accesses.is_empty() {
        case.text(tool, "");
    }
    for access in accesses {
        match access {
            Access::Read { given, real } => case.path(tool, given, real, false),
            Access::Write { given, real } => case.path(tool, given, real, true),
            Access::Search { given, real } => case.path(tool, given, real, false),
            Access::Command { command, cwd, .. } => case.command(command, cwd),
            Access::Other { tool, pattern } => case.text(tool, pattern),
        }
    }
    case.verdict(tool)
}

/// Whether a rule that names the file keeps its content from being read: for tools that walk a tree and must leave
/// such files out. The catch-all and `outside` do not count; those were judged for the tree's root.
#[must_use]
pub fn hides(rules: &Rules, tool: &str, real: &Path, place: &Place<'_>) -> bool {
    let given = real.to_string_lossy();
    let facts = PathFacts {
        given: &given,
        real,
        writes: false,
    };
    [tool, "read"]
        .iter()
        .any(|tool| judge::denies_by_name(rules, tool, facts, place).mode == Mode::Deny)
}

/// One thing that has to be asked for.
struct Asked {
    subject: Subject,
    reason: String,
    /// What "always" would remember; `None` when it must not be offered.
    remember: Option<Remembered>,
    /// The rule that is missing; `None` when no rule can name it.
    rule: Option<(String, String)>,
}

struct Case<'a> {
    rules: &'a Rules,
    place: &'a Place<'a>,
    denied: Option<String>,
    asked: Vec<Asked>,
}

impl Case<'_> {
    fn rule(&mut self, ruling: Ruling, asked: impl FnOnce(String) -> Asked) {
        match ruling.mode {
            Mode::Allow => {}
            Mode::Deny => {
                self.denied.get_or_insert(ruling.reason);
            }
            Mode::Ask => self.asked.push(asked(ruling.reason)),
        }
    }

    fn text(&mut self, tool: &str, text: &str) {
        let ruling = judge::text(self.rules, tool, text);
        self.rule(ruling, |reason| {
            let pattern = if text.is_empty() { "*" } else { text }.to_owned();
            Asked {
                subject: Subject::Text {
                    text: if text.is_empty() { tool } else { text }.to_owned(),
                },
                reason,
                remember: Some(Remembered::Text {
                    tool: tool.to_owned(),
                    pattern: text.to_owned(),
                }),
                rule: Some((tool.to_owned(), pattern)),
            }
        });
    }

    fn path(&mut self, tool: &str, given: &str, real: &Path, writes: bool) {
        let facts = PathFacts {
            given,
            real,
            writes,
        };
        let mut ruling = judge::path(self.rules, tool, facts, self.place);
        if !writes && tool != "read" {
            let read = judge::denies_by_name(self.rules, "read", facts, self.place);
            if read.mode > ruling.mode {
                ruling = read;
            }
        }
        self.path_ruling(tool, facts, ruling);
    }

    fn path_ruling(&mut self, tool: &str, facts: PathFacts<'_>, ruling: Ruling) {
        let rule = match self.place.inside(facts.real) {
            Some(inside) if inside.as_os_str().is_empty() => "*".to_owned(),
            Some(inside) => format!("./{}", escape_glob(&inside.to_string_lossy())),
            None => escape_glob(&facts.real.to_string_lossy()),
        };
        self.rule(ruling, |reason| Asked {
            subject: Subject::Path {
                given: facts.given.to_owned(),
                real: facts.real.to_owned(),
                writes: facts.writes,
            },
            reason,
            remember: Some(Remembered::Path {
                tool: tool.to_owned(),
                real: facts.real.to_owned(),
            }),
            rule: Some((tool.to_owned(), rule)),
        });
    }

    fn command(&mut self, text: &str, cwd: &Path) {
        let subject = || Subject::Command {
            command: text.to_owned(),
            cwd: cwd.to_owned(),
        };
        let plain = |subject: Subject, rule: Option<(String, String)>| {
            move |reason: String| Asked {
                subject,
                reason,
                remember: None,
                rule,
            }
        };
        let outside = Some(("outside".to_owned(), String::new()));
        self.rule(
            judge::directory(self.rules, cwd, self.place),
            plain(subject(), outside),
        );
        let steps = match shell::steps(text) {
            Ok(steps) => steps,
            Err(unclear) => {
                self.rule(
                    judge::unclear(self.rules, &unclear.to_string()),
                    plain(subject(), None),
                );
                return;
            }
        };
        for step in steps {
            match step {
                Step::Run(command) => {
                    let ruling = judge::command(self.rules, &command);
                    self.rule(ruling, |reason| Asked {
                        subject: subject(),
                        reason: format!("`{}`: {reason}", spelled(&command)),
                        remember: rememberable(&command),
                        rule: judge::known_words(&command)
                            .filter(|words| !words.is_empty())
                            .map(|words| (SHELL.to_owned(), join(&words))),
                    });
                }
                Step::Unclear(unclear) => {
                    self.rule(
                        judge::unclear(self.rules, &unclear.to_string()),
                        plain(subject(), None),
                    );
                }
                Step::Redirect {
                    kind,
                    target,
                    moved,
                } => self.redirect(kind, &target, moved, text, cwd),
            }
        }
    }

    fn redirect(
        &mut self,
        kind: RedirectKind,
        target: &ShellWord,
        moved: bool,
        text: &str,
        cwd: &Path,
    ) {
        if target
            .known()
            .is_some_and(|target| HARMLESS_FILES.contains(&target))
        {
            return;
        }
        let fixed = target.text.starts_with('/') || target.text.starts_with("~/");
        if !target.literal || (moved && !fixed) {
            let reason = format!(
                "where the redirection to `{}` leads is not known before it runs",
                target.text
            );
            let subject = Subject::Command {
                command: text.to_owned(),
                cwd: cwd.to_owned(),
            };
            let ruling = judge::unclear(self.rules, &reason);
            self.rule(ruling, |reason| Asked {
                subject,
                reason,
                remember: None,
                rule: None,
            });
            return;
        }
        let real: PathBuf = self.place.resolve(&target.text, cwd);
        let ruling = judge::redirect(
            self.rules,
            Redirect {
                kind,
                text: &target.text,
                real: &real,
            },
            self.place,
        );
        let (tool, writes) = match kind {
            RedirectKind::Read => ("read", false),
            RedirectKind::Write => ("write", true),
        };
        let before = self.asked.len();
        self.path_ruling(
            tool,
            PathFacts {
                given: &target.text,
                real: &real,
                writes,
            },
            ruling,
        );
        if self.asked.len() > before {
            // The whole command is shown as well: the redirection alone says little.
            let subject = Subject::Command {
                command: text.to_owned(),
                cwd: cwd.to_owned(),
            };
            let shown = Asked {
                subject,
                reason: String::new(),
                remember: None,
                rule: None,
            };
            self.asked.insert(before, shown);
        }
    }

    fn verdict(self, tool: &str) -> Verdict {
        if let Some(reason) = self.denied {
            return Verdict::Deny {
                reason: format!("Permission denied: {reason}."),
            };
        }
        if self.asked.is_empty() {
            return Verdict::Allow;
        }
        let mut question = Question {
            tool: tool.to_owned(),
            subjects: Vec::new(),
            reasons: Vec::new(),
            proposals: Vec::new(),
            missing_rules: Vec::new(),
        };
        let decided = |asked: &&Asked| !asked.reason.is_empty();
        let nameable = self
            .asked
            .iter()
            .filter(decided)
            .all(|asked| asked.rule.is_some());
        let remember: Option<Vec<Remembered>> = self
            .asked
            .iter()
            .filter(decided)
            .map(|asked| asked.remember.clone())
            .collect();
        for asked in self.asked {
            push_new(&mut question.subjects, asked.subject);
            if !asked.reason.is_empty() {
                push_new(&mut question.reasons, asked.reason);
            }
            if let Some(rule) = asked.rule.filter(|_| nameable) {
                push_new(&mut question.missing_rules, rule);
            }
        }
        question.missing_rules.sort();
        question.proposals.extend(remember.map(proposal));
        Verdict::Ask { question }
    }
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// "Always" for one command: its exact words. Not for programs whose arguments or input are the real program, and
/// not for options that run another one.
fn rememberable(command: &SimpleCommand) -> Option<Remembered> {
    let words = judge::known_words(command).filter(|_| !command.words.is_empty())?;
    let offered = match danger::kind(&command.words) {
        Nature::Wrapper => false,
        Nature::Interpreter => danger::names_a_script(&command.words),
        Nature::Ordinary => !danger::flags(&command.words)
            .iter()
            .any(|flag| flag.effect == Effect::Runs && flag.word.starts_with('-')),
    };
    offered.then_some(Remembered::Command { words })
}

fn proposal(rules: Vec<Remembered>) -> Proposal {
    let mut unique = Vec::new();
    for rule in rules {
        push_new(&mut unique, rule);
    }
    let labels: Vec<String> = unique
        .iter()
        .map(|rule| match rule {
            Remembered::Command { words } => format!("exactly `{}`", join(words)),
            Remembered::Path { tool, real } => format!("{tool} {}", real.display()),
            Remembered::Text { tool, pattern } if pattern.is_empty() => tool.clone(),
            Remembered::Text { tool, pattern } => format!("{tool} {pattern}"),
        })
        .collect();
    Proposal {
        label: format!("always allow {}", labels.join(" and ")),
        rules: unique,
    }
}

/// A command as the shell would take it, for people: unknown parts as they were written.
fn spelled(command: &SimpleCommand) -> String {
    let words: Vec<String> = command
        .assignments
        .iter()
        .map(|(_, word)| word)
        .chain(&command.words)
        .map(|word| {
            if word.literal {
                quote(&word.text)
            } else {
                word.text.clone()
            }
        })
        .collect();
    words.join(" ")
}

/// Words as one line that the shell, and our patterns, read back as the same words.
fn join(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
    quoted.join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%~^".contains(c);
    if let Some(rest) = word.strip_prefix('~') {
        // An unquoted tilde stays one.
        return if rest.is_empty() {
            word.to_owned()
        } else {
            format!("~{}", quote(rest))
        };
    }
    if let Some(rest) = word.strip_prefix("\\~") {
        return format!("'~{}'", rest.replace('\'', r"'\''"));
    }
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn escape_glob(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for c in path.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '!') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
