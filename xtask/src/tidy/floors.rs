//! Floors: imports go strictly down, the lowest floor depends on next to nothing, outside crates stay in their room.

use cargo_metadata::{DependencyKind, Metadata};

use super::Finding;

/// The floor of each crate. What is not named here may not be in the workspace.
const FLOORS: &[(&str, u8)] = &[
    ("tenure-core", 0),
    ("tenure-store", 1),
    ("tenure-provider", 1),
    ("tenure-scripted", 1),
    ("tenure-tools", 1),
    ("tenure-engine", 2),
    ("tenure-server", 3),
    ("tenure", 4),
];
/// Crates beside the floors: they may use any floor, and nobody may use them.
const BESIDE: &[&str] = &["tenure-sim", "xtask"];
/// Crates that tests of any floor may use. They hold nothing a product needs, and know nothing of Tenure.
const FOR_TESTS: &[&str] = &["tenure-testbed"];
/// Sideways edges that tests may have, with the reason.
const TEST_SIDEWAYS: &[(&str, &str, &str)] = &[(
    "tenure-provider",
    "tenure-scripted",
    "encoders are tested against the independent validators",
)];
/// All that the lowest floor may depend on: nothing that opens a socket, a file or a thread.
const CORE_MAY_USE: &[&str] = &["serde", "serde_json", "thiserror", "sha2", "uuid"];
/// Outside crates that belong to one floor's subject, and who may use them outside tests.
const ROOMS: &[(&str, &[&str])] = &[
    ("rusqlite", &["tenure-store"]),
    ("reqwest", &["tenure-provider", "tenure-server"]),
    ("axum", &["tenure-scripted", "tenure-server"]),
    ("clap", &["tenure"]),
    ("indicatif", &["tenure"]),
    ("anyhow", &[]),
];

/// A crate of the workspace and what it depends on.
#[derive(Debug)]
pub struct Crate {
    /// The package's name.
    pub name: String,
    /// Its direct dependencies, those of the workspace and others.
    pub uses: Vec<Use>,
}

/// One direct dependency.
#[derive(Debug)]
pub struct Use {
    /// The package's name.
    pub name: String,
    /// Whether only tests, examples and benchmarks use it.
    pub in_tests: bool,
}

/// The workspace's crates, as cargo tells them.
pub fn crates(metadata: &Metadata) -> Vec<Crate> {
    let uses = |package: &cargo_metadata::Package| {
        let one = |dependency: &cargo_metadata::Dependency| Use {
            name: dependency.name.clone(),
            in_tests: dependency.kind == DependencyKind::Development,
        };
        package.dependencies.iter().map(one).collect()
    };
    let packages = metadata.workspace_packages();
    packages
        .iter()
        .map(|package| Crate {
            name: package.name.to_string(),
            uses: uses(package),
        })
        .collect()
}

/// Checks all edges.
pub fn check(crates: &[Crate], findings: &mut Vec<Finding>) {
    for one in crates {
        if floor(&one.name).is_none() && !is_beside(&one.name) && !is_for_tests(&one.name) {
            report(
                findings,
                &one.name,
                "has no floor: add it to the table in xtask/src/tidy/floors.rs".into(),
            );
            continue;
        }
        for used in &one.uses {
            check_use(&one.name, used, findings);
        }
    }
}

fn check_use(user: &str, used: &Use, findings: &mut Vec<Finding>) {
    let name = used.name.as_str();
    // Its own tests may use a crate with its testing feature on.
    if user == name && used.in_tests {
        return;
    }
    if is_beside(name) {
        report(
            findings,
            user,
            format!("uses {name}, which stands beside the floors: nobody may use it"),
        );
    } else if is_for_tests(name) {
        if !used.in_tests && !is_beside(user) {
            report(
                findings,
                user,
                format!("uses {name} outside tests: it is there for tests only"),
            );
        }
    } else if is_for_tests(user) && floor(name).is_some() {
        report(
            findings,
            user,
            format!("uses {name}: what tests of every floor use stands on none of them"),
        );
    } else if let Some(to) = floor(name) {
        let Some(from) = floor(user) else { return };
        if user == "tenure-scripted" && name != "tenure-core" {
            report(
                findings,
                user,
                format!("uses {name}: of Tenure it may use nothing but tenure-core"),
            );
        } else if to >= from && !(used.in_tests && may_test_sideways(user, name)) {
            let way = if to > from { "up" } else { "sideways" };
            report(
                findings,
                user,
                format!("uses {name}: an import goes down a floor, never {way} ({from} to {to})"),
            );
        }
    } else if user == "tenure-core" && !used.in_tests && !CORE_MAY_USE.contains(&name) {
        report(
            findings,
            user,
            format!(
                "uses {name}: floor 0 may use {} only",
                CORE_MAY_USE.join(", ")
            ),
        );
    } else if let Some((_, rooms)) = ROOMS.iter().find(|(outside, _)| *outside == name)
        && !used.in_tests
        && !is_beside(user)
        && !rooms.contains(&user)
    {
        let rooms = if rooms.is_empty() {
            "crates beside the floors".into()
        } else {
            rooms.join(", ")
        };
        report(
            findings,
            user,
            format!("uses {name}, which belongs to {rooms}"),
        );
    }
}

