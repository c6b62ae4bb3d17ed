//! Tunnel projects.
//!
//! What a person reads goes through the membership in one statement, so that a project of others
//! and one that does not exist cost the same query and have the same answer.

use jiff::Timestamp;
use types::id::{ProjectId, UserId, WorkspaceId};

use crate::changes::Change;
use crate::connection::{Conn, Tx};
use crate::error::{Conflict, Error};
use crate::members;
use crate::page::{Order, Page, Paging, fold, pattern};
use crate::row::{record, words};
use crate::sql::{Query, Value, sorting, sql, statements};
use crate::timeline::COUNTED;
use crate::workspaces;

record! {
    /// A project.
    pub struct Project from "projects" {
        /// Id.
        pub id: ProjectId,
        /// The workspace that it belongs to.
        pub workspace_id: WorkspaceId,
        /// Eight hex digits: the label of its host name.
        pub endpoint: String,
        /// Name.
        pub name: String,
        /// Plan of the catalogue.
        pub plan: String,
        /// Provider of the catalogue.
        pub provider: String,
        /// Region of the provider; none where routing is global.
        pub region: Option<String>,
        /// `regional` or `global`.
        pub routing: String,
        /// `shared` or `dedicated`.
        pub deployment: String,
        /// Whether it can be used.
        pub status: Status,
        /// Settings that differ from their defaults, a JSON object.
        pub settings: serde_json::Value,
        /// Who made it.
        pub created_by: UserId,
        /// When.
        pub created_at: Timestamp,
        /// When it last changed.
        pub updated_at: Timestamp,
        /// Since when an operator keeps it from being used.
        pub suspended_at: Option<Timestamp>,
    }
}

record! {
    /// What the caller of a project is in its workspace, beside the project.
    pub struct Access from "projects of a member" {
        /// The caller's role.
        pub member_role: members::Role,
        /// Whether the workspace may be used.
        pub workspace_status: workspaces::Status,
    }
}

record! {
    /// A project's place, for deciding on boundaries.
    pub struct Place from "projects" {
        /// The project.
        pub id: ProjectId,
        /// Its workspace.
        pub workspace_id: WorkspaceId,
    }
}

record! {
    /// How many projects of a plan a workspace has.
    pub struct PlanCount from "projects" {
        /// Plan of the catalogue.
        pub plan: String,
        /// Projects.
        pub n: i64,
    }
}

/// A project that the caller may see.
#[derive(Clone, Debug, PartialEq)]
pub struct Visible {
    /// The project.
    pub project: Project,
    /// The caller's role in its workspace.
    pub role: members::Role,
    /// Whether its workspace may be used.
    pub workspace_status: workspaces::Status,
}

impl crate::row::Record for Visible {
    fn from_row(row: &crate::row::Row) -> Result<Self, crate::error::Bug> {
        let access = Access::from_row(row)?;
        Ok(Self {
            project: Project::from_row(row)?,
            role: access.member_role,
            workspace_status: access.workspace_status,
        })
    }
}

words! {
    /// Whether a project can be used.
    pub enum Status {
        /// Yes.
        Active = "active",
        /// Not now.
        Unavailable = "unavailable",
        /// No: something went wrong with it.
        Error = "error",
    }
}

/// A project to be.
#[derive(Clone, Debug)]
pub struct NewProject {
    /// Id, made by the caller.
    pub id: ProjectId,
    /// The workspace that it will belong to.
    pub workspace_id: WorkspaceId,
    /// Eight random hex digits.
    pub endpoint: String,
    /// Name.
    pub name: String,
    /// Plan of the catalogue.
    pub plan: String,
    /// Provider of the catalogue.
    pub provider: String,
    /// Region of the provider; none where routing is global.
    pub region: Option<String>,
    /// `regional` or `global`.
    pub routing: String,
    /// `shared` or `dedicated`.
    pub deployment: String,
    /// Who makes it.
    pub created_by: UserId,
    /// Now.
    pub now: Timestamp,
}

/// Columns by which projects are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Age.
    #[default]
    Id,
    /// Name.
    Name,
    /// Endpoint.
    Endpoint,
    /// Status.
    Status,
    /// Plan.
    Plan,
    /// Deployment.
    Deployment,
}

impl Sort {
    pub(crate) const ALL: [Self; 6] = [
        Self::Id,
        Self::Name,
        Self::Endpoint,
        Self::Status,
        Self::Plan,
        Self::Deployment,
    ];

    pub(crate) fn column(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Name => "name",
            Self::Endpoint => "endpoint",
            Self::Status => "status",
            Self::Plan => "plan",
            Self::Deployment => "deployment",
        }
    }
}

