//! One database per test, and the macro that runs a test on both kinds.

use std::path::PathBuf;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use store::{Store, Tx};
use tempfile::TempDir;

use crate::migrated;

/// An open store and its location. The directory is removed with it.
pub(crate) struct Database {
    pub(crate) store: Store,
    pub(crate) url: Option<String>,
    directory: TempDir,
}

impl Database {
    pub(crate) async fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        migrated::on_sqlite(directory.path()).await;
        let store = Store::open(None, directory.path()).await.unwrap();
        Self {
            store,
            url: None,
            directory,
        }
    }

    pub(crate) async fn postgres() -> Self {
        Self::at(migrated::on_postgres().await).await
    }

    /// A PostgreSQL database at this address.
    pub(crate) async fn at(url: String) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(Some(&url), directory.path()).await.unwrap();
        Self {
            store,
            url: Some(url),
            directory,
        }
    }

    /// Opens the same database again, like another process.
    pub(crate) async fn open_again(&self) -> Result<Store, store::Error> {
        Store::open(self.url.as_deref(), self.directory.path()).await
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        self.url.is_none()
    }

    /// The SQLite file.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("platform.db")
    }

    /// Runs statements without the store.
    pub(crate) async fn raw(&self, text: &str) {
        self.try_raw(text).await.unwrap();
    }

    pub(crate) async fn try_raw(&self, text: &str) -> Result<(), sqlx::Error> {
        let text = AssertSqlSafe(text.to_owned());
        if let Some(url) = &self.url {
            let mut connection = PgConnection::connect(url).await?;
            sqlx::raw_sql(text).execute(&mut connection).await?;
            connection.close().await
        } else {
            let address = format!("sqlite://{}", self.file().display());
            let mut connection = SqliteConnection::connect(&address).await?;
            sqlx::raw_sql(text).execute(&mut connection).await?;
            connection.close().await
        }
    }

    pub(crate) async fn begin(&self) -> Tx {
        self.store.begin().await.unwrap()
    }
}

/// Runs `$body` in one transaction, commits it and returns its value.
macro_rules! commit {
    ($database:expr, |$tx:ident| $body:expr) => {{
        let mut transaction = $database.store.begin().await.unwrap();
        let $tx = &mut transaction;
        let value = $body.await;
        transaction.commit().await.unwrap();
        value
    }};
}
pub(crate) use commit;

/// Runs each of these functions as a test on SQLite and on PostgreSQL.
macro_rules! both {
    ($($name:ident,)+) => {
        mod on_sqlite {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                Box::pin(super::$name($crate::database::Database::sqlite().await)).await;
            }
        )+}

        mod on_postgres {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                Box::pin(super::$name($crate::database::Database::postgres().await)).await;
            }
        )+}
    };
}
pub(crate) use both;
