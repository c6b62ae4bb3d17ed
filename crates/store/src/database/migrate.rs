//! Schema migrations: forwards only, atomic, by one process at a time.
//!
//! Each applied migration is recorded with the SHA-256 of its text. If a text has changed after it
//! was applied, or if a version is unknown to this program, the start fails, because the schema
//! would be an unknown one.

use aws_lc_rs::digest;
use sqlx::{AssertSqlSafe, PgPool, SqliteConnection, SqlitePool};

use crate::error::{Bug, Error};

/// One migration. The number and the text of a released migration never change.
pub(crate) struct Migration {
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) sqlite: &'static str,
    pub(crate) postgres: &'static str,
}

macro_rules! migrations {
    ($($version:literal $name:literal $file:literal)+) => {
        /// Every migration, oldest first.
        pub(crate) const MIGRATIONS: &[Migration] = &[$(Migration {
            version: $version,
            name: $name,
            sqlite: include_str!(concat!("../../migrations/sqlite/", $file, ".sql")),
            postgres: include_str!(concat!("../../migrations/postgres/", $file, ".sql")),
        }),+];
    };
}

migrations! {
    1 "people" "0001_people"
    2 "projects" "0002_projects"
    3 "access" "0003_access"
    4 "records" "0004_records"
    5 "sign_in" "0005_sign_in"
    6 "factors" "0006_factors"
    7 "operator" "0007_operator"
    8 "keys" "0008_keys"
    10 "oauth" "0010_oauth"
    11 "webhooks" "0011_webhooks"
    12 "link" "0012_link"
    13 "accounts" "0013_accounts"
    14 "limits" "0014_limits"
    16 "consent" "0016_consent"
    17 "retention" "0017_retention"
    18 "log_search" "0018_log_search"
    19 "openid" "0019_openid"
    20 "expiry_notice" "0020_expiry_notice"
    21 "domains" "0021_domains"
    22 "domain_certificates" "0022_domain_certificates"
    23 "traffic" "0023_traffic"
    24 "certificate_states" "0024_certificate_states"
    25 "takedowns" "0025_takedowns"
    26 "engine_certificates" "0026_engine_certificates"
    27 "audit_filters" "0027_audit_filters"
    28 "engine_programs" "0028_engine_programs"
}

/// Applies missing migrations. The write lock is taken before the table of versions is read, so a
/// second process waits and then finds everything done.
pub(crate) async fn sqlite(pool: &SqlitePool) -> Result<(), Error> {
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::raw_sql(TABLE_SQLITE).execute(&mut *tx).await?;
    let applied: Vec<_> = sqlx::query_as(SELECT_APPLIED).fetch_all(&mut *tx).await?;
    for step in missing(&applied, |step| step.sqlite)? {
        sqlx::raw_sql(step.sqlite).execute(&mut *tx).await?;
        sqlx::query(RECORD)
            .bind(step.version)
            .bind(step.name)
            .bind(checksum(step.sqlite))
            .execute(&mut *tx)
            .await?;
    }
    Ok(tx.commit().await?)
}

/// Checks that a database belongs to a platform and can be migrated by this version.
pub(crate) async fn check_sqlite(connection: &mut SqliteConnection) -> Result<(), Error> {
    let tables: i64 = sqlx::query_scalar(IS_PLATFORM)
        .fetch_one(&mut *connection)
        .await?;
    if tables == 0 {
        return Err(Bug::Schema("not the database of a platform".to_owned()).into());
    }
    let applied: Vec<_> = sqlx::query_as(SELECT_APPLIED).fetch_all(connection).await?;
    missing(&applied, |step| step.sqlite)?;
    Ok(())
}

/// As on SQLite, protected by an advisory lock that ends with the transaction.
pub(crate) async fn postgres(pool: &PgPool) -> Result<(), Error> {
    let mut tx = pool.begin().await?;
    // The other process may have to move years of rows.
    sqlx::raw_sql("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0")
        .execute(&mut *tx)
        .await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(LOCK)
        .execute(&mut *tx)
        .await?;
    sqlx::raw_sql(TABLE_POSTGRES).execute(&mut *tx).await?;
    let applied: Vec<_> = sqlx::query_as(SELECT_APPLIED).fetch_all(&mut *tx).await?;
    for step in missing(&applied, |step| step.postgres)? {
        sqlx::raw_sql(AssertSqlSafe(step.postgres))
            .execute(&mut *tx)
            .await?;
        sqlx::query(RECORD)
            .bind(step.version)
            .bind(step.name)
            .bind(checksum(step.postgres))
            .execute(&mut *tx)
            .await?;
    }
    Ok(tx.commit().await?)
}

/// The migrations that were not applied yet, after checking the applied ones.
fn missing(
    applied: &[(i64, Vec<u8>)],
    text: fn(&Migration) -> &'static str,
) -> Result<&'static [Migration], Bug> {
    for (at, (version, recorded)) in applied.iter().enumerate() {
        let Some(step) = MIGRATIONS.get(at) else {
            return Err(Bug::Schema(format!(
                "version {version} was applied by a newer version of this program"
            )));
        };
        if step.version != *version {
            return Err(Bug::Schema(format!("version {} is missing", step.version)));
        }
        if checksum(text(step)) != *recorded {
            return Err(Bug::Schema(format!(
                "version {version} ({}) is not the one that was applied",
                step.name
            )));
        }
    }
    Ok(MIGRATIONS.get(applied.len()..).unwrap_or_default())
}

pub(crate) fn checksum(text: &str) -> Vec<u8> {
    digest::digest(&digest::SHA256, text.as_bytes())
        .as_ref()
        .to_vec()
}

/// An arbitrary number, the same in every version of this program.
const LOCK: i64 = 0x7376_635f_6d69_6772;
const TABLE_SQLITE: &str = "CREATE TABLE IF NOT EXISTS schema_versions (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum BLOB NOT NULL) STRICT";
const TABLE_POSTGRES: &str = "CREATE TABLE IF NOT EXISTS schema_versions (
    version BIGINT PRIMARY KEY, name TEXT NOT NULL, checksum BYTEA NOT NULL)";
const SELECT_APPLIED: &str = "SELECT version, checksum FROM schema_versions ORDER BY version";
const IS_PLATFORM: &str =
    "SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name = 'schema_versions'";
const RECORD: &str = "INSERT INTO schema_versions (version, name, checksum) VALUES ($1, $2, $3)";
