//! `tenure answer`: answers a permission question of a session, whoever runs it, or lists the questions that wait.

use super::{Context, open, print};
use crate::args::{AnswerArgs, Global};
use crate::ask;
use crate::exit::{CliError, CliResult};
use crate::render::escape::{safe, safe_line};
use crate::{store, waiting};
use serde_json::json;
use tenure_core::SessionId;
use tenure_core::event::body::{PermissionAnswer, PermissionAsked};
use tenure_engine::EngineError;

/// Answers, or lists what may be answered.
pub async fn run(cx: &Context, global: &Global, args: &AnswerArgs) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config).await?;
    let row = store::find(store.as_ref(), &args.session).await?;
    let questions = waiting::questions(store.as_ref(), &row).await?;
    if args.answer.is_empty() {
        return list(&row.id, &questions, args.json);
    }
    let asked = chosen(&row.id, &questions, args.call.as_deref())?;
    let answer = ask::parse(&args.answer.join(" "), &asked.proposals).ok_or_else(|| {
        CliError::usage(format!(
            "`{}` is no answer to this question",
            safe_line(&args.answer.join(" "))
        ))
        .hint(format!("answer {}", ask::keys(asked.proposals.len())))
        .hint(format!(
            "`tenure answer {}` says what each of them means",
            row.id
        ))
    })?;
    let word = word(&answer);
    let client = store::client(&config, store).await;
    match client
        .answer(
            &row.id,
            &asked.message,
            &asked.call,
            answer,
            "tenure answer",
        )
        .await
    {
        Ok(()) => {}
        Err(EngineError::AlreadyAnswered { .. }) => {
            return Err(
                CliError::failed("somebody else answered that question first")
                    .hint(format!("`tenure log {}` has the answer", row.id)),
            );
        }
        Err(EngineError::NotAsked { .. }) => {
            return Err(CliError::failed(
                "that question was over before the answer came: its call is settled, and the answer counts for nothing",
            )
            .hint(format!(
                "`tenure log {}` says how it ended, `tenure answer {}` what it asks now",
                row.id, row.id
            )));
        }
        Err(error) => return Err(error.into()),
    }
    if args.json {
        let line = json!({"v": 1, "kind": "answered", "session": row.id, "message": asked.message,
            "call": asked.call, "answer": word});
        return print(&format!("{line}\n"));
    }
    print(&format!("answered: {word}\n"))
}

fn word(answer: &PermissionAnswer) -> &'static str {
    match answer {
        PermissionAnswer::Once => "once",
        PermissionAnswer::Always { .. } => "always",
        PermissionAnswer::No { .. } => "no",
    }
}

/// The question that is meant: the only one, or that of the call named.
fn chosen<'a>(
    session: &SessionId,
    questions: &'a [PermissionAsked],
    call: Option<&str>,
) -> CliResult<&'a PermissionAsked> {
    let named: Vec<&PermissionAsked> = questions
        .iter()
        .filter(|asked| call.is_none_or(|call| asked.call.as_str() == call))
        .collect();
    match (named.as_slice(), call) {
        ([asked], _) => Ok(asked),
        ([], None) => Err(
            CliError::usage(format!("session {session} asks nothing now"))
                .hint("`tenure sessions` says `asks` of those that do"),
        ),
        ([], Some(call)) => Err(CliError::usage(format!(
            "no question about `{}` waits in {session}",
            safe_line(call)
        ))
        .near(call, questions.iter().map(|asked| asked.call.as_str()))
        .hint(format!("`tenure answer {session}` lists what it asks"))),
        (several, _) => Err(CliError::usage(format!(
            "session {session} asks {} questions",
            several.len()
        ))
        .hint("name the one that is meant with --call")
        .hint(format!("`tenure answer {session}` lists them"))),
    }
}

fn list(session: &SessionId, questions: &[PermissionAsked], json: bool) -> CliResult {
    if json {
        let lines = questions.iter().map(|asked| {
            let line = json!({"v": 1, "kind": "question", "session": session, "message": asked.message,
                "call": asked.call, "question": asked.question, "proposals": asked.proposals});
            format!("{line}\n")
        });
        return print(&lines.collect::<String>());
    }
    if questions.is_empty() {
        return print("it asks nothing\n");
    }
    print(&listed(session, questions, questions.len() > 1))
}

/// Each question, whole, with the commands that answer it; `named`: each names its question, so that it is right
/// also when others come.
pub fn listed(session: &SessionId, questions: &[PermissionAsked], named: bool) -> String {
    let mut text = String::new();
    for asked in questions {
        for line in safe(&asked.question).lines() {
            text.push_str(&format!("? {line}\n"));
        }
        for line in commands(session, asked, named) {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}

/// The commands that answer a question, with what each means; `several` questions wait in the session.
pub fn commands(session: &SessionId, asked: &PermissionAsked, several: bool) -> Vec<String> {
    let command = waiting::command(session, asked, several);
    ask::choices(asked)
        .into_iter()
        .map(|(key, words)| match key.as_str() {
            "" => words,
            key => format!("`{command} {key}`  {words}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{CallId, MessageId};

    fn asked(call: &str, label: Option<&str>) -> PermissionAsked {
        PermissionAsked {
            message: MessageId::from_bits(1),
            call: CallId::new(call),
            question: "run x\u{1b}[2J\nin y".into(),
            proposals: label
                .map(|label| json!({ "label": label }))
                .into_iter()
                .collect(),
        }
    }

    #[test]
    fn every_question_is_shown_with_the_commands_that_answer_it() {
        let session = SessionId::from_bits(1);
        let one = [asked("c1", Some("the command `x`"))];
        insta::assert_snapshot!(listed(&session, &one, false), @"
        ? run x␛[2J
        ? in y
          `tenure answer ses_00000000000000000000000001 y`  once
          `tenure answer ses_00000000000000000000000001 a`  always: the command `x`
          `tenure answer ses_00000000000000000000000001 n`  no (words after it are told to the model)
        ");
        let two = [asked("c1", None), asked("c2", None)];
        let shown = listed(&session, &two, true);
        assert!(
            shown.contains("--call c1 y`") && shown.contains("--call c2 n`"),
            "{shown}"
        );
        assert!(!shown.contains(" a`"), "{shown}");
    }

    #[test]
    fn the_only_question_needs_no_name_and_one_of_several_does() {
        let session = SessionId::from_bits(1);
        let two = [asked("c1", None), asked("c2", None)];
        assert_eq!(
            chosen(&session, &two[..1], None).unwrap().call.as_str(),
            "c1"
        );
        assert_eq!(
            chosen(&session, &two, Some("c2")).unwrap().call.as_str(),
            "c2"
        );
        for (questions, call) in [(&two[..], None), (&two[..0], None), (&two[..], Some("c3"))] {
            assert!(chosen(&session, questions, call).is_err(), "{call:?}");
        }
    }
}
