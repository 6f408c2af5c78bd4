//! A PostgreSQL server of one's own on a free loopback port: started, stopped, paused, changed, copied.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio_postgres::Config;
use uuid::Uuid;

use super::binaries::Binaries;
use super::database::{Database, Server};
use super::standby::Standby;
use super::tls;
use crate::account::Account;
use crate::leash::Leash;
use crate::{Error, signals, wait};

/// The role that owns everything.
pub(super) const ROLE: &str = "tenure";
/// How often another port is tried when somebody else was quicker.
const PORTS: usize = 20;
/// Ends the server in the folder `$1`, stopped or running, and removes the folder.
///
/// SIGQUIT first: unlike SIGKILL it leaves no shared memory behind.
const END: &str = r#"
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ] && [ "$(readlink "/proc/$pid/cwd")" = "$1/data" ]; then
    kill -QUIT "$pid"
    kill -CONT $(cat /proc/$pid/task/*/children) "$pid"
    n=0
    while kill -0 "$pid" && [ $n -lt 200 ]; do sleep 0.05; n=$((n + 1)); done
    kill -KILL "$pid"
fi 2>/dev/null
rm -rf "$1"
"#;

/// How a new cluster is to be.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Whether the server offers TLS.
    pub tls: Tls,
    /// Leave flushing to the operating system. Killed processes lose nothing by it, only a power cut would.
    pub no_fsync: bool,
    /// More settings, name and value.
    pub settings: Vec<(String, String)>,
}

impl Options {
    /// For a server whose speed is not measured and whose data nobody keeps.
    pub fn disposable() -> Self {
        Options {
            no_fsync: true,
            ..Options::default()
        }
    }

    /// The same with one more setting.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Whether a server speaks TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tls {
    /// It does not.
    #[default]
    Off,
    /// Whoever asks for it gets it.
    Offered,
    /// Over TCP nobody gets in without.
    Required,
}

/// How to stop a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Connections are ended, transactions rolled back, everything written down.
    Fast,
    /// As in a crash: nothing is written down, the next start recovers.
    Immediate,
}

/// A server of this process. Dropped, it is stopped and its data are removed; it does not outlive the process.
#[derive(Debug)]
pub struct Cluster {
    place: Place,
    port: u16,
    postmaster: Mutex<Option<Child>>,
    server: Server,
    tls: Tls,
    // Dropped last: it removes the folder.
    _leash: Leash,
}

/// What a server and its copies are made of.
#[derive(Debug)]
pub(super) struct Place {
    pub account: Account,
    pub binaries: Binaries,
    /// Holds the data, the socket, the log.
    pub folder: PathBuf,
    pub password: String,
}

impl Place {
    /// A new, empty folder, and the leash that removes it.
    pub fn new(password: String) -> Result<(Self, Leash), Error> {
        let binaries = Binaries::find()?;
        let account = Account::ordinary()?;
        let folder = account.folder("tenure-pg-")?;
        let leash = Leash::new(END, &[&folder])?;
        let place = Place {
            account,
            binaries,
            folder,
            password,
        };
        Ok((place, leash))
    }

    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    pub fn command(&self, program: &str) -> Command {
        self.account.command(self.binaries.program(program))
    }

    /// How we connect: by the socket, past TLS.
    fn config(&self, port: u16) -> Config {
        let mut config = Config::new();
        config
            .host_path(&self.folder)
            .port(port)
            .user(ROLE)
            .password(&self.password)
            .dbname("postgres")
            .application_name("tenure-testbed");
        config
    }

    fn url(&self, port: u16) -> String {
        format!(
            "postgres://{ROLE}:{}@127.0.0.1:{port}/postgres",
            self.password
        )
    }

    fn log_tail(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Cluster {
    /// Makes a new cluster and starts its server.
    ///
    /// # Errors
    /// [`Error::Missing`] where PostgreSQL is not installed; the server's last words when it does not start.
    pub fn start(options: &Options) -> Result<Self, Error> {
        let (place, leash) = Place::new(Uuid::new_v4().simple().to_string())?;
        initialise(&place)?;
        configure(&place, options)?;
        Self::run(place, leash, options.tls)
    }

    /// Starts the server of a folder whose data are complete.
    pub(super) fn run(place: Place, leash: Leash, tls: Tls) -> Result<Self, Error> {
        let mut last = None;
        for _ in 0..PORTS {
            let port = free_port()?;
            match launch(&place, port) {
                Ok(child) => {
                    let server = Server::ours(&place.url(port), place.config(port))?;
                    return Ok(Cluster {
                        place,
                        port,
                        postmaster: Mutex::new(Some(child)),
                        server,
                        tls,
                        _leash: leash,
                    });
                }
                Err(Launch::PortTaken(error)) => last = Some(error),
                Err(Launch::Failed(error)) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| Error::Wrong("no port was tried".into())))
    }

    /// A server for many tests one after another: used databases are emptied and lent again.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn lending() -> Result<Self, Error> {
        let mut cluster = Self::start(&Options::disposable())?;
        cluster.server.keep_spare()?;
        Ok(cluster)
    }

    /// The server, for databases and statements.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Creates a database; see [`Server::database`].
    ///
    /// # Errors
    /// As there.
    pub fn database(&self) -> Result<Database, Error> {
        self.server.database()
    }

    /// Where it listens; the same after a restart.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The folder of its socket, for `host=…`.
    pub fn socket_folder(&self) -> &Path {
        &self.place.folder
    }

    /// The certificate that clients of a server with [`Tls`] have to trust, in PEM.
    ///
    /// # Errors
    /// The server has no TLS.
    pub fn authority(&self) -> Result<PathBuf, Error> {
        match self.tls {
            Tls::Off => Err(Error::Wrong("this cluster has no TLS".into())),
            Tls::Offered | Tls::Required => Ok(self.place.folder.join("authority.pem")),
        }
    }

    /// The postmaster's process id; nothing while it is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.lock().as_ref().map(Child::id)
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.place.log()).unwrap_or_default()).into_owned()
    }

    /// Stops the server and waits for its end; one that is paused is resumed for it. Stopped already, nothing happens.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(&self, how: Stop) -> Result<(), Error> {
        let mut postmaster = self.lock();
        let Some(child) = postmaster.as_mut() else {
            return Ok(());
        };
        let signal = match how {
            Stop::Fast => Signal::SIGINT,
            Stop::Immediate => Signal::SIGQUIT,
        };
        send(child.id(), signal)?;
        go_on(child.id());
        wait::until("the server's end", wait::PATIENCE, || {
            child
                .try_wait()
                .map_err(Error::system("wait for the server"))
        })?;
        *postmaster = None;
        self.server.hang_up();
        Ok(())
    }

    /// Starts the stopped server, on the port it had. Running, nothing happens.
    ///
    /// # Errors
    /// It does not start; with its last words.
    pub fn start_again(&self) -> Result<(), Error> {
        let mut postmaster = self.lock();
        if postmaster.is_some() {
            return Ok(());
        }
        self.server.hang_up();
        let child = match launch(&self.place, self.port) {
            Ok(child) => child,
            Err(Launch::PortTaken(error) | Launch::Failed(error)) => return Err(error),
        };
        *postmaster = Some(child);
        Ok(())
    }

    /// Stops and starts it.
    ///
    /// # Errors
    /// As [`Cluster::stop`] and [`Cluster::start_again`].
    pub fn restart(&self, how: Stop) -> Result<(), Error> {
        self.stop(how)?;
        self.start_again()
    }

    /// SIGSTOP for the postmaster and all its processes: connections stay open and nobody answers.
    ///
    /// # Errors
    /// It is stopped.
    pub fn pause(&self) -> Result<(), Error> {
        let pid = self.running()?;
        // The postmaster first, so that it starts nobody meanwhile.
        send(pid, Signal::SIGSTOP)?;
        wait::until_true("a paused postmaster", wait::PATIENCE, || {
            signals::is_stopped(pid)
        })?;
        for child in children(pid) {
            // One that ended meanwhile needs no signal.
            let _ = send(child, Signal::SIGSTOP);
        }
        wait::until_true("paused server processes", wait::PATIENCE, || {
            children(pid).into_iter().all(signals::is_stopped)
        })
    }

    /// SIGCONT for all of them.
    ///
    /// # Errors
    /// It is stopped.
    pub fn resume(&self) -> Result<(), Error> {
        go_on(self.running()?);
        Ok(())
    }

    /// Changes a setting for good and makes it known to the running server.
    ///
    /// # Errors
    /// The server refuses the value, or takes it up at a restart only: the value is then set, and the error says so.
    pub fn set(&self, setting: &str, value: &str) -> Result<(), Error> {
        let loaded = || self.server.value("SELECT pg_conf_load_time()");
        let before = loaded()?;
        let value = value.replace('\'', "''");
        self.server
            .execute(&format!("ALTER SYSTEM SET {setting} = '{value}'"))?;
        self.server.value("SELECT pg_reload_conf()")?;
        // The reload is a signal: it has arrived when the session's own time of loading moves.
        wait::until("a reloaded setting", wait::PATIENCE, || {
            Ok((loaded()? != before).then_some(()))
        })?;
        let name = setting.replace('\'', "''");
        let pending = self.server.value(&format!(
            "SELECT pending_restart FROM pg_settings WHERE name = lower('{name}')"
        ))?;
        if pending.as_deref() == Some("t") {
            return Err(Error::Wrong(format!(
                "`{setting}` is set and takes effect at the next restart"
            )));
        }
        Ok(())
    }

    /// A streaming standby of this server, with a server of its own.
    ///
    /// # Errors
    /// The copy cannot be made, or its server does not start.
    pub fn standby(&self) -> Result<Standby, Error> {
        Standby::of(self)
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn tls(&self) -> Tls {
        self.tls
    }

    fn running(&self) -> Result<u32, Error> {
        self.pid()
            .ok_or_else(|| Error::Wrong("the server is stopped".into()))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.postmaster
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Should it fail, the leash ends the server in its own way.
        let _ = self.stop(Stop::Immediate);
    }
}

/// `initdb`, with the role's password from a file that is gone afterwards.
fn initialise(place: &Place) -> Result<(), Error> {
    let password = place.folder.join("password");
    place.account.write(&password, &place.password)?;
    let output = place
        .command("initdb")
        .arg("--pgdata")
        .arg(place.data())
        .arg("--pwfile")
        .arg(&password)
        .args(["--username", ROLE])
        .args(["--auth", "scram-sha-256", "--encoding", "UTF8"])
        .args(["--locale", "C", "--no-sync", "--no-instructions"])
        .output()
        .map_err(Error::system("start initdb"))?;
    // It holds nothing that the URL does not.
    let _ = fs::remove_file(password);
    succeeded("initdb", &output)
}

/// The outcome of a program that has ended.
pub(super) fn succeeded(program: &str, output: &std::process::Output) -> Result<(), Error> {
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Failed {
        program: program.into(),
        detail: format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
    })
}

/// Settings for tests, and who may come in how.
fn configure(place: &Place, options: &Options) -> Result<(), Error> {
    let mut lines = String::from(
        "max_connections = 300\n\
         superuser_reserved_connections = 5\n\
         shared_buffers = 32MB\n\
         wal_level = replica\n\
         max_wal_senders = 10\n\
         wal_keep_size = 256MB\n\
         hot_standby = on\n\
         logging_collector = off\n\
         log_line_prefix = '%m [%p] %a '\n\
         lc_messages = 'C'\n\
         timezone = 'UTC'\n",
    );
    if options.no_fsync {
        lines.push_str("fsync = off\nfull_page_writes = off\n");
    }
    let way = match options.tls {
        Tls::Required => "hostssl",
        Tls::Off | Tls::Offered => "host",
    };
    if options.tls != Tls::Off {
        let certificates = tls::certificates()?;
        let write = |name: &str, text: &str| place.account.write(&place.folder.join(name), text);
        write("server.pem", &certificates.server)?;
        write("server.key", &certificates.key)?;
        write("authority.pem", &certificates.authority)?;
        let folder = place.folder.display();
        lines.push_str(&format!(
            "ssl = on\nssl_cert_file = '{folder}/server.pem'\nssl_key_file = '{folder}/server.key'\n"
        ));
    }
    for (name, value) in &options.settings {
        lines.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
    }
    let path = place.data().join("postgresql.conf");
    place.account.write(&path, &lines)?;
    let rules = format!(
        "local all all scram-sha-256\n\
         {way} all all 127.0.0.1/32 scram-sha-256\n\
         {way} replication all 127.0.0.1/32 scram-sha-256\n"
    );
    place
        .account
        .write(&place.data().join("pg_hba.conf"), &rules)
}

/// Why a server did not start.
enum Launch {
    /// Another program took the port between our look and its start.
    PortTaken(Error),
    Failed(Error),
}

/// Starts the postmaster and waits until it takes connections.
fn launch(place: &Place, port: u16) -> Result<Child, Launch> {
    let mut child = spawn(place, port).map_err(Launch::Failed)?;
    let lock = place.data().join("postmaster.pid");
    let own = child.id().to_string();
    let ready = wait::until("a server that is ready", wait::PATIENCE, || {
        if let Some(status) = child
            .try_wait()
            .map_err(Error::system("wait for the server"))?
        {
            return Err(Error::Failed {
                program: "postgres".into(),
                detail: format!("it ended at once ({status}):\n{}", place.log_tail()),
            });
        }
        // The file of a crashed predecessor may still be there: its first line is the process id, the eighth the state.
        let text = fs::read_to_string(&lock).unwrap_or_default();
        let mut lines = text.lines().map(str::trim);
        let is_own = lines.next() == Some(own.as_str());
        let state = lines.nth(6).unwrap_or_default();
        Ok((is_own && matches!(state, "ready" | "standby")).then_some(()))
    });
    match ready {
        Ok(()) => Ok(child),
        Err(error) => {
            // It is ours and of no use.
            let _ = child.kill();
            let _ = child.wait();
            if error.to_string().contains("Address already in use") {
                Err(Launch::PortTaken(error))
            } else {
                Err(Launch::Failed(error))
            }
        }
    }
}

fn spawn(place: &Place, port: u16) -> Result<Child, Error> {
    // Each start has its own log, so that an old failure is not taken for a new one.
    place.account.write(&place.log(), "")?;
    let log = || {
        fs::OpenOptions::new()
            .append(true)
            .open(place.log())
            .map_err(Error::system("open the server's log"))
    };
    place
        .command("postgres")
        .arg("-D")
        .arg(place.data())
        .args(["-h", "127.0.0.1", "-p", &port.to_string()])
        .arg("-k")
        .arg(&place.folder)
        .stdout(Stdio::from(log()?))
        .stderr(Stdio::from(log()?))
        .spawn()
        .map_err(Error::system("start postgres"))
}

fn free_port() -> Result<u16, Error> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(Error::system("find a free port"))
}

/// The children of a process, as the kernel lists them.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// SIGCONT for a postmaster and its children, of which some may be gone.
fn go_on(pid: u32) {
    for child in children(pid) {
        let _ = send(child, Signal::SIGCONT);
    }
    let _ = send(pid, Signal::SIGCONT);
}

fn send(pid: u32, signal: Signal) -> Result<(), Error> {
    kill(Pid::from_raw(pid.cast_signed()), signal).map_err(|errno| Error::System {
        doing: format!("send {signal} to the server"),
        source: errno.into(),
    })
}
