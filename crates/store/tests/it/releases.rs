//! Databases of releases: created with the released schema, filled in every table, and opened by
//! this version. Their rows are preserved, on SQLite and on PostgreSQL.
//!
//! `tests/releases/VERSION.json` contains the version of the schema and the rows, ordered so that
//! foreign keys can be inserted. A release adds a file, and existing files never change.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use store::Store;

/// A release with its rows.
struct Release {
    name: String,
    schema: u64,
    tables: Vec<(String, Vec<Value>)>,
}

impl Release {
    fn all() -> Vec<Self> {
        let mut files: Vec<_> = listed("tests/releases");
        files.sort();
        assert!(!files.is_empty());
        files.iter().map(|file| Self::read(file)).collect()
    }

    fn read(file: &Path) -> Self {
        let release: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        let tables = release["tables"].as_array().unwrap().iter().map(|table| {
            let rows = table["rows"].as_array().unwrap().clone();
            (table["table"].as_str().unwrap().to_owned(), rows)
        });
        Self {
            name: release["version"].as_str().unwrap().to_owned(),
            schema: release["schema"].as_u64().unwrap(),
            tables: tables.collect(),
        }
    }

    /// Creates and fills the database as the release did.
    fn statements(&self, is_sqlite: bool) -> String {
        let (kind, id, bytes) = if is_sqlite {
            ("sqlite", "INTEGER", "BLOB")
        } else {
            ("postgres", "BIGINT", "BYTEA")
        };
        let mut text = format!(
            "CREATE TABLE schema_versions (version {id} PRIMARY KEY, name TEXT NOT NULL, \
             checksum {bytes} NOT NULL);\n"
        );
        let mut steps = listed(&format!("migrations/{kind}"));
        steps.sort();
        for step in steps {
            let file = step.file_stem().unwrap().to_str().unwrap();
            let (version, name) = file.split_once('_').unwrap();
            let version: u64 = version.parse().unwrap();
            if version > self.schema {
                break;
            }
            let step = fs::read_to_string(&step).unwrap();
            let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, step.as_bytes());
            let sum = bytes_of(sum.as_ref(), is_sqlite);
            let insert = format!("INSERT INTO schema_versions VALUES ({version}, '{name}', {sum})");
            writeln!(text, "{step}\n;{insert};").unwrap();
        }
        // Some migrations insert the only row of a table.
        for (table, _) in self.tables.iter().rev() {
            writeln!(text, "DELETE FROM \"{table}\";").unwrap();
        }
        for (table, rows) in &self.tables {
            for row in rows {
                let row = row.as_object().unwrap();
                let columns: Vec<_> = row.keys().map(|column| format!("\"{column}\"")).collect();
                let values: Vec<_> = row
                    .values()
                    .map(|value| literal(value, is_sqlite))
                    .collect();
                let (columns, values) = (columns.join(", "), values.join(", "));
                writeln!(
                    text,
                    "INSERT INTO \"{table}\" ({columns}) VALUES ({values});"
                )
                .unwrap();
            }
        }
        text
    }

    /// A query for each row that returns 1 if the row is unchanged.
    fn questions(&self, is_sqlite: bool) -> Vec<String> {
        let rows = self.tables.iter().flat_map(|(table, rows)| {
            rows.iter().map(move |row| {
                let same = row.as_object().unwrap().iter().map(|(column, value)| {
                    format!(
                        "\"{column}\" IS NOT DISTINCT FROM {}",
                        literal(value, is_sqlite)
                    )
                });
                let same = same.collect::<Vec<_>>().join(" AND ");
                format!("SELECT COUNT(*) FROM \"{table}\" WHERE {same}")
            })
        });
        rows.collect()
    }
}

/// Files of a folder of this crate.
fn listed(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// A value as SQL. Bytes are `{"hex": "…"}`.
fn literal(value: &Value, is_sqlite: bool) -> String {
    match value {
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Object(bytes) => {
            let bytes = bytes["hex"].as_str().unwrap();
            if is_sqlite {
                format!("x'{bytes}'")
            } else {
                format!("'\\x{bytes}'::bytea")
            }
        }
        other => other.to_string(),
    }
}

fn bytes_of(bytes: &[u8], is_sqlite: bool) -> String {
    let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    literal(&serde_json::json!({ "hex": hex }), is_sqlite)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_databases_of_every_release_are_migrated_with_their_rows() {
    for release in Release::all() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("platform.db");
        let address = format!("sqlite://{}?mode=rwc", file.display());
        let mut connection = SqliteConnection::connect(&address).await.unwrap();
        let made = AssertSqlSafe(release.statements(true));
        sqlx::raw_sql(made).execute(&mut connection).await.unwrap();
        let all =
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
        let tables = sqlx::query_scalar(all).fetch_all(&mut connection).await;
        every_table_has_rows(&release, tables.unwrap());
        connection.close().await.unwrap();

        let store = Store::open(None, directory.path()).await.unwrap();
        store.check_statements().await.unwrap();
        let mut connection = SqliteConnection::connect(&address).await.unwrap();
        for question in release.questions(true) {
            let query = sqlx::query_scalar(AssertSqlSafe(question.clone()));
            let count: i64 = query.fetch_one(&mut connection).await.unwrap();
            assert_eq!(count, 1, "{}: {question}", release.name);
        }
        // Logs of the release are indexed.
        let indexed =
            "SELECT (SELECT COUNT(*) FROM logs_search_docsize) = (SELECT COUNT(*) FROM logs)";
        let query = sqlx::query_scalar(indexed);
        let all: bool = query.fetch_one(&mut connection).await.unwrap();
        assert!(all, "{}", release.name);
        connection.close().await.unwrap();
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_databases_of_every_release_are_migrated_with_their_rows() {
    for release in Release::all() {
        let url = crate::postgres::new_database().await;
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let made = AssertSqlSafe(release.statements(false));
        sqlx::raw_sql(made).execute(&mut connection).await.unwrap();
        let all = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'";
        let tables = sqlx::query_scalar(all).fetch_all(&mut connection).await;
        every_table_has_rows(&release, tables.unwrap());

        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(Some(&url), directory.path()).await.unwrap();
        store.check_statements().await.unwrap();
        for question in release.questions(false) {
            let query = sqlx::query_scalar(AssertSqlSafe(question.clone()));
            let count: i64 = query.fetch_one(&mut connection).await.unwrap();
            assert_eq!(count, 1, "{}: {question}", release.name);
        }
        connection.close().await.unwrap();
        store.close().await;
    }
}

fn every_table_has_rows(release: &Release, tables: Vec<String>) {
    for table in tables {
        let rows = release.tables.iter().find(|(name, _)| *name == table);
        let is_filled = rows.is_some_and(|(_, rows)| !rows.is_empty());
        assert!(
            is_filled || table == "schema_versions",
            "{}: no rows in {table}",
            release.name
        );
    }
}
