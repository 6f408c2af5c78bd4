//! The real path decides, and what is opened is what was checked.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tenure_tools::path::{PathError, resolve};
use tenure_tools::permission::Access;
use tenure_tools::{ToolError, ToolSet};

use crate::support::{Place, run};

/// A workspace with a link out of it.
fn linked() -> Place {
    let place = Place::new();
    std::fs::write(place.outside().join("secret.txt"), "secret\n").unwrap();
    std::fs::create_dir(place.outside().join("sub")).unwrap();
    std::fs::write(place.workspace().join("secret.txt"), "decoy\n").unwrap();
    symlink(place.outside(), place.path("link")).unwrap();
    symlink(place.outside().join("sub"), place.path("sub")).unwrap();
    place
}

fn calls(path: &str) -> Vec<(&'static str, Value)> {
    let dir = path.rsplit_once('/').map_or(".", |(dir, _)| dir);
    vec![
        ("read", json!({ "path": path })),
        ("write", json!({"path": path, "content": "changed"})),
        (
            "edit",
            json!({"path": path, "old_string": "secret", "new_string": "changed"}),
        ),
        ("glob", json!({"pattern": "*", "path": dir})),
        ("grep", json!({"pattern": "secret", "path": dir})),
        ("bash", json!({"command": "cat secret.txt", "workdir": dir})),
    ]
}

#[tokio::test]
async fn bc_s_107_through_a_link_is_outside() {
    let place = linked();
    // The second goes up from where the link leads, not from where it stands.
    for path in [
        "link/secret.txt",
        "sub/../secret.txt",
        "./link/../outside/secret.txt",
        "../outside/secret.txt",
    ] {
        for (tool, input) in calls(path) {
            let result = place.run(tool, input).await;
            assert!(
                matches!(result, Err(ToolError::Refused { .. })),
                "{tool} {path}: {result:?}"
            );
        }
    }
    assert_eq!(
        std::fs::read_to_string(place.outside().join("secret.txt")).unwrap(),
        "secret\n"
    );
    assert_eq!(place.text("secret.txt"), "decoy\n");
}

#[tokio::test]
async fn bc_s_107_searches_do_not_follow_links_on_their_way() {
    let place = linked();
    let found = place
        .run("grep", json!({"pattern": "secret"}))
        .await
        .unwrap();
    assert_eq!(found.text, "No line matches.");
    let names = place
        .run("glob", json!({"pattern": "**/secret.txt"}))
        .await
        .unwrap();
    assert_eq!(names.text, "secret.txt");
}

#[tokio::test]
async fn bc_s_107_what_was_granted_is_what_is_opened() {
    let place = Place::new();
    std::fs::write(place.outside().join("f"), "outside secret\n").unwrap();
    place.put("d/f", "inside secret\n");
    let tools = ToolSet::builtin();
    for (tool, input) in [
        ("read", json!({"path": "d/f"})),
        ("write", json!({"path": "d/f", "content": "changed"})),
        (
            "edit",
            json!({"path": "d/f", "old_string": "secret", "new_string": "changed"}),
        ),
        ("glob", json!({"pattern": "*", "path": "d"})),
        ("grep", json!({"pattern": "secret", "path": "d"})),
        ("bash", json!({"command": "cat f", "workdir": "d"})),
    ] {
        let mut cx = place.cx();
        cx.granted = Some(Arc::from(tools.access(tool, &cx, &input).unwrap()));
        // Between check and use the directory becomes a link out.
        std::fs::rename(place.path("d"), place.path("away")).unwrap();
        symlink(place.outside(), place.path("d")).unwrap();
        let result = run(&cx, tool, input.clone()).await;
        assert!(
            matches!(&result, Err(ToolError::Refused { .. })),
            "{tool}: {result:?}"
        );
        std::fs::remove_file(place.path("d")).unwrap();
        std::fs::rename(place.path("away"), place.path("d")).unwrap();
        assert_eq!(
            std::fs::read_to_string(place.outside().join("f")).unwrap(),
            "outside secret\n"
        );
        let ok = run(&cx, tool, input).await;
        assert!(ok.is_ok(), "{tool}: {ok:?}");
        place.put("d/f", "inside secret\n");
    }
}

