//! One statement with its arguments, for either database.

use std::borrow::Cow;
use std::time::Instant;

use jiff::Timestamp;
use sqlx::postgres::PgArguments;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments as _, AssertSqlSafe, Executor as _, Row as _, SqlSafeStr as _};

use crate::database::connection::{Conn, DriverConnection, Tx, within};
use crate::database::page::{Order, Page, Paging};
use crate::database::row::{Record, Row};
use crate::database::timeline::COUNT_LIMIT;
use crate::error::{Bug, Error};

/// An argument. `None` is a NULL with its type, which PostgreSQL needs.
#[derive(Clone)]
pub(crate) enum Value {
    Text(Option<String>),
    Int(Option<i64>),
    Bool(bool),
    Bytes(Option<Vec<u8>>),
    /// For `IN_LIST($n)`.
    List(Vec<String>),
}

/// A statement to run on the database.
pub(crate) struct Query {
    text: Cow<'static, str>,
    values: Vec<Value>,
}

/// Creates a query. The text is constant and `$n` are its arguments; external input is never part
/// of the text.
///
/// `IN_LIST($n)` stands for membership in a list argument, and `EACH_OF($n)` for a table of its
/// members (`value`): the only syntax that differs between the two databases.
pub(crate) fn sql(text: impl Into<Cow<'static, str>>) -> Query {
    Query {
        text: text.into(),
        values: Vec::new(),
    }
}

/// Runs a query on the connection's database, within its time limit. `$row` makes a [`Row`] of a
/// row of that database.
macro_rules! answer {
    ($query:expr, $conn:expr, $run:ident, |$found:ident, $row:ident| $answer:expr) => {{
        let deadline = $conn.deadline();
        match $conn.db()? {
            DriverConnection::Sqlite(connection) => {
                let (text, arguments) = $query.sqlite()?;
                let query = sqlx::query_with(AssertSqlSafe(text), arguments);
                let $found = within(deadline, connection.$run(query)).await?;
                let $row = Row::Sqlite;
                Ok($answer)
            }
            DriverConnection::Postgres(connection) => {
                let (text, arguments) = $query.postgres()?;
                let query = sqlx::query_with(AssertSqlSafe(text), arguments);
                let $found = within(deadline, connection.$run(query)).await?;
                let $row = Row::Postgres;
                Ok($answer)
            }
        }
    }};
}

/// The arguments of a query; `$list` encodes a list.
macro_rules! arguments {
    ($kind:ty, $query:expr, |$values:ident| $list:expr) => {{
        let mut arguments = <$kind>::default();
        for value in $query.values {
            let added = match value {
                Value::Text(value) => arguments.add(value),
                Value::Int(value) => arguments.add(value),
                Value::Bool(value) => arguments.add(value),
                Value::Bytes(value) => arguments.add(value),
                Value::List($values) => arguments.add($list),
            };
            added.map_err(sqlx::Error::Encode)?;
        }
        arguments
    }};
}

impl Query {
    /// Adds the next argument.
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Adds several arguments.
    pub(crate) fn bind_all(mut self, values: &[Value]) -> Self {
        self.values.extend_from_slice(values);
        self
    }

    /// Adds the last two arguments of a list: `LIMIT` and `OFFSET`.
    pub(crate) fn bind_page(self, paging: Paging) -> Self {
        self.bind(paging.limit()).bind(paging.offset())
    }

    /// Runs a change and returns the number of affected rows.
    pub(crate) async fn execute(self, tx: &mut Tx) -> Result<u64, Error> {
        let done = self.run(tx).await;
        tx.handle_result(done)
    }

    async fn run(self, tx: &mut Tx) -> Result<u64, Error> {
        let _timed = TimedStatement::new("write");
        answer!(self, tx, execute, |done, _row| done.rows_affected())
    }

    /// Runs a change and returns true if it affected a row.
    pub(crate) async fn changed(self, tx: &mut Tx) -> Result<bool, Error> {
        Ok(self.execute(tx).await? > 0)
    }

    /// The first row, if there is one.
    pub(crate) async fn one<T: Record>(self, conn: &mut Conn) -> Result<Option<T>, Error> {
        if conn.records_plans() {
            self.explain(conn).await?;
        }
        let row = self.first(conn).await;
        let row = conn.handle_result(row)?;
        Ok(row.map(|row| T::from_row(&row)).transpose()?)
    }

    async fn first(self, conn: &mut Conn) -> Result<Option<Row>, Error> {
        let _timed = TimedStatement::new("read");
        answer!(self, conn, fetch_optional, |found, row| found.map(row))
    }

