//! Where keys are found, in which order, and what is said when there are none.

use super::*;
use crate::settings::Protocol;

/// Made of the vendor's own published examples; they open nothing.
const ID: &str = "AKIDEXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

fn settings() -> ProviderSettings {
    let mut settings = ProviderSettings::new("aws", Protocol::BedrockConverse, "");
    settings.aws.region = Some("us-east-1".to_owned());
    settings
}

fn found(settings: &ProviderSettings, vars: &[(&str, &str)]) -> Result<Aws, SettingsError> {
    let env = |name: &str| {
        let found = vars.iter().find(|(var, _)| *var == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Aws::find_in(settings, &env)
}

fn keys() -> AwsKeys {
    AwsKeys {
        id: Secret::new(ID),
        secret: Secret::new(SECRET),
        token: None,
    }
}

async fn authorised(aws: &Aws) -> Result<HeaderMap, ProviderError> {
    let mut headers = HeaderMap::new();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    aws.authorise(&mut headers, &aws.base_url(), b"{}", time)
        .await?;
    Ok(headers)
}

/// A folder with both shared files, and the variables that name them.
struct Shared {
    _folder: tempfile::TempDir,
    config: String,
    credentials: String,
}

impl Shared {
    fn new(config: &str, credentials: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        Self {
            config: write("config", config),
            credentials: write("credentials", credentials),
            _folder: folder,
        }
    }

    fn vars<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let mut vars = vec![
            ("AWS_CONFIG_FILE", self.config.as_str()),
            ("AWS_SHARED_CREDENTIALS_FILE", self.credentials.as_str()),
        ];
        vars.extend(more);
        vars
    }
}

#[test]
fn a_key_of_the_configuration_comes_before_a_profile_and_that_before_the_environment() {
    let env = [
        ("AWS_BEARER_TOKEN_BEDROCK", "bearer"),
        ("AWS_ACCESS_KEY_ID", ID),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_PROFILE", "other"),
    ];
    let mut settings = settings();
    assert_eq!(
        found(&settings, &env).unwrap().source,
        Source::Bearer(Secret::new("bearer"))
    );
    assert_eq!(
        found(&settings, &env[1..]).unwrap().source,
        Source::Keys(keys())
    );
    let named = |aws: Aws| match aws.source {
        Source::Profile { name, .. } => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(named(found(&settings, &env[2..]).unwrap()), "other");
    assert_eq!(named(found(&settings, &[]).unwrap()), "default");
    settings.aws.profile = Some("mine".to_owned());
    assert_eq!(named(found(&settings, &env).unwrap()), "mine");
    settings.aws.keys = Some(keys());
    assert_eq!(found(&settings, &env).unwrap().source, Source::Keys(keys()));
    settings.api_key = Some(Secret::new("own"));
    assert_eq!(
        found(&settings, &env).unwrap().source,
        Source::Bearer(Secret::new("own"))
    );
}

#[test]
fn the_region_is_looked_for_everywhere_and_asked_for_when_it_is_nowhere() {
    let shared = Shared::new("[profile far]\nregion = sa-east-1\n", "");
    let mut settings = settings();
    assert_eq!(
        found(&settings, &[]).unwrap().base_url(),
        "https://bedrock-runtime.us-east-1.amazonaws.com"
    );
    settings.aws.region = Some("cn-north-1".to_owned());
    assert_eq!(
        found(&settings, &[]).unwrap().base_url(),
        "https://bedrock-runtime.cn-north-1.amazonaws.com.cn"
    );
    settings.aws.region = None;
    let region = |settings: &ProviderSettings, vars: &[(&str, &str)]| {
        found(settings, vars).map(|aws| aws.region)
    };
    let vars = [
        ("AWS_REGION", "eu-west-1"),
        ("AWS_DEFAULT_REGION", "eu-west-2"),
    ];
    assert_eq!(region(&settings, &vars).unwrap(), "eu-west-1");
    assert_eq!(region(&settings, &vars[1..]).unwrap(), "eu-west-2");
    let far = shared.vars(&[("AWS_PROFILE", "far")]);
    assert_eq!(region(&settings, &far).unwrap(), "sa-east-1");
    let error = region(&settings, &[]).unwrap_err().to_string();
    assert!(error.contains("AWS_REGION"), "{error}");
    settings.base_url = "https://bedrock-runtime.ap-south-1.amazonaws.com".to_owned();
    assert_eq!(region(&settings, &[]).unwrap(), "ap-south-1");
    // A region is a part of the address that keys are sent to.
    settings.aws.region = Some("evil.example/".to_owned());
    assert!(region(&settings, &[]).is_err());
}

#[tokio::test]
async fn a_key_of_bedrock_is_sent_as_it_is_and_signs_nothing() {
    let aws = found(
        &settings(),
        &[("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key")],
    )
    .unwrap();
    let headers = authorised(&aws).await.unwrap();
    assert_eq!(headers[AUTHORIZATION], "Bearer bedrock-api-key");
    assert!(!headers.contains_key("x-amz-date"));
}

#[tokio::test]
async fn a_profile_is_read_anew_for_every_attempt() {
    let first = format!("[default]\naws_access_key_id = {ID}\naws_secret_access_key = {SECRET}\n");
    let shared = Shared::new("", &first);
    let aws = found(&settings(), &shared.vars(&[])).unwrap();
    let headers = authorised(&aws).await.unwrap();
    let signature = headers[AUTHORIZATION].to_str().unwrap();
    assert!(
        signature.starts_with(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20231114/us-east-1/bedrock/aws4_request"
        ),
        "{signature}"
    );
    let second = "[default]\naws_access_key_id = SECOND\naws_secret_access_key = s\naws_session_token = tok\n";
    std::fs::write(&shared.credentials, second).unwrap();
    let headers = authorised(&aws).await.unwrap();
    assert!(headers[AUTHORIZATION].to_str().unwrap().contains("SECOND"));
    assert_eq!(headers["x-amz-security-token"], "tok");
}

#[cfg(unix)]
#[tokio::test]
async fn a_program_gives_keys_and_is_asked_again_only_near_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let script = folder.path().join("keys");
    let text = format!(
        "echo x >> \"{}\"\necho '{{\"Version\":1,\"AccessKeyId\":\"FROMPROGRAM\",\"SecretAccessKey\":\"s\",\"SessionToken\":\"t\",\"Expiration\":\"2023-11-14T23:00:00Z\"}}'\n",
        count.display()
    );
    std::fs::write(&script, text).unwrap();
    let config = format!(
        "[default]\ncredential_process = sh \"{}\"\n",
        script.display()
    );
    let shared = Shared::new(&config, "");
    let aws = found(&settings(), &shared.vars(&[])).unwrap();
    for _ in 0..3 {
        let headers = authorised(&aws).await.unwrap();
        assert!(
            headers[AUTHORIZATION]
                .to_str()
                .unwrap()
                .contains("FROMPROGRAM")
        );
    }
    assert_eq!(std::fs::read_to_string(&count).unwrap().lines().count(), 1);
    let late = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_002_700);
    let mut headers = HeaderMap::new();
    aws.authorise(&mut headers, "https://x.example/", b"", late)
        .await
        .unwrap();
    assert_eq!(std::fs::read_to_string(&count).unwrap().lines().count(), 2);
}

