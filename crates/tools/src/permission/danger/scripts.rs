//! Small programs given as arguments, to `sed` and `awk`: whether they can do more than transform text.

/// True unless the argument is an option without effects, a file name or a script of one plain `p`, `d`, `q`, `=`
/// or `s` command.
pub(super) fn sed_may_act(argument: &str) -> bool {
    if argument.starts_with('-') {
        // Options are judged by the table; a script may follow `-e` or `--expression=` in the same word.
        return !matches!(argument, "-n" | "-e" | "-E" | "-r" | "-u" | "-z" | "-s");
    }
    !(is_plain_command(argument) || is_plain_substitution(argument) || looks_like_a_file(argument))
}

/// Addresses of numbers and `$`, then one letter that only selects lines.
fn is_plain_command(script: &str) -> bool {
    let letter = script.trim_start_matches(|c: char| {
        c.is_ascii_digit() || matches!(c, ',' | '$' | '~' | '+' | ' ')
    });
    matches!(letter, "p" | "d" | "q" | "=" | "!d" | "!p")
}

/// `s/a/b/g` with exactly three separators and flags that only select matches.
fn is_plain_substitution(script: &str) -> bool {
    let Some(rest) = script.strip_prefix('s') else {
        return false;
    };
    let mut chars = rest.chars();
    let Some(separator) = chars
        .next()
        .filter(|c| c.is_ascii_punctuation() && *c != '\\')
    else {
        return false;
    };
    let mut seen = 0;
    let mut flags = String::new();
    while let Some(c) = chars.next() {
        if seen == 2 {
            flags.push(c);
        } else if c == '\\' {
            chars.next();
        } else if c == '\n' {
            return false;
        } else if c == separator {
            seen += 1;
        }
    }
    seen == 2
        && flags
            .chars()
            .all(|c| c.is_ascii_digit() || matches!(c, 'g' | 'p' | 'I' | 'i'))
}

/// A name with an extension or a folder that no sed script of effect looks like: no blanks, no script punctuation.
fn looks_like_a_file(argument: &str) -> bool {
    let plain = argument
        .chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/'));
    let extension = argument
        .rsplit('/')
        .next()
        .is_some_and(|name| name.find('.').is_some_and(|at| at > 0));
    // `w/tmp/x` and `r.bashrc` are scripts: ask unless the first letter cannot begin a sed command that acts.
    plain
        && extension
        && !argument.starts_with(['w', 'W', 'r', 'R', 'e', '/', '.'])
        && !argument.starts_with(|c: char| c.is_ascii_digit())
}

/// True when the text has any awk construct that runs a program, opens a file or loads code.
pub(super) fn awk_may_act(argument: &str) -> bool {
    [
        "system", "getline", "|", ">", "@", "close", "printf", "print >",
    ]
    .iter()
    .any(|part| argument.contains(part))
}
