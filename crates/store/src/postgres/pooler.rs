//! Is there a transaction-mode pooler between us and the server? Then a session's state is not ours.

use super::conn::{Conn, Maker, Use};
use super::sql::params;
use super::trouble::{Trouble, not_opened};
use crate::error::OpenError;

/// Pairs of looks: a pooler that hands its connections around in turn needs more than one.
const LOOKS: usize = 3;

/// Two connections are made, and one of them holds a transaction open: through a pooler, what the other one set is
/// then found in the first, or its own next statement runs elsewhere.
pub(super) async fn is_pooled(maker: &Maker) -> Result<bool, OpenError> {
    // Looked at as if pooled: unnamed statements work either way.
    let careful = Maker {
        pooled: true,
        ..maker.clone()
    };
    let one = careful.connect(Use::Idle, "tenure").await?;
    let two = careful.connect(Use::Idle, "tenure").await?;
    let mut pooled = false;
    for _ in 0..LOOKS {
        pooled |= look(&one, &two)
            .await
            .map_err(|trouble| not_opened(&maker.place, &trouble))?;
    }
    Ok(pooled)
}

async fn look(one: &Conn, two: &Conn) -> Result<bool, Trouble> {
    let mark = uuid::Uuid::new_v4().to_string();
    one.rows(
        "SELECT set_config('tenure.probe', $1, false)",
        params![TEXT: mark],
    )
    .await?;
    let before = backend(one).await?;
    two.batch("BEGIN").await?;
    let looked = async {
        let seen = probe(two).await?;
        let (held, after) = (backend(two).await?, backend(one).await?);
        // A direct connection keeps its backend and its setting, and shares neither.
        Ok::<_, Trouble>(
            seen.as_deref() == Some(mark.as_str())
                || before == held
                || before != after
                || probe(one).await?.as_deref() != Some(mark.as_str()),
        )
    }
    .await;
    two.batch("COMMIT").await?;
    one.batch("RESET tenure.probe").await?;
    looked
}

async fn backend(conn: &Conn) -> Result<i32, Trouble> {
    let row = conn.first("SELECT pg_backend_pid()", &[]).await?;
    Ok(row.map_or(0, |row| row.get(0)))
}

async fn probe(conn: &Conn) -> Result<Option<String>, Trouble> {
    let row = conn
        .first("SELECT current_setting('tenure.probe', true)", &[])
        .await?;
    Ok(row.and_then(|row| row.get(0)))
}
