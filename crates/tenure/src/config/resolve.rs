//! Lays the layers over each other: built in, the user's file, the project's file, environment, flags.

use super::node::NodeConfig;
use super::origin::{Origin, Setting};
use super::project::Project;
use super::raw::{At, Decision, RawConfig, RawModel, RawProvider, RawRule};
use super::read;
use super::store_url::StoreUrl;
use super::trust::Trust;
use crate::amounts::{Bound, LimitsChange, Money, Time, Tokens};
use crate::args::Global;
use crate::environment::{Environment, Folders};
use crate::exit::{CliError, CliResult};
use crate::store::password::Passwords;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use tenure_core::ModelRef;
use tenure_core::event::body::Limits;
use tenure_core::price::Price;
use tenure_provider::catalogue::{Ability, vendor_of};
use tenure_provider::{Dialect, ModelSettings, Protocol};

/// What the command line says about the configuration.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `--config`
    pub config: Option<PathBuf>,
    /// `--store`
    pub store: Option<String>,
    /// `--model`
    pub model: Option<String>,
    /// `--max-steps`
    pub max_steps: Option<u32>,
    /// `--max-cost`, `--max-tokens`, `--max-time`
    pub limits: LimitsChange,
    /// `--allow-all`
    pub allow_all: bool,
}

impl From<&Global> for Flags {
    fn from(global: &Global) -> Self {
        Self {
            config: global.config.clone(),
            store: global.store.clone(),
            ..Self::default()
        }
    }
}

/// The configuration in force.
#[derive(Debug, Clone)]
pub struct Config {
    /// The user's folders.
    pub folders: Folders,
    /// The user's file, if one was read.
    pub file: Option<PathBuf>,
    /// The project's file, if there is one.
    pub project: Option<Project>,
    /// Where sessions are kept.
    pub store: Setting<StoreUrl>,
    /// The model of new sessions as it was written; see [`Config::model`].
    pub default_model: Option<Setting<String>>,
    /// Words for the model, the user's before the project's.
    pub instructions: Vec<Setting<String>>,
    /// Model turns without new input.
    pub max_steps: Setting<u32>,
    /// What a session may cost; `None` is no limit.
    pub max_cost: Setting<Option<Money>>,
    /// The tokens a session may use.
    pub max_tokens: Setting<Option<Tokens>>,
    /// How long a turn may take.
    pub max_time: Setting<Option<Time>>,
    /// Tool calls that run at the same time.
    pub max_parallel_tools: Setting<u32>,
    /// Compact by itself when the model's window fills.
    pub auto_compaction: Setting<bool>,
    /// Between two renewals of the node's lease.
    pub lease_renew: Setting<Duration>,
    /// How long a renewal is good for.
    pub lease_duration: Setting<Duration>,
    /// How long before the lease's end a node stops its own work.
    pub lease_margin: Setting<Duration>,
    /// Where the password of a PostgreSQL store may be.
    pub store_password: Passwords,
    /// This process among other nodes.
    pub node: NodeConfig,
    /// Model endpoints.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// The user's permission rules, and a trusted project's.
    pub permissions: Vec<Setting<RawRule>>,
    /// Rules that can only make the others stricter: an untrusted project's.
    pub narrowing: Vec<Setting<RawRule>>,
    /// `--allow-all` was given.
    pub allow_all: bool,
    /// What the user should know.
    pub notices: Vec<String>,
}

/// One model endpoint; its key is not read before it is used.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// What it speaks.
    pub protocol: Setting<Protocol>,
    /// Its address.
    pub base_url: Setting<String>,
    /// Which server of Chat Completions it is; none leaves that to the host's name.
    pub dialect: Option<Setting<Dialect>>,
    /// Where its key is.
    pub key: Option<Setting<KeySource>>,
    /// Further headers; values may be secret.
    pub headers: BTreeMap<String, Setting<String>>,
    /// Certificates to trust.
    pub ca_file: Option<Setting<PathBuf>>,
    /// What only AWS knows.
    pub aws: AwsConfig,
    /// Until the first content.
    pub first_byte_timeout: Option<Setting<Duration>>,
    /// Between two contents.
    pub idle_timeout: Option<Setting<Duration>>,
    /// The vendor whose models the catalogue's tables know; by the user's word, or by the host.
    pub catalogue: Option<Setting<String>>,
    /// Declared models.
    pub models: BTreeMap<String, Setting<ModelSettings>>,
}

