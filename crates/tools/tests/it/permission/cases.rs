//! The cases of the catalogue, by id.

use serde_json::json;
use tenure_tools::permission::{
    Mode, PermissionConfig, Place, Remembered, Rules, Subject, Verdict, deny_headless, evaluate_at,
};

use super::*;

#[test]
fn bc_s_101_every_part_of_a_command_is_judged() {
    let rules = allowing(&["git status"]);
    assert_allowed(
        &rules,
        &[
            "git status",
            "  git   status  ",
            "git status 2>&1",
            "git status >/dev/null",
            "g\"i\"t 'status'",
        ],
    );
    assert_asked(
        &rules,
        &[
            "git status && rm -rf x",
            "git status; rm x",
            "git status | sh",
            "git status $(rm x)",
            "git status\nrm x",
            "git status > ~/.bashrc",
            "git status > out.txt",
            "`rm x`",
            "git status & rm x",
            "git status || rm x",
            "git status <(rm x)",
            "git status \"$(rm x)\"",
            "git status \"`rm x`\"",
            "git status 'unfinished",
            "git status -s",
            "git",
            "X=$(rm x) git status",
            "git status <<EOF\n$(rm x)\nEOF",
        ],
    );
}

#[test]
fn bc_s_101_the_strictest_outcome_counts() {
    let rules = bash_rules(json!({ "*": "ask", "git status": "allow", "rm *": "deny" }));
    assert_denied(
        &rules,
        &[
            "git status && rm -rf x",
            "rm x",
            "ls; rm x",
            "git status $(rm x)",
            "(cd a; \\rm x)",
            "/bin/rm x",
            "if true; then rm x; fi",
        ],
    );
    assert_asked(&rules, &["git status && ls"]);
}

#[test]
fn bc_s_102_always_remembers_exactly_one_command() {
    let mut rules = Rules::default();
    let question = asked(shell(&rules, "python build.py"));
    let [proposal] = question.proposals.as_slice() else {
        panic!("one proposal: {question:?}")
    };
    let words = vec!["python".to_owned(), "build.py".to_owned()];
    assert_eq!(proposal.rules, [Remembered::Command { words }]);
    assert_eq!(proposal.label, "always allow exactly `python build.py`");
    rules.remember(proposal);
    assert_allowed(&rules, &["python build.py", "python 'build.py'"]);
    assert_asked(
        &rules,
        &[
            "python -c '...'",
            "python other.py",
            "bash -c 'x'",
            "xargs rm",
            "find . -exec rm {} +",
            "npx something",
            "python build.py --all",
            "X=1 python build.py",
            "python build.py; ls",
            "python build.py > x",
        ],
    );
}

#[test]
fn bc_s_102_nothing_is_proposed_for_wrappers() {
    let rules = Rules::default();
    for command in [
        "bash -c 'rm x'",
        "sh",
        "python -c 'x'",
        "python3.12 -m http.server",
        "node -e 1",
        "perl -e 1",
        "ruby -e 1",
        "env rm x",
        "xargs rm",
        "find . -exec rm {} +",
        "find . -ok rm {} ;",
        "npx something",
        "sudo rm x",
        "nohup rm x",
        "timeout 5 rm x",
        "nice rm x",
        "watch rm x",
        "ssh host rm x",
        "eval 'rm x'",
        "exec rm x",
        "command rm x",
        "builtin cd x",
        ". ./x.sh",
        "source ./x.sh",
        "echo $(bash -c x)",
        "$X y",
        "git -c a=b log; \"$Y\"",
        "fd -x rm",
        "git status `x",
        "ls | sh",
        "bash <<< 'rm x'",
    ] {
        let question = asked(shell(&rules, command));
        assert!(
            question.proposals.is_empty(),
            "{command}: {:?}",
            question.proposals
        );
    }
    let several = asked(shell(&rules, "make test && git push"));
    assert_eq!(
        several.proposals[0].rules.len(),
        2,
        "each command by itself: {several:?}"
    );
}