    /// All rows. Every statement that can return many has a LIMIT, or is limited by the number of
    /// objects of one person or one workspace.
    pub(crate) async fn all<T: Record>(self, conn: &mut Conn) -> Result<Vec<T>, Error> {
        if conn.records_plans() {
            self.explain(conn).await?;
        }
        let rows = self.fetch_rows(conn).await;
        let rows = conn.handle_result(rows)?;
        let values = rows.iter().map(T::from_row).collect::<Result<_, Bug>>()?;
        Ok(values)
    }

    async fn fetch_rows(self, conn: &mut Conn) -> Result<Vec<Row>, Error> {
        let _timed = TimedStatement::new("read");
        answer!(self, conn, fetch_all, |rows, row| rows
            .into_iter()
            .map(row)
            .collect())
    }

    /// One page of a list. `count` is the statement for its total, with the same arguments except
    /// for those of the page.
    pub(crate) async fn page<T: Record>(
        self,
        count: &'static str,
        conn: &mut Conn,
        paging: Paging,
    ) -> Result<Page<T>, Error> {
        let total = sql(count).bind_all(&self.values).count(conn).await?;
        let items = self.bind_page(paging).all(conn).await?;
        Ok(Page { items, total })
    }

    /// A time in microseconds: `SELECT … AS n`. `None` without a row, and if it is NULL.
    pub(crate) async fn time(self, conn: &mut Conn) -> Result<Option<Timestamp>, Error> {
        let micros: Option<Option<i64>> = self.one(conn).await?;
        Ok(micros
            .flatten()
            .and_then(|micros| Timestamp::from_microsecond(micros).ok()))
    }

    /// A number that always exists: `SELECT … AS n`. Rows are counted up to [`COUNT_LIMIT`] by each
    /// statement.
    pub(crate) async fn count(mut self, conn: &mut Conn) -> Result<u64, Error> {
        self.text = bounded(self.text);
        let count: Option<i64> = self.one(conn).await?;
        Ok(count
            .and_then(|count| u64::try_from(count).ok())
            .unwrap_or_default())
    }

    /// Records the query plan for exactly these arguments.
    async fn explain(&self, conn: &mut Conn) -> Result<(), Error> {
        let values = self.values.clone();
        let plan = match conn.db()? {
            DriverConnection::Sqlite(connection) => {
                let text = format!("EXPLAIN QUERY PLAN {}", self.text).into();
                let (text, arguments) = Self { text, values }.sqlite()?;
                let query = sqlx::query_with(AssertSqlSafe(text), arguments);
                let rows = connection.fetch_all(query).await?;
                rows.iter().map(|row| row.try_get("detail")).collect()
            }
            DriverConnection::Postgres(connection) => {
                let text = format!("EXPLAIN {}", self.text).into();
                let (text, arguments) = Self { text, values }.postgres()?;
                let query = sqlx::query_with(AssertSqlSafe(text), arguments);
                let rows = connection.fetch_all(query).await?;
                rows.iter().map(|row| row.try_get(0)).collect()
            }
        };
        let plan: Result<Vec<String>, sqlx::Error> = plan;
        conn.record_plan(plan?);
        Ok(())
    }

    fn sqlite(self) -> Result<(Cow<'static, str>, SqliteArguments), Error> {
        let arguments = arguments!(SqliteArguments, self, |values| serde_json::json!(values)
            .to_string());
        Ok((for_sqlite(self.text), arguments))
    }

    fn postgres(self) -> Result<(Cow<'static, str>, PgArguments), Error> {
        let arguments = arguments!(PgArguments, self, |values| values);
        Ok((for_postgres(self.text), arguments))
    }
}

