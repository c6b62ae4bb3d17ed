//! SQL that tests run on the database of a platform, bypassing the store.

use daemon::config::SecretString;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};

use super::{Project, TestControl};

impl TestControl {
    /// Runs statements.
    pub(crate) async fn raw(&self, text: &str) {
        let text = AssertSqlSafe(text.to_owned());
        let url = self.app.config.database_url.as_ref();
        let url = url.map(SecretString::expose);
        if let Some(url) = url.filter(|url| url.starts_with("postgres")) {
            let mut connection = PgConnection::connect(url).await.unwrap();
            sqlx::raw_sql(text).execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        } else {
            let file = self.app.config.data_dir.join("platform.db");
            let url = url.map_or_else(|| format!("sqlite://{}", file.display()), str::to_owned);
            let mut connection = SqliteConnection::connect(&url).await.unwrap();
            sqlx::raw_sql(text).execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        }
    }

    /// True if the embedded database is in use.
    pub(crate) fn is_embedded(&self) -> bool {
        let url = self.app.config.database_url.as_ref();
        url.is_none_or(|url| !url.expose().starts_with("postgres"))
    }

    /// Copies a project. The copies get ids with these numbers, which sort before all others.
    pub(crate) async fn copy_project(&self, of: &Project, from: u32, to: u32) {
        let (id, endpoint) = if self.is_embedded() {
            ("printf('prj_%026d', i)", "printf('%08x', i)")
        } else {
            (
                "'prj_' || lpad(CAST(i AS TEXT), 26, '0')",
                "lpad(to_hex(i), 8, '0')",
            )
        };
        let text = format!(
            "INSERT INTO projects (id, workspace_id, endpoint, name, search, plan, provider, region, routing, \
             deployment, status, settings, created_by, created_at, updated_at) \
             WITH RECURSIVE n(i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {to}) \
             SELECT {id}, workspace_id, {endpoint}, name, search, plan, provider, region, routing, \
             deployment, status, settings, created_by, created_at, updated_at \
             FROM n CROSS JOIN projects WHERE projects.id = '{}'",
            of.id
        );
        self.raw(&text).await;
    }
}
