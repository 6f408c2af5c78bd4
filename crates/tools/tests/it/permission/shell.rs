//! Shell commands taken apart.

use serde_json::json;

use super::*;

#[test]
fn commands_are_found_wherever_they_stand() {
    let rules = allowing(&["ok *"]);
    assert_allowed(
        &rules,
        &[
            "ok",
            "ok a b",
            "ok; ok",
            "ok && ok || ok",
            "ok | ok |& ok",
            "ok & ok",
            "(ok; ok)",
            "{ ok; }",
            "! ok",
            "if ok; then ok; elif ok; then ok; else ok; fi",
            "while ok; do ok; done",
            "until ok; do ok; done",
            "for i in a b; do ok $i; done",
            "for i in $(ok); do ok; done",
            "case $x in a) ok;; *) ok;; esac",
            "ok $(ok) \"$(ok \"$(ok)\")\" `ok`",
            "ok <(ok) >(ok)",
            "ok \\\n  a",
            "ok # comment; rm x\nok",
            "ok '# not'",
            "ok <<EOF\n$(ok)\nEOF",
            "ok <<'EOF'\n$(rm x)\nEOF",
            "ok <<-EOF\n\ttext\n\tEOF\nok",
            "ok <<< \"$(ok)\"",
            "for ((1; 1; 1)); do ok; done",
            "ok $((1 + (2 * 3)))",
            "ok ${X:-$(ok)}",
            "ok \"${X:-a b}\" ${#X} ${X%%.*}",
            "ok -m \"$(ok <<'EOF'\nsome 'text' (with) $(things)\nEOF\n)\"",
            "ok 2>&1 >/dev/null <&-",
            "ok {a,b} *.rs ~/x",
            "RUST_LOG=debug LC_ALL=C ok",
            "ok 'it'\\''s'",
            "ok $'a\\nb'",
            "ok HEAD@{1} a=b",
        ],
    );
    assert_asked(
        &rules,
        &[
            "(rm)",
            "{ rm; }",
            "! rm",
            "if rm; then ok; fi",
            "if ok; then rm; fi",
            "if ok; then ok; elif rm; then ok; fi",
            "if ok; then ok; else rm; fi",
            "while rm; do ok; done",
            "while ok; do rm; done",
            "until ok; do rm; done",
            "for i in a; do rm; done",
            "for i in $(rm); do ok; done",
            "for ((1;1;1)); do rm; done",
            "case $x in a) rm;; esac",
            "case $(rm) in a) ok;; esac",
            "case a in $(rm)) ok;; esac",
            "f() { rm; }",
            "function f { rm; }",
            "ok <(rm)",
            "ok >(rm)",
            "ok < <(rm)",
            "ok > >(rm)",
            "ok | rm",
            "ok |& rm",
            "ok & rm",
            "ok\nrm",
            "ok \"a $(rm) b\"",
            "ok `rm`",
            "ok \"`rm`\"",
            "x=$(rm)",
            "ok a=$(rm)",
            "ok ${X:-$(rm)}",
            "ok \"${X:-`rm`}\"",
            "ok $(( $(rm) ))",
            "ok <<EOF\n`rm`\nEOF",
            "ok <<-EOF\n\t$(rm)\n\tEOF",
            "ok <<< $(rm)",
            "ok $(ok $(rm))",
            "ok > $(rm)",
            "coproc rm",
            "coproc ok",
            "[[ -n $(rm) ]]",
            "a=($(rm))",
            "time rm",
            "ok <<A <<B\nA\n$(rm)\nB",
        ],
    );
}

#[test]
fn words_that_are_not_what_they_seem_are_asked_for() {
    let rules = allowing(&["ok *", "git status"]);
    assert_asked(
        &rules,
        &[
            "$X",
            "${X}y",
            "\"$X\"",
            "g?t status",
            "g*t status",
            "{git,status}",
            "~/ok",
            "$'\\x6f\\x6b'",
            "$\"ok\"",
            "`echo ok`",
            "$(echo ok)",
            "git $X",
            "git \"$X\"",
            "git stat*",
            "git {status,}",
            "git $'st\\x61tus'",
            "ok $[1+1]",
            "ok $((X))",
            "((X))",
            "((x = 1))",
            "let x=1",
            "ok ${!X}",
            "ok ${X@P}",
            "ok ${X:=y}",
            "ok ${X[$Y]}",
            "ok ${X:1:2}",
            "X[1]=2",
            "X[$(ok)]=2",
            "[[ X -eq 1 ]]",
            "[[ -v X[1] ]]",
            "git status\r\n",
            "git\u{a0}status",
            "ok \u{7}",
            "ok \\",
            "ok \"",
            "ok '",
            "ok $(",
            "ok ${",
            "ok `",
            "ok )",
            "ok (",
            ";",
            "&& ok",
            "ok &&",
            "ok |",
            "if ok",
            "ok <<EOF",
            "ok <<EOF\ntext",
            "ok 99999999999999999>x",
            "ok $((1) + (2))",
            "ok $( (ok) ) )",
            "select x in a; do ok; done",
        ],
    );
}