#[tokio::test]
async fn bc_s_107_a_swap_at_any_moment_never_reaches_the_outside() {
    let place = Place::new();
    std::fs::write(place.outside().join("f"), "outside\n").unwrap();
    place.put("d/f", "inside\n");
    symlink(place.outside(), place.path("l")).unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let swapper = std::thread::spawn({
        let (stop, d, l) = (Arc::clone(&stop), place.path("d"), place.path("l"));
        move || {
            use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                renameat2(AT_FDCWD, &d, AT_FDCWD, &l, RenameFlags::RENAME_EXCHANGE).unwrap();
            }
        }
    });
    let cx = place.cx();
    for n in 0..300 {
        if let Ok(out) = run(&cx, "read", json!({"path": "d/f"})).await {
            assert!(!out.text.contains("outside"), "{}", out.text);
        }
        let _ = run(
            &cx,
            "write",
            json!({"path": "d/f", "content": format!("inside {n}\n")}),
        )
        .await;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    swapper.join().unwrap();
    assert_eq!(
        std::fs::read_to_string(place.outside().join("f")).unwrap(),
        "outside\n"
    );
    assert_eq!(std::fs::read_dir(place.outside()).unwrap().count(), 1);
}

#[test]
fn bc_s_108_both_paths_are_given() {
    let place = Place::new();
    let private = place.outside().join("private");
    std::fs::create_dir(&private).unwrap();
    symlink(&private, place.path("docs")).unwrap();
    let input = json!({"path": "docs/a", "content": "x"});
    let access = ToolSet::builtin()
        .access("write", &place.cx(), &input)
        .unwrap();
    assert_eq!(
        access,
        [Access::Write {
            given: "docs/a".into(),
            real: private.join("a")
        }]
    );
}

#[tokio::test]
async fn bc_s_108_the_refusal_shows_both() {
    let place = linked();
    let error = place
        .run("read", json!({"path": "link/secret.txt"}))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`link/secret.txt`") && error.contains("outside/secret.txt`"),
        "{error}"
    );
}

#[test]
fn bc_s_128_two_spellings_of_one_place_are_one() {
    let place = Place::new();
    place.put("a b/c/f", "");
    symlink("a b", place.path("l")).unwrap();
    let base = place.workspace();
    let real = place.path("a b/c");
    for given in [
        "a b/c",
        "a b/c/",
        "./a b//c",
        "a b/./c/../c",
        "l/c",
        "l/c/.",
    ] {
        assert_eq!(resolve(&base, given).unwrap().real, real, "{given}");
    }
    assert_eq!(resolve(&base, "/").unwrap().real, Path::new("/"));
    assert_eq!(
        resolve(&base, "../../../../../../../../../..")
            .unwrap()
            .real,
        Path::new("/")
    );
    assert_eq!(resolve(&base, ".").unwrap().real, base);
}

#[test]
fn missing_tails_circles_and_dangling_links() {
    let place = Place::new();
    let base = place.workspace();
    let new = resolve(&base, "new/dir/file").unwrap();
    assert_eq!((new.real, new.exists), (base.join("new/dir/file"), false));
    assert!(matches!(
        resolve(&base, "new/../x"),
        Err(PathError::UpFromNothing(_))
    ));
    symlink("b", place.path("a")).unwrap();
    symlink("a", place.path("b")).unwrap();
    assert!(matches!(
        resolve(&base, "a/x"),
        Err(PathError::TooManyLinks(_))
    ));
    symlink(place.outside().join("not yet"), place.path("dangling")).unwrap();
    let dangling = resolve(&base, "dangling").unwrap();
    assert_eq!(
        (dangling.real, dangling.exists),
        (place.outside().join("not yet"), false)
    );
    assert!(matches!(resolve(&base, ""), Err(PathError::Unusable(_))));
    assert!(matches!(
        resolve(&base, "a\0b"),
        Err(PathError::Unusable(_))
    ));
}

#[tokio::test]
async fn extra_roots_count_as_inside() {
    let place = linked();
    let mut cx = place.cx();
    cx.extra_roots.push(place.outside());
    let out = run(&cx, "read", json!({"path": "link/secret.txt"}))
        .await
        .unwrap();
    assert_eq!(out.text, "     1\tsecret\n");
}
