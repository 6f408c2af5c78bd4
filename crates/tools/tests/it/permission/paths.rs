//! Path patterns.

use serde_json::json;
use tenure_tools::permission::{Place, Verdict, evaluate_at, hides};

use super::*;

fn mode(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask { .. } => "ask",
        Verdict::Deny { .. } => "deny",
    }
}

#[track_caller]
fn assert_reads(config: serde_json::Value, expected: &[(&str, &str)]) {
    let rules = rules(json!({ "read": config }));
    for (path, wanted) in expected {
        let verdict = read(
            &rules,
            path,
            &Path::new(WORKSPACE).join(path).to_string_lossy(),
        );
        assert_eq!(mode(&verdict), *wanted, "{path}: {verdict:?}");
    }
}

#[test]
fn names_match_at_any_depth_and_paths_from_the_top() {
    assert_reads(
        json!({ "*": "ask", "Cargo.toml": "allow", "./README.md": "allow", "docs/*.md": "allow", "src/**": "allow" }),
        &[
            ("Cargo.toml", "allow"),
            ("a/b/Cargo.toml", "allow"),
            ("README.md", "allow"),
            ("a/README.md", "ask"),
            ("docs/a.md", "allow"),
            ("docs/a/b.md", "ask"),
            ("a/docs/a.md", "ask"),
            ("src/a", "allow"),
            ("src/a/b", "allow"),
            ("src2/a", "ask"),
        ],
    );
}

#[test]
fn a_narrower_pattern_wins_and_a_tie_is_strict() {
    assert_reads(
        json!({
            "*": "allow", "**/.env*": "deny", "src/**": "allow", "src/gen/**": "ask", "src/gen/keep/**": "allow",
            "conf/.env.example": "allow", "src/**/*.key": "deny",
        }),
        &[
            ("a", "allow"),
            (".env", "deny"),
            ("a/.env.local", "deny"),
            ("src/.env", "deny"),
            ("src/gen/a", "ask"),
            ("src/gen/keep/a", "allow"),
            ("conf/.env.example", "allow"),
            ("src/gen/keep/a.key", "deny"),
            ("src/a.key", "deny"),
        ],
    );
}

#[test]
fn a_denied_path_stays_denied_through_a_link() {
    let rules = rules(json!({ "read": { "*": "allow", "private/**": "deny" } }));
    assert_eq!(
        mode(&read(&rules, "private/a", "/srv/project/public/a")),
        "deny"
    );
    assert_eq!(
        mode(&read(&rules, "public/a", "/srv/project/private/a")),
        "deny"
    );
    assert_eq!(
        mode(&read(
            &rules,
            "/srv/project/private/a",
            "/srv/project/public/a"
        )),
        "deny"
    );
}

#[test]
fn outside_needs_an_absolute_pattern() {
    let rules = rules(json!({
        "outside": "deny",
        "read": { "*": "allow", "**": "allow", "/usr/include/**": "allow", "~/notes/**": "allow", "/usr/include/secret": "ask" },
    }));
    let home = Path::new("/home/user");
    let place = Place::new(Path::new(WORKSPACE)).with_home(home);
    for (path, wanted) in [
        ("/etc/passwd", "deny"),
        ("/usr/include/a.h", "allow"),
        ("/usr/include/secret", "ask"),
        ("/usr/include2/x", "deny"),
        ("/home/user/notes/a", "allow"),
        ("/home/user/other", "deny"),
        ("/srv/project/a", "allow"),
    ] {
        let access = Access::Read {
            given: path.to_owned(),
            real: path.into(),
        };
        assert_eq!(
            mode(&evaluate_at(&rules, "read", &[access], &place)),
            wanted,
            "{path}"
        );
    }
}

#[test]
fn a_denied_tool_is_denied_outside_too() {
    let rules = rules(json!({ "outside": "allow", "read": "deny" }));
    assert_eq!(mode(&read(&rules, "/etc/x", "/etc/x")), "deny");
}

#[test]
fn extra_roots_count_as_inside() {
    let roots = [PathBuf::from("/srv/other")];
    let place = Place::new(Path::new(WORKSPACE)).with_extra_roots(&roots);
    let access = Access::Read {
        given: "/srv/other/a".into(),
        real: "/srv/other/a".into(),
    };
    assert_eq!(
        evaluate_at(&Rules::default(), "read", &[access], &place),
        Verdict::Allow
    );
}

#[test]
fn repository_internals_need_a_rule_that_names_them() {
    let all = rules(json!({ "write": "allow" }));
    assert_eq!(mode(&write(&all, "a", "/srv/project/a")), "allow");
    for path in [
        "/srv/project/.git/config",
        "/srv/project/sub/.git/hooks/pre-commit",
    ] {
        assert_eq!(mode(&write(&all, path, path)), "ask");
        assert_eq!(mode(&read(&all, path, path)), "allow");
    }
    let named = rules(json!({ "write": { "*": "allow", ".git/description": "allow" } }));
    assert_eq!(
        mode(&write(&named, "x", "/srv/project/.git/description")),
        "allow"
    );
}

#[test]
fn read_rules_hide_files_from_searches() {
    let rules = rules(json!({ "read": { "*": "allow", "**/.env*": "deny" } }));
    let place = Place::new(Path::new(WORKSPACE));
    assert!(hides(
        &rules,
        "grep",
        Path::new("/srv/project/a/.env"),
        &place
    ));
    assert!(!hides(
        &rules,
        "grep",
        Path::new("/srv/project/a/b"),
        &place
    ));
    let access = Access::Search {
        given: ".env".into(),
        real: "/srv/project/.env".into(),
    };
    assert_eq!(
        mode(&evaluate_at(&rules, "grep", &[access], &place)),
        "deny"
    );
}

#[test]
fn several_paths_get_the_strictest_answer() {
    let rules = rules(json!({ "write": { "*": "allow", "b": "ask", "c": "deny" } }));
    let access = |name: &str| Access::Write {
        given: name.into(),
        real: Path::new(WORKSPACE).join(name),
    };
    let judge = |names: &[&str]| {
        let accesses: Vec<_> = names.iter().map(|name| access(name)).collect();
        mode(&evaluate(&rules, "write", &accesses, Path::new(WORKSPACE)))
    };
    assert_eq!(judge(&["a"]), "allow");
    assert_eq!(judge(&["a", "b"]), "ask");
    assert_eq!(judge(&["c", "b", "a"]), "deny");
}

#[test]
fn other_tools_match_text() {
    let rules = rules(
        json!({ "fetch": { "*": "ask", "https://docs.rs/*": "allow", "https://docs.rs/x": "deny" } }),
    );
    let judge = |text: &str| {
        let access = Access::Other {
            tool: "fetch".into(),
            pattern: text.into(),
        };
        mode(&evaluate(&rules, "fetch", &[access], Path::new(WORKSPACE)))
    };
    assert_eq!(judge("https://docs.rs/serde"), "allow");
    assert_eq!(judge("https://docs.rs/x"), "deny");
    assert_eq!(judge("https://example.org"), "ask");
}
