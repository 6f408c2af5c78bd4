//! Configuration, defaults, specificity, and the stored form.

use serde_json::json;
use tenure_tools::permission::{Rules, Verdict};

use super::*;

#[test]
fn defaults_allow_reading_inside_and_ask_for_the_rest() {
    let rules = Rules::default();
    assert_eq!(read(&rules, "a", "/srv/project/a"), Verdict::Allow);
    for tool in ["glob", "grep"] {
        let access = Access::Search {
            given: ".".into(),
            real: WORKSPACE.into(),
        };
        assert_eq!(
            evaluate(&rules, tool, &[access], Path::new(WORKSPACE)),
            Verdict::Allow
        );
    }
    assert_eq!(
        evaluate(&rules, "todo", &[], Path::new(WORKSPACE)),
        Verdict::Allow
    );
    asked(write(&rules, "a", "/srv/project/a"));
    asked(read(&rules, "/etc/passwd", "/etc/passwd"));
    asked(evaluate(&rules, "unknown_tool", &[], Path::new(WORKSPACE)));
    assert_asked(&rules, &["ls", "", "true"]);
}

#[test]
fn allow_all_allows_everything() {
    let rules = Rules::allow_all();
    assert_allowed(&rules, &["rm -rf /", "echo 'broken", "$X"]);
    assert_eq!(write(&rules, "/etc/x", "/etc/x"), Verdict::Allow);
    let (narrowed, notices) = rules.narrowed_by(&config_of(json!({ "bash": { "rm *": "deny" } })));
    assert!(notices.is_empty());
    assert_denied(&narrowed, &["rm x"]);
    assert_allowed(&narrowed, &["ls > /tmp/x"]);
}

#[test]
fn a_whole_tool_mode_trusts_the_shell() {
    let rules = rules(json!({ "bash": "allow" }));
    assert_allowed(
        &rules,
        &[
            "sleep 600 & sleep 600",
            "echo hi > out.txt",
            "python -c 'x'",
            "bash -c 'a'",
            "X=1 y > /tmp/z",
            "a $(b",
            "for i in 1 2; do x; done",
        ],
    );
    let denied =
        super::rules(json!({ "bash": "allow", "write": { "*": "ask", "**/.env": "deny" } }));
    assert_denied(&denied, &["echo A > .env", "echo A >> sub/.env"]);
    assert_denied(
        &super::rules(json!({ "bash": "deny" })),
        &["ls", "echo 'broken"],
    );
}

#[test]
fn stricter_patterns_beside_a_trusted_shell_cannot_be_hidden_from() {
    let rules = bash_rules(json!({ "*": "allow", "rm *": "deny", "git push *": "ask" }));
    assert_allowed(
        &rules,
        &[
            "ls -l",
            "cargo build",
            "git log $X | head",
            "make",
            "curl -o x y",
        ]
        .map(|c| {
            if c.contains("git log $X") {
                "echo $X | head"
            } else {
                c
            }
        }),
    );
    assert_denied(
        &rules,
        &["rm x", "/bin/rm x", "ls && rm x", "r\"m\" x", "\\rm x"],
    );
    assert_asked(
        &rules,
        &[
            "git push",
            "git push origin",
            "git $X",
            "bash -c 'rm x'",
            "xargs rm",
            "env rm x",
            "find . -exec rm {} +",
            "$X",
            "\"$(echo rm)\" x",
            "echo 'broken",
            "PATH=. ls",
            "/usr/bin/git push",
            "command rm x",
            "eval rm x",
        ],
    );
}

#[test]
fn the_most_specific_pattern_wins() {
    let rules = bash_rules(json!({
        "*": "deny", "git *": "ask", "git log *": "allow", "git log --all": "deny", "git log": "ask",
    }));
    assert_allowed(&rules, &["git log -3"]);
    assert_denied(&rules, &["git log --all", "ls"]);
    assert_asked(&rules, &["git log", "git fetch"]);
}

#[test]
fn only_a_lone_last_star_is_a_wildcard() {
    for (pattern, part) in [
        ("git log*", "a star may only stand alone"),
        ("* status", "a star may only stand alone"),
        ("git * status", "a star may only stand alone"),
        ("git status | head", "not one plain command"),
        ("git status; ls", "not one plain command"),
        ("git $X", "not one plain command"),
        ("echo `x` *", "not one plain command"),
        ("git 'x", "not one plain command"),
        ("", "is empty"),
    ] {
        let error =
            serde_json::from_value::<PermissionConfig>(json!({ "bash": { pattern: "allow" } }))
                .unwrap_err();
        assert!(error.to_string().contains(part), "{pattern}: {error}");
    }
    assert_allowed(&allowing(&["echo '*'"]), &["echo '*'", "echo \\*"]);
    assert_asked(&allowing(&["echo '*'"]), &["echo *", "echo a"]);
}

#[test]
fn errors_say_what_to_write() {
    for (config, part) in [
        (
            json!({ "bash": "alow" }),
            "unknown permission mode \"alow\"",
        ),
        (
            json!({ "bash": { "ls": "maybe" } }),
            "use \"allow\", \"ask\" or \"deny\"",
        ),
        (json!({ "outside": "x" }), "unknown permission mode \"x\""),
        (json!({ "bash": 3 }), "or a table of patterns to modes"),
        (
            json!({ "read": { "a[": "deny" } }),
            "not a valid path pattern",
        ),
    ] {
        let error = serde_json::from_value::<PermissionConfig>(config)
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[test]
fn the_stored_form_is_stable_and_complete() {
    let mut rules = rules(json!({ "bash": { "git *": "allow", "*": "ask" }, "outside": "deny" }));
    rules.remember(&asked(shell(&rules, "make test")).proposals[0]);
    let (rules, _) = rules.narrowed_by(&config_of(json!({ "read": { "**/.env*": "deny" } })));
    let stored = serde_json::to_string(&rules).unwrap();
    assert_eq!(
        stored,
        concat!(
            r#"{"v":1,"layers":[{"base":true,"outside":"deny","tools":{"bash":{"*":"ask","git *":"allow"},"#,
            r#""edit":{"*":"ask"},"glob":{"*":"allow"},"grep":{"*":"allow"},"read":{"*":"allow"},"#,
            r#""todo":{"*":"allow"},"write":{"*":"ask"}}},"#,
            r#"{"base":false,"outside":"allow","tools":{"read":{"**/.env*":"deny"}}}],"#,
            r#""remembered":[{"kind":"command","words":["make","test"]}]}"#,
        )
    );
    let again: Rules = serde_json::from_str(&stored).unwrap();
    assert_eq!(again, rules);
    assert_allowed(&again, &["make test", "git log"]);
    let newer = stored.replace("\"v\":1", "\"v\":2");
    let error = serde_json::from_str::<Rules>(&newer)
        .unwrap_err()
        .to_string();
    assert!(error.contains("use a newer program"), "{error}");
}

#[test]
fn remembering_never_lifts_a_deny() {
    let mut rules = Rules::default();
    rules.remember(&asked(shell(&rules, "rm x")).proposals[0]);
    assert_allowed(&rules, &["rm x"]);
    let (narrowed, _) = rules.narrowed_by(&config_of(json!({ "bash": { "rm *": "deny" } })));
    assert_denied(&narrowed, &["rm x"]);
}

#[test]
fn questions_survive_storage() {
    let verdict = shell(&Rules::default(), "git push > out");
    let stored = serde_json::to_string(&verdict).unwrap();
    assert_eq!(serde_json::from_str::<Verdict>(&stored).unwrap(), verdict);
}