/// Where an AWS provider is, and whose keys it uses.
#[derive(Debug, Clone, Default)]
pub struct AwsConfig {
    /// Its region.
    pub region: Option<Setting<String>>,
    /// A profile of AWS's shared files.
    pub profile: Option<Setting<String>>,
    /// The variables that hold a key of its own.
    pub keys: Option<Setting<AwsKeyNames>>,
}

/// The variables that hold one access key of AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsKeyNames {
    /// The key's id.
    pub id: String,
    /// The key itself.
    pub secret: String,
    /// The session's token.
    pub token: Option<String>,
}

/// Where a key is to be read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// An environment variable.
    Env(String),
    /// A file that only its owner may read.
    File(PathBuf),
}

/// Reads every layer and resolves it. Reads files, and writes none.
///
/// # Errors
/// Usage errors for what is written wrongly, each with its place and the next step.
pub fn load(flags: &Flags, env: &Environment, cwd: &Path) -> CliResult<Config> {
    let folders = env.folders()?;
    let user = user_file(flags, env, cwd, &folders)?;
    let project = Project::find(cwd, &Trust::load(&folders)?);
    Resolver {
        flags,
        env,
        cwd,
        folders,
        user,
        project,
    }
    .resolve()
}

type UserFile = Option<(PathBuf, RawConfig)>;

fn user_file(
    flags: &Flags,
    env: &Environment,
    cwd: &Path,
    folders: &Folders,
) -> CliResult<UserFile> {
    let named = match (&flags.config, env.var("TENURE_CONFIG")) {
        (Some(path), _) => Some((cwd.join(path), "--config")),
        (None, Some(path)) => Some((cwd.join(env.expand(path)), "TENURE_CONFIG")),
        (None, None) => None,
    };
    let path = named.as_ref().map_or_else(
        || folders.config.join("tenure.toml"),
        |(path, _)| path.clone(),
    );
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some((path.clone(), read::parse(&path, &text)?))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && named.is_none() => Ok(None),
        Err(e) => {
            let by = named.map_or(String::new(), |(_, by)| format!(" (named by {by})"));
            Err(CliError::usage(format!(
                "the configuration {}{by} cannot be read: {e}",
                path.display()
            ))
            .hint("`tenure config --example` prints a file to start from"))
        }
    }
}

impl Config {
    /// May something be begun here? Not while the project's file is there and cannot be understood: it may hold
    /// rules that narrow permissions.
    ///
    /// # Errors
    /// A usage error with the file's problems.
    pub fn sound(&self) -> CliResult {
        match self.project.as_ref().and_then(|p| p.broken.clone()) {
            Some(error) => Err(error.hint(
                "it may narrow what tools may do, so nothing is begun in this folder: correct or remove it",
            )),
            None => Ok(()),
        }
    }

    /// The limits of a new session.
    pub fn limits(&self) -> Limits {
        Limits {
            max_steps: self.max_steps.value,
            max_cost: self.max_cost.value.map(|money| money.0),
            max_tokens: self.max_tokens.value.map(|tokens| tokens.0),
            max_wall_ms: self.max_time.value.map(|time| time.0),
        }
    }

    /// All that the user should know before something runs: the notices, and rules that never apply.
    pub fn warnings(&self) -> Vec<String> {
        let rules = super::permissions::unmatched(self);
        let rules = rules.into_iter().map(|rule| rule.words);
        self.notices.iter().cloned().chain(rules).collect()
    }

