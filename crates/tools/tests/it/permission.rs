//! Tests of the permission rules.

mod cases;
mod config;
mod nesting;
mod options;
mod paths;
mod property;
mod shell;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tenure_tools::permission::{
    Access, Mode, PermissionConfig, Question, Rules, Verdict, evaluate,
};

/// The canonical workspace of all tests here; it need not exist.
const WORKSPACE: &str = "/srv/project";

/// Rules from a `[permissions]` table.
fn rules(config: Value) -> Rules {
    Rules::from_config(&config_of(config))
}

fn config_of(config: Value) -> PermissionConfig {
    serde_json::from_value(config).expect("a valid table")
}

/// `bash` patterns that are allowed; everything else is asked for.
fn allowing(patterns: &[&str]) -> Rules {
    let mut config = PermissionConfig::default();
    for pattern in patterns {
        config
            .set("bash", pattern, Mode::Allow)
            .expect("a valid pattern");
    }
    Rules::from_config(&config)
}

fn shell(rules: &Rules, command: &str) -> Verdict {
    let access = Access::Command {
        command: command.to_owned(),
        cwd: PathBuf::from(WORKSPACE),
        background: false,
    };
    evaluate(rules, "bash", &[access], Path::new(WORKSPACE))
}

fn read(rules: &Rules, given: &str, real: &str) -> Verdict {
    let access = Access::Read {
        given: given.to_owned(),
        real: real.into(),
    };
    evaluate(rules, "read", &[access], Path::new(WORKSPACE))
}

fn write(rules: &Rules, given: &str, real: &str) -> Verdict {
    let access = Access::Write {
        given: given.to_owned(),
        real: real.into(),
    };
    evaluate(rules, "write", &[access], Path::new(WORKSPACE))
}

#[track_caller]
#[expect(clippy::panic, reason = "fails the test that calls it")]
fn asked(verdict: Verdict) -> Question {
    match verdict {
        Verdict::Ask { question } => question,
        other => panic!("expected a question, got {other:?}"),
    }
}

#[track_caller]
fn assert_allowed(rules: &Rules, commands: &[&str]) {
    for command in commands {
        let verdict = shell(rules, command);
        assert_eq!(verdict, Verdict::Allow, "{command}");
    }
}

#[track_caller]
fn assert_asked(rules: &Rules, commands: &[&str]) {
    for command in commands {
        let verdict = shell(rules, command);
        assert!(
            matches!(verdict, Verdict::Ask { .. }),
            "{command}: {verdict:?}"
        );
    }
}

#[track_caller]
fn assert_denied(rules: &Rules, commands: &[&str]) {
    for command in commands {
        let verdict = shell(rules, command);
        assert!(
            matches!(verdict, Verdict::Deny { .. }),
            "{command}: {verdict:?}"
        );
    }
}

/// A table whose `bash` rules are as given.
fn bash_rules(table: Value) -> Rules {
    rules(json!({ "bash": table }))
}
