//! One node of a fleet: its folder, its configuration, its proxy and, while it runs, its process.

use crate::processes::MARK;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tenure_testbed::proxy::Proxy;
use tenure_testbed::signals::Running;

/// What all nodes of a fleet have in common.
#[derive(Debug, Clone)]
pub(super) struct Common {
    pub tenure: PathBuf,
    pub mark: String,
}

/// A node: a name and a place, with a process in it while it runs.
#[derive(Debug)]
pub struct Node {
    common: Common,
    name: String,
    folder: PathBuf,
    proxy: Option<Proxy>,
    running: Option<Running>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Node {
    /// A node that does not run yet. `config` is the text of its configuration.
    pub(super) fn new(
        common: Common,
        name: String,
        folder: PathBuf,
        proxy: Option<Proxy>,
        config: &str,
    ) -> Result<Self> {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("tenure.toml"), config)?;
        Ok(Self {
            common,
            name,
            folder,
            proxy,
            running: None,
            arguments: Vec::new(),
            environment: Vec::new(),
        })
    }

    /// A node that cannot be told from this one, but by its connection.
    pub(super) fn twin(&self, proxy: Option<Proxy>) -> Result<Self> {
        let mut environment = self.environment.clone();
        if let (Some(own), Some(proxy)) = (&self.proxy, &proxy) {
            let text = std::fs::read_to_string(self.folder.join("tenure.toml"))?;
            let store = text
                .lines()
                .find_map(|line| line.strip_prefix("store = \"")?.strip_suffix('"'))
                .context("the configuration names a store")?;
            debug_assert!(store.contains(&own.address().to_string()));
            environment.push(("TENURE_STORE".to_owned(), proxy.url(store)));
        }
        Ok(Self {
            common: self.common.clone(),
            name: self.name.clone(),
            folder: self.folder.clone(),
            proxy,
            running: None,
            arguments: self.arguments.clone(),
            environment,
        })
    }

    /// Its name, as in its folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its home folder; the configuration is `tenure.toml` in it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What stands between it and the store.
    ///
    /// # Errors
    /// The store is a file.
    pub fn proxy(&self) -> Result<&Proxy> {
        self.proxy
            .as_ref()
            .with_context(|| format!("{} has no proxy: its store is a file", self.name))
    }

    /// Shifts its wall clock by so many seconds, from the next start on; durations stay true.
    ///
    /// # Errors
    /// libfaketime is not installed.
    pub fn with_clock(&mut self, seconds: i64) -> Result<&mut Self> {
        let mut shifted = Command::new("shifted");
        tenure_testbed::faketime::shift(&mut shifted, seconds)?;
        for (name, value) in shifted.get_envs() {
            let value = value.unwrap_or_default().to_string_lossy().into_owned();
            self.environment
                .push((name.to_string_lossy().into_owned(), value));
        }
        Ok(self)
    }

    /// More arguments for `tenure node`, from the next start on.
    pub fn with_arguments(&mut self, arguments: &[&str]) -> &mut Self {
        self.arguments = arguments.iter().map(|one| (*one).to_owned()).collect();
        self
    }

    /// One more variable in its environment, from the next start on.
    pub fn with_environment(&mut self, name: &str, value: &str) -> &mut Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// `tenure` as this node's user would call it: with its configuration, through its proxy.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.common.tenure);
        command
            .args(arguments)
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.folder)
            .env("TENURE_CONFIG", self.folder.join("tenure.toml"))
            .env("TENURE_LOG", "warn")
            .env("SIM_API_KEY", "sim-key")
            .env("NO_COLOR", "1")
            .env(MARK, &self.common.mark)
            .stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs `tenure` to its end; its output when it succeeded. Blocks.
    ///
    /// # Errors
    /// It cannot be started, or ended with another code than 0.
    pub fn output(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("`tenure {}` on {}: {said}", arguments.join(" "), self.name);
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// `tenure` with these arguments as a process of its own, for example a reader.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_beside(&self, arguments: &[&str]) -> Result<Running> {
        let name = format!("tenure {} on {}", arguments.join(" "), self.name);
        Ok(Running::start(name, &mut self.command(arguments))?)
    }

    /// Starts the process; whether it has joined is [`super::Fleet::start_node`]'s to wait for.
    pub(super) fn launch(&mut self) -> Result<()> {
        if self.running.is_some() {
            bail!("{} runs already", self.name);
        }
        let mut arguments = vec!["node"];
        arguments.extend(self.arguments.iter().map(String::as_str));
        let mut command = self.command(&arguments);
        self.running = Some(Running::start(self.name.clone(), &mut command)?);
        Ok(())
    }

    /// The process.
    ///
    /// # Errors
    /// It does not run.
    pub fn running(&mut self) -> Result<&mut Running> {
        let name = &self.name;
        self.running
            .as_mut()
            .with_context(|| format!("{name} does not run"))
    }

    /// Every line it has written since its start; none when it does not run.
    pub fn said(&self) -> Vec<String> {
        self.running
            .as_ref()
            .map(Running::lines)
            .unwrap_or_default()
    }

    /// Its process id; none when it does not run.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(Running::pid)
    }

    /// SIGKILL. The wall-clock milliseconds just before it.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&mut self) -> Result<i64> {
        let at = now_ms();
        self.running()?.kill()?;
        self.running = None;
        Ok(at)
    }

    /// SIGSTOP. The wall-clock milliseconds just before it.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&mut self) -> Result<i64> {
        let at = now_ms();
        self.running()?.pause()?;
        Ok(at)
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// It does not run.
    pub fn resume(&mut self) -> Result<()> {
        Ok(self.running()?.resume()?)
    }

    /// SIGTERM, and waits for its end. The wall-clock milliseconds just before the signal.
    ///
    /// # Errors
    /// It does not run, or does not end within `limit`; with what it said.
    pub fn terminate(&mut self, limit: Duration) -> Result<(i64, ExitStatus)> {
        let at = now_ms();
        self.running()?.terminate()?;
        let status = self.running()?.end(limit)?;
        self.running = None;
        Ok((at, status))
    }
}

/// Wall-clock milliseconds, as events have them.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