    /// The model of new sessions, checked against the configured providers.
    ///
    /// # Errors
    /// A usage error when none is chosen or the chosen one is not configured.
    pub fn model(&self) -> CliResult<ModelRef> {
        match &self.default_model {
            Some(Setting { value, origin }) => known_model(value, self).map_err(|e| at(e, origin)),
            None => Err(
                CliError::usage("no model is chosen").hint(if self.providers.is_empty() {
                    format!(
                        "no provider is configured: `tenure config --example` prints a file for {}",
                        self.folders.config.join("tenure.toml").display()
                    )
                } else {
                    "set default_model in the configuration, or give --model provider/model"
                        .to_owned()
                }),
            ),
        }
    }
}

struct Resolver<'a> {
    flags: &'a Flags,
    env: &'a Environment,
    cwd: &'a Path,
    folders: Folders,
    user: UserFile,
    project: Option<Project>,
}

/// The project's file when it may set everything.
fn trusted(project: Option<&Project>) -> Option<&Project> {
    project.filter(|p| p.trusted)
}

impl Resolver<'_> {
    fn user_origin(&self, line: usize) -> Origin {
        Origin::File {
            path: self
                .user
                .as_ref()
                .map(|(path, _)| path.clone())
                .unwrap_or_default(),
            line,
        }
    }

    fn project_origin(&self, line: usize) -> Origin {
        Origin::Project {
            path: self
                .project
                .as_ref()
                .map(|p| p.file.clone())
                .unwrap_or_default(),
            line,
        }
    }

    /// The value of the strongest file that has one; a project's counts only when it is trusted.
    fn in_files<T: Clone>(&self, get: impl Fn(&RawConfig) -> Option<&At<T>>) -> Option<Setting<T>> {
        if let Some(at) = trusted(self.project.as_ref()).and_then(|p| get(&p.raw)) {
            return Some(Setting::new(at.value.clone(), self.project_origin(at.line)));
        }
        let at = self.user.as_ref().and_then(|(_, raw)| get(raw))?;
        Some(Setting::new(at.value.clone(), self.user_origin(at.line)))
    }

    fn resolve(self) -> CliResult<Config> {
        let providers = self.providers()?;
        let (permissions, narrowing) = self.permissions();
        let (lease_renew, lease_duration, lease_margin) = self.lease()?;
        let config = Config {
            store: self.store()?,
            default_model: self.model(),
            instructions: self.instructions(),
            max_steps: self.max_steps()?,
            max_cost: self.limit("--max-cost", self.flags.limits.cost, |raw| {
                raw.max_cost.as_ref()
            })?,
            max_tokens: self.limit("--max-tokens", self.flags.limits.tokens, |raw| {
                raw.max_tokens.as_ref()
            })?,
            max_time: self.limit("--max-time", self.flags.limits.time, |raw| {
                raw.max_time.as_ref()
            })?,
            max_parallel_tools: self.small("max_parallel_tools", 8, |raw| {
                raw.max_parallel_tools.as_ref()
            })?,
            auto_compaction: self
                .in_files(|raw| raw.auto_compaction.as_ref())
                .unwrap_or_else(|| Setting::new(true, Origin::Default)),
            lease_renew,
            lease_duration,
            lease_margin,
            store_password: self.store_password()?,
            node: NodeConfig::resolve(&|get| self.in_files(get), &|get| self.in_files(get))?,
            providers,
            permissions,
            narrowing,
            allow_all: self.flags.allow_all,
            notices: self.project.iter().filter_map(Project::notice).collect(),
            file: self.user.map(|(path, _)| path),
            project: self.project,
            folders: self.folders,
        };
        Ok(config)
    }

    fn store(&self) -> CliResult<Setting<StoreUrl>> {
        if let Some(url) = &self.flags.store {
            return Ok(Setting::new(
                StoreUrl::parse(url, self.cwd, self.env)?,
                Origin::Flag("--store"),
            ));
        }
        if let Some(url) = self.env.var("TENURE_STORE") {
            let url = StoreUrl::parse(url, self.cwd, self.env)?;
            return Ok(Setting::new(url, Origin::Env("TENURE_STORE")));
        }
        match self.in_files(|raw| raw.store.as_ref()) {
            Some(Setting { value, origin }) => {
                let base = match &origin {
                    Origin::File { path, .. } | Origin::Project { path, .. } => {
                        path.parent().unwrap_or(self.cwd)
                    }
                    _ => self.cwd,
                };
                let url = StoreUrl::parse(&value, base, self.env).map_err(|e| at(e, &origin))?;
                Ok(Setting::new(url, origin))
            }
            None => Ok(Setting::new(
                StoreUrl::Sqlite(self.folders.data.join("tenure.db")),
                Origin::Default,
            )),
        }
    }

    fn store_password(&self) -> CliResult<Passwords> {
        let file = self.in_files(|raw| raw.store_password_file.as_ref());
        let file = file.map(|Setting { value, origin }| {
            Setting::new(self.beside_its_file(&value, &origin), origin)
        });
        Ok(Passwords::new(file, self.env))
    }

    fn model(&self) -> Option<Setting<String>> {
        if let Some(model) = &self.flags.model {
            return Some(Setting::new(model.clone(), Origin::Flag("--model")));
        }
        if let Some(model) = self.env.var("TENURE_MODEL") {
            return Some(Setting::new(model.to_owned(), Origin::Env("TENURE_MODEL")));
        }
        // A project may pick a model even when it is not trusted: only one that the user configured can be picked.
        let project = self
            .project
            .as_ref()
            .and_then(|p| p.raw.default_model.as_ref());
        match project {
            Some(at) => Some(Setting::new(at.value.clone(), self.project_origin(at.line))),
            None => self.in_files(|raw| raw.default_model.as_ref()),
        }
    }

    fn instructions(&self) -> Vec<Setting<String>> {
        let user = self
            .user
            .as_ref()
            .and_then(|(_, raw)| raw.instructions.as_ref());
        let project = self
            .project
            .as_ref()
            .and_then(|p| p.raw.instructions.as_ref());
        let user = user.map(|at| Setting::new(at.value.clone(), self.user_origin(at.line)));
        let project =
            project.map(|at| Setting::new(at.value.clone(), self.project_origin(at.line)));
        user.into_iter().chain(project).collect()
    }

    fn max_steps(&self) -> CliResult<Setting<u32>> {
        match self.flags.max_steps {
            Some(steps) => Ok(Setting::new(steps, Origin::Flag("--max-steps"))),
            None => self.small("max_steps", 100, |raw| raw.max_steps.as_ref()),
        }
    }

    fn limit<T: FromStr<Err = String> + Copy>(
        &self,
        flag: &'static str,
        given: Option<Bound<T>>,
        get: impl Fn(&RawConfig) -> Option<&At<String>>,
    ) -> CliResult<Setting<Option<T>>> {
        if let Some(Bound(value)) = given {
            return Ok(Setting::new(value, Origin::Flag(flag)));
        }
        let Some(Setting { value, origin }) = self.in_files(get) else {
            return Ok(Setting::new(None, Origin::Default));
        };
        let Bound(value) = value
            .parse()
            .map_err(|words: String| at(CliError::usage(words), &origin))?;
        Ok(Setting::new(value, origin))
    }

    fn small(
        &self,
        name: &str,
        default: u32,
        get: impl Fn(&RawConfig) -> Option<&At<u64>>,
    ) -> CliResult<Setting<u32>> {
        let Some(Setting { value, origin }) = self.in_files(get) else {
            return Ok(Setting::new(default, Origin::Default));
        };
        let value = u32::try_from(value)
            .ok()
            .filter(|v| *v <= 100_000)
            .ok_or_else(|| {
                at(
                    CliError::usage(format!("`{name}` may be at most 100000")),
                    &origin,
                )
            })?;
        Ok(Setting::new(value, origin))
    }

    fn lease(&self) -> CliResult<(Setting<Duration>, Setting<Duration>, Setting<Duration>)> {
        let part = |default: u64, get: fn(&RawConfig) -> Option<&At<u64>>| {
            let found = self
                .in_files(get)
                .unwrap_or(Setting::new(default, Origin::Default));
            Setting::new(Duration::from_millis(found.value), found.origin)
        };
        let renew = part(1_000, |raw| raw.lease.renew_ms.as_ref());
        let duration = part(6_000, |raw| raw.lease.duration_ms.as_ref());
        let margin = part(1_500, |raw| raw.lease.margin_ms.as_ref());
        if renew.value * 2 + margin.value > duration.value {
            return Err(CliError::usage(format!(
                "the lease times do not fit each other: two renewals ({} ms each, {}) and the margin ({} ms, {}) \
                 take longer than the lease lasts ({} ms, {})",
                renew.value.as_millis(),
                renew.origin,
                margin.value.as_millis(),
                margin.origin,
                duration.value.as_millis(),
                duration.origin
            ))
            .hint("raise lease.duration_ms, or lower lease.renew_ms or lease.margin_ms"));
        }
        Ok((renew, duration, margin))
    }

    fn permissions(&self) -> (Vec<Setting<RawRule>>, Vec<Setting<RawRule>>) {
        let mut rules: Vec<_> = self
            .user
            .iter()
            .flat_map(|(_, raw)| &raw.permissions)
            .map(|rule| Setting::new(rule.clone(), self.user_origin(rule.line)))
            .collect();
        let project = self.project.iter().flat_map(|p| &p.raw.permissions);
        let project =
            project.map(|rule| Setting::new(rule.clone(), self.project_origin(rule.line)));
        if trusted(self.project.as_ref()).is_some() {
            rules.extend(project);
            (rules, Vec::new())
        } else {
            let narrowing = project
                .filter(|r| r.value.decision != Decision::Allow)
                .collect();
            (rules, narrowing)
        }
    }

    fn providers(&self) -> CliResult<BTreeMap<String, ProviderConfig>> {
        let mut providers = BTreeMap::new();
        for (name, raw) in self.user.iter().flat_map(|(_, raw)| &raw.providers) {
            let origin = |line| self.user_origin(line);
            providers.insert(name.clone(), self.provider(name, raw, &origin)?);
        }
        for (name, raw) in trusted(self.project.as_ref())
            .iter()
            .flat_map(|p| &p.raw.providers)
        {
            let origin = |line| self.project_origin(line);
            providers.insert(name.clone(), self.provider(name, raw, &origin)?);
        }
        Ok(providers)
    }

    fn provider(
        &self,
        name: &str,
        raw: &RawProvider,
        origin: &dyn Fn(usize) -> Origin,
    ) -> CliResult<ProviderConfig> {
        let missing = || {
            at(
                CliError::usage(format!("provider {name} is not complete")),
                &origin(raw.line),
            )
        };
        let protocol = raw.protocol.as_ref().ok_or_else(missing)?;
        // Bedrock's address follows from its region.
        let regional = At {
            value: String::new(),
            line: raw.line,
        };
        let bedrock = protocol.value == Protocol::BedrockConverse.as_str();
        let own = raw.base_url.as_ref().or(bedrock.then_some(&regional));
        let base_url = own.ok_or_else(missing)?;
        if raw.api_key_env.is_some() && raw.api_key_file.is_some() {
            let error = CliError::usage(format!(
                "provider {name} has both api_key_env and api_key_file"
            ));
            return Err(at(error.hint("keep one of them"), &origin(raw.line)));
        }
        let addressed =
            base_url.value.starts_with("http://") || base_url.value.starts_with("https://");
        if !addressed && raw.base_url.is_some() {
            let error = CliError::usage(format!(
                "providers.{name}.base_url must begin with http:// or https://"
            ))
            .hint("write for example \"http://127.0.0.1:8080/v1\"");
            return Err(at(error, &origin(base_url.line)));
        }
        let parsed: Protocol =
            protocol
                .value
                .parse()
                .map_err(|e: tenure_provider::SettingsError| {
                    let error = CliError::usage(e.to_string());
                    at(
                        error.near(&protocol.value, Protocol::ALL.map(Protocol::as_str)),
                        &origin(protocol.line),
                    )
                })?;
        let dialect = raw
            .dialect
            .as_ref()
            .map(|word| {
                let parsed = word.value.parse::<Dialect>();
                parsed
                    .map(|dialect| Setting::new(dialect, origin(word.line)))
                    .map_err(|e| {
                        let error = CliError::usage(e.to_string());
                        let words = Dialect::all().map(Dialect::as_str);
                        at(error.near(&word.value, words), &origin(word.line))
                    })
            })
            .transpose()?;
        let seconds = |at: &At<f64>| {
            Setting::new(Duration::from_secs_f64(at.value.min(1e9)), origin(at.line))
        };
        let file = |at: &At<String>| self.beside_its_file(&at.value, &origin(at.line));
        let key = match (&raw.api_key_env, &raw.api_key_file) {
            (Some(env), _) => Some(Setting::new(
                KeySource::Env(env.value.clone()),
                origin(env.line),
            )),
            (None, Some(path)) => {
                Some(Setting::new(KeySource::File(file(path)), origin(path.line)))
            }
            (None, None) => None,
        };
        let headers = raw.headers.iter();
        let catalogue = whose_models(raw, base_url, origin);
        let models = raw.models.iter();
        Ok(ProviderConfig {
            protocol: Setting::new(parsed, origin(protocol.line)),
            base_url: Setting::new(base_url.value.clone(), origin(base_url.line)),
            dialect,
            key,
            headers: headers
                .map(|(k, v)| (k.clone(), Setting::new(v.value.clone(), origin(v.line))))
                .collect(),
            ca_file: raw
                .ca_file
                .as_ref()
                .map(|at| Setting::new(file(at), origin(at.line))),
            aws: aws(name, raw, origin)?,
            first_byte_timeout: raw.first_byte_timeout_s.as_ref().map(seconds),
            idle_timeout: raw.idle_timeout_s.as_ref().map(seconds),
            catalogue,
            models: models
                .map(|(k, m)| (k.clone(), Setting::new(model_settings(m), origin(m.line))))
                .collect(),
        })
    }

    fn beside_its_file(&self, path: &str, origin: &Origin) -> PathBuf {
        let base = match origin {
            Origin::File { path, .. } | Origin::Project { path, .. } => path.parent(),
            _ => None,
        };
        base.unwrap_or(self.cwd).join(self.env.expand(path))
    }
}

