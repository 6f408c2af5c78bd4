//! Where AWS's keys come from, and how a request is authorised with them.
//!
//! Fixed keys, and programs that print keys, are read here. What has to be asked for (single sign-on, assumed roles, web
//! identities, containers, machines) is left to AWS's own crate, when nothing else has any (`chain`).

use super::AwsKeys;
use super::chain::Chain;
use super::profile::{self, Kind, Profile};
use super::sign::sign;
use crate::secret::Secret;
use crate::settings::{ProviderSettings, SettingsError};
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tenure_core::error::{ErrorClass, ProviderError};

/// A shared file larger than this is a mistake in its path.
const FILE_LIMIT: u64 = 1024 * 1024;
/// A program that gives keys has to answer within this time.
const PROCESS_TIME: Duration = Duration::from_secs(30);
/// Temporary keys are asked for anew so long before their end.
const EARLY: Duration = Duration::from_secs(120);

/// Looks an environment variable up; empty ones count as not set.
type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Who we are at AWS, and where.
pub(crate) struct Aws {
    region: String,
    source: Source,
    /// Who is asked when the shared files hold no keys.
    chain: Option<Chain>,
    /// Keys that were asked for, until shortly before they end.
    kept: Mutex<Option<(AwsKeys, SystemTime)>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// A key of Bedrock's own.
    Bearer(Secret),
    /// Keys of the environment.
    Keys(AwsKeys),
    /// A profile of the shared files, read at every attempt: temporary keys are replaced there.
    Profile { name: String, files: Files },
}

/// The two shared files.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Files {
    config: Option<PathBuf>,
    credentials: Option<PathBuf>,
}

impl Aws {
    /// Finds out where the keys are and which region is meant. Runs no program and sends nothing.
    ///
    /// # Errors
    /// When no region is known anywhere.
    pub fn find(settings: &ProviderSettings) -> Result<Self, SettingsError> {
        let env = |name: &str| std::env::var(name).ok().filter(|v| !v.trim().is_empty());
        let mut found = Self::find_in(settings, &env)?;
        if let Source::Profile { name, .. } = &found.source {
            found.chain = Some(Chain::new(settings, &found.region, name));
        }
        Ok(found)
    }

    fn find_in(settings: &ProviderSettings, env: Env<'_>) -> Result<Self, SettingsError> {
        let source = source(settings, env);
        let of_profile = || match &source {
            Source::Profile { name, files } => files.read_now(name).remove("region"),
            _ => Files::of(env)
                .read_now(&env("AWS_PROFILE").unwrap_or_else(|| "default".to_owned()))
                .remove("region"),
        };
        let region = settings
            .aws
            .region
            .clone()
            .or_else(|| env("AWS_REGION"))
            .or_else(|| env("AWS_DEFAULT_REGION"))
            .or_else(|| region_of_url(&settings.base_url))
            .or_else(of_profile)
            // A key of Bedrock's own signs nothing: with an address, it needs no region.
            .or_else(|| {
                let addressed =
                    matches!(source, Source::Bearer(_)) && !settings.base_url.is_empty();
                addressed.then(String::new)
            });
        let region = region
            .map(|region| region.trim().to_owned())
            .filter(|region| is_region(region) || region.is_empty())
            .ok_or_else(|| SettingsError::Region {
                provider: settings.name.clone(),
            })?;
        Ok(Self {
            region,
            source,
            chain: None,
            kept: Mutex::new(None),
        })
    }

    /// The address of Bedrock's runtime in this region.
    pub fn base_url(&self) -> String {
        let top = if self.region.starts_with("cn-") {
            "amazonaws.com.cn"
        } else {
            "amazonaws.com"
        };
        format!("https://bedrock-runtime.{}.{top}", self.region)
    }

    /// What is known of the keys before the first request, for masking.
    pub fn secrets(&self) -> Vec<Secret> {
        match &self.source {
            Source::Bearer(key) => vec![key.clone()],
            Source::Keys(keys) => keys.secrets().collect(),
            Source::Profile { .. } => Vec::new(),
        }
    }

