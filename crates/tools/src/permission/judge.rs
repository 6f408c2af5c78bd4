//! Judges single things: one path, one simple command, one redirection, under all layers of the rules.

use std::path::Path;

use super::danger::{self, Effect, Nature};
use super::mode::Mode;
use super::pattern::{Pattern, SHELL};
use super::place::Place;
use super::rules::{Layer, Remembered, Rules, decisive};
use super::shell::{RedirectKind, ShellWord, SimpleCommand};
use super::variables;

/// A mode with its reason; `Allow` has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ruling {
    pub mode: Mode,
    pub reason: String,
}

impl Ruling {
    pub(super) fn new(mode: Mode, reason: impl Into<String>) -> Self {
        Self {
            mode,
            reason: reason.into(),
        }
    }

    pub(super) fn allow() -> Self {
        Self::new(Mode::Allow, "")
    }

    fn or_stricter(self, other: Self) -> Self {
        if other.mode > self.mode { other } else { self }
    }
}

fn strictest(rulings: impl Iterator<Item = Ruling>) -> Ruling {
    rulings.fold(Ruling::allow(), Ruling::or_stricter)
}

fn by_rule(tool: &str, pattern: &Pattern, mode: Mode) -> Ruling {
    Ruling::new(
        mode,
        format!(
            "the rule permissions.{tool} {:?} says {mode}",
            pattern.source()
        ),
    )
}

/// A path as a rule sees it.
#[derive(Clone, Copy)]
pub(super) struct PathFacts<'a> {
    pub given: &'a str,
    pub real: &'a Path,
    pub writes: bool,
}

/// Judges a path for a tool. Remembered paths lift *ask*.
pub(super) fn path(rules: &Rules, tool: &str, facts: PathFacts<'_>, place: &Place<'_>) -> Ruling {
    let ruling = strictest(
        rules
            .layers
            .iter()
            .map(|layer| path_in(layer, tool, facts, place)),
    );
    let remembered = rules.remembered.iter().any(
        |rule| matches!(rule, Remembered::Path { tool: by, real } if by == tool && real == facts.real),
    );
    if ruling.mode == Mode::Ask && remembered {
        Ruling::allow()
    } else {
        ruling
    }
}

fn path_in(layer: &Layer, tool: &str, facts: PathFacts<'_>, place: &Place<'_>) -> Ruling {
    let denied = explicit_deny(layer, tool, facts, place);
    if denied.mode == Mode::Deny {
        return denied;
    }
    let inside = place.inside(facts.real);
    let matching: Vec<_> = layer
        .patterns(tool)
        .filter(|(pattern, _)| pattern.matches_path(facts.real, inside, place.home()))
        .collect();
    if let Some((pattern, mode)) = decisive(&matching) {
        return by_rule(tool, pattern, mode);
    }
    let all = layer.catch_all(tool);
    let catch_all = Ruling::new(all, format!("permissions.{tool} = \"{all}\""));
    if inside.is_none() {
        let outside = Ruling::new(
            layer.outside,
            format!(
                "{} is outside the workspace (permissions.outside = \"{}\")",
                facts.real.display(),
                layer.outside
            ),
        );
        return outside.or_stricter(catch_all);
    }
    let in_repository =
        inside.is_some_and(|path| path.components().any(|part| part.as_os_str() == ".git"));
    if layer.base && facts.writes && in_repository {
        let reason = "files under .git decide what git runs; only a rule that names them allows changing them";
        return catch_all.or_stricter(Ruling::new(Mode::Ask, reason));
    }
    catch_all
}

/// A *deny* by a pattern other than the catch-all: of the real path when decisive, or of the path as it was given.
fn explicit_deny(layer: &Layer, tool: &str, facts: PathFacts<'_>, place: &Place<'_>) -> Ruling {
    let given = place.as_given(facts.given);
    for path in [facts.real, given.as_path()] {
        let inside = place.inside(path);
        let matching: Vec<_> = layer
            .patterns(tool)
            .filter(|(pattern, _)| pattern.matches_path(path, inside, place.home()))
            .collect();
        if let Some((pattern, Mode::Deny)) = decisive(&matching) {
            return by_rule(tool, pattern, Mode::Deny);
        }
    }
    Ruling::allow()
}

/// Whether a rule of `tool` that names the path (not the catch-all) denies it.
pub(super) fn denies_by_name(
    rules: &Rules,
    tool: &str,
    facts: PathFacts<'_>,
    place: &Place<'_>,
) -> Ruling {
    strictest(
        rules
            .layers
            .iter()
            .map(|layer| explicit_deny(layer, tool, facts, place)),
    )
}

