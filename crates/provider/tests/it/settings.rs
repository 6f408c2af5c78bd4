//! Settings and keys: refused with the next step, and never shown.

use std::os::unix::fs::PermissionsExt;
use std::str::FromStr;
use std::time::Duration;
use tenure_provider::{HttpProvider, Protocol, Provider, ProviderSettings, Secret, SettingsError};

const KEY: &str = "sk-live-0123456789abcdef";

fn settings(url: &str) -> ProviderSettings {
    ProviderSettings::new("local", Protocol::OpenaiChat, url)
}

fn refused(settings: ProviderSettings) -> String {
    HttpProvider::new(settings).unwrap_err().to_string()
}

#[test]
fn bc_s_126_a_key_is_shown_nowhere() {
    let mut with = settings("https://user-less.example/v1?token=tok-in-query");
    with.api_key = Some(Secret::new(KEY));
    with.headers
        .insert("x-extra".into(), "header-secret".into());
    let provider = HttpProvider::new(with.clone()).unwrap();
    let shown = format!(
        "{with:?} {with:#?} {provider:?} {} {:?}",
        Secret::new(KEY),
        Secret::new(KEY)
    );
    for secret in [KEY, "header-secret", "tok-in-query"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert_eq!(provider.protocol(), "openai-chat");
    assert_eq!(
        Secret::new(KEY).mask(&format!("bad key {KEY}, {KEY}")),
        "bad key [key], [key]"
    );
    assert_eq!(Secret::new("").mask("abc"), "abc");
    let url = refused(settings("ftp://user:hunter2@host/v1?k=tok"));
    assert!(!url.contains("hunter2") && !url.contains("tok"), "{url}");
}

#[test]
fn a_key_file_must_be_private() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    std::fs::write(&path, format!("  {KEY}\n")).unwrap();
    for mode in [0o644, 0o640, 0o604, 0o660] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let error = Secret::from_file(&path).unwrap_err().to_string();
        assert!(
            error.contains("chmod 600") && !error.contains(KEY),
            "{error}"
        );
    }
    for mode in [0o600, 0o400] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(Secret::from_file(&path).unwrap().expose(), KEY);
    }
    let write = |text: &str| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, text).unwrap();
        Secret::from_file(&path).unwrap_err().to_string()
    };
    assert!(write("\n").contains("is empty"));
    assert!(write("sk-one\nsk-two\n").contains("bare key"));
    let missing = Secret::from_file(&folder.path().join("none"))
        .unwrap_err()
        .to_string();
    assert!(missing.contains("cannot read"), "{missing}");
}

#[test]
fn a_key_variable_must_be_set() {
    let error = Secret::from_env("TENURE_TEST_NO_SUCH_KEY")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("TENURE_TEST_NO_SUCH_KEY") && error.contains("api_key_file"),
        "{error}"
    );
}

#[test]
fn unusable_settings_say_what_to_do() {
    assert!(refused(settings("not a url")).contains("https://api.example.com/v1"));
    assert!(refused(settings("ftp://host/v1")).contains("http://"));
    assert!(refused(settings("http://me:pw@host/v1")).contains("api_key_env"));
    let mut bad = settings("http://host/v1");
    bad.headers.insert("bad name".into(), "x".into());
    assert!(refused(bad).contains("bad name"));
    let mut bad = settings("http://host/v1");
    bad.headers
        .insert("x-secret".into(), "line\nbreak-secret".into());
    let message = refused(bad);
    assert!(
        message.contains("x-secret") && !message.contains("break-secret"),
        "{message}"
    );
    let mut bad = settings("http://host/v1");
    bad.idle_timeout = Duration::ZERO;
    assert!(refused(bad).contains("idle_timeout is zero"));
    let error = Protocol::from_str("openai").unwrap_err();
    assert!(matches!(error, SettingsError::Protocol { .. }));
    assert!(error.to_string().contains("openai-chat"));
}

#[test]
fn a_ca_file_must_hold_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let mut with = settings("https://host/v1");
    with.ca_file = Some(path.clone());
    assert!(refused(with.clone()).contains("ca.pem"));
    std::fs::write(&path, "no certificate").unwrap();
    assert!(refused(with).contains("no PEM certificate"));
}
