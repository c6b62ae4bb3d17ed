//! Every table has a limit or a retention, listed in `docs/security.md`.

use std::collections::BTreeMap;
use std::path::Path;

use sqlx::{Connection as _, PgConnection, SqliteConnection};

use crate::database::{Database, both};

both! {
    every_table_has_a_bound_or_a_retention,
}

async fn every_table_has_a_bound_or_a_retention(database: Database) {
    let documented = documented();
    for (table, bound) in &documented {
        assert!(bound.len() > 1, "{table} has no bound");
    }
    let names: Vec<_> = documented.into_keys().collect();
    assert_eq!(tables(&database).await, names);
}

async fn tables(database: &Database) -> Vec<String> {
    let mut names: Vec<String> = if let Some(url) = &database.url {
        let mut connection = PgConnection::connect(url).await.unwrap();
        let all = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'";
        sqlx::query_scalar(all)
            .fetch_all(&mut connection)
            .await
            .unwrap()
    } else {
        let address = format!("sqlite://{}", database.file().display());
        let mut connection = SqliteConnection::connect(&address).await.unwrap();
        // Except those of the log index, whose rows are those of its table.
        let all = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' \
             AND name NOT LIKE 'sqlite_%'";
        sqlx::query_scalar(all)
            .fetch_all(&mut connection)
            .await
            .unwrap()
    };
    names.sort();
    names
}

/// The rows of the list: the name of a table, and its limit.
fn documented() -> BTreeMap<String, String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, list) = page
        .split_once("### Tables of the platform's database")
        .unwrap();
    let (list, _) = list.split_once("\n### ").unwrap();
    let rows = list.lines().filter(|line| line.starts_with("| "));
    rows.skip(1)
        .map(|row| {
            let (table, bound) = row.trim_matches(['|', ' ']).split_once(" | ").unwrap();
            (table.to_owned(), bound.to_owned())
        })
        .collect()
}
