//! Properties that hold for any text.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Ways to add a second command to an allowed one.
fn with_suffix(allowed: &str, added: &str) -> Vec<String> {
    vec![
        format!("{allowed}; {added}"),
        format!("{allowed} && {added}"),
        format!("{allowed} || {added}"),
        format!("{allowed} | {added}"),
        format!("{allowed} & {added}"),
        format!("{allowed}\n{added}"),
        format!("{allowed} $({added})"),
        format!("{allowed} \"$({added})\""),
        format!("{allowed} `{added}`"),
        format!("{allowed} <({added})"),
        format!("{allowed} <<< \"$({added})\""),
        format!("{allowed} <<EOF\n$({added})\nEOF"),
        format!("{allowed} ${{X:-$({added})}}"),
        format!("{added}; {allowed}"),
        format!("if {added}; then {allowed}; fi"),
        format!("x=$({added}) {allowed}"),
        format!("( {added} ) > /dev/null; {allowed}"),
    ]
}

fn simple_command() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        "[a-z]{1,6}",
        "-[a-z]{1,3}",
        "'[a-z ;|&]{0,6}'",
        "\"[a-z ;$]{0,6}\"",
        "[a-z./*?~{},=]{1,6}"
    ];
    proptest::collection::vec(word, 1..4).prop_map(|words| words.join(" "))
}

/// Text with many characters that mean something to a shell.
fn shell_like(max: usize) -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        Just(" ".to_owned()),
        Just("\n".to_owned()),
        Just("'".to_owned()),
        Just("\"".to_owned()),
        Just("\\".to_owned()),
        Just("$(".to_owned()),
        Just(")".to_owned()),
        Just("`".to_owned()),
        Just("${".to_owned()),
        Just("}".to_owned()),
        Just("$((".to_owned()),
        Just("))".to_owned()),
        Just("$'".to_owned()),
        Just("<<E\n".to_owned()),
        Just("\nE\n".to_owned()),
        Just("<<-'E'\n".to_owned()),
        Just("; ".to_owned()),
        Just("&& ".to_owned()),
        Just("| ".to_owned()),
        Just("# ".to_owned()),
        Just("> f ".to_owned()),
        Just("if ".to_owned()),
        Just("; then ".to_owned()),
        Just("; fi".to_owned()),
        Just("[[ ".to_owned()),
        Just(" ]]".to_owned()),
        Just("case a in a) ".to_owned()),
        Just(";; esac".to_owned()),
        Just("f() {".to_owned()),
        Just("ok ".to_owned()),
        Just("rm x".to_owned()),
        Just("X=1 ".to_owned()),
        Just("a[".to_owned()),
        Just("]=".to_owned()),
        Just("$".to_owned()),
        Just("99999999999".to_owned()),
        Just("~9999999999999999999999".to_owned()),
        Just("{1..99999999999999999999}".to_owned()),
        "[ -~]{1,4}",
        "\\PC{1,2}",
    ];
    proptest::collection::vec(pieces, 0..max).prop_map(|pieces| pieces.concat())
}

/// How a property is tested: `usual` cases, or as many as `PROPTEST_CASES` asks for.
fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig {
        cases: asked.and_then(|n| n.parse().ok()).unwrap_or(usual),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn an_added_command_is_never_covered_by_the_first_ones_rule(added in simple_command(), broad in any::<bool>()) {
        let rules = if broad { allowing(&["git status", "ok *"]) } else { allowing(&["git status"]) };
        for allowed in ["git status", "g'i't  status"] {
            prop_assert_eq!(shell(&rules, allowed), Verdict::Allow);
            let alone = shell(&rules, &added);
            for text in with_suffix(allowed, &added) {
                let verdict = shell(&rules, &text);
                prop_assert!(alone == Verdict::Allow || verdict != Verdict::Allow, "{:?}", text);
            }
        }
    }

    #[test]
    fn a_denied_command_added_anywhere_is_never_allowed(before in shell_like(6), after in shell_like(6)) {
        let rules = bash_rules(json!({ "*": "ask", "ok *": "allow", "rm *": "deny" }));
        for text in [format!("{before}\nrm x\n{after}"), format!("{before}; rm x; {after}"), format!("{before} $(rm x) {after}")] {
            // Allowed only if the whole is one `ok` with `rm x` inside quotes, a comment or a literal document.
            if shell(&rules, &text) == Verdict::Allow {
                let hidden = text.contains('\'') || text.contains('"') || text.contains('\\') || text.contains('#');
                prop_assert!(hidden, "{:?}", text);
            }
        }
    }

    #[test]
    fn any_text_gets_a_verdict(text in "\\PC{0,200}|[ -~\\n\\t]{0,400}") {
        let rules = allowing(&["ok *"]);
        let _ = shell(&rules, &text);
        let _ = shell(&bash_rules(json!({ "*": "allow", "rm *": "deny" })), &text);
    }

    #[test]
    fn short_shell_like_texts_get_a_verdict(text in shell_like(12)) {
        let _ = shell(&allowing(&["ok *"]), &text);
    }

    #[test]
    fn the_advice_for_a_refusal_is_valid_and_works(command in simple_command()) {
        if let Verdict::Ask { question } = shell(&Rules::default(), &command)
            && !question.missing_rules.is_empty()
        {
            let mut config = PermissionConfig::default();
            for (tool, pattern) in &question.missing_rules {
                config.set(tool, pattern, Mode::Allow).map_err(|error| TestCaseError::fail(error.to_string()))?;
            }
            prop_assert_eq!(shell(&Rules::from_config(&config), &command), Verdict::Allow);
        }
    }

    #[test]
    fn a_project_never_widens(
        command in prop_oneof![Just("ok a"), Just("git log"), Just("rm x"), Just("ok > f"), Just("git log; rm x"), Just("ok 'x")],
        user in proptest::collection::btree_map(pattern(), mode(), 0..4),
        project in proptest::collection::btree_map(pattern(), mode(), 0..4),
    ) {
        let mine = bash_rules(json!(user));
        let (narrowed, _) = mine.narrowed_by(&config_of(json!({ "bash": project })));
        let rank = |verdict: &Verdict| match verdict {
            Verdict::Allow => 0,
            Verdict::Ask { .. } => 1,
            Verdict::Deny { .. } => 2,
        };
        prop_assert!(rank(&shell(&narrowed, command)) >= rank(&shell(&mine, command)));
    }
}

proptest! {
    // Long texts take long to make.
    #![proptest_config(cases(40))]

    #[test]
    fn any_shell_like_text_up_to_4_kib_gets_a_verdict(text in shell_like(800)) {
        let text: String = text.chars().take(4096).collect();
        let _ = shell(&allowing(&["ok *"]), &text);
    }
}

fn pattern() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("*"),
        Just("ok *"),
        Just("ok a"),
        Just("git *"),
        Just("git log"),
        Just("rm *")
    ]
}

fn mode() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("allow"), Just("ask"), Just("deny")]
}
