//! Commands that look, or act on a session that is there, make no store and bring none up to date.

use crate::nodes::Cluster;
use crate::support::*;

const SESSION: &str = "ses_00000000000000000000000001";

/// Each of them, with arguments that are right but for the store.
fn commands() -> Vec<Vec<&'static str>> {
    [
        "sessions",
        "sessions --json",
        "nodes",
        "claims",
        "gc",
        "drain a",
        "show S",
        "log S",
        "export S",
        "limits S",
        "interrupt S",
        "answer S",
        "cancel S msg_1",
        "fork S",
        "delete S",
        "release S",
        "resume S",
        "resume --all",
        "run x --session S",
    ]
    .iter()
    .map(|text| {
        let words = text.split(' ');
        words
            .map(|word| if word == "S" { SESSION } else { word })
            .collect()
    })
    .collect()
}

#[test]
fn no_command_that_looks_makes_a_file() {
    let place = Place::new(HELLO);
    let path = place.path("nowhere/x.db");
    let url = format!("sqlite:{}", path.display());
    for command in commands() {
        let args = [&["--store", &url], command.as_slice()].concat();
        let out = place.run(&args).exits(2);
        assert!(
            out.stderr.contains("there is no store at") && out.stderr.contains("tenure run"),
            "{command:?}: {}",
            out.stderr
        );
        assert!(out.stdout.is_empty(), "{command:?}: {}", out.stdout);
    }
    let out = place.run(&["--store", &url, "doctor"]).exits(0);
    assert!(
        out.stdout.contains("will be made when it is needed"),
        "{}",
        out.stdout
    );
    assert!(!path.parent().unwrap().exists());
    // Where nobody named a place, there is nothing to mistype.
    let out = place.run(&["sessions"]).exits(0);
    assert!(
        out.stdout.starts_with("no sessions: no store at "),
        "{}",
        out.stdout
    );
    assert!(!place.store().exists());
}

#[test]
fn no_command_that_looks_makes_a_schema() {
    let Some(cluster) = Cluster::new() else {
        return;
    };
    let schemas = || cluster.database.schemas().unwrap();
    for command in commands() {
        let out = cluster.run(&command).exits(2);
        assert!(
            out.stderr.contains("there is no store at") && out.stderr.contains("schema `tenure`"),
            "{command:?}: {}",
            out.stderr
        );
        assert!(out.stdout.is_empty(), "{command:?}: {}", out.stdout);
    }
    let out = cluster.run(&["doctor", "--offline"]).exits(0);
    assert!(
        out.stdout.contains("will be made when it is needed"),
        "{}",
        out.stdout
    );
    assert_eq!(schemas(), None);
    cluster.run(&["run", "x"]).exits(0);
    assert_eq!(schemas().as_deref(), Some("tenure"));
    let url = format!("{}?schema=tenuer", cluster.database.url());
    let mut command = cluster.place.command(&["sessions"]);
    let out = finish(command.env("TENURE_STORE", url).spawn().unwrap()).exits(2);
    assert!(out.stderr.contains("`?schema=tenure`"), "{}", out.stderr);
    assert_eq!(schemas().as_deref(), Some("tenure"));
}

#[test]
fn an_older_store_is_told_and_left_as_it_is() {
    let Some(cluster) = Cluster::new() else {
        return;
    };
    cluster.run(&["run", "x"]).exits(0);
    // There is only one version so far: what came before it is a table of versions that holds none.
    cluster
        .database
        .execute("TRUNCATE tenure.migration")
        .unwrap();
    let out = cluster.run(&["sessions"]).exits(2);
    let next = "Start a node or a run with this tenure";
    assert!(
        out.stderr.contains("older than this tenure's") && out.stderr.contains(next),
        "{}",
        out.stderr
    );
    let out = cluster.run(&["doctor", "--offline"]);
    assert!(out.stdout.contains(next), "{}", out.stdout);
    let versions = cluster.database.value("TABLE tenure.migration").unwrap();
    assert_eq!(versions, None, "nothing was changed");
}

#[test]
fn a_role_that_may_only_read_looks_at_everything() {
    let Some(cluster) = Cluster::new() else {
        return;
    };
    cluster.run(&["run", "x"]).exits(0);
    let session = cluster.lines(&["sessions", "--json"])[0]["id"].clone();
    let session = session.as_str().unwrap();
    let (name, database) = (format!("reader_{}", std::process::id()), &cluster.database);
    let reads = format!(
        "CREATE ROLE {name} LOGIN PASSWORD 'pw'; GRANT USAGE ON SCHEMA tenure TO {name}; \
         GRANT SELECT ON ALL TABLES IN SCHEMA tenure TO {name}"
    );
    database.execute(&reads).unwrap();
    let secret = format!("REVOKE ALL ON tenure.cluster FROM {name}");
    database.execute(&secret).unwrap();
    let (_, host) = database.url().rsplit_once('@').unwrap();
    let url = format!("postgres://{name}:pw@{host}");
    let looks: [&[&str]; 8] = [
        &["sessions"],
        &["show", session],
        &["log", session],
        &["log", session, "--follow", "--until-idle"],
        &["claims"],
        &["nodes"],
        &["limits", session],
        &["export", session],
    ];
    for args in looks {
        let mut command = cluster.place.command(args);
        let out = finish(command.env("TENURE_STORE", &url).spawn().unwrap()).exits(0);
        assert!(!out.stderr.contains("error"), "{args:?}: {}", out.stderr);
    }
    let mut command = cluster.place.command(&["fork", session]);
    let out = finish(command.env("TENURE_STORE", &url).spawn().unwrap()).exits(1);
    assert!(out.stderr.contains("permission denied"), "{}", out.stderr);
    let gone = format!("DROP OWNED BY {name} CASCADE; DROP ROLE {name}");
    database.execute(&gone).unwrap();
}
