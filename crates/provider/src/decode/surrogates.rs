//! Half characters: `\ud83d` without its other half, which servers send that cut text between UTF-16 units.

use std::borrow::Cow;

/// `json` with every half character replaced by the replacement character. No JSON reader takes such a half, and
/// with it the whole text would be lost. Text without one, which is nearly all text, is not copied.
pub(super) fn mended(json: &str) -> Cow<'_, str> {
    let bytes = json.as_bytes();
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', bytes.get(at..).unwrap_or_default()) {
        let start = at + found;
        at = start + 2;
        let Some(unit) = unit(bytes, start) else {
            continue;
        };
        at = start + 6;
        let whole = match unit {
            0xd800..=0xdbff => {
                self::unit(bytes, at).is_some_and(|u| (0xdc00..=0xdfff).contains(&u))
            }
            0xdc00..=0xdfff => false,
            _ => continue,
        };
        if whole {
            at += 6;
            continue;
        }
        out.push_str(&json[copied..start]);
        out.push_str("\\ufffd");
        copied = at;
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    out.push_str(&json[copied..]);
    Cow::Owned(out)
}

/// The UTF-16 unit of an escape `\uXXXX` at `at`.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    let digits = std::str::from_utf8(digits).ok()?;
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_replaced_and_pairs_stay() {
        for (given, want) in [
            (r#"{"a":"x"}"#, r#"{"a":"x"}"#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""\uDE00 é""#, r#""\ufffd é""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ud83d\n""#, r#""\ufffd\n""#),
            // An escaped backslash before a `u` is no escape of a character.
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\\\ud83d""#, r#""\\\ufffd""#),
            (r#""\u00e9 \ud83"#, r#""\u00e9 \ud83"#),
            ("\"\\", "\"\\"),
        ] {
            assert_eq!(mended(given), want, "{given}");
        }
        assert!(matches!(mended(r#""\ud83d\ude00 \n""#), Cow::Borrowed(_)));
    }
}