    /// Adds the headers that authorise a POST of `body` to `url` at `time`; gives what must be masked.
    ///
    /// Cancellation: dropping the future ends a program that was asked for keys.
    ///
    /// # Errors
    /// `Auth` with the next step when there are no keys.
    pub async fn authorise(
        &self,
        headers: &mut HeaderMap,
        url: &str,
        body: &[u8],
        time: SystemTime,
    ) -> Result<Vec<Secret>, ProviderError> {
        // A header of the configuration wins, as everywhere.
        if headers.contains_key(AUTHORIZATION) {
            return Ok(Vec::new());
        }
        let keys = match &self.source {
            Source::Bearer(key) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
                    .map_err(|_| refused("the key holds a character that HTTP cannot carry"))?;
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
                return Ok(vec![key.clone()]);
            }
            Source::Keys(keys) => keys.clone(),
            Source::Profile { name, files } => self.profile_keys(name, files, time).await?,
        };
        let made = sign(&keys, &self.region, time, url, headers, body)
            .map_err(|what| refused(&format!("the request cannot be signed: {what}")))?;
        headers.extend(made);
        Ok(keys.secrets().collect())
    }

    async fn profile_keys(
        &self,
        name: &str,
        files: &Files,
        time: SystemTime,
    ) -> Result<AwsKeys, ProviderError> {
        let files = files.clone();
        let owned = name.to_owned();
        let profile = tokio::task::spawn_blocking(move || files.read_now(&owned))
            .await
            .unwrap_or_default();
        if let Some(keys) = keys_of(&profile) {
            return Ok(keys);
        }
        if let Some(keys) = self.kept(time) {
            return Ok(keys);
        }
        let (keys, until) = match (profile.get("credential_process"), &self.chain) {
            (Some(command), _) => ask(command).await?,
            (None, Some(chain)) => chain
                .keys()
                .await
                .map_err(|why| refused(&format!("{} ({why})", no_keys(name, &profile))))?,
            (None, None) => return Err(refused(&no_keys(name, &profile))),
        };
        if let Some(until) = until {
            *self.kept.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((keys.clone(), until.checked_sub(EARLY).unwrap_or(until)));
        }
        Ok(keys)
    }

    /// The keys that were asked for last, if they hold at `time`.
    fn kept(&self, time: SystemTime) -> Option<AwsKeys> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = kept.as_ref().filter(|(_, until)| time < *until);
        fresh.map(|(keys, _)| keys.clone())
    }
}

/// Why a profile gives no keys, and what to do.
fn no_keys(name: &str, profile: &Profile) -> String {
    let other = [
        "sso_session",
        "sso_start_url",
        "role_arn",
        "web_identity_token_file",
    ];
    if let Some(kind) = other.iter().find(|key| profile.contains_key(**key)) {
        return format!(
            "the AWS profile {name} uses {kind}, and no keys came of it: sign in with `aws sso login --profile {name}` where it signs on, else look at the role"
        );
    }
    if profile.is_empty() {
        return format!(
            "no AWS keys: set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write a profile {name} (~/.aws/credentials); no web identity, container or machine gave any either"
        );
    }
    format!(
        "the AWS profile {name} holds no keys: give it aws_access_key_id and aws_secret_access_key, or credential_process"
    )
}

fn refused(message: &str) -> ProviderError {
    ProviderError::new(ErrorClass::Auth, message)
}

fn source(settings: &ProviderSettings, env: Env<'_>) -> Source {
    let profile = |name: String| Source::Profile {
        name,
        files: Files::of(env),
    };
    if let Some(key) = &settings.api_key {
        return Source::Bearer(key.clone());
    }
    if let Some(keys) = &settings.aws.keys {
        return Source::Keys(keys.clone());
    }
    if let Some(name) = &settings.aws.profile {
        return profile(name.clone());
    }
    if let Some(key) = env("AWS_BEARER_TOKEN_BEDROCK") {
        return Source::Bearer(Secret::new(key));
    }
    if let (Some(id), Some(secret)) = (env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY")) {
        return Source::Keys(AwsKeys {
            id: Secret::new(id),
            secret: Secret::new(secret),
            token: env("AWS_SESSION_TOKEN").map(Secret::new),
        });
    }
    profile(env("AWS_PROFILE").unwrap_or_else(|| "default".to_owned()))
}

