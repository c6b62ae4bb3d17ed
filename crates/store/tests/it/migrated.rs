//! Databases of the current schema, as copies of one that was migrated: each of several hundred tests
//! has a database of its own, and every statement of every migration is what most of its time would
//! be. Tests of the migrations themselves begin with an empty database.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use store::Store;
use tokio::sync::OnceCell;

use crate::postgres;

/// A PostgreSQL database of the current schema, and its address.
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

/// Puts a database of the current schema into the directory of a platform that has none yet.
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
        // As the platform makes it.
        fs::DirBuilder::new().mode(0o700).create(data).unwrap();
    }
    let mut options = File::options();
    let new = options.write(true).create_new(true).mode(0o600);
    let mut file = new.open(data.join(DATABASE)).unwrap();
    file.write_all(template).unwrap();
}

const DATABASE: &str = "platform.db";