/// Whose models a provider has: by the user's word, or by its address; only Bedrock needs none.
fn whose_models(
    raw: &RawProvider,
    base_url: &At<String>,
    origin: &dyn Fn(usize) -> Origin,
) -> Option<Setting<String>> {
    if let Some(word) = &raw.catalogue {
        return Some(Setting::new(word.value.clone(), origin(word.line)));
    }
    let regional = raw.base_url.is_none().then_some("amazon-bedrock");
    let vendor = vendor_of(&base_url.value).or(regional)?;
    Some(Setting::new(vendor.to_owned(), origin(base_url.line)))
}

/// What only AWS knows; nobody else may be told it.
fn aws(name: &str, raw: &RawProvider, origin: &dyn Fn(usize) -> Origin) -> CliResult<AwsConfig> {
    let given = &raw.aws;
    let all = [
        ("region", &given.region),
        ("profile", &given.profile),
        ("access_key_id_env", &given.access_key_id_env),
        ("secret_access_key_env", &given.secret_access_key_env),
        ("session_token_env", &given.session_token_env),
    ];
    let bedrock = Protocol::BedrockConverse.as_str();
    let spoken = raw
        .protocol
        .as_ref()
        .map(|protocol| protocol.value.as_str());
    let first = all.iter().find_map(|(key, at)| Some((key, at.as_ref()?)));
    if let Some((key, value)) = first
        && spoken != Some(bedrock)
    {
        let error = CliError::usage(format!("providers.{name}.{key} is for {bedrock} alone"));
        return Err(at(error, &origin(value.line)));
    }
    let setting = |at: &Option<At<String>>| {
        at.as_ref()
            .map(|at| Setting::new(at.value.clone(), origin(at.line)))
    };
    let keys = match (&given.access_key_id_env, &given.secret_access_key_env) {
        (Some(id), Some(secret)) => Some(Setting::new(
            AwsKeyNames {
                id: id.value.clone(),
                secret: secret.value.clone(),
                token: given.session_token_env.as_ref().map(|at| at.value.clone()),
            },
            origin(id.line),
        )),
        (None, None) if given.session_token_env.is_none() => None,
        _ => {
            let error = CliError::usage(format!(
                "provider {name} needs access_key_id_env and secret_access_key_env together"
            ));
            return Err(at(error, &origin(raw.line)));
        }
    };
    Ok(AwsConfig {
        region: setting(&given.region),
        profile: setting(&given.profile),
        keys,
    })
}

