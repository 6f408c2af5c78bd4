//! AWS's shared files, `~/.aws/config` and `~/.aws/credentials`: sections of `key = value`.

use std::collections::BTreeMap;

/// One profile's settings, of both files together.
pub(super) type Profile = BTreeMap<String, String>;

/// Which of the two files a text is from: they name their sections differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `[default]` and `[profile NAME]`; all other sections are not profiles.
    Config,
    /// `[NAME]`.
    Credentials,
}

/// The profile `wanted` in a file's text; empty when it is not in there. Total: lines that are no setting are
/// passed over, and so is what is nested below a setting (indented lines).
pub(super) fn read(text: &str, kind: Kind, wanted: &str) -> Profile {
    let mut found = Profile::new();
    let mut inside = false;
    for line in text.lines() {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with(['#', ';', ' ', '\t']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let name = rest.split(']').next().unwrap_or_default();
            inside = section(name, kind) == Some(wanted);
            continue;
        }
        if !inside {
            continue;
        }
        if let Some((key, value)) = line.split_once('=') {
            let key = key.trim().to_ascii_lowercase();
            found.insert(key, without_comment(value).trim().to_owned());
        }
    }
    found
}

/// The profile a section's head names.
fn section(head: &str, kind: Kind) -> Option<&str> {
    let head = head.trim();
    let name = match kind {
        Kind::Credentials => head,
        Kind::Config if head == "default" => head,
        Kind::Config => head
            .strip_prefix("profile")
            .filter(|rest| rest.starts_with([' ', '\t']))?
            .trim(),
    };
    let inner = name
        .strip_prefix('"')
        .and_then(|name| name.strip_suffix('"'));
    Some(inner.unwrap_or(name))
}

/// A comment begins with `#` or `;` behind white space; inside of a word they belong to it.
fn without_comment(value: &str) -> &str {
    let mut before = ' ';
    for (at, c) in value.char_indices() {
        if matches!(c, '#' | ';') && before.is_whitespace() && at > 0 {
            return &value[..at];
        }
        before = c;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "\
# of the team
[default]
region = eu-west-1
output=json

[profile work]
region=us-west-2   # near the office
Credential_Process = /opt/keys --for \"work one\" #keep
s3 =
  max_concurrent_requests = 20
  region = nowhere

[profile \"with space\"]
region = ap-south-1
[sso-session work]
region = us-gov-west-1
[profilework]
region = no
";

    fn get<'a>(profile: &'a Profile, key: &str) -> Option<&'a str> {
        profile.get(key).map(String::as_str)
    }

    #[test]
    fn a_profile_is_found_under_its_head_alone() {
        let read = |name| read(CONFIG, Kind::Config, name);
        assert_eq!(get(&read("default"), "region"), Some("eu-west-1"));
        let work = read("work");
        assert_eq!(get(&work, "region"), Some("us-west-2"));
        assert_eq!(
            get(&work, "credential_process"),
            Some("/opt/keys --for \"work one\"")
        );
        assert_eq!(get(&read("with space"), "region"), Some("ap-south-1"));
        assert!(read("other").is_empty());
    }

    #[test]
    fn credentials_name_their_profiles_without_a_word_before() {
        let text = "[work]\r\naws_access_key_id = AKIDEXAMPLE\r\naws_secret_access_key = ab#c;d=e/f+\r\n[default]\n";
        let work = read(text, Kind::Credentials, "work");
        assert_eq!(get(&work, "aws_access_key_id"), Some("AKIDEXAMPLE"));
        assert_eq!(get(&work, "aws_secret_access_key"), Some("ab#c;d=e/f+"));
        assert!(read(text, Kind::Credentials, "profile work").is_empty());
    }

    #[test]
    fn what_is_no_setting_is_passed_over() {
        for text in [
            "",
            "[",
            "[default",
            "=",
            "[default]\nnothing\n=x\n;c",
            "\u{feff}[default]",
        ] {
            let found = read(text, Kind::Config, "default");
            assert!(found.values().all(|value| value.len() < 3), "{text:?}");
        }
    }
}
