//! Lists of projects by their conditions.

use super::{COLUMNS, Project, Sort};
use crate::database::connection::Conn;
use crate::database::page::{Order, Page, Paging};
use crate::database::sql::{Value, sorting, sql};
use crate::database::timeline::COUNT_LIMIT;
use crate::error::Error;

/// The conditions of a list. Each combination is a separate statement, so that a list without a
/// search does not read the searched columns, but only the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter {
    pub(super) has_tenant: bool,
    pub(super) has_search: bool,
    pub(super) is_narrow: bool,
}

impl Filter {
    pub(crate) fn every() -> impl Iterator<Item = Self> {
        (0..8_u8).map(|bits| Self {
            has_tenant: bits & 1 != 0,
            has_search: bits & 2 != 0,
            is_narrow: bits & 4 != 0,
        })
    }

    pub(super) async fn page(
        self,
        conn: &mut Conn,
        values: Vec<Value>,
        sort: Sort,
        order: Order,
        paging: Paging,
    ) -> Result<Page<Project>, Error> {
        let count = sql(self.count_text()).bind_all(&values).bind(COUNT_LIMIT);
        let total = count.count(conn).await?;
        if paging.is_beyond_count() {
            let items = Vec::new();
            return Ok(Page { items, total });
        }
        let list = sql(self.list_text(sort, order)).bind_all(&values);
        let items = list.bind_page(paging).all(conn).await?;
        Ok(Page { items, total })
    }

    /// The conditions and their number of arguments.
    fn conditions(self) -> (String, usize) {
        let mut text = "p.deleted_at IS NULL".to_owned();
        let mut arguments = 0;
        let mut next = || {
            arguments += 1;
            arguments
        };
        let mut and = |condition: String| {
            text.push_str(" AND ");
            text.push_str(&condition);
        };
        if self.has_tenant {
            and(format!("p.workspace_id IN_LIST(${})", next()));
        }
        if self.has_search {
            and(format!("p.search LIKE ${} ESCAPE '!'", next()));
        }
        if self.is_narrow {
            let (projects, workspaces) = (next(), next());
            and(format!(
                "(p.id IN_LIST(${projects}) OR p.workspace_id IN_LIST(${workspaces}))"
            ));
        }
        (text, arguments)
    }

    pub(crate) fn count_text(self) -> String {
        let (conditions, arguments) = self.conditions();
        let limit = arguments + 1;
        format!(
            "SELECT COUNT(*) AS n FROM \
             (SELECT 1 FROM projects p WHERE {conditions} LIMIT ${limit}) AS counted"
        )
    }

    pub(crate) fn list_text(self, sort: Sort, order: Order) -> String {
        let (conditions, arguments) = self.conditions();
        let sort = sorting(sort.column(), order);
        let (limit, offset) = (arguments + 1, arguments + 2);
        format!(
            "SELECT {COLUMNS} FROM projects p WHERE {conditions} \
             ORDER BY {sort} LIMIT ${limit} OFFSET ${offset}"
        )
    }
}
