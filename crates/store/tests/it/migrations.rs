//! Migrations of the schema: the first process applies them, and shipped migrations never change.

use std::collections::BTreeMap;
use std::path::Path;

use store::{Bug, Error};

use crate::database::{Database, both};
use crate::world::Person;

/// Shipped migrations: version, file, and the first half of the SHA-256 of its text for SQLite and
/// for PostgreSQL. Lines are added here and never changed, because a database that has applied a
/// text refuses to work with another one.
const SHIPPED: &[(&str, &str, &str)] = &[
    (
        "0001_people",
        "4fb9aa03d5dfefc2e0cc333b890c9a6f",
        "9c90db8fa3cece921d1129e24a2d9a15",
    ),
    (
        "0002_projects",
        "dc2ae7f23db9e4820f677a10aafaab0f",
        "43025cc4bb3146212ea76b58a9fbda29",
    ),
    (
        "0003_access",
        "ea877fbbba2ae6504ebe392045b69c69",
        "466f36983361fc8c24b8adfd4d187fa2",
    ),
    (
        "0004_records",
        "bbeef4f619754e4fef32fd7f813fe544",
        "c5eca41c947d533286ced2a6add49a45",
    ),
    (
        "0005_sign_in",
        "6f1cd8d59821f1df4a2865f3c2cbb6d3",
        "c2e5ed1881d4d62cafd311ceff3015db",
    ),
    (
        "0006_factors",
        "3d7a04a168102ad5b3f490b16f98a443",
        "a8c1fb7d519411e67466ce7062074aae",
    ),
    (
        "0007_operator",
        "f247224ffde5ed0922693a68cb3b4793",
        "56bc6c7acb6150f4b022b1ce48cd6ebf",
    ),
    (
        "0008_keys",
        "0e38dc9582107a6e0921346934f04fe1",
        "a8de787f1f7b92517e8348035baf1240",
    ),
    (
        "0010_oauth",
        "754dcfcb1e35745e7a57ec147807bccf",
        "eea49ae05892afe1d5d54e2cf39bba52",
    ),
    (
        "0011_webhooks",
        "07a61149a8919eb553cef69e170b7a83",
        "38b543f33effddbc986e571b979b4fa9",
    ),
    (
        "0012_link",
        "35eef82a55fd722a9e91fc5c21196e9b",
        "f0c15fb9feab76c25c5c364010377326",
    ),
    (
        "0013_accounts",
        "52d5610872b51d5d7bab33403314f532",
        "ec93d5d8fe938523d313117829ce6ad1",
    ),
    (
        "0014_limits",
        "e5155197922afbfc307dfecef663f460",
        "2d0faf37d2f1ca844645f7ff4783635e",
    ),
    (
        "0016_consent",
        "7d9b5daabee115d8a468d8d338fab0e1",
        "4082462cafec8a91bdbaf6e698429a41",
    ),
    (
        "0017_retention",
        "de64162a9bea4efc25d41a8457955037",
        "b2a1955629b5ece1b40d8deefe3cde66",
    ),
    (
        "0018_log_search",
        "2962080dda3402165b796edc6aad9bea",
        "d12d2062af04a341327c208680c85de6",
    ),
    (
        "0019_openid",
        "fa8487a9a8d388c2eb13744e02ccd904",
        "fa8487a9a8d388c2eb13744e02ccd904",
    ),
    (
        "0020_expiry_notice",
        "9b3ae9f6a2ab2a849182d60dd57bd778",
        "e51bbf97c4bc7e861260d9cae9ad1c61",
    ),
    (
        "0021_domains",
        "040adaa3446962a8e3492acdad0c2524",
        "94025886559cb969061d155d4df06c59",
    ),
    (
        "0022_domain_certificates",
        "61efb566470443822afb796922aea34e",
        "78c5cd4e9772d6c9c10b1bedd8d9a59a",
    ),
    (
        "0023_traffic",
        "99b89daa76caa589d6b649f517be5ffe",
        "8282df33f910213ee477d947ed7046aa",
    ),
    (
        "0024_certificate_states",
        "022b13c64bab5041b7b5ab533dc210f5",
        "c6ec5a8e41716006d322bfa5916e4f85",
    ),
    (
        "0025_takedowns",
        "cde570c689c43f1fba9670fa9c3ea66b",
        "e4b3cd325ec8c099578605eb14c502a0",
    ),
    (
        "0026_engine_certificates",
        "2dcc855a3a194aec470bc388f5eeb387",
        "0f9d1465763e2e4977327a67657e8a4b",
    ),
    (
        "0027_audit_filters",
        "1a81d35019a89c22b8dd74253704f01c",
        "1a81d35019a89c22b8dd74253704f01c",
    ),
    (
        "0028_engine_programs",
        "2530dbb339721eaa12b6cbfda56243f6",
        "c201b42951cdebddf6c826516d63db01",
    ),
];