/// Limits a count to [`COUNT_LIMIT`], unless the statement has its own limit.
fn bounded(text: Cow<'static, str>) -> Cow<'static, str> {
    match text.strip_prefix(COUNT_OF) {
        Some(rows) if !rows.contains(" LIMIT ") => {
            format!("{COUNT_OF}(SELECT 1 FROM {rows} LIMIT {COUNT_LIMIT}) AS counted").into()
        }
        _ => text,
    }
}

const COUNT_OF: &str = "SELECT COUNT(*) AS n FROM ";

/// Measures the duration of the statement, whatever its result. A statement that returns rows
/// counts as reading, even if it changes them.
struct TimedStatement {
    kind: &'static str,
    began: Instant,
}

impl TimedStatement {
    fn new(kind: &'static str) -> Self {
        Self {
            kind,
            began: Instant::now(),
        }
    }
}

impl Drop for TimedStatement {
    fn drop(&mut self) {
        metrics::histogram!(QUERY_SECONDS, "kind" => self.kind).record(self.began.elapsed());
    }
}

/// Duration of statements, by `kind`: `read` or `write`.
pub const QUERY_SECONDS: &str = "svc_platform_database_query_seconds";

/// At the end of a subselect of rows to change: rows that another transaction has locked are
/// skipped, so that no transaction waits for a row while it holds others.
const SKIP_LOCKED: &str = " SKIP_LOCKED";

/// Lets the database parse a statement.
pub(crate) async fn prepare(conn: &mut Conn, text: String) -> Result<(), Error> {
    match conn.db()? {
        DriverConnection::Sqlite(connection) => {
            let text = AssertSqlSafe(for_sqlite(text.into()));
            connection.prepare(text.into_sql_str()).await?;
        }
        DriverConnection::Postgres(connection) => {
            let text = AssertSqlSafe(for_postgres(text.into()));
            connection.prepare(text.into_sql_str()).await?;
        }
    }
    Ok(())
}

/// The text in the syntax of SQLite: a list is a JSON array.
pub(crate) fn for_sqlite(text: Cow<'static, str>) -> Cow<'static, str> {
    let text = rewrite(text, "IN_LIST(", "IN (SELECT value FROM json_each(", "))");
    // A single writer has no locked rows to skip.
    let text = replace(text, SKIP_LOCKED, "");
    rewrite(
        text,
        "EACH_OF(",
        "(SELECT value FROM json_each(",
        ")) AS listed",
    )
}

/// The text in the syntax of PostgreSQL: a list is an array, so that indexes can be used.
pub(crate) fn for_postgres(text: Cow<'static, str>) -> Cow<'static, str> {
    let text = rewrite(text, "IN_LIST(", "= ANY(CAST(", " AS TEXT[]))");
    let text = replace(text, SKIP_LOCKED, " FOR NO KEY UPDATE SKIP LOCKED");
    let each = "(SELECT unnest(CAST(";
    rewrite(text, "EACH_OF(", each, " AS TEXT[])) AS value) AS listed")
}

fn replace(text: Cow<'static, str>, word: &str, with: &str) -> Cow<'static, str> {
    if text.contains(word) {
        text.replace(word, with).into()
    } else {
        text
    }
}

fn rewrite(text: Cow<'static, str>, word: &str, before: &str, after: &str) -> Cow<'static, str> {
    if !text.contains(word) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 32);
    let mut pieces = text.split(word);
    out.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (argument, rest) = piece.split_once(')').unwrap_or((piece, ""));
        out.push_str(before);
        out.push_str(argument);
        out.push_str(after);
        out.push_str(rest);
    }
    out.into()
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<&String> for Value {
    fn from(value: &String) -> Self {
        Self::Text(Some(value.clone()))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(Some(value))
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(Some(value.into()))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Self {
        Self::Bytes(Some(value.to_vec()))
    }
}

impl From<Timestamp> for Value {
    fn from(value: Timestamp) -> Self {
        Self::Int(Some(value.as_microsecond()))
    }
}

impl From<&serde_json::Value> for Value {
    fn from(value: &serde_json::Value) -> Self {
        Self::Text(Some(value.to_string()))
    }
}

impl From<Vec<String>> for Value {
    fn from(value: Vec<String>) -> Self {
        Self::List(value)
    }
}

/// Optional arguments, with the type of NULL for an absent one.
macro_rules! optional {
    ($($kind:ident: $($from:ty),+;)+) => {$($(
        impl From<Option<$from>> for Value {
            fn from(value: Option<$from>) -> Self {
                value.map_or(Self::$kind(None), Self::from)
            }
        }
    )+)+};
}

optional! {
    Text: &str, String, &String, &serde_json::Value, &crate::database::secret::PasswordHash;
    Int: i64, Timestamp;
    Bytes: &[u8], crate::database::secret::SecretHash, &crate::database::secret::SealedBytes;
}

/// Typed ids as columns, arguments, and rows with only an id.
macro_rules! ids {
    ($($name:ident)+) => {$(
        impl crate::database::row::Column for types::id::$name {
            fn read(row: &Row, column: &str) -> Result<Self, String> {
                String::read(row, column)?.parse().map_err(|error: types::id::BadId| error.to_string())
            }
        }

        impl Record for types::id::$name {
            fn from_row(row: &Row) -> Result<Self, Bug> {
                row.column("ids", "id")
            }
        }

        impl From<types::id::$name> for Value {
            fn from(id: types::id::$name) -> Self {
                Self::from(id.as_str())
            }
        }

        impl From<Option<types::id::$name>> for Value {
            fn from(id: Option<types::id::$name>) -> Self {
                Self::Text(id.map(|id| id.as_str().to_owned()))
            }
        }

        impl From<&[types::id::$name]> for Value {
            fn from(ids: &[types::id::$name]) -> Self {
                Self::List(ids.iter().map(|id| id.as_str().to_owned()).collect())
            }
        }
    )+};
}

ids! {
    UserId SessionId PasskeyId WorkspaceId InvitationId ProjectId CredentialId SubscriptionId
    SubscriptionChangeId InvoiceId AddressId DomainId LogId WebhookId DeliveryId AttemptId WebttyServerId
    AuditId EventId TunnelId
}

/// Named statements of one entity, and their list for the test that prepares them.
macro_rules! statements {
    ($($name:ident = $text:expr;)+) => {
        $(const $name: &str = $text;)+

        /// Every fixed statement of this file.
        pub(crate) const STATEMENTS: &[&str] = &[$($name),+];
    };
}
pub(crate) use statements;

/// Replaces `{sort}` in a list by a constant column name and a direction. The id decides between
/// equal rows, so that pages do not overlap.
pub(crate) fn sorted(list: &'static str, column: &'static str, order: Order) -> String {
    list.replace("{sort}", &sorting(column, order))
}

/// The text that [`sorted`] inserts.
pub(crate) fn sorting(column: &'static str, order: Order) -> String {
    let direction = order.sql();
    if column == "id" {
        format!("id {direction}")
    } else {
        format!("{column} {direction}, id {direction}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_the_syntax_of_each_database() {
        let text = "SELECT 1 WHERE a IN_LIST($1) AND (b IN_LIST($12) OR c)";
        assert_eq!(
            for_sqlite(text.into()),
            "SELECT 1 WHERE a IN (SELECT value FROM json_each($1)) \
             AND (b IN (SELECT value FROM json_each($12)) OR c)"
        );
        assert_eq!(
            for_postgres(text.into()),
            "SELECT 1 WHERE a = ANY(CAST($1 AS TEXT[])) AND (b = ANY(CAST($12 AS TEXT[])) OR c)"
        );
        let text = "SELECT value FROM EACH_OF($4)";
        assert_eq!(
            for_sqlite(text.into()),
            "SELECT value FROM (SELECT value FROM json_each($4)) AS listed"
        );
        assert_eq!(
            for_postgres(text.into()),
            "SELECT value FROM (SELECT unnest(CAST($4 AS TEXT[])) AS value) AS listed"
        );
        let text = "UPDATE a SET b = 1 WHERE id IN (SELECT id FROM a ORDER BY id SKIP_LOCKED)";
        assert_eq!(
            for_sqlite(text.into()),
            "UPDATE a SET b = 1 WHERE id IN (SELECT id FROM a ORDER BY id)"
        );
        assert_eq!(
            for_postgres(text.into()),
            "UPDATE a SET b = 1 WHERE id IN (SELECT id FROM a ORDER BY id \
             FOR NO KEY UPDATE SKIP LOCKED)"
        );
        assert!(matches!(for_sqlite("SELECT 1".into()), Cow::Borrowed(_)));
    }

    #[test]
    fn every_count_is_limited() {
        let both = [true, false].map(crate::database::statements::every);
        for text in both.concat() {
            let counts = text.contains("COUNT(*) AS n FROM") && !text.contains("GROUP BY");
            if counts {
                let bounded = bounded(text.clone().into());
                assert!(bounded.contains(" LIMIT "), "{text}");
            }
        }
        assert_eq!(
            bounded("SELECT COUNT(*) AS n FROM a WHERE b = $1".into()),
            "SELECT COUNT(*) AS n FROM (SELECT 1 FROM a WHERE b = $1 LIMIT 100000) AS counted"
        );
    }

    #[test]
    fn equal_rows_are_sorted_by_id() {
        let list = "SELECT 1 ORDER BY {sort} LIMIT $1";
        let by_name = sorted(list, "name", Order::Desc);
        assert_eq!(by_name, "SELECT 1 ORDER BY name DESC, id DESC LIMIT $1");
        assert_eq!(
            sorted(list, "id", Order::Asc),
            "SELECT 1 ORDER BY id ASC LIMIT $1"
        );
    }
}