/// Which projects of those workspaces a list is about.
#[derive(Clone, Copy, Debug)]
pub enum Reach<'a> {
    /// All.
    All,
    /// Those of the second set of workspaces, and these projects.
    Only {
        /// Projects by id.
        projects: &'a [ProjectId],
        /// All projects of these workspaces.
        workspaces: &'a [WorkspaceId],
    },
}

/// What a list asks for.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// The tenant: workspaces that the caller is an active member of. Nothing else is looked at.
    pub workspaces: &'a [WorkspaceId],
    /// What the caller's credential leaves of them.
    pub reach: Reach<'a>,
    /// Part of a name or endpoint, in any case.
    pub search: Option<&'a str>,
    /// Column.
    pub sort: Sort,
    /// Direction.
    pub order: Order,
    /// Page.
    pub paging: Paging,
}

macro_rules! columns {
    () => {
        "p.id, p.workspace_id, p.endpoint, p.name, p.plan, p.provider, p.region, p.routing, \
         p.deployment, p.status, p.settings, p.created_by, p.created_at, p.updated_at, \
         p.suspended_at"
    };
}

macro_rules! visible {
    ($where:literal) => {
        concat!(
            "SELECT ",
            columns!(),
            ", m.role AS member_role, w.status AS workspace_status FROM projects p \
             JOIN members m ON m.workspace_id = p.workspace_id AND m.user_id = $1 AND m.status = 'active' \
             JOIN workspaces w ON w.id = p.workspace_id AND w.deleted_at IS NULL \
             WHERE p.deleted_at IS NULL AND ",
            $where
        )
    };
}

statements! {
    INSERT = "INSERT INTO projects (id, workspace_id, endpoint, name, search, plan, provider, region, routing, \
        deployment, status, settings, created_by, created_at, updated_at) \
        SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'active', '{}', $11, CAST($12 AS BIGINT), CAST($12 AS BIGINT) \
        FROM workspaces WHERE id = $2 AND deleted_at IS NULL";
    IS_RETIRED = "SELECT COUNT(*) AS n FROM retired_endpoints WHERE endpoint = $1";
    VISIBLE_BY_ID = visible!("p.id = $2");
    VISIBLE_BY_ENDPOINT = visible!("p.endpoint = $2");
    BY_ID = concat!("SELECT ", columns!(), " FROM projects p WHERE p.id = $1 AND p.deleted_at IS NULL");
    BY_ENDPOINT = concat!("SELECT ", columns!(), " FROM projects p WHERE p.endpoint = $1 AND p.deleted_at IS NULL");
    PLACES = "SELECT p.id, p.workspace_id FROM projects p WHERE p.deleted_at IS NULL \
        AND p.workspace_id IN_LIST($1) ORDER BY p.workspace_id, p.id LIMIT $2";
    COUNT_OF_WORKSPACE = "SELECT COUNT(*) AS n FROM projects WHERE workspace_id = $1 AND deleted_at IS NULL";
    COUNT_BY_PLAN = "SELECT plan, COUNT(*) AS n FROM projects WHERE workspace_id = $1 AND deleted_at IS NULL \
        GROUP BY plan ORDER BY plan";
    RENAME = "UPDATE projects SET name = $2, search = $3 || ' ' || endpoint, updated_at = $4 \
        WHERE id = $1 AND deleted_at IS NULL";
    TRANSFER = "UPDATE projects SET workspace_id = $3, updated_at = $4 \
        WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL \
        AND EXISTS (SELECT 1 FROM workspaces WHERE id = $3 AND deleted_at IS NULL)";
    SET_STATUS = "UPDATE projects SET status = $2, updated_at = $3 \
        WHERE id = $1 AND suspended_at IS NULL AND deleted_at IS NULL";
    SUSPEND = "UPDATE projects SET status = 'unavailable', suspended_at = $2, updated_at = $2 \
        WHERE id = $1 AND suspended_at IS NULL AND deleted_at IS NULL";
    RESUME = "UPDATE projects SET status = 'active', suspended_at = NULL, updated_at = $2 \
        WHERE id = $1 AND suspended_at IS NOT NULL AND deleted_at IS NULL";
    COUNT_USABLE = "SELECT COUNT(*) AS n FROM projects p JOIN workspaces w ON w.id = p.workspace_id \
        WHERE p.id IN_LIST($1) AND p.suspended_at IS NULL AND p.deleted_at IS NULL AND w.status = 'active'";
    COUNT_THERE = "SELECT COUNT(*) AS n FROM projects WHERE id IN_LIST($1) AND deleted_at IS NULL";
    // Compared with what was read, so that two changes at once do not undo each other.
    SET_SETTINGS = "UPDATE projects SET settings = $3, updated_at = $4 \
        WHERE id = $1 AND settings = $2 AND deleted_at IS NULL";
    DELETE = "UPDATE projects SET deleted_at = $2, updated_at = $2 WHERE id = $1 AND deleted_at IS NULL \
        RETURNING id, workspace_id";
}