impl Files {
    fn of(env: Env<'_>) -> Self {
        let home = env("HOME")
            .or_else(|| env("USERPROFILE"))
            .map(PathBuf::from);
        let at = |name: &str, file: &str| {
            let given = env(name).map(|path| match path.strip_prefix("~/") {
                Some(rest) => home.clone().unwrap_or_default().join(rest),
                None => PathBuf::from(path),
            });
            given.or_else(|| Some(home.as_ref()?.join(".aws").join(file)))
        };
        Self {
            config: at("AWS_CONFIG_FILE", "config"),
            credentials: at("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        }
    }

    /// The profile of both files; what stands in the credentials file wins.
    fn read_now(&self, name: &str) -> Profile {
        let read = |path: &Option<PathBuf>, kind| {
            let text = path.as_ref().and_then(read_file);
            text.map_or_else(Profile::new, |text| profile::read(&text, kind, name))
        };
        let mut all = read(&self.config, Kind::Config);
        all.extend(read(&self.credentials, Kind::Credentials));
        all
    }
}

fn read_file(path: &PathBuf) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(FILE_LIMIT).read_to_string(&mut text).ok()?;
    Some(text)
}

fn keys_of(profile: &Profile) -> Option<AwsKeys> {
    let get = |key: &str| profile.get(key).filter(|v| !v.is_empty()).map(Secret::new);
    Some(AwsKeys {
        id: get("aws_access_key_id")?,
        secret: get("aws_secret_access_key")?,
        token: get("aws_session_token"),
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    version: u64,
    access_key_id: String,
    secret_access_key: String,
    #[serde(default)]
    session_token: Option<String>,
    #[serde(default)]
    expiration: Option<jiff::Timestamp>,
}

/// Runs a profile's program, which prints keys as JSON. Its output is never shown: it holds them.
async fn ask(command: &str) -> Result<(AwsKeys, Option<SystemTime>), ProviderError> {
    let failed = |what: &str| refused(&format!("credential_process gave no keys: {what}"));
    let words = split(command).ok_or_else(|| failed("its quotes are not closed"))?;
    let (program, arguments) = words.split_first().ok_or_else(|| failed("it is empty"))?;
    let running = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PROCESS_TIME, running)
        .await
        .map_err(|_| failed("it did not end within 30 s"))?
        .map_err(|error| failed(&format!("{program}: {error}")))?;
    if !output.status.success() {
        return Err(failed(&format!("{program} ended with {}", output.status)));
    }
    let printed: Printed = serde_json::from_slice(&output.stdout)
        .map_err(|_| failed("it printed something else than keys"))?;
    if printed.version != 1 {
        return Err(failed("it speaks another version than 1"));
    }
    let keys = AwsKeys {
        id: Secret::new(printed.access_key_id),
        secret: Secret::new(printed.secret_access_key),
        token: printed.session_token.map(Secret::new),
    };
    let until = printed
        .expiration
        .and_then(|at| u64::try_from(at.as_second()).ok())
        .map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    Ok((keys, until))
}

/// Words of a command line: quotes hold blanks together, a backslash takes the next character as it is. No
/// shell is involved. `None` when a quote stays open.
fn split(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\\', Some('"') | None) => word.get_or_insert_default().push(chars.next()?),
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// `bedrock-runtime.us-west-2.amazonaws.com` says its region.
fn region_of_url(url: &str) -> Option<String> {
    let host = url.split_once("://")?.1.split(['/', ':']).next()?;
    let rest = host
        .strip_prefix("bedrock-runtime.")
        .or_else(|| host.strip_prefix("bedrock-runtime-fips."))?;
    let (region, domain) = rest.split_once('.')?;
    domain
        .starts_with("amazonaws.com")
        .then(|| region.to_owned())
}

/// A region's name becomes a part of a host's: nothing else may.
fn is_region(region: &str) -> bool {
    !region.is_empty()
        && region.len() <= 64
        && region
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests;
