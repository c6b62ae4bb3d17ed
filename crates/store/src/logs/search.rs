//! Substring search in the logs of a project, of which there may be a million.
//!
//! The index contains the trigrams of each text. It only selects candidate rows; the search text is
//! always compared with the row itself. On SQLite it is a full-text table (`logs_search`) whose
//! rows are ordered by project and hour. On PostgreSQL it is a GIN index of the extension
//! `pg_trgm`, if that could be created.

use jiff::Timestamp;
use types::id::ProjectId;

use crate::database::connection::{Conn, Tx};
use crate::database::page::{Order, Page, fold_case};
use crate::database::row::{Record, Row};
use crate::database::sql::sql;
use crate::database::timeline::{MAX_SCANNED_ROWS, Timeline};
use crate::error::{Bug, Error};
use crate::logs::{self, List, Log};

/// Maximum total of a search; its pages end here as well. Callers that want more rows continue
/// after the last one.
pub const MAX_SEARCH_TOTAL: u32 = 1_000;

/// The statement of one page of a search, for either database.
pub(crate) struct LogSearch {
    timeline: Timeline,
    /// The condition on the text.
    search: String,
    /// Range of row ids of the full-text table, with the placeholder for the cursor.
    range: String,
    matching: String,
    is_embedded: bool,
}

/// A row of a page.
struct LogMatch {
    log: Log,
    /// Number of rows found, at most one more than [`MAX_SEARCH_TOTAL`].
    found: i64,
    /// True if no other row can precede this one.
    is_settled: bool,
}

impl Record for LogMatch {
    fn from_row(row: &Row) -> Result<Self, Bug> {
        Ok(Self {
            log: Log::from_row(row)?,
            found: row.column("logs", "found")?,
            is_settled: row.column::<i64>("logs", "settled")? > 0,
        })
    }
}

/// A page of a search with the index. `None` if the index does not help: the list or the text is
/// short, or so many rows match that reading in order finds a page sooner.
pub(crate) async fn page(
    conn: &mut Conn,
    list: &List<'_>,
    text: &str,
    pattern: &str,
) -> Result<Option<Page<Log>>, Error> {
    let text = fold_case(text);
    let is_embedded = conn.is_embedded();
    let is_usable = if is_embedded {
        has_pieces(&text)
    } else {
        has_words(&text) && has_index(conn).await?
    };
    if !is_usable || is_short(conn, list).await? {
        return Ok(None);
    }
    let in_order = async |conn: &mut Conn| {
        let items = read_in_order(conn, list, pattern).await?;
        let total = MAX_SEARCH_TOTAL.into();
        Ok::<_, Error>(Some(Page { items, total }))
    };
    if !is_embedded && is_frequent(conn, list, pattern).await? {
        return in_order(conn).await;
    }
    let search = LogSearch::new(list, &text, pattern, is_embedded);
    let paging = list.paging;
    let before = u64::try_from(paging.offset()).unwrap_or_default();
    if before >= MAX_SEARCH_TOTAL.into() {
        let query = sql(search.count_text()).bind_all(search.timeline.values());
        let total = query.bind(MAX_SEARCH_TOTAL).count(conn).await?;
        let items = Vec::new();
        return Ok(Some(Page { items, total }));
    }
    let query = sql(search.list_text(list.order)).bind_all(search.timeline.values());
    let hits: Vec<LogMatch> = query.bind_page(paging).all(conn).await?;
    let Some(last) = hits.last() else {
        let total = if before == 0 {
            0
        } else {
            let query = sql(search.count_text()).bind_all(search.timeline.values());
            query.bind(MAX_SEARCH_TOTAL).count(conn).await?
        };
        let items = Vec::new();
        return Ok(Some(Page { items, total }));
    };
    if !last.is_settled {
        return in_order(conn).await;
    }
    let total = u64::try_from(last.found)
        .unwrap_or_default()
        .min(MAX_SEARCH_TOTAL.into());
    let items = hits.into_iter().map(|hit| hit.log).collect();
    Ok(Some(Page { items, total }))
}

/// A page of a search with at least [`MAX_SEARCH_TOTAL`] matches: the list is read in order until
/// the page is full.
async fn read_in_order(conn: &mut Conn, list: &List<'_>, pattern: &str) -> Result<Vec<Log>, Error> {
    let paging = list.paging;
    if paging.offset() >= MAX_SEARCH_TOTAL.into() {
        return Ok(Vec::new());
    }
    let mut timeline = logs::conditions(list);
    timeline.search_first(IN_ORDER, Some(pattern.to_owned()));
    sql(timeline.list_text(list.order))
        .bind_all(timeline.values())
        .bind_page(paging)
        .all(conn)
        .await
}

/// True if reading the list is as fast as using the index.
async fn is_short(conn: &mut Conn, list: &List<'_>) -> Result<bool, Error> {
    let timeline = logs::conditions(list);
    let query = sql(timeline.count_text(list.order)).bind_all(timeline.values());
    Ok(query.bind(SHORT).count(conn).await? < SHORT.into())
}