/// Adds a project.
///
/// # Errors
/// [`crate::Conflict::EndpointTaken`]; [`crate::Conflict::Reference`] when the workspace is not
/// there.
pub async fn insert(tx: &mut Tx, new: &NewProject) -> Result<(), Error> {
    workspaces::lock(tx, new.workspace_id).await?;
    let retired: Option<i64> = sql(IS_RETIRED).bind(&new.endpoint).one(tx).await?;
    if retired.is_some_and(|count| count > 0) {
        return Err(Error::Conflict(Conflict::EndpointTaken));
    }
    let inserted = sql(INSERT)
        .bind(new.id)
        .bind(new.workspace_id)
        .bind(&new.endpoint)
        .bind(&new.name)
        .bind(format!("{} {}", fold(&new.name), new.endpoint))
        .bind(&new.plan)
        .bind(&new.provider)
        .bind(new.region.as_ref())
        .bind(&new.routing)
        .bind(&new.deployment)
        .bind(new.created_by)
        .bind(new.now)
        .changed(tx)
        .await?;
    if !inserted {
        return Err(Error::Conflict(Conflict::Reference));
    }
    tx.note(Change::project(new.id), new.now);
    tx.note(Change::members(new.workspace_id), new.now);
    Ok(())
}

/// The project, if the person is an active member of its workspace.
pub async fn of_user_by_id(
    conn: &mut Conn,
    user: UserId,
    id: ProjectId,
) -> Result<Option<Visible>, Error> {
    sql(VISIBLE_BY_ID).bind(user).bind(id).one(conn).await
}

/// The project with this endpoint, if the person is an active member of its workspace (CP-5).
pub async fn of_user_by_endpoint(
    conn: &mut Conn,
    user: UserId,
    endpoint: &str,
) -> Result<Option<Visible>, Error> {
    sql(VISIBLE_BY_ENDPOINT)
        .bind(user)
        .bind(endpoint)
        .one(conn)
        .await
}

/// The project, whoever asks: for what the server does by itself and for operators.
pub async fn by_id(conn: &mut Conn, id: ProjectId) -> Result<Option<Project>, Error> {
    sql(BY_ID).bind(id).one(conn).await
}

/// The project with this endpoint, whoever asks: for engines.
pub async fn by_endpoint(conn: &mut Conn, endpoint: &str) -> Result<Option<Project>, Error> {
    sql(BY_ENDPOINT).bind(endpoint).one(conn).await
}

/// Where the projects of these workspaces are, at most `limit`, for boundaries that a [`Reach`]
/// cannot say.
pub async fn places(
    conn: &mut Conn,
    workspaces: &[WorkspaceId],
    limit: u32,
) -> Result<Vec<Place>, Error> {
    sql(PLACES).bind(workspaces).bind(limit).all(conn).await
}

/// One page of the projects that the caller may see (CP-2). The total is exact up to
/// [`crate::COUNTED`].
pub async fn list(conn: &mut Conn, list: List<'_>) -> Result<Page<Project>, Error> {
    let search = search(list.search);
    let filter = Filter {
        has_tenant: true,
        has_search: search.is_some(),
        is_narrow: matches!(list.reach, Reach::Only { .. }),
    };
    let mut values = vec![list.workspaces.into()];
    values.extend(search);
    if let Reach::Only {
        projects,
        workspaces,
    } = list.reach
    {
        values.extend([projects.into(), workspaces.into()]);
    }
    filter
        .page(conn, values, list.sort, list.order, list.paging)
        .await
}

/// All projects, for operators. A search reads every one of them: an index that finds parts of
/// names (trigrams) would be written with each change for the few who ever ask this, and on
/// PostgreSQL needs an extension that not every server has.
pub async fn list_all(
    conn: &mut Conn,
    text: Option<&str>,
    sort: Sort,
    order: Order,
    paging: Paging,
) -> Result<Page<Project>, Error> {
    let search = search(text);
    let filter = Filter {
        has_tenant: false,
        has_search: search.is_some(),
        is_narrow: false,
    };
    let values = search.into_iter().collect();
    filter.page(conn, values, sort, order, paging).await
}

fn search(text: Option<&str>) -> Option<Value> {
    let text = text.filter(|text| !text.is_empty());
    text.map(|text| pattern(Some(text)).into())
}

/// Which conditions a list has. Each combination is a statement of its own: one that looks for
/// nothing does not read what could be looked into, but the index alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter {
    has_tenant: bool,
    has_search: bool,
    is_narrow: bool,
}

