//! How many columns text takes in a terminal, and cutting it to fit.

/// Columns of one character: 0 for marks that join the one before, 2 for wide ones, else 1.
pub fn of_char(c: char) -> usize {
    let code = c as u32;
    match code {
        0 => 0,
        0x0300..=0x036f | 0x200b..=0x200f | 0x20d0..=0x20ff | 0xfe00..=0xfe0f | 0xfe20..=0xfe2f => {
            0
        }
        0x1100..=0x115f
        | 0x2e80..=0x303e
        | 0x3041..=0x33ff
        | 0x3400..=0x4dbf
        | 0x4e00..=0x9fff
        | 0xa000..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f680..=0x1f6ff
        | 0x1f900..=0x1f9ff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// Columns of a text without control characters.
pub fn of(text: &str) -> usize {
    text.chars().map(of_char).sum()
}

/// The text cut to `columns`, with `…` when something is missing.
pub fn cut(text: &str, columns: usize) -> String {
    if of(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        used += of_char(c);
        if used + 1 > columns {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// As [`cut`], for text in colours: what sets them takes no columns, and is ended where the text is cut.
pub fn cut_painted(text: &str, columns: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            out.push(c);
            for c in chars.by_ref() {
                out.push(c);
                if c == 'm' {
                    break;
                }
            }
            continue;
        }
        used += of_char(c);
        // The last column is kept for the mark, unless nothing follows.
        if used > columns || (used == columns && chars.peek().is_some_and(|c| *c != '\u{1b}')) {
            out.push('…');
            if text.contains('\u{1b}') {
                out.push_str("\u{1b}[0m");
            }
            return out;
        }
        out.push(c);
    }
    out
}

/// A line in pieces of at most `columns` each.
pub fn pieces(text: &str, columns: usize) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut used = 0;
    for c in text.chars() {
        let wide = of_char(c);
        if used + wide > columns && used > 0 {
            out.push(String::new());
            used = 0;
        }
        used += wide;
        if let Some(last) = out.last_mut() {
            last.push(c);
        }
    }
    out
}

/// The text cut or filled up to `columns`.
pub fn fit(text: &str, columns: usize) -> String {
    let mut out = cut(text, columns);
    let fill = columns.saturating_sub(of(&out));
    out.extend(std::iter::repeat_n(' ', fill));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_and_joining_characters_are_counted() {
        assert_eq!(of("日本"), 4);
        assert_eq!(of("e\u{301}"), 1);
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(fit("ab", 4), "ab  ");
        assert_eq!(cut("abc", 3), "abc");
    }

    #[test]
    fn colours_take_no_columns() {
        assert_eq!(
            cut_painted("\u{1b}[1mabc\u{1b}[0m", 3),
            "\u{1b}[1mabc\u{1b}[0m"
        );
        assert_eq!(
            cut_painted("\u{1b}[1mabcd\u{1b}[0m", 3),
            "\u{1b}[1mab…\u{1b}[0m"
        );
        assert_eq!(cut_painted("abcd", 4), "abcd");
        assert_eq!(cut_painted("abcde", 4), "abc…");
        assert_eq!(pieces("abcde", 2), ["ab", "cd", "e"]);
        assert_eq!(pieces("日本", 3), ["日", "本"]);
    }
}