/// True if [`MAX_SEARCH_TOTAL`] matching rows are found quickly. The first rows of the list
/// indicate if it is worth trying.
async fn is_frequent(conn: &mut Conn, list: &List<'_>, pattern: &str) -> Result<bool, Error> {
    for (rows, least) in [(SAMPLE, FREQUENT), (MAX_SCANNED_ROWS, MAX_SEARCH_TOTAL)] {
        let mut timeline = logs::conditions(list);
        timeline.search_first(rows, Some(pattern.to_owned()));
        let query = sql(timeline.count_text(list.order)).bind_all(timeline.values());
        if query.bind(least).count(conn).await? < least.into() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// True if PostgreSQL has the index. An administrator of the database can add it at any time.
async fn has_index(conn: &mut Conn) -> Result<bool, Error> {
    let found: Option<i64> = sql(HAS_INDEX).one(conn).await?;
    Ok(found.is_some_and(|found| found > 0))
}

/// True if the full-text table can search for the text: it needs three characters, and a NUL ends a
/// query.
fn has_pieces(text: &str) -> bool {
    text.chars().nth(2).is_some() && !text.contains('\0')
}

/// True if the extension selects few rows by the text: it only indexes trigrams of words, and
/// trigrams of short words occur in many rows.
fn has_words(text: &str) -> bool {
    let words: Vec<_> = text
        .split(|character: char| !character.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    words.iter().any(|word| word.len() >= 3) || words.len() >= 3
}

/// All trigrams as a query of the full-text table. The text has at least three characters.
fn query_of(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut pieces: Vec<&[char]> = characters.chunks_exact(3).take(MOST_PIECES).collect();
    pieces.extend(characters.last_chunk::<3>().map(<[char; 3]>::as_slice));
    pieces.dedup();
    let quoted = pieces.iter().map(|piece| {
        let piece: String = piece.iter().collect();
        format!("\"{}\"", piece.replace('"', "\"\""))
    });
    quoted.collect::<Vec<_>>().join(" AND ")
}

impl LogSearch {
    pub(crate) fn new(list: &List<'_>, text: &str, pattern: &str, is_embedded: bool) -> Self {
        let mut timeline = logs::conditions(list);
        let search = timeline.search_condition(pattern.to_owned());
        let (mut range, mut matching) = (String::new(), String::new());
        if is_embedded {
            let first = place_of(list.project, list.period.start.unwrap_or(Timestamp::MIN));
            let last = place_of(list.project, list.period.end.unwrap_or(Timestamp::MAX));
            matching = timeline.value(query_of(text));
            let (first, last) = (timeline.value(first), timeline.value(last + (HOUR - 1)));
            range = format!("BETWEEN {first} AND {last}");
            if let Some(after) = list.after {
                // From the hour of the cursor on. A cursor that is not in the index yet has no row
                // id.
                let after = timeline.value(after.to_string());
                let hour = format!(
                    "(SELECT search_key / {HOUR} * {HOUR} FROM logs WHERE id = {after} AND search_key >= 0)"
                );
                range = match list.order {
                    Order::Asc => {
                        format!("BETWEEN MAX({first}, COALESCE({hour}, {first})) AND {last}")
                    }
                    Order::Desc => format!(
                        "BETWEEN {first} AND MIN({last}, COALESCE({hour} + {}, {last}))",
                        HOUR - 1
                    ),
                };
            }
        }
        Self {
            timeline,
            search,
            range,
            matching,
            is_embedded,
        }
    }

    /// The matching rows, at most `most` of them: on SQLite by hour in this order, and rows that
    /// are not indexed yet. The indexes are named, because without statistics (as in a database
    /// that was empty when it was last analysed) SQLite prefers the index of a project's rows for
    /// each match.
    fn matching_rows(&self, order: Order, most: &str) -> String {
        let (conditions, search) = (self.timeline.conditions(), &self.search);
        if !self.is_embedded {
            return format!(
                "SELECT id, created_at FROM logs WHERE {conditions} AND {search} LIMIT {most}"
            );
        }
        let (matching, range, direction) = (&self.matching, &self.range, order.sql());
        format!(
            "SELECT id, created_at, search_key FROM (SELECT id, created_at, search_key FROM logs_search \
             CROSS JOIN logs INDEXED BY logs_search_key ON logs.search_key = logs_search.rowid WHERE logs_search MATCH {matching} \
             AND logs_search.rowid {range} AND {conditions} AND {search} \
             ORDER BY logs_search.rowid {direction} LIMIT {most}) \
             UNION ALL SELECT id, created_at, search_key FROM (SELECT id, created_at, search_key FROM logs \
             INDEXED BY logs_unindexed WHERE search_key IS NULL AND {conditions} AND {search} LIMIT {most})"
        )
    }

    /// Rows beyond [`MAX_SEARCH_TOTAL`] are left out. On SQLite the position of a row is therefore
    /// final if its hour is before that of the last one, and on PostgreSQL if no rows were left
    /// out.
    pub(crate) fn list_text(&self, order: Order) -> String {
        let direction = order.sql();
        let found = self.matching_rows(order, &(MAX_SEARCH_TOTAL + 1).to_string());
        let hour = match order {
            _ if !self.is_embedded => "FALSE".to_owned(),
            Order::Asc => format!("search_key / {HOUR} < MAX(search_key) OVER () / {HOUR}"),
            Order::Desc => format!("search_key / {HOUR} > MIN(search_key) OVER () / {HOUR}"),
        };
        format!(
            "SELECT {}, found, settled FROM (SELECT id AS hit, created_at AS hit_at, COUNT(*) OVER () AS found, \
             CAST(CASE WHEN COUNT(*) OVER () <= {MAX_SEARCH_TOTAL} OR {hour} THEN 1 ELSE 0 END AS BIGINT) AS settled \
             FROM ({found}) AS searched ORDER BY created_at {direction}, id {direction} LIMIT ${} OFFSET ${}) AS page \
             CROSS JOIN logs WHERE logs.id = page.hit ORDER BY hit_at {direction}, hit {direction}",
            logs::COLUMNS,
            self.timeline.values().len() + 1,
            self.timeline.values().len() + 2,
        )
    }

    pub(crate) fn count_text(&self) -> String {
        let most = format!("${}", self.timeline.values().len() + 1);
        let found = self.matching_rows(Order::Desc, &most);
        format!(
            "SELECT COUNT(*) AS n FROM (SELECT 1 FROM ({found}) AS searched LIMIT {most}) AS counted"
        )
    }
}

/// Adds at most `limit` unindexed rows to the index; PostgreSQL does that itself. Callers insert
/// all rows of a batch first and call this once, because each statement that writes to the
/// full-text table adds a segment that is merged later.
pub async fn index(tx: &mut Tx, limit: u32) -> Result<(), Error> {
    if !tx.is_embedded() {
        return Ok(());
    }
    let fresh: Vec<types::id::LogId> = sql(UNINDEXED).bind(limit).all(tx).await?;
    if fresh.is_empty() {
        return Ok(());
    }
    sql(PLACE).bind(fresh.as_slice()).execute(tx).await?;
    sql(INDEX).bind(fresh.as_slice()).execute(tx).await?;
    Ok(())
}

/// The first row id for an hour of a project, as [`PLACE`] assigns it.
fn place_of(project: ProjectId, at: Timestamp) -> i64 {
    let end = project.as_str().bytes().rev().take(4);
    let project = end.fold(0, |bits, digit| {
        let mut digits = (1_i64..).zip(DIGITS.bytes());
        let digit = digits.find(|(_, known)| *known == digit);
        bits << 5 | digit.map_or(0, |(place, _)| place & 31)
    });
    let hour = (at.as_microsecond() / 3_600_000_000 - 464_592).clamp(0, 524_287);
    project << 43 | hour << 24
}

/// Row ids per hour.
const HOUR: i64 = 1 << 24;
/// Alphabet of ids.
const DIGITS: &str = "0123456789abcdefghjkmnpqrstvwxyz";
/// A shorter list is read without the index, which takes milliseconds.
const SHORT: u32 = 10_000;
/// Number of rows from which the frequency of a text is estimated …
const SAMPLE: u32 = 2_000;
/// … and the number of matches from which it counts as frequent.
const FREQUENT: u32 = 40;
/// Maximum number of rows that are read in order: the default maximum per project.
const IN_ORDER: u32 = 1_000_000;
/// Further trigrams of a long text exclude few more rows.
const MOST_PIECES: usize = 16;

const HAS_INDEX: &str = "SELECT COUNT(*) AS n FROM pg_index WHERE indisvalid AND indexrelid = to_regclass('logs_search')";
const UNINDEXED: &str = "SELECT id FROM logs WHERE search_key IS NULL LIMIT $1";
/// As in the migration.
const PLACE: &str = "UPDATE logs SET search_key = CASE WHEN slot < 16777216 THEN first + slot ELSE -1 END FROM ( \
    SELECT id AS fresh, first, row_number() OVER (PARTITION BY first ORDER BY created_at, id) - 1 + COALESCE( \
        (SELECT MAX(search_key) + 1 FROM logs WHERE search_key BETWEEN first AND first + 16777215) - first, 0) AS slot \
    FROM (SELECT id, created_at, \
        ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr(project_id, -1, 1)) & 31) << 58) \
        | ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr(project_id, -2, 1)) & 31) << 53) \
        | ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr(project_id, -3, 1)) & 31) << 48) \
        | ((instr('0123456789abcdefghjkmnpqrstvwxyz', substr(project_id, -4, 1)) & 31) << 43) \
        | (max(0, min(524287, created_at / 3600000000 - 464592)) << 24) AS first \
        FROM logs WHERE id IN_LIST($1)) \
    ) AS placed WHERE logs.id = fresh";
const INDEX: &str = "INSERT INTO logs_search (rowid, text) SELECT search_key, search FROM logs \
    WHERE id IN_LIST($1) AND search_key >= 0 ORDER BY search_key";
/// Statements for SQLite only.
pub(crate) const EMBEDDED: &[&str] = &[UNINDEXED, PLACE, INDEX];
/// Statements for PostgreSQL only.
pub(crate) const SERVER: &[&str] = &[HAS_INDEX];