/// Judges a text of a tool whose accesses are neither paths nor commands.
pub(super) fn text(rules: &Rules, tool: &str, text: &str) -> Ruling {
    let ruling = strictest(rules.layers.iter().map(|layer| {
        let matching: Vec<_> = layer
            .patterns(tool)
            .filter(|(pattern, _)| pattern.matches_text(text))
            .collect();
        let exact = matching
            .iter()
            .find(|(pattern, _)| pattern.source() == text);
        let strictest_match = matching
            .iter()
            .max_by_key(|(pattern, mode)| (pattern.source().len(), *mode));
        match exact.or(strictest_match) {
            Some((pattern, mode)) => by_rule(tool, pattern, *mode),
            None => Ruling::new(
                layer.catch_all(tool),
                format!("permissions.{tool} = \"{}\"", layer.catch_all(tool)),
            ),
        }
    }));
    let remembered = rules.remembered.iter().any(
        |rule| matches!(rule, Remembered::Text { tool: by, pattern } if by == tool && pattern == text),
    );
    if ruling.mode == Mode::Ask && remembered {
        Ruling::allow()
    } else {
        ruling
    }
}

/// Judges a text that cannot be taken apart.
pub(super) fn unclear(rules: &Rules, reason: &str) -> Ruling {
    strictest(
        rules
            .layers
            .iter()
            .filter(|layer| !layer.is_unrestricted(SHELL))
            .map(|layer| Ruling::new(layer.catch_all(SHELL).max(Mode::Ask), reason)),
    )
}

/// All words of a command, assignments first, when each is known.
pub(super) fn known_words(command: &SimpleCommand) -> Option<Vec<String>> {
    let assignments = command.assignments.iter().map(|(_, word)| word);
    assignments
        .chain(&command.words)
        .map(|word| word.known().map(str::to_owned))
        .collect()
}

/// Judges one simple command. A remembered command lifts *ask*.
pub(super) fn command(rules: &Rules, command: &SimpleCommand) -> Ruling {
    let ruling = strictest(rules.layers.iter().map(|layer| command_in(layer, command)));
    if ruling.mode == Mode::Ask {
        let words = known_words(command);
        let remembered = words.is_some_and(|words| {
            !words.is_empty()
                && rules
                    .remembered
                    .iter()
                    .any(|rule| matches!(rule, Remembered::Command { words: w } if *w == words))
        });
        if remembered {
            return Ruling::allow();
        }
    }
    ruling
}

fn command_in(layer: &Layer, command: &SimpleCommand) -> Ruling {
    if layer.is_unrestricted(SHELL) {
        return Ruling::allow();
    }
    let assigned: Vec<ShellWord> = command
        .assignments
        .iter()
        .map(|(_, word)| word.clone())
        .collect();
    let all: Vec<ShellWord> = assigned.iter().chain(&command.words).cloned().collect();
    let by_name = with_bare_program(&command.words);
    let covers = |pattern: &Pattern, mode: Mode| {
        let named_assignments = !assigned.is_empty() && pattern.covers_command(&all).is_some();
        named_assignments
            || pattern.covers_command(&command.words).is_some()
            // Another spelling of the program does not slip past a stricter rule.
            || (mode != Mode::Allow && pattern.covers_command(&by_name).is_some())
    };
    let matching: Vec<_> = layer
        .patterns(SHELL)
        .filter(|(pattern, mode)| covers(pattern, *mode))
        .collect();
    let Some((pattern, mode)) = decisive(&matching) else {
        return under_catch_all(layer, command);
    };
    if mode != Mode::Allow {
        return by_rule(SHELL, pattern, mode);
    }
    match pattern
        .covers_command(&all)
        .filter(|_| !assigned.is_empty())
    {
        Some(cover) => beyond_star(
            pattern,
            cover.open.then_some(cover.named),
            &all,
            assigned.len(),
        ),
        None => match command
            .assignments
            .iter()
            .find(|(name, _)| !variables::is_harmless(name))
        {
            Some((name, _)) => Ruling::new(
                Mode::Ask,
                format!(
                    "the variable {name} may change what the command does; a rule must name it: {:?}",
                    "NAME=value command"
                ),
            ),
            None => {
                let named = pattern
                    .covers_command(&command.words)
                    .filter(|cover| cover.open)
                    .map(|cover| cover.named);
                beyond_star(pattern, named, &command.words, 0)
            }
        },
    }
}

