//! Every recorded stream of the shared corpus against its independently derived result: whole, byte by byte and cut
//! at random places.
//!
//! A protocol plugs in with one [`Vendor`] (a file in `corpus/`) and one test. The comparison is strict. Where Tenure
//! means to give something else than the expected file says, the vendor's `deviations` name the case, the part and
//! the reason; a deviation that is listed and does not happen is an error too.
//!
//! One thing holds for all protocols and is no deviation of a case: a refusal is what the model says to the user, so
//! it is text here, where the expected files keep it apart.

mod anthropic;
#[cfg(feature = "bedrock")]
mod bedrock;
mod chat;
mod compare;
mod gemini;
mod responses;

use crate::fold::{decode_cut, fold};
use compare::{Part, differences};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tenure_core::usage::Usage;
use tenure_provider::Protocol;

/// The folder, when it is there.
pub fn corpus() -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    if path.join("manifest.jsonl").exists() {
        return Some(path);
    }
    println!("skipped: no corpus at {}", path.display());
    None
}

/// What the corpus and Tenure call differently in one protocol.
pub struct Vendor {
    /// What decodes its streams.
    pub protocol: Protocol,
    /// The folder of its cases, and how the names of its streams end.
    pub folder: &'static str,
    pub extension: &'static str,
    /// So many cases are there, ambiguous ones not counted. Fewer would be a test that lost its subject.
    pub at_least: usize,
    /// The tokens of an expected file in Tenure's terms; `None` when it tells none.
    pub usage: fn(&Value) -> Option<Usage>,
    /// The vendor's finish word that Tenure keeps.
    pub finish: fn(&Value) -> Option<String>,
    /// Does Tenure keep this call of an expected file as a block it does not look into?
    pub opaque: fn(&Value) -> bool,
    /// Case, part, reason.
    pub deviations: &'static [(&'static str, Part, &'static str)],
}

/// All protocols of this build.
pub const VENDORS: &[&Vendor] = &[
    &anthropic::VENDOR,
    #[cfg(feature = "bedrock")]
    &bedrock::VENDOR,
    &chat::VENDOR,
    &responses::VENDOR,
    &gemini::VENDOR,
];

/// One recorded stream.
pub struct Case {
    pub name: String,
    pub body: Vec<u8>,
    pub expected: Value,
    /// The expected file is not normative.
    pub ambiguous: bool,
}

/// The cases of a vendor, by name; none without the folder.
pub fn cases(vendor: &Vendor) -> Vec<Case> {
    let Some(corpus) = corpus() else {
        return Vec::new();
    };
    let ambiguous = ambiguous(&corpus);
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(corpus.join(vendor.folder)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != vendor.extension) {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let expected = std::fs::read(path.with_extension("expected.json")).unwrap();
        cases.push(Case {
            ambiguous: ambiguous.contains(&format!("{}/{name}", vendor.folder)),
            name,
            body: std::fs::read(&path).unwrap(),
            expected: serde_json::from_slice(&expected).unwrap(),
        });
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    let clear = cases.iter().filter(|case| !case.ambiguous).count();
    assert!(clear >= vendor.at_least, "the corpus lost cases: {clear}");
    cases
}

/// `folder/name` of the cases whose expected file is no norm.
fn ambiguous(corpus: &Path) -> BTreeSet<String> {
    let manifest = std::fs::read_to_string(corpus.join("manifest.jsonl")).unwrap();
    let entries = manifest
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries
        .filter(|entry| entry.get("ambiguous").is_some())
        .map(|entry| {
            let file = entry["file"].as_str().unwrap();
            file.rsplit_once('.').unwrap().0.to_owned()
        })
        .collect()
}

/// Random cut points, the same for the same case and round: sometimes a few, sometimes one every few bytes.
fn random_cuts(case: &Case, round: u64) -> Vec<usize> {
    let seed = case.name.bytes().fold(round + 1, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut state = seed | 1;
    let mut next = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below) as usize
    };
    let widest = [4, 40, 400, 4000, 40_000][(round % 5) as usize];
    let mut cuts = Vec::new();
    let mut at = 0;
    while at < case.body.len() {
        at += 1 + next(widest);
        cuts.push(at);
    }
    cuts
}