fn model_settings(raw: &RawModel) -> ModelSettings {
    ModelSettings {
        context: raw.context.as_ref().map(|at| at.value),
        output: raw.output.as_ref().map(|at| at.value),
        price: raw.price.as_ref().map(|at| Price {
            base: at.value.base,
            tiers: at.value.tiers.clone(),
            search: None,
        }),
        abilities: raw.abilities.as_ref().map(|at| {
            at.value
                .iter()
                .filter_map(|word| Ability::parse(word))
                .collect()
        }),
        asks: raw.asks.clone(),
    }
}

/// Puts the place of a value in front of an error about it.
fn at(mut error: CliError, origin: &Origin) -> CliError {
    error.message = format!("{origin}: {}", error.message);
    error
}

/// Reads `provider/model` and checks it against what is configured.
///
/// # Errors
/// A usage error with the nearest configured provider or model.
pub fn known_model(text: &str, config: &Config) -> CliResult<ModelRef> {
    let providers = &config.providers;
    let all = || {
        providers
            .iter()
            .flat_map(|(name, p)| p.models.keys().map(move |model| format!("{name}/{model}")))
    };
    let list = "`tenure models` lists the configured models";
    let Some(model) = ModelRef::parse(text) else {
        let error = CliError::usage(format!(
            "the model `{text}` is not of the form provider/model"
        ));
        let same = all().find(|known| known.ends_with(&format!("/{text}")));
        return Err(match same {
            Some(same) => error.hint(format!("did you mean `{same}`?")),
            None => error.near(text, all()).hint(list),
        });
    };
    let Some(provider) = providers.get(&model.provider) else {
        return Err(CliError::usage(format!("there is no provider `{}`", model.provider))
            .near(&model.provider, providers.keys())
            .hint(if providers.is_empty() {
                "no provider is configured: `tenure config --example` prints a file to start from"
            } else {
                list
            }));
    };
    let declared = provider.models.is_empty() || provider.models.contains_key(&model.model);
    if declared || crate::providers::catalogue(config).knows(&model) {
        return Ok(model);
    }
    Err(CliError::usage(format!(
        "provider `{}` has no model `{}`",
        model.provider, model.model
    ))
    .near(&model.model, provider.models.keys())
    .hint(format!(
        "declare it with [providers.{}.models.\"{}\"], or see `tenure models`",
        model.provider, model.model
    )))
}

#[cfg(test)]
mod tests;
