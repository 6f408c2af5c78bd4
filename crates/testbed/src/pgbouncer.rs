//! Debian's connection pooler before a server, in transaction mode unless told otherwise.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::account::Account;
use crate::leash::Leash;
use crate::postgres::{Server, or_skip};
use crate::proxy::with_address;
use crate::{Error, wait};

/// Debian's command line that brings it.
pub const INSTALL: &str = "apt-get install pgbouncer";
/// Debian puts it where only administrators look.
const FOLDERS: &[&str] = &["/usr/sbin", "/usr/local/sbin", "/usr/local/bin"];
const PORTS: usize = 20;
/// Ends the pooler of the folder `$1` and removes the folder.
const END: &str = r#"
pid=$(cat "$1/pid")
if [ -n "$pid" ] && [ "$(tr '\0' ' ' < "/proc/$pid/cmdline" | grep -c "$1/")" = 1 ]; then kill -KILL "$pid"; fi 2>/dev/null
rm -rf "$1"
"#;

/// When a connection to the server goes back to the pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// After each transaction.
    #[default]
    Transaction,
    /// When the client leaves.
    Session,
    /// After each statement; transactions of several are refused.
    Statement,
}

impl Mode {
    fn word(self) -> &'static str {
        match self {
            Mode::Transaction => "transaction",
            Mode::Session => "session",
            Mode::Statement => "statement",
        }
    }
}

/// A running pooler. Dropped, it is killed; it does not outlive the process.
#[derive(Debug)]
pub struct Pooler {
    address: SocketAddr,
    folder: PathBuf,
    child: Child,
    _leash: Leash,
}

impl Pooler {
    /// A pooler in transaction mode before `server`, with up to `connections` of its own per database.
    ///
    /// # Errors
    /// [`Error::Missing`] with the install line; its last words when it does not start.
    pub fn before(server: &Server, connections: u32) -> Result<Self, Error> {
        Self::with_mode(server, connections, Mode::Transaction)
    }

    /// The same in another mode.
    ///
    /// # Errors
    /// As [`Pooler::before`].
    pub fn with_mode(server: &Server, connections: u32, mode: Mode) -> Result<Self, Error> {
        let program = find()?;
        let account = Account::ordinary()?;
        let target = server.address()?;
        let (user, password) = server.credentials()?;
        let folder = account.folder("tenure-pool-")?;
        let leash = Leash::new(END, &[&folder])?;
        let users = format!("\"{user}\" \"{password}\"\n");
        account.write(&folder.join("users"), &users)?;
        let mut last = String::new();
        for _ in 0..PORTS {
            let port = free_port()?;
            let text = settings(&folder, target, port, connections, mode);
            let config = folder.join("pgbouncer.ini");
            account.write(&config, &text)?;
            let mut child = account
                .command(&program)
                .arg(&config)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(Error::system("start pgbouncer"))?;
            let address = (Ipv4Addr::LOCALHOST, port).into();
            if listens(&mut child, address, &folder)? {
                return Ok(Pooler {
                    address,
                    folder,
                    child,
                    _leash: leash,
                });
            }
            last = fs::read_to_string(folder.join("log")).unwrap_or_default();
            if !last.contains("in use") {
                break;
            }
        }
        Err(Error::Failed {
            program: "pgbouncer".into(),
            detail: last,
        })
    }

    /// A pooler, or nothing and a line that says why the test is skipped.
    ///
    /// # Panics
    /// It cannot be started, or is not installed and `CI` is set.
    pub fn or_skip(server: &Server, connections: u32) -> Option<Self> {
        or_skip(Self::before(server, connections))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a database through the pooler.
    pub fn url(&self, url: &str) -> String {
        with_address(url, self.address)
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn find() -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(FOLDERS.iter().map(PathBuf::from))
        .map(|folder| folder.join("pgbouncer"))
        .find(|program| {
            fs::metadata(program)
                .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
        })
        .ok_or(Error::Missing {
            program: "pgbouncer",
            install: INSTALL,
        })
}

fn settings(folder: &Path, target: SocketAddr, port: u16, connections: u32, mode: Mode) -> String {
    let folder = folder.display();
    format!(
        "[databases]\n\
         * = host={} port={}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = scram-sha-256\n\
         auth_file = {folder}/users\n\
         logfile = {folder}/log\n\
         pidfile = {folder}/pid\n\
         pool_mode = {}\n\
         default_pool_size = {connections}\n\
         max_client_conn = 1000\n\
         server_login_retry = 1\n",
        target.ip(),
        target.port(),
        mode.word(),
    )
}

/// Waits until it takes connections; false when it has ended instead.
fn listens(child: &mut Child, address: SocketAddr, folder: &Path) -> Result<bool, Error> {
    wait::until("a pooler that listens", wait::PATIENCE, || {
        if child
            .try_wait()
            .map_err(Error::system("wait for pgbouncer"))?
            .is_some()
        {
            return Ok(Some(false));
        }
        // The file comes last, so the port is its own and not somebody else's.
        let ready = folder.join("pid").exists() && TcpStream::connect(address).is_ok();
        Ok(ready.then_some(true))
    })
}

fn free_port() -> Result<u16, Error> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(Error::system("find a free port"))
}