#[test]
fn texts_two_readers_understand_differently_are_asked_for() {
    let rules = allowing(&["ok *"]);
    assert_asked(
        &rules,
        &[
            // An escaped dollar before a quote is no `$'…'`: the quote ends at the backslash.
            "ok \\$'\\' ; rm x #'",
            "ok \"\\$\"'\\' ; rm #'",
            // A comment inside a substitution may hold quotes and parentheses.
            "ok $(ok # ) '\n) ; rm x",
            "ok ${X#'} ; rm x ; ok ${X#'}",
            "ok $(case a in a) rm;; esac)",
            "ok \"${X:-\"$(rm)\"}\"",
            "((1<<2)); rm",
            "ok <<'E'F\n$(rm)\nEF\nrm",
        ],
    );
}

#[test]
fn spelling_does_not_matter() {
    let rules = allowing(&["git status"]);
    assert_allowed(
        &rules,
        &[
            "\\git status",
            "g\"i\"t st'at'us",
            "git\tstatus",
            "git \\\nstatus",
            "gi\\t status",
            "git status # x",
            "git status;",
            "\n\ngit status\n",
        ],
    );
    assert_asked(
        &rules,
        &[
            "Git status",
            "git statuss",
            "./git status",
            "/usr/bin/git status",
            "'git status'",
            "git 'status '",
            "git ''status x",
        ],
    );
}

#[test]
fn redirections_are_accesses() {
    let rules = rules(json!({
        "bash": { "ok *": "allow" },
        "write": { "*": "ask", "out/**": "allow", "no": "deny" },
        "read": { "*": "allow", ".env": "deny" },
    }));
    assert_allowed(
        &rules,
        &[
            "ok > out/a",
            "ok >> out/a",
            "ok >| out/a",
            "ok &> out/a",
            "ok &>> out/a",
            "ok 2> out/a",
            "ok < in",
            "ok <> out/a",
            "ok >& out/a",
            "ok > 'out/a'",
            "ok 2>/dev/null",
        ],
    );
    assert_asked(
        &rules,
        &[
            "ok > a",
            "ok >> a",
            "ok >| a",
            "ok &> a",
            "ok &>> a",
            "ok 2> a",
            "ok <> a",
            "ok >& a",
            "ok < /etc/passwd",
            "ok > out/../a",
            "ok > ../out/a",
            "ok > ~/out/a",
            "ok > $X",
            "ok > out/$X",
            "ok > out/*",
            "> a",
            "ok > /dev/sda",
            "ok < /dev/tcp/host/80",
            "ok > out/a > a",
            "{ ok; } > a",
            "(ok) > a",
            "if ok; then ok; fi > a",
            "ok | ok > a",
            "for i in a; do ok; done > a",
            "f() { ok; } > a",
            "> out/a",
        ],
    );
    assert_denied(
        &rules,
        &[
            "ok > no",
            "ok < .env",
            "ok > ./no",
            "ok > out/../no",
            "ok && ok >> 'no'",
        ],
    );
}

#[test]
fn a_relative_redirection_after_a_change_of_directory_is_unknown() {
    let rules = rules(
        json!({ "bash": { "ok *": "allow", "cd *": "allow" }, "write": { "*": "ask", "out/**": "allow" } }),
    );
    assert_allowed(
        &rules,
        &[
            "cd /tmp && ok",
            "ok > out/a",
            "cd x && ok > /srv/project/out/a",
        ],
    );
    assert_asked(&rules, &["cd /tmp && ok > out/a", "(cd /tmp; ok > out/a)"]);
}

#[test]
fn assignments_that_change_behaviour_are_asked_for() {
    let rules = allowing(&["git log *", "make", "CC=clang make"]);
    assert_allowed(&rules, &["NO_COLOR=1 git log", "CC=clang make", "make"]);
    assert_asked(
        &rules,
        &[
            "PATH=. git log",
            "LD_PRELOAD=./x.so git log",
            "GIT_PAGER=./x git log",
            "GIT_SSH_COMMAND=x git log",
            "BASH_ENV=x git log",
            "IFS=x git log",
            "PAGER=x git log",
            "HOME=. git log",
            "CC=./x make",
            "X=1 git log",
            "PATH=.; git log",
            "export PATH=.",
            "PATH+=:. git log",
            "for PATH in .; do git log; done",
            "CC=clang make install",
            "NO_COLOR=1 CC=clang make",
        ],
    );
}

#[test]
fn a_command_that_starts_outside_needs_the_outside_permission() {
    let rules = allowing(&["git status"]);
    let run = |cwd: &str| {
        let access = Access::Command {
            command: "git status".into(),
            cwd: cwd.into(),
            background: false,
        };
        evaluate(&rules, "bash", &[access], Path::new(WORKSPACE))
    };
    assert_eq!(run("/srv/project/sub"), Verdict::Allow);
    asked(run("/srv/elsewhere"));
}

#[test]
fn functions_do_not_make_a_name_allowed() {
    let rules = allowing(&["ok *"]);
    assert_allowed(&rules, &["f() { ok; }; ok"]);
    assert_asked(&rules, &["f() { ok; }; f", "ok() { rm; }; ok"]);
}