/// Decodes one case in every way and says what is wrong with it.
fn check_case(vendor: &Vendor, case: &Case) -> Vec<String> {
    let whole = decode_cut(vendor.protocol, &case.body, &[]);
    let mut wrong = Vec::new();
    let mut listed: BTreeMap<Part, &str> = vendor
        .deviations
        .iter()
        .filter(|(name, _, _)| *name == case.name)
        .map(|(_, part, why)| (*part, *why))
        .collect();
    let folded = fold(&whole);
    if !case.ambiguous {
        let mut happened = BTreeSet::new();
        for (part, line) in differences(vendor, case, &folded) {
            if listed.contains_key(&part) {
                happened.insert(part);
            } else {
                wrong.push(line.chars().take(600).collect());
            }
        }
        listed.retain(|part, _| !happened.contains(part));
        wrong.extend(
            listed
                .iter()
                .map(|(part, why)| format!("the deviation in {part:?} does not happen: {why}")),
        );
    }
    let every_byte: Vec<usize> = (1..case.body.len()).collect();
    if decode_cut(vendor.protocol, &case.body, &every_byte) != whole {
        wrong.push("other events byte by byte".to_owned());
    }
    for round in 0..5 {
        if decode_cut(vendor.protocol, &case.body, &random_cuts(case, round)) != whole {
            wrong.push(format!("other events with random cuts, round {round}"));
        }
    }
    wrong
}

/// The test of one protocol: prints `N of M` and fails below `M`.
fn check(vendor: &Vendor) {
    let cases = cases(vendor);
    if cases.is_empty() {
        return;
    }
    let (mut good, mut clear) = (0, 0);
    let mut bad = Vec::new();
    for case in &cases {
        let wrong = check_case(vendor, case);
        clear += usize::from(!case.ambiguous);
        good += usize::from(!case.ambiguous && wrong.is_empty());
        bad.extend(wrong.iter().map(|line| format!("{}: {line}", case.name)));
    }
    let on_purpose: BTreeSet<&str> = vendor.deviations.iter().map(|(name, ..)| *name).collect();
    println!(
        "corpus {}: {good} of {clear} decode as expected, whole, byte by byte and at random cuts ({} of them differ on purpose; {} ambiguous not counted)",
        vendor.folder,
        on_purpose.len(),
        cases.len() - clear,
    );
    for (name, part, why) in vendor.deviations {
        println!("  on purpose: {name}, {part:?}: {why}");
        assert!(
            cases.iter().any(|case| case.name == *name),
            "a deviation names no case: {name}"
        );
    }
    assert!(
        bad.is_empty(),
        "{} differences\n{}",
        bad.len(),
        bad.join("\n")
    );
}

#[test]
fn corpus_openai_chat() {
    check(&chat::VENDOR);
}

#[test]
fn corpus_openai_responses() {
    check(&responses::VENDOR);
}

#[cfg(feature = "bedrock")]
#[test]
fn corpus_bedrock() {
    check(&bedrock::VENDOR);
}

#[test]
fn corpus_anthropic_messages() {
    check(&anthropic::VENDOR);
}

#[test]
fn corpus_gemini() {
    check(&gemini::VENDOR);
}

#[test]
fn every_protocol_is_compared_with_the_corpus() {
    for protocol in Protocol::ALL {
        if protocol == Protocol::BedrockConverse && cfg!(not(feature = "bedrock")) {
            println!("skipped: this build reads no event streams");
            continue;
        }
        assert!(
            VENDORS.iter().any(|vendor| vendor.protocol == protocol),
            "{protocol:?} has no vendor here"
        );
    }
}

#[test]
fn random_cuts_differ_and_cover_small_and_large_pieces() {
    let case = Case {
        name: "a case".to_owned(),
        body: vec![b'x'; 100_000],
        expected: Value::Null,
        ambiguous: false,
    };
    let counts: Vec<usize> = (0..5).map(|n| random_cuts(&case, n).len()).collect();
    assert!(counts[0] > 30_000 && counts[4] < 20, "{counts:?}");
    assert_ne!(random_cuts(&case, 0), random_cuts(&case, 5));
    assert_eq!(random_cuts(&case, 3), random_cuts(&case, 3));
}

#[test]
fn signatures_are_kept_byte_for_byte() {
    for vendor in VENDORS {
        for case in cases(vendor) {
            let Some(signatures) = case
                .expected
                .get("reasoning_signatures")
                .and_then(Value::as_array)
            else {
                continue;
            };
            let got = fold(&decode_cut(vendor.protocol, &case.body, &[]));
            // A run of text that was cut off is no whole block: nothing of it would go back.
            if vendor.protocol == Protocol::Gemini && got.finish.is_none() {
                continue;
            }
            let natives: Vec<&String> = got
                .reasonings
                .iter()
                .chain(&got.texts)
                .filter_map(|part| part.1.as_ref())
                .chain(got.calls.iter().filter_map(|call| call.native.as_ref()))
                .chain(got.results.iter().filter_map(|result| result.3.as_ref()))
                .chain(&got.opaque)
                .collect();
            for signature in signatures {
                let quoted = serde_json::to_string(signature).unwrap();
                assert!(
                    natives.iter().any(|native| native.contains(&quoted)),
                    "{}: lost {quoted}",
                    case.name
                );
            }
        }
    }
}

#[test]
fn protocols_have_their_words() {
    for protocol in Protocol::ALL {
        assert_eq!(Protocol::from_str(protocol.as_str()).unwrap(), protocol);
    }
}