#[test]
fn bc_s_103_headless_refusal_says_which_rule_is_missing() {
    let question = asked(shell(
        &Rules::default(),
        "git commit -m 'a \"b\"' && git push",
    ));
    let text = deny_headless(&question);
    for part in [
        "nobody can be asked",
        "git commit -m 'a \"b\"' && git push",
        "[permissions.bash]",
        r#""git commit -m 'a \"b\"'" = "allow""#,
        r#""git push" = "allow""#,
        "--allow-all",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // The advice works.
    let mut config = PermissionConfig::default();
    for (tool, pattern) in &question.missing_rules {
        config
            .set(tool, pattern, Mode::Allow)
            .expect("the advised pattern is valid");
    }
    assert_allowed(
        &Rules::from_config(&config),
        &["git commit -m 'a \"b\"' && git push"],
    );
}

#[test]
fn bc_s_103_headless_refusal_of_paths_and_of_what_no_rule_names() {
    let question = asked(write(
        &Rules::default(),
        "src/a[1].rs",
        "/srv/project/src/a[1].rs",
    ));
    let text = deny_headless(&question);
    assert!(
        text.contains("[permissions.write]\n\"./src/a\\\\[1\\\\].rs\" = \"allow\""),
        "{text}"
    );
    let mut config = PermissionConfig::default();
    for (tool, pattern) in &question.missing_rules {
        config
            .set(tool, pattern, Mode::Allow)
            .expect("the advised pattern is valid");
    }
    assert_eq!(
        write(
            &Rules::from_config(&config),
            "src/a[1].rs",
            "/srv/project/src/a[1].rs"
        ),
        Verdict::Allow
    );
    assert_ne!(
        write(
            &Rules::from_config(&config),
            "src/a1.rs",
            "/srv/project/src/a1.rs"
        ),
        Verdict::Allow
    );
    let unclear = deny_headless(&asked(shell(&Rules::default(), "echo 'x")));
    assert!(
        unclear.contains("No single rule covers this text"),
        "{unclear}"
    );
}

#[test]
fn bc_s_104_narrowed_rules_never_allow_more_than_their_parent() {
    let parent = bash_rules(json!({ "*": "ask", "git *": "allow" }));
    let child = config_of(json!({ "bash": "allow", "write": "allow", "outside": "allow" }));
    let (narrowed, notices) = parent.narrowed_by(&child);
    assert_eq!(notices.len(), 3, "{notices:?}");
    assert_allowed(&narrowed, &["git log"]);
    assert_asked(&narrowed, &["ls", "git log > x"]);
}

#[test]
fn bc_s_106_options_that_execute_write_or_load_are_not_covered_by_a_star() {
    let rules = allowing(&[
        "git *",
        "rg *",
        "fd *",
        "find *",
        "go test *",
        "sort *",
        "tar *",
    ]);
    assert_allowed(
        &rules,
        &[
            "git log --oneline -5",
            "git -P status",
            "rg -n pattern src",
            "fd -e rs",
            "find . -name x.rs -type f",
            "go test ./... -run TestX -count=1",
            "sort -u f",
            "tar -tf a.tar",
            "tar xzf a.tgz",
            "git push -u origin main",
        ],
    );
    let commands = [
        "rg --pre ./x.sh a",
        "fd -x ./x.sh",
        "go test -exec ./x.sh",
        "git -c core.pager=./x.sh log",
        "git show --output=~/.bashrc",
        "find . -delete",
        "sort -o f f",
        "tar --to-command=./x.sh -xf a",
    ];
    assert_asked(&rules, &commands);
    for command in commands {
        let question = asked(shell(&rules, command));
        let whole = Subject::Command {
            command: command.to_owned(),
            cwd: WORKSPACE.into(),
        };
        assert_eq!(question.subjects, [whole], "the whole command is shown");
    }
}

#[test]
fn bc_s_106_a_rule_may_name_the_option() {
    assert_allowed(
        &allowing(&["sort -o *", "find . -delete", "git -c color.ui=never log *"]),
        &[
            "sort -o f f",
            "find . -delete",
            "git -c color.ui=never log -3",
        ],
    );
    assert_asked(
        &allowing(&["git -c color.ui=never log *"]),
        &["git -c color.ui=never log --output=x"],
    );
}

#[test]
fn bc_s_107_the_real_path_decides() {
    let rules = rules(json!({ "read": "allow", "write": "allow", "grep": "allow" }));
    assert_eq!(
        read(&rules, "src/a.rs", "/srv/project/src/a.rs"),
        Verdict::Allow
    );
    for verdict in [
        read(&rules, "link/passwd", "/etc/passwd"),
        write(&rules, "link/passwd", "/etc/passwd"),
        read(&rules, "link/../x", "/x"),
        evaluate(
            &rules,
            "grep",
            &[Access::Search {
                given: "link".into(),
                real: "/etc".into(),
            }],
            Path::new(WORKSPACE),
        ),
        // A path that was not resolved is no proof of being inside.
        read(&rules, "a", "/srv/project/../secret"),
        read(&rules, "a", "relative"),
        read(&rules, "p2", "/srv/project2/a"),
    ] {
        assert!(matches!(verdict, Verdict::Ask { .. }), "{verdict:?}");
    }
}

#[test]
fn bc_s_107_a_redirection_through_a_link_is_outside() {
    let rules = rules(json!({ "write": "allow", "bash": { "echo *": "allow" } }));
    let resolve = |path: &Path| -> Option<PathBuf> {
        Some(
            path.strip_prefix("/srv/project/link")
                .map_or(path.to_owned(), |rest| Path::new("/etc").join(rest)),
        )
    };
    let place = Place::new(Path::new(WORKSPACE)).with_resolver(&resolve);
    let run = |command: &str| {
        let access = Access::Command {
            command: command.into(),
            cwd: WORKSPACE.into(),
            background: false,
        };
        evaluate_at(&rules, "bash", &[access], &place)
    };
    assert_eq!(run("echo a > out"), Verdict::Allow);
    assert!(matches!(run("echo a > link/passwd"), Verdict::Ask { .. }));
}

#[test]
fn bc_s_108_the_question_shows_both_paths_and_remembers_the_real_one() {
    let mut rules = rules(json!({ "write": "allow" }));
    let question = asked(write(&rules, "docs/a", "/home/user/private/a"));
    assert!(
        question
            .text()
            .contains("write docs/a (really /home/user/private/a)"),
        "{}",
        question.text()
    );
    let real = PathBuf::from("/home/user/private/a");
    assert_eq!(
        question.proposals[0].rules,
        [Remembered::Path {
            tool: "write".into(),
            real
        }]
    );
    rules.remember(&question.proposals[0]);
    assert_eq!(
        write(&rules, "docs/a", "/home/user/private/a"),
        Verdict::Allow
    );
    // The link now leads elsewhere: the answer was for the other file.
    asked(write(&rules, "docs/a", "/home/user/private/b"));
    asked(read(&rules, "docs/a", "/home/user/private/a"));
}

#[test]
fn bc_s_109_a_project_file_cannot_widen() {
    let user = rules(json!({ "bash": { "*": "ask", "cargo test *": "allow", "rm *": "deny" } }));
    let project = config_of(json!({
        "bash": { "*": "allow", "rm -rf target": "allow", "cargo test *": "ask" },
        "mcp_server": "allow",
        "read": { "secrets/**": "deny" },
        "outside": "deny",
    }));
    let (narrowed, notices) = user.narrowed_by(&project);
    assert_asked(&narrowed, &["cargo test", "curl x"]);
    assert_denied(&narrowed, &["rm -rf target"]);
    assert!(matches!(
        read(&narrowed, "secrets/a", "/srv/project/secrets/a"),
        Verdict::Deny { .. }
    ));
    assert!(matches!(
        read(&narrowed, "/etc/x", "/etc/x"),
        Verdict::Deny { .. }
    ));
    assert_eq!(read(&narrowed, "a", "/srv/project/a"), Verdict::Allow);
    let ignored: Vec<_> = notices
        .iter()
        .map(|n| (n.tool.as_str(), n.pattern.as_deref()))
        .collect();
    assert_eq!(
        ignored,
        [
            ("bash", Some("*")),
            ("bash", Some("rm -rf target")),
            ("mcp_server", Some("*"))
        ]
    );
    assert!(
        notices[0]
            .to_string()
            .contains("a project may only narrow permissions")
    );
}