impl Filter {
    pub(crate) fn every() -> impl Iterator<Item = Self> {
        (0..8_u8).map(|bits| Self {
            has_tenant: bits & 1 != 0,
            has_search: bits & 2 != 0,
            is_narrow: bits & 4 != 0,
        })
    }

    async fn page(
        self,
        conn: &mut Conn,
        values: Vec<Value>,
        sort: Sort,
        order: Order,
        paging: Paging,
    ) -> Result<Page<Project>, Error> {
        let bind = |text: String| values.iter().cloned().fold(sql(text), Query::bind);
        let count = bind(self.count_text()).bind(COUNTED);
        let total = count.count(conn).await?;
        if paging.is_beyond_count() {
            let items = Vec::new();
            return Ok(Page { items, total });
        }
        let list = bind(self.list_text(sort, order));
        let items = list
            .bind(paging.limit())
            .bind(paging.offset())
            .all(conn)
            .await?;
        Ok(Page { items, total })
    }

    /// The conditions, and how many arguments they take.
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

const COLUMNS: &str = columns!();

/// How many projects a workspace has.
pub async fn count_of_workspace(conn: &mut Conn, workspace: WorkspaceId) -> Result<u64, Error> {
    sql(COUNT_OF_WORKSPACE).bind(workspace).count(conn).await
}

/// How many projects of each plan a workspace has; plans without any are left out.
pub async fn count_by_plan(
    conn: &mut Conn,
    workspace: WorkspaceId,
) -> Result<Vec<PlanCount>, Error> {
    sql(COUNT_BY_PLAN).bind(workspace).all(conn).await
}

/// Changes the name.
pub async fn rename(tx: &mut Tx, id: ProjectId, name: &str, now: Timestamp) -> Result<bool, Error> {
    sql(RENAME)
        .bind(id)
        .bind(name)
        .bind(fold(name))
        .bind(now)
        .changed(tx)
        .await
}

/// Moves a project. False when it is not (any more) where it was thought to be, or the other
/// workspace is gone. Logs, events,
/// webhooks and servers go with it, seen through the project.
pub async fn transfer(
    tx: &mut Tx,
    id: ProjectId,
    from: WorkspaceId,
    to: WorkspaceId,
    now: Timestamp,
) -> Result<bool, Error> {
    workspaces::lock(tx, to).await?;
    tx.note(Change::project(id), now);
    tx.note(Change::members(from), now);
    tx.note(Change::members(to), now);
    sql(TRANSFER)
        .bind(id)
        .bind(from)
        .bind(to)
        .bind(now)
        .changed(tx)
        .await
}

/// Whether these are projects of which none may be used: an operator suspended each, or its
/// workspace. Ids that name nothing do not count.
pub async fn are_suspended(conn: &mut Conn, projects: &[ProjectId]) -> Result<bool, Error> {
    let there = sql(COUNT_THERE).bind(projects).count(conn).await?;
    Ok(there > 0 && sql(COUNT_USABLE).bind(projects).count(conn).await? == 0)
}

/// Keeps a project from being used. False when it is suspended already, or not there.
pub async fn suspend(tx: &mut Tx, id: ProjectId, now: Timestamp) -> Result<bool, Error> {
    tx.note(Change::project(id), now);
    sql(SUSPEND).bind(id).bind(now).changed(tx).await
}

/// Lets a project be used again. False when it is not suspended.
pub async fn resume(tx: &mut Tx, id: ProjectId, now: Timestamp) -> Result<bool, Error> {
    tx.note(Change::project(id), now);
    sql(RESUME).bind(id).bind(now).changed(tx).await
}

/// Changes whether it can be used. False for one that is suspended: that is an operator's to end.
pub async fn set_status(
    tx: &mut Tx,
    id: ProjectId,
    status: Status,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::project(id), now);
    sql(SET_STATUS)
        .bind(id)
        .bind(status)
        .bind(now)
        .changed(tx)
        .await
}

/// Replaces the settings. False when they are not (any more) what was read.
pub async fn set_settings(
    tx: &mut Tx,
    id: ProjectId,
    read: &serde_json::Value,
    new: &serde_json::Value,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::project(id), now);
    sql(SET_SETTINGS)
        .bind(id)
        .bind(read)
        .bind(new)
        .bind(now)
        .changed(tx)
        .await
}

/// Deletes a project: it is not seen any more, and its endpoint stays taken. The caller gives back
/// capacity and addresses.
pub async fn delete(tx: &mut Tx, id: ProjectId, now: Timestamp) -> Result<bool, Error> {
    let deleted: Option<Place> = sql(DELETE).bind(id).bind(now).one(tx).await?;
    if let Some(place) = &deleted {
        tx.note(Change::project(id), now);
        tx.note(Change::members(place.workspace_id), now);
    }
    Ok(deleted.is_some())
}
