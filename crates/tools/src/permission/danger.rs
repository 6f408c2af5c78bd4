//! Arguments that make a known program run another one, write where it is told, or load configuration.
//!
//! A rule with a trailing `*` was written with the program's ordinary arguments in mind. The words found here are
//! not covered by that star; a rule must spell them out.

mod scripts;
mod table;

use super::shell::ShellWord;
use super::variables;
use table::{Mark, PROGRAMS, Program};

/// What a marked word makes the program do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Runs something named by the arguments or by input.
    Runs,
    /// Writes to a place the arguments name.
    Writes,
    /// Loads configuration or plug-ins.
    Loads,
}

impl Effect {
    fn verb(self) -> &'static str {
        match self {
            Self::Runs => "can run another program",
            Self::Writes => "writes where it says",
            Self::Loads => "loads configuration or code",
        }
    }
}

/// One word that a trailing star does not cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flag {
    /// Index of the last word that a rule must spell out.
    pub index: usize,
    /// What it does.
    pub effect: Effect,
    /// The word, for the question.
    pub word: String,
}

impl Flag {
    pub(crate) fn reason(&self) -> String {
        format!("`{}` {}", self.word, self.effect.verb())
    }
}

/// What kind of program a command runs: decides whether "always" may be offered for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    /// An ordinary program.
    Ordinary,
    /// Runs a script file named by its arguments.
    Interpreter,
    /// Runs what its arguments say.
    Wrapper,
}

/// The name a program is known by: without folder and version digits.
fn program_name(word: &str) -> &str {
    let base = word.rsplit('/').next().unwrap_or(word);
    let short = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if PROGRAMS.iter().any(|program| program.names.contains(&base)) || short.is_empty() {
        base
    } else {
        short
    }
}

fn lookup(word: &str) -> Option<&'static Program> {
    let name = program_name(word);
    PROGRAMS
        .iter()
        .find(|program| program.names.contains(&name))
}

/// What kind of program the command runs.
pub(crate) fn kind(words: &[ShellWord]) -> Nature {
    let Some(program) = words.first().and_then(|word| lookup(&word.text)) else {
        return Nature::Ordinary;
    };
    if program
        .marks
        .iter()
        .any(|mark| matches!(mark, Mark::Everything))
    {
        Nature::Wrapper
    } else if program
        .marks
        .iter()
        .any(|mark| matches!(mark, Mark::Script))
    {
        Nature::Interpreter
    } else {
        Nature::Ordinary
    }
}

/// The words of the command that a trailing star does not cover.
pub(crate) fn flags(words: &[ShellWord]) -> Vec<Flag> {
    let Some(program) = words.first().and_then(|word| lookup(&word.text)) else {
        return Vec::new();
    };
    let mut flags = Vec::new();
    for (index, word) in words.iter().enumerate().skip(1) {
        if word.may_be_option && !word.literal {
            flags.push(Flag {
                index,
                effect: Effect::Runs,
                word: word.text.clone(),
            });
        }
    }
    for mark in program.marks {
        apply(mark, words, &mut flags);
    }
    flags
}

/// Adds the words that one mark of the table finds.
fn apply(mark: &Mark, words: &[ShellWord], flags: &mut Vec<Flag>) {
    let operand = first_operand(words);
    let command = operand
        .and_then(|at| words.get(at))
        .map_or("", |word| word.text.as_str());
    let mut flag = |index: usize, effect: Effect| {
        let shown = words.get(index).or(words.first());
        let word = shown.map_or_else(String::new, |word| word.text.clone());
        flags.push(Flag {
            index,
            effect,
            word,
        });
    };
    match mark {
        Mark::Everything => flag(words.len(), Effect::Runs),
        Mark::Script => flag(script_index(words), Effect::Runs),
        Mark::FirstWord(effect) => flag(operand.unwrap_or(words.len()), *effect),
        Mark::SubCommand(effect, names) => {
            if let Some(index) = operand.filter(|_| names.contains(&command)) {
                flag(index, *effect);
            }
        }
        Mark::OnlySubCommands(effect, names) => {
            if let Some(index) = operand.filter(|_| !names.contains(&command)) {
                flag(index, *effect);
            }
        }
        Mark::ShortIn(_, names, _) if !names.contains(&command) => {}
        _ => {
            let end = match mark {
                Mark::ShortBeforeCommand(..) => operand.unwrap_or(words.len()),
                Mark::FirstCluster(..) => 2,
                _ => words.len(),
            };
            for (index, word) in words.iter().enumerate().take(end).skip(1) {
                if let Some(effect) = effect_of(mark, word) {
                    flag(index, effect);
                }
            }
        }
    }
}

/// What a mark says about one argument, looked at by itself.
fn effect_of(mark: &Mark, word: &ShellWord) -> Option<Effect> {
    let text = word.text.as_str();
    let (effect, found) = match mark {
        Mark::Long(effect, options) => {
            let name = text.split('=').next().unwrap_or("");
            let long = name.len() > 2 && name.starts_with("--");
            (
                *effect,
                long && options.iter().any(|option| option.starts_with(name)),
            )
        }
        Mark::Short(effect, letters)
        | Mark::ShortBeforeCommand(effect, letters)
        | Mark::ShortIn(effect, _, letters) => (
            *effect,
            is_cluster(text) && text.contains(|c| letters.contains(&c)),
        ),
        Mark::FirstCluster(effect, letters) => (
            *effect,
            !text.starts_with('-') && text.contains(|c| letters.contains(&c)),
        ),
        Mark::Word(effect, options) => {
            let name = text.trim_start_matches('-').split('=').next().unwrap_or("");
            (*effect, text.starts_with('-') && options.contains(&name))
        }
        Mark::Containing(effect, parts) => (*effect, parts.iter().any(|part| text.contains(part))),
        Mark::Assigning => {
            let name = text.split(['=', '+', '[']).next().unwrap_or("");
            let sensitive = text.contains('[') || variables::is_sensitive(name);
            (Effect::Loads, !word.literal || sensitive)
        }
        Mark::Variables => (Effect::Loads, !text.starts_with('-') && text.contains('=')),
        Mark::SedScript => (Effect::Writes, !word.literal || scripts::sed_may_act(text)),
        Mark::AwkProgram => (Effect::Runs, !word.literal || scripts::awk_may_act(text)),
        Mark::Everything
        | Mark::Script
        | Mark::FirstWord(_)
        | Mark::SubCommand(..)
        | Mark::OnlySubCommands(..) => return None,
    };
    found.then_some(effect)
}

/// `-abc`: one dash, then letters.
fn is_cluster(text: &str) -> bool {
    text.len() > 1 && text.starts_with('-') && !text.starts_with("--")
}

fn first_operand(words: &[ShellWord]) -> Option<usize> {
    words
        .iter()
        .skip(1)
        .position(|word| !word.text.starts_with('-'))
        .map(|at| at + 1)
}

/// Where an interpreter's script is named: past the end when it reads a script from an option or its input.
fn script_index(words: &[ShellWord]) -> usize {
    match words.get(1) {
        Some(word) if word.literal && !word.text.starts_with('-') => 1,
        _ => words.len(),
    }
}

/// True when an interpreter is called with the script file as its first argument.
pub(crate) fn names_a_script(words: &[ShellWord]) -> bool {
    script_index(words) < words.len()
}
