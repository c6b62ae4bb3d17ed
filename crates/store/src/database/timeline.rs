//! Lists of a project's rows by time: logs and events, of which there may be millions.
//!
//! The filters of a caller are combined from fixed pieces, so that each combination is a separate
//! statement that an index supports. Every list is limited to a project and ordered by time; totals
//! are counted up to a limit.

use jiff::Timestamp;
use types::id::ProjectId;

use crate::database::connection::Conn;
use crate::database::page::{Order, Page, Paging};
use crate::database::row::Record;
use crate::database::sql::{Value, sql};
use crate::error::Error;

/// A period, with optional start and end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    /// Start, inclusive.
    pub start: Option<Timestamp>,
    /// End, exclusive.
    pub end: Option<Timestamp>,
}

/// Totals are exact up to this number, and capped at it. Counting a million index entries takes
/// tens of milliseconds; an unlimited count can take any time.
pub const COUNT_LIMIT: u32 = 100_000;

/// Number of rows that a search without an index reads, from the start of the list: this takes a
/// fraction of a second.
pub const MAX_SCANNED_ROWS: u32 = 100_000;

/// Builder of a list.
pub(crate) struct Timeline {
    columns: &'static str,
    table: &'static str,
    conditions: String,
    /// The search condition, which no index supports, and the number of rows that are read for it.
    search: Option<(String, u32)>,
    values: Vec<Value>,
}

impl Timeline {
    pub(crate) fn new(columns: &'static str, table: &'static str, project: ProjectId) -> Self {
        Self {
            columns,
            table,
            conditions: "project_id = $1".to_owned(),
            search: None,
            values: vec![project.into()],
        }
    }

    /// Adds a condition; `$n` in it is the value.
    pub(crate) fn filter<V: Into<Value>>(&mut self, condition: &'static str, value: Option<V>) {
        if let Some(value) = value {
            self.values.push(value.into());
            let placeholder = format!("${}", self.values.len());
            self.conditions.push_str(" AND ");
            self.conditions
                .push_str(&condition.replace("$n", &placeholder));
        }
    }

    /// Searches for a pattern in the column `search` of the first [`MAX_SCANNED_ROWS`] rows that
    /// match the other conditions.
    pub(crate) fn search(&mut self, pattern: Option<String>) {
        self.search_first(MAX_SCANNED_ROWS, pattern);
    }

    /// As [`Timeline::search`], with this number of rows.
    pub(crate) fn search_first(&mut self, rows: u32, pattern: Option<String>) {
        if let Some(pattern) = pattern {
            self.search = Some((self.search_condition(pattern), rows));
        }
    }

    /// Returns the condition that a row has a pattern in the column `search`, for another statement
    /// of the caller.
    pub(crate) fn search_condition(&mut self, pattern: String) -> String {
        format!("search LIKE {} ESCAPE '!'", self.value(pattern))
    }

    /// Adds an argument for another statement of the caller, and returns its placeholder.
    pub(crate) fn value<V: Into<Value>>(&mut self, value: V) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }

    pub(crate) fn values(&self) -> &[Value] {
        &self.values
    }

    pub(crate) fn conditions(&self) -> &str {
        &self.conditions
    }

    pub(crate) fn within(&mut self, period: Period) {
        self.filter("created_at >= $n", period.start);
        self.filter("created_at < $n", period.end);
    }

    /// Adds the condition that rows follow another one in this order. If that row is deleted or
    /// belongs to another project, no row matches.
    pub(crate) fn after(&mut self, id: Option<&str>, order: Order) {
        let condition = match (order, self.table) {
            (Order::Asc, "events") => AFTER_EVENT,
            (Order::Desc, "events") => BEFORE_EVENT,
            (Order::Asc, _) => AFTER_LOG,
            (Order::Desc, _) => BEFORE_LOG,
        };
        self.filter(condition, id);
    }

    pub(crate) async fn page<T: Record>(
        self,
        conn: &mut Conn,
        order: Order,
        paging: Paging,
    ) -> Result<Page<T>, Error> {
        let items: Vec<T> = if paging.is_beyond_count() {
            Vec::new()
        } else {
            let list = sql(self.list_text(order)).bind_all(&self.values);
            list.bind_page(paging).all(conn).await?
        };
        // A page that is not full is the last one, so the total is known. A search does not read
        // everything a second time to count them.
        let here = u64::try_from(items.len()).unwrap_or_default();
        let before = u64::try_from(paging.offset()).unwrap_or_default();
        let is_last = here < u64::from(paging.page_size()) && (here > 0 || before == 0);
        let total = if is_last {
            (before + here).min(COUNT_LIMIT.into())
        } else {
            let count = sql(self.count_text(order)).bind_all(&self.values);
            count.bind(COUNT_LIMIT).count(conn).await?
        };
        Ok(Page { items, total })
    }

    pub(crate) fn count_text(&self, order: Order) -> String {
        format!(
            "SELECT COUNT(*) AS n FROM (SELECT 1 FROM {} LIMIT ${}) AS counted",
            self.rows("id", order),
            self.values.len() + 1
        )
    }

    pub(crate) fn list_text(&self, order: Order) -> String {
        let direction = order.sql();
        format!(
            "SELECT {} FROM {} ORDER BY created_at {direction}, id {direction} LIMIT ${} OFFSET ${}",
            self.columns,
            self.rows(self.columns, order),
            self.values.len() + 1,
            self.values.len() + 2
        )
    }

    /// The rows, without an order if there is no search.
    fn rows(&self, columns: &str, order: Order) -> String {
        let (table, conditions) = (self.table, &self.conditions);
        let direction = order.sql();
        match &self.search {
            None => format!("{table} WHERE {conditions}"),
            Some((search, looked_at)) => format!(
                "(SELECT {columns}, search FROM {table} WHERE {conditions} \
                 ORDER BY created_at {direction}, id {direction} LIMIT {looked_at}) AS searched \
                 WHERE {search}"
            ),
        }
    }
}

const AFTER_EVENT: &str = "(created_at, id) > (SELECT e.created_at, e.id FROM events e WHERE e.id = $n AND e.project_id = $1)";
const BEFORE_EVENT: &str = "(created_at, id) < (SELECT e.created_at, e.id FROM events e WHERE e.id = $n AND e.project_id = $1)";
const AFTER_LOG: &str = "(created_at, id) > (SELECT e.created_at, e.id FROM logs e WHERE e.id = $n AND e.project_id = $1)";
const BEFORE_LOG: &str = "(created_at, id) < (SELECT e.created_at, e.id FROM logs e WHERE e.id = $n AND e.project_id = $1)";
