//! Databases of the current schema, copied from a migrated template. Each of several hundred tests
//! has its own database, and running all migrations would take most of its time. Tests of the
//! migrations themselves start with an empty database.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use store::Store;
use tokio::sync::OnceCell;

use crate::postgres;

/// Creates a PostgreSQL database of the current schema. Returns its address.
pub(crate) async fn on_postgres() -> String {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    let template = TEMPLATE
        .get_or_init(|| async {
            let url = postgres::new_database().await;
            let directory = tempfile::tempdir().unwrap();
            let store = Store::open(Some(&url), directory.path()).await.unwrap();
            store.close().await;
            url
        })
        .await;
    postgres::copy_of(template).await
}

/// Puts a database of the current schema into the directory of a platform without a database.
pub(crate) async fn on_sqlite(data: &Path) {
    static TEMPLATE: OnceCell<Vec<u8>> = OnceCell::const_new();
    let template = TEMPLATE
        .get_or_init(|| async {
            let directory = tempfile::tempdir().unwrap();
            let store = Store::open(None, directory.path()).await.unwrap();
            store.close().await;
            fs::read(directory.path().join(DATABASE)).unwrap()
        })
        .await;
    if !data.exists() {
        // With the permissions that the platform sets.
        fs::DirBuilder::new().mode(0o700).create(data).unwrap();
    }
    let mut options = File::options();
    let new = options.write(true).create_new(true).mode(0o600);
    let mut file = new.open(data.join(DATABASE)).unwrap();
    file.write_all(template).unwrap();
}

const DATABASE: &str = "platform.db";
