//! Connections to PostgreSQL: their limit and the pool.

use std::pin::pin;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::database::lease::Lease;
use crate::database::store::{ACQUIRE_TIMEOUT, STATEMENT_CACHE};
use crate::database::trust::PoolHealth;
use crate::error::{Error, Reason};

/// The connections of one process.
#[derive(Clone, Debug)]
pub(crate) struct PostgresPool {
    pub(crate) pool: PgPool,
    health: PoolHealth,
}

impl PostgresPool {
    /// Connects. There are at most `wanted` connections, and no more than the server allows for
    /// this user; the server's limit is returned as well.
    ///
    /// # Errors
    /// The reason why connecting fails, as the system or the server reports it. A pool would only
    /// report a time-out.
    pub(crate) async fn open(options: PgConnectOptions, wanted: u32) -> Result<(Self, u32), Error> {
        let options = options
            .application_name("svc")
            .statement_cache_capacity(STATEMENT_CACHE)
            .options([
                ("statement_timeout", STATEMENT_TIMEOUT_MS),
                ("lock_timeout", LOCK_TIMEOUT_MS),
                ("idle_in_transaction_session_timeout", STATEMENT_TIMEOUT_MS),
            ]);
        let mut first = first_connection(&options).await?;
        let allowed: i64 = sqlx::query_scalar(CONNECTION_LIMIT)
            .fetch_one(&mut first)
            .await?;
        first.close().await?;
        let allowed = u32::try_from(allowed.max(1)).unwrap_or(u32::MAX);
        let health = PoolHealth::new();
        let pool_health = health.clone();
        let pool = PgPoolOptions::new()
            .max_connections(wanted.min(allowed))
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(move |connection, meta| {
                let doubted = pool_health.must_probe(&meta);
                Box::pin(async move {
                    if doubted {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .connect_with(options)
            .await?;
        Ok((Self { pool, health }, allowed))
    }

    /// Takes a connection: a new one if the limit allows it, or one that is returned meanwhile.
    /// Once the pool has started to connect it waits only for the server, which accepts no
    /// connection while other clients use all of its slots.
    pub(crate) async fn acquire(&self) -> Result<Lease, Error> {
        let mut acquired = pin!(self.pool.acquire());
        loop {
            tokio::select! {
                biased;
                connection = &mut acquired => {
                    return Ok(Lease::postgres(connection?, &self.health));
                }
                () = sleep(IDLE_CHECK_INTERVAL) => {}
            }
            let Some(mut idle) = self.pool.try_acquire() else {
                continue;
            };
            if matches!(timeout(PING_TIMEOUT, idle.ping()).await, Ok(Ok(()))) {
                return Ok(Lease::postgres(idle, &self.health));
            }
            idle.close_on_drop();
        }
    }
}

/// Retries if a server is just starting, or temporarily has no free slot.
///
/// # Errors
/// The last error of the server. An attempt that ends at the deadline does not replace it:
/// "too many connections" is more useful to the operator than "no answer".
async fn first_connection(options: &PgConnectOptions) -> Result<PgConnection, Error> {
    let deadline = Instant::now() + ACQUIRE_TIMEOUT;
    let mut last_answer = None;
    loop {
        let connected = timeout_at(deadline, PgConnection::connect_with(options)).await;
        let error = match connected {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            Err(_) => return Err(last_answer.map_or_else(|| Reason::Silent.into(), Error::from)),
        };
        let is_transient = match &error {
            sqlx::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
            sqlx::Error::Database(error) => {
                matches!(error.code().as_deref(), Some("53300" | "57P03"))
            }
            _ => false,
        };
        if !is_transient || Instant::now() + CONNECT_AGAIN >= deadline {
            return Err(error.into());
        }
        last_answer = Some(error);
        sleep(CONNECT_AGAIN).await;
    }
}

/// Number of connections that this user may have to this database if there are no other clients.
const CONNECTION_LIMIT: &str = "SELECT LEAST( \
    CAST(current_setting('max_connections') AS BIGINT) \
        - CAST(current_setting('superuser_reserved_connections') AS BIGINT), \
    (SELECT NULLIF(rolconnlimit, -1) FROM pg_roles WHERE rolname = session_user), \
    (SELECT NULLIF(datconnlimit, -1) FROM pg_database WHERE datname = current_database()))";
/// Callers do not wait longer: see [`crate::Conn::TIME_LIMIT`].
const STATEMENT_TIMEOUT_MS: &str = "15000";
/// As for SQLite.
const LOCK_TIMEOUT_MS: &str = "5000";
/// Longer than it takes to connect, and short compared to a client's time-out.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// A connection that does not respond within this time is unusable.
const PING_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay between two attempts at start.
const CONNECT_AGAIN: Duration = Duration::from_millis(200);
