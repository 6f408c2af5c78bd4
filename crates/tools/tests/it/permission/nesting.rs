//! Depth and size: refused before anything recurses, in bounded time.

use std::time::{Duration, Instant};

use super::*;

fn nested(open: &str, inner: &str, close: &str, depth: usize) -> String {
    format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
}

const SHAPES: &[(&str, &str, &str)] = &[
    ("$(", "ok", ")"),
    ("ok $(", "ok", ")"),
    ("ok \"$(", "ok", ")\""),
    ("(", "ok", ")"),
    ("( ", "ok", " )"),
    ("{ ", "ok", "; }"),
    ("if ", "ok", "; then ok; fi"),
    ("while ", "ok", "; do ok; done"),
    ("for i in a; do ", "ok", "; done"),
    ("case a in a) ", "ok", ";; esac"),
    ("f() { ", "ok", "; }"),
    ("function f { ", "ok", "; }"),
    ("ok ${X:-", "a", "}"),
    ("ok <(", "ok", ")"),
    ("ok $((", "1", "))"),
    ("ok $((1+(", "1", ")))"),
    ("coproc ", "ok", ""),
    ("! ", "ok", ""),
    ("ok `", "ok", "`"),
    ("[[ ( ", "a", " ) ]]"),
    ("[[ ! ", "a", " ]]"),
    ("a=(", "b", ")"),
    ("a[", "1", "]=1"),
    ("ok <<E\n", "x", "\nE"),
    ("((", "1", "))"),
    ("x=\"$(", "ok", ")\""),
];

#[test]
fn every_shape_of_nesting_ends_quickly() {
    let rules = allowing(&["ok *"]);
    let began = Instant::now();
    for (open, inner, close) in SHAPES {
        for depth in [1, 2, 8, 16, 23, 24, 25, 64, 1000] {
            for text in [
                nested(open, inner, close, depth),
                open.repeat(depth),
                format!("{}{inner}", open.repeat(depth)),
                nested(open, inner, close, depth) + ")",
            ] {
                let one = Instant::now();
                let _ = shell(&rules, &text);
                assert!(
                    one.elapsed() < Duration::from_secs(5),
                    "{open} × {depth} took {:?}",
                    one.elapsed()
                );
            }
        }
        // Backquotes do not nest: these are many substitutions, one after the other.
        if *open == "ok `" {
            continue;
        }
        assert!(
            matches!(
                shell(&rules, &nested(open, inner, close, 1000)),
                Verdict::Ask { .. }
            ),
            "{open}"
        );
    }
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn moderate_nesting_is_still_judged() {
    let rules = allowing(&["ok *"]);
    for (open, inner, close) in [
        ("ok $(", "ok", ")"),
        ("(ok; ", "ok", ")"),
        ("if ", "ok", "; then ok; fi"),
        ("ok \"$(", "ok", ")\""),
    ] {
        assert_allowed(&rules, &[&nested(open, inner, close, 6)]);
        assert_asked(&rules, &[&nested(open, "rm", close, 6)]);
    }
}

#[test]
fn long_texts_are_asked_for() {
    let rules = allowing(&["ok *"]);
    assert_allowed(
        &rules,
        &[&format!("ok {}", "a ".repeat(10_000)), &"ok;".repeat(2_000)],
    );
    assert_asked(&rules, &[&format!("ok {}", "a".repeat(65_536))]);
}