#[tokio::test]
async fn without_keys_the_error_says_what_to_do() {
    let say = async |config: &str| {
        let shared = Shared::new(config, "");
        let aws = found(&settings(), &shared.vars(&[])).unwrap();
        let error = authorised(&aws).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Auth);
        error.message
    };
    assert!(say("").await.contains("AWS_ACCESS_KEY_ID"));
    assert!(
        say("[default]\nsso_session = work\n")
            .await
            .contains("aws sso login")
    );
    assert!(
        say("[default]\noutput = json\n")
            .await
            .contains("holds no keys")
    );
    let broken = say("[default]\ncredential_process = /nowhere/at/all\n").await;
    assert!(broken.contains("credential_process"), "{broken}");
    let quoted = say("[default]\ncredential_process = sh \"a\n").await;
    assert!(quoted.contains("quotes"), "{quoted}");
}

#[tokio::test]
async fn keys_that_are_asked_for_sign_and_are_kept_until_shortly_before_they_end() {
    use crate::aws::chain::tests::{chain, machine};
    let (url, asked) = machine(true).await;
    let shared = Shared::new("[default]\noutput = json\n", "");
    let mut aws = found(&settings(), &shared.vars(&[])).unwrap();
    aws.chain = Some(chain(&url));
    for _ in 0..2 {
        let signed = authorised(&aws).await.unwrap();
        let by = signed[AUTHORIZATION].to_str().unwrap();
        assert!(by.contains("Credential=ASIAEXAMPLE/"), "{by}");
        assert_eq!(signed["x-amz-security-token"], "of-the-role");
    }
    let roles = || {
        let asked = asked.lock().unwrap();
        asked.iter().filter(|line| line.contains("role-1")).count()
    };
    assert_eq!(roles(), 1, "kept");
    let ends: jiff::Timestamp = "2098-12-31T23:59:00Z".parse().unwrap();
    let late = SystemTime::UNIX_EPOCH + Duration::from_secs(ends.as_second() as u64);
    let mut headers = HeaderMap::new();
    aws.authorise(&mut headers, &aws.base_url(), b"{}", late)
        .await
        .unwrap();
    assert_eq!(
        roles(),
        2,
        "a minute before they end they are asked for anew"
    );
    // Keys of the shared files need nobody.
    let shared = Shared::new(
        "",
        &format!("[default]\naws_access_key_id = {ID}\naws_secret_access_key = {SECRET}\n"),
    );
    let mut aws = found(&settings(), &shared.vars(&[])).unwrap();
    aws.chain = Some(chain(&url));
    let signed = authorised(&aws).await.unwrap();
    assert!(signed[AUTHORIZATION].to_str().unwrap().contains(ID));
    assert_eq!(roles(), 2);
}

#[tokio::test]
async fn a_header_of_the_configuration_wins() {
    let aws = found(&settings(), &[("AWS_BEARER_TOKEN_BEDROCK", "env")]).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer mine"));
    let time = SystemTime::UNIX_EPOCH;
    aws.authorise(&mut headers, "https://x.example/", b"", time)
        .await
        .unwrap();
    assert_eq!(headers[AUTHORIZATION], "Bearer mine");
}

#[test]
fn a_command_line_is_cut_into_words_without_a_shell() {
    let words = |text: &str| split(text).unwrap();
    assert_eq!(words("a  b"), ["a", "b"]);
    assert_eq!(words("a \"b c\" 'd \"e'"), ["a", "b c", "d \"e"]);
    assert_eq!(
        words(r#"a\ b "c\"d" '' $HOME"#),
        ["a b", "c\"d", "", "$HOME"]
    );
    assert!(words("").is_empty());
    assert_eq!(split("a \"b"), None);
    assert_eq!(split("a\\"), None);
}