/// Under an *allow* rule: asks for marked words beyond the `named` ones (`None`: the rule names every word).
fn beyond_star(
    pattern: &Pattern,
    named: Option<usize>,
    words: &[ShellWord],
    assignments: usize,
) -> Ruling {
    let Some(named) = named else {
        return Ruling::allow();
    };
    let flags = danger::flags(words.get(assignments..).unwrap_or_default());
    match flags.iter().find(|flag| flag.index + assignments >= named) {
        Some(flag) => Ruling::new(
            Mode::Ask,
            format!(
                "{}, and the rule permissions.bash {:?} does not name it",
                flag.reason(),
                pattern.source()
            ),
        ),
        None => Ruling::allow(),
    }
}

/// No pattern names the command. When everything else is allowed but something is not, whatever could hide a
/// forbidden command is asked for.
fn under_catch_all(layer: &Layer, command: &SimpleCommand) -> Ruling {
    let mode = layer.catch_all(SHELL);
    if mode != Mode::Allow {
        return Ruling::new(
            mode,
            format!(
                "no rule of permissions.bash names this command (permissions.bash \"*\" = \"{mode}\")"
            ),
        );
    }
    let words = &command.words;
    let ask = |why: &str| {
        Ruling::new(
            Mode::Ask,
            format!("{why}, which may hide a command that a rule forbids"),
        )
    };
    if command
        .assignments
        .iter()
        .any(|(name, _)| variables::is_sensitive(name))
    {
        return ask("it changes a variable that decides what runs");
    }
    let Some(program) = words.first() else {
        return Ruling::allow();
    };
    if !program.literal {
        return ask("the program's name is not written out");
    }
    if danger::kind(words) != Nature::Ordinary {
        return ask("it runs what its arguments say");
    }
    let runs = |flag: &danger::Flag| flag.effect == Effect::Runs && flag.word.starts_with('-');
    if danger::flags(words).iter().any(runs) {
        return ask("one of its options runs another program");
    }
    let base = program.text.rsplit('/').next().unwrap_or("");
    let restricted = layer
        .patterns(SHELL)
        .any(|(pattern, mode)| mode != Mode::Allow && pattern.program() == Some(base));
    if restricted && words.iter().any(|word| !word.literal) {
        return ask("some arguments are not written out");
    }
    Ruling::allow()
}

/// The words with the program's folder removed.
fn with_bare_program(words: &[ShellWord]) -> Vec<ShellWord> {
    let mut words = words.to_vec();
    if let Some(first) = words.first_mut() {
        first.text = first.text.rsplit('/').next().unwrap_or("").to_owned();
    }
    words
}

/// A redirection whose target is known.
#[derive(Clone, Copy)]
pub(super) struct Redirect<'a> {
    pub kind: RedirectKind,
    pub text: &'a str,
    pub real: &'a Path,
}

/// Judges a redirection. Where the shell as a whole is allowed, only a rule that names the file holds it back: such
/// a shell can open files in other ways.
pub(super) fn redirect(rules: &Rules, redirect: Redirect<'_>, place: &Place<'_>) -> Ruling {
    let (tool, writes) = match redirect.kind {
        RedirectKind::Read => ("read", false),
        RedirectKind::Write => ("write", true),
    };
    let facts = PathFacts {
        given: redirect.text,
        real: redirect.real,
        writes,
    };
    let ruling = strictest(rules.layers.iter().map(|layer| {
        if layer.catch_all(SHELL) == Mode::Allow {
            return explicit_deny(layer, tool, facts, place);
        }
        let network = ["/dev/tcp/", "/dev/udp/"]
            .iter()
            .any(|prefix| redirect.text.starts_with(prefix));
        if network {
            return Ruling::new(Mode::Ask, "the redirection opens a network connection");
        }
        path_in(layer, tool, facts, place)
    }));
    let remembered = rules.remembered.iter().any(
        |rule| matches!(rule, Remembered::Path { tool: by, real } if by == tool && real == redirect.real),
    );
    if ruling.mode == Mode::Ask && remembered {
        Ruling::allow()
    } else {
        ruling
    }
}

/// Judges the directory a command starts in.
pub(super) fn directory(rules: &Rules, cwd: &Path, place: &Place<'_>) -> Ruling {
    if place.inside(cwd).is_some() {
        return Ruling::allow();
    }
    strictest(
        rules
            .layers
            .iter()
            .filter(|layer| layer.catch_all(SHELL) != Mode::Allow)
            .map(|layer| {
                let reason = format!(
                    "{} is outside the workspace (permissions.outside = \"{}\")",
                    cwd.display(),
                    layer.outside
                );
                Ruling::new(layer.outside, reason)
            }),
    )
}
