//! Bounded output: cuts between characters, true sizes, the whole in a private file.

use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;
use tenure_tools::output::{Collector, bound, clean, cut, cut_tail, decode};
use tenure_tools::{OutputLimits, ToolOutput};
use unicode_segmentation::UnicodeSegmentation;

use crate::support::Place;

const MIXED: &str = "日本語 👩‍👩‍👧‍👦 e\u{301} 🇩🇪🇫🇷 텍스트 👍🏽 z";

#[test]
fn bc_s_090_every_cut_from_1_to_64_is_between_two_characters() {
    let starts: Vec<usize> = MIXED
        .grapheme_indices(true)
        .map(|(at, _)| at)
        .chain([MIXED.len()])
        .collect();
    for max in 0..=64 {
        let (head, tail) = (cut(MIXED, max), cut_tail(MIXED, max));
        assert!(head.len() <= max && tail.len() <= max);
        assert!(starts.contains(&head.len()), "{max}: {head:?}");
        assert!(
            starts.contains(&(MIXED.len() - tail.len())),
            "{max}: {tail:?}"
        );
        // As much as fits.
        assert!(
            !starts.iter().any(|s| *s > head.len() && *s <= max),
            "{max}: {head:?}"
        );
    }
}

#[test]
fn bc_s_090_a_collector_with_any_limit_gives_true_sizes() {
    let place = Place::new();
    for shown in 1..=64 {
        let limits = OutputLimits {
            shown_bytes: shown,
            ..OutputLimits::default()
        };
        let mut collector = Collector::new(limits, &place.outputs(), "call");
        for byte in MIXED.as_bytes() {
            collector.push(std::slice::from_ref(byte));
        }
        let collected = collector.finish();
        assert!(
            !collected.text.contains('\u{fffd}'),
            "{shown}: {}",
            collected.text
        );
        let cut = collected.truncation.unwrap();
        assert_eq!(cut.total_bytes, MIXED.len() as u64);
        assert!(cut.shown_bytes <= shown as u64);
        assert!(
            collected
                .text
                .contains(&format!("{} of {} bytes", cut.shown_bytes, MIXED.len()))
        );
        assert_eq!(
            std::fs::read_to_string(cut.full_path.unwrap()).unwrap(),
            MIXED
        );
    }
}

#[test]
fn bc_s_090_an_endless_joined_character_is_cut_all_the_same() {
    let zalgo = format!("a{}", "\u{301}".repeat(10_000));
    let head = cut(&zalgo, 1001);
    assert!(head.len() > 900 && zalgo.is_char_boundary(head.len()));
}

#[test]
fn bc_s_089_twenty_megabytes_of_text_become_a_bounded_part_and_one_file() {
    let place = Place::new();
    let cx = place.cx();
    let big = "0123456789abcde\n".repeat(20 * 1024 * 1024 / 16);
    let output = ToolOutput {
        text: big.clone(),
        ..ToolOutput::default()
    };
    let bounded = bound(&cx, output);
    assert!(bounded.text.len() < 31 * 1024);
    let cut = bounded.truncation.clone().unwrap();
    assert_eq!(
        (cut.total_bytes, cut.total_lines),
        (big.len() as u64, big.lines().count() as u64)
    );
    let path = cut.full_path.unwrap();
    assert!(bounded.text.contains(path.to_str().unwrap()));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), big);
    // Once: bounding what is bounded changes nothing and keeps no second file.
    assert_eq!(bound(&cx, bounded.clone()), bounded);
    assert_eq!(std::fs::read_dir(place.outputs()).unwrap().count(), 1);
}

#[test]
fn the_file_is_private_bounded_and_never_overwritten() {
    let place = Place::new();
    let limits = OutputLimits {
        shown_bytes: 10,
        file_bytes: 100,
        ..OutputLimits::default()
    };
    let mut paths = Vec::new();
    for _ in 0..2 {
        let mut collector = Collector::new(limits, &place.outputs(), "../../call/1");
        collector.push(&[b'x'; 150]);
        let cut = collector.finish().truncation.unwrap();
        assert_eq!((cut.total_bytes, cut.file_cut_at), (150, Some(100)));
        assert!(cut.to_string().contains("the first 100 bytes are in"));
        let path = cut.full_path.unwrap();
        assert_eq!(path.parent().unwrap(), place.outputs());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        paths.push(path);
    }
    assert_ne!(paths[0], paths[1]);
    let mode = std::fs::metadata(place.outputs())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_file_that_cannot_be_kept_is_told() {
    let place = Place::new();
    place.put("file", "");
    let limits = OutputLimits {
        shown_bytes: 10,
        ..OutputLimits::default()
    };
    let mut collector = Collector::new(limits, &place.path("file/below"), "c");
    collector.push(&[b'x'; 50]);
    let collected = collector.finish();
    assert!(
        collected.text.contains("the rest was not kept"),
        "{}",
        collected.text
    );
    assert_eq!(collected.truncation.unwrap().full_path, None);
}

#[test]
fn bc_s_091_nothing_unsafe_reaches_the_text() {
    assert_eq!(
        clean("a\0b\x1b[0m\r\nc\rd\te\u{85}\u{202e}"),
        "a\\0b\\x1b[0m\nc\\rd\te\\x85\\u{202e}"
    );
    assert_eq!(decode(b"\xff\xfeh\0i\0"), "hi");
    assert_eq!(decode(b"\xfe\xff\0h\0i"), "hi");
    assert_eq!(decode(b"\xef\xbb\xbfhi"), "hi");
    assert_eq!(decode(b"h\xffi"), "h\u{fffd}i");
}

#[test]
fn bc_s_091_long_utf_16_is_decoded_at_both_ends() {
    let place = Place::new();
    let text: String = (0..5000).map(|n| format!("zeile {n} ü\n")).collect();
    let bytes: Vec<u8> = format!("\u{feff}{text}")
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    for shown in [1000, 1001, 1002, 1003] {
        let limits = OutputLimits {
            shown_bytes: shown,
            ..OutputLimits::default()
        };
        let mut collector = Collector::new(limits, &place.outputs(), "c");
        for piece in bytes.chunks(777) {
            collector.push(piece);
        }
        let collected = collector.finish();
        assert!(
            collected.text.starts_with("zeile 0 ü\nzeile 1 ü\n"),
            "{}",
            collected.text
        );
        assert!(
            collected.text.ends_with("zeile 4999 ü\n"),
            "{}",
            collected.text
        );
    }
}

proptest! {
    #[test]
    fn collected_text_is_safe_and_bounded(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        shown in 1_usize..200,
        piece in 1_usize..50,
    ) {
        let place = Place::new();
        let limits = OutputLimits { shown_bytes: shown, ..OutputLimits::default() };
        let mut collector = Collector::new(limits, &place.outputs(), "c");
        for piece in bytes.chunks(piece) {
            collector.push(piece);
        }
        let collected = collector.finish();
        prop_assert!(!collected.text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        prop_assert_eq!(collected.total_bytes, bytes.len() as u64);
        match collected.truncation {
            None => prop_assert!(collected.text.len() <= shown),
            Some(cut) => {
                prop_assert!(cut.shown_bytes <= shown as u64);
                prop_assert_eq!(cut.total_bytes, bytes.len() as u64);
                prop_assert_eq!(std::fs::read(cut.full_path.unwrap()).unwrap(), bytes);
            }
        }
    }
}