fn may_test_sideways(user: &str, used: &str) -> bool {
    TEST_SIDEWAYS
        .iter()
        .any(|(from, to, _)| *from == user && *to == used)
}

fn floor(name: &str) -> Option<u8> {
    FLOORS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, floor)| *floor)
}

fn is_beside(name: &str) -> bool {
    BESIDE.contains(&name)
}

fn is_for_tests(name: &str) -> bool {
    FOR_TESTS.contains(&name)
}

fn report(findings: &mut Vec<Finding>, name: &str, message: String) {
    findings.push(Finding::in_file(name, message));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(user: &str, name: &str, in_tests: bool) -> Option<String> {
        let uses = vec![Use {
            name: name.into(),
            in_tests,
        }];
        let mut findings = Vec::new();
        check(
            &[Crate {
                name: user.into(),
                uses,
            }],
            &mut findings,
        );
        assert!(findings.len() <= 1, "{findings:?}");
        findings.pop().map(|finding| finding.to_string())
    }

    #[test]
    fn imports_go_down_only() {
        assert_eq!(broken("tenure-engine", "tenure-store", false), None);
        assert_eq!(broken("tenure", "tenure-core", false), None);
        let up = broken("tenure-store", "tenure-engine", false).expect("an edge up");
        assert!(up.contains("never up (1 to 2)"), "{up}");
        let sideways = broken("tenure-store", "tenure-tools", false).expect("an edge sideways");
        assert!(sideways.contains("never sideways (1 to 1)"), "{sideways}");
        assert!(
            broken("tenure-core", "tenure-store", true).is_some(),
            "not even in tests"
        );
    }

    #[test]
    fn tests_go_sideways_by_the_list_only() {
        assert_eq!(broken("tenure-provider", "tenure-scripted", true), None);
        assert!(broken("tenure-provider", "tenure-scripted", false).is_some());
        assert!(broken("tenure-tools", "tenure-scripted", true).is_some());
        assert_eq!(
            broken("tenure-store", "tenure-store", true),
            None,
            "itself, with its testing feature"
        );
    }

    #[test]
    fn the_scripted_model_shares_nothing_but_the_core() {
        assert_eq!(broken("tenure-scripted", "tenure-core", false), None);
        for name in ["tenure-provider", "tenure-engine", "tenure-store"] {
            assert!(broken("tenure-scripted", name, true).is_some(), "{name}");
        }
    }

    #[test]
    fn nobody_uses_what_stands_beside() {
        assert_eq!(broken("tenure-sim", "tenure-engine", false), None);
        assert!(broken("tenure-engine", "tenure-sim", true).is_some());
        assert!(broken("tenure-sim", "xtask", false).is_some());
    }

    #[test]
    fn tests_of_every_floor_may_use_the_testbed_and_it_uses_none_of_them() {
        for user in ["tenure-core", "tenure-store", "tenure-server", "tenure"] {
            assert_eq!(broken(user, "tenure-testbed", true), None, "{user}");
            assert!(
                broken(user, "tenure-testbed", false)
                    .is_some_and(|text| text.contains("outside tests")),
                "{user}"
            );
        }
        assert_eq!(broken("tenure-sim", "tenure-testbed", false), None);
        assert!(broken("tenure-testbed", "tenure-core", true).is_some());
        assert_eq!(broken("tenure-testbed", "tokio", false), None);
    }

    #[test]
    fn the_core_uses_the_listed_crates_only() {
        assert_eq!(broken("tenure-core", "serde", false), None);
        assert_eq!(broken("tenure-core", "proptest", true), None);
        assert!(broken("tenure-core", "tokio", false).is_some());
    }

    #[test]
    fn outside_crates_stay_in_their_room() {
        assert_eq!(broken("tenure-store", "rusqlite", false), None);
        assert_eq!(broken("tenure-sim", "anyhow", false), None);
        assert_eq!(broken("tenure-provider", "axum", true), None);
        assert!(broken("tenure-engine", "rusqlite", false).is_some());
        assert!(broken("tenure-engine", "axum", false).is_some());
        assert!(broken("tenure", "anyhow", false).is_some());
    }

    #[test]
    fn an_unknown_crate_needs_a_floor() {
        assert!(
            broken("tenure-attic", "serde", false)
                .is_some_and(|text| text.contains("has no floor"))
        );
    }

    #[test]
    fn every_member_of_this_workspace_is_read() {
        let metadata = cargo_metadata::MetadataCommand::new()
            .current_dir(crate::command::root())
            .no_deps()
            .exec()
            .expect("cargo metadata");
        let crates = crates(&metadata);
        let core = crates
            .iter()
            .find(|one| one.name == "tenure-core")
            .expect("the core");
        assert!(
            core.uses
                .iter()
                .any(|used| used.name == "serde" && !used.in_tests)
        );
        assert!(
            core.uses
                .iter()
                .any(|used| used.name == "proptest" && used.in_tests)
        );
    }
}