/// Words that break the code before a migration, since both versions run during an update.
const DESTRUCTIVE: [&str; 4] = ["drop table", "drop column", "rename ", "alter column"];

/// Exceptions: these migrations are older than the first release, so no released code needs the
/// schema before them.
const UNRELEASED: [&str; 1] = ["0006_factors"];

#[test]
fn migrations_are_append_only() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut files = BTreeMap::<String, [String; 2]>::new();
    for (at, database) in ["sqlite", "postgres"].into_iter().enumerate() {
        for entry in std::fs::read_dir(directory.join(database)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let lower = text.to_lowercase();
            for word in DESTRUCTIVE {
                let is_free = UNRELEASED.contains(&name.as_str());
                assert!(
                    is_free || !lower.contains(word),
                    "{name} for {database} has `{word}`"
                );
            }
            files.entry(name).or_default()[at] = sha256(&text);
        }
    }
    let found: Vec<_> = files
        .iter()
        .map(|(name, [sqlite, postgres])| (name.as_str(), sqlite.as_str(), postgres.as_str()))
        .collect();
    assert_eq!(found, SHIPPED);
    let numbers = SHIPPED
        .iter()
        .map(|(name, ..)| name.split_once('_').unwrap().0);
    assert!(numbers.is_sorted_by(|one, next| one < next), "out of order");
}

fn sha256(text: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    let half = u128::from_be_bytes(*digest.as_ref().first_chunk().unwrap());
    format!("{half:032x}")
}

fn schema_error(opened: Result<store::Store, Error>) -> String {
    match opened.unwrap_err() {
        Error::Bug(Bug::Schema(message)) => message,
        other => panic!("{other:?}"),
    }
}

both! {
    every_statement_is_one_that_the_database_understands,
    opening_again_changes_nothing,
    another_text_under_an_applied_version_is_refused,
    a_schema_of_a_newer_program_is_refused,
}

async fn every_statement_is_one_that_the_database_understands(database: Database) {
    assert!(database.store.check_statements().await.unwrap() > 200);
}

async fn opening_again_changes_nothing(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let again = database.open_again().await.unwrap();
    let mut read = again.read().await.unwrap();
    assert!(
        store::users::by_id(&mut read, ann.user)
            .await
            .unwrap()
            .is_some()
    );
    database.store.ping().await.unwrap();
}

async fn another_text_under_an_applied_version_is_refused(database: Database) {
    database.raw("UPDATE schema_versions SET name = name, checksum = (SELECT checksum FROM schema_versions WHERE version = 1) WHERE version = 2").await;
    let message = schema_error(database.open_again().await);
    assert_eq!(
        message,
        "version 2 (projects) is not the one that was applied"
    );
}

async fn a_schema_of_a_newer_program_is_refused(database: Database) {
    database.raw("INSERT INTO schema_versions SELECT 5000, name, checksum FROM schema_versions WHERE version = 1").await;
    let message = schema_error(database.open_again().await);
    assert_eq!(
        message,
        "version 5000 was applied by a newer version of this program"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_processes_can_open_an_empty_sqlite_database_in_parallel() {
    let directory = tempfile::tempdir().unwrap();
    open_at_once(None, directory.path()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_processes_can_open_an_empty_postgres_database_in_parallel() {
    let url = crate::postgres::new_database().await;
    let directory = tempfile::tempdir().unwrap();
    open_at_once(Some(url), directory.path()).await;
}

async fn open_at_once(url: Option<String>, directory: &Path) {
    let openers: Vec<_> = (0..24)
        .map(|_| {
            let (url, directory) = (url.clone(), directory.to_owned());
            tokio::spawn(async move {
                let store = store::Store::open(url.as_deref(), &directory)
                    .await
                    .unwrap();
                store.ping().await.unwrap();
                store.close().await;
            })
        })
        .collect();
    for opener in openers {
        opener.await.unwrap();
    }
}
