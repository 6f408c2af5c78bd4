//! A blocking connection for statements that run the server: on a thread of its own, so that any test may call it.

use std::sync::mpsc as answers;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::Error;

/// How long a statement may take before the server counts as not answering.
const LIMIT: Duration = Duration::from_secs(60);

/// One lazily opened connection. Statements of several threads follow each other.
#[derive(Debug, Clone)]
pub(super) struct Link {
    requests: mpsc::UnboundedSender<Request>,
}

enum Request {
    Run {
        statement: String,
        limit: Duration,
        answer: answers::Sender<Result<Option<String>, Error>>,
    },
    Hang,
}

impl Link {
    /// A link to what `config` says; nothing is opened yet.
    pub(super) fn new(config: Config) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::system("start a runtime"))?;
        let (requests, inbox) = mpsc::unbounded_channel();
        std::thread::Builder::new()
            .name("testbed-link".into())
            .spawn(move || runtime.block_on(serve(config, inbox)))
            .map_err(Error::system("start a thread"))?;
        Ok(Link { requests })
    }

    /// Runs statements, and gives the first column of the last row they returned.
    pub(super) fn run(&self, statement: &str) -> Result<Option<String>, Error> {
        self.run_within(statement, LIMIT)
    }

    /// The same, with a limit of its own.
    pub(super) fn run_within(
        &self,
        statement: &str,
        limit: Duration,
    ) -> Result<Option<String>, Error> {
        let (answer, answered) = answers::channel();
        let request = Request::Run {
            statement: statement.to_owned(),
            limit,
            answer,
        };
        let gone = || refused(statement, "the connection's thread is gone");
        self.requests.send(request).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }

    /// Closes the connection, so that the next statement opens a new one.
    pub(super) fn hang_up(&self) {
        // Without its thread there is no connection either.
        let _ = self.requests.send(Request::Hang);
    }
}

async fn serve(config: Config, mut inbox: mpsc::UnboundedReceiver<Request>) {
    let mut open: Option<Client> = None;
    while let Some(request) = inbox.recv().await {
        match request {
            Request::Hang => open = None,
            Request::Run {
                statement,
                limit,
                answer,
            } => {
                let run = run(&config, &mut open, &statement);
                let result = match tokio::time::timeout(limit, run).await {
                    Ok(result) => result,
                    Err(_) => Err(refused(&statement, &format!("no answer in {limit:?}"))),
                };
                if result.is_err() {
                    open = None;
                }
                // Whoever asked may have given up.
                let _ = answer.send(result);
            }
        }
    }
}

async fn run(
    config: &Config,
    open: &mut Option<Client>,
    statement: &str,
) -> Result<Option<String>, Error> {
    let client = match open.take().filter(|client| !client.is_closed()) {
        Some(client) => client,
        None => connect(config).await?,
    };
    let client = open.insert(client);
    let rows = client
        .simple_query(statement)
        .await
        .map_err(|error| refused(statement, &words(&error)))?;
    let last = rows.iter().rev().find_map(|row| match row {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    Ok(last.and_then(|row| row.get(0)).map(str::to_owned))
}

async fn connect(config: &Config) -> Result<Client, Error> {
    let (client, connection) = config
        .connect(NoTls)
        .await
        .map_err(|error| refused("connecting", &words(&error)))?;
    // It ends with the client, or with the server; both show at the next statement.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(client)
}

fn refused(statement: &str, detail: &str) -> Error {
    Error::Refused {
        statement: statement.to_owned(),
        detail: detail.to_owned(),
    }
}

/// The server's own words where it said any; the library's own are only "db error".
fn words(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
