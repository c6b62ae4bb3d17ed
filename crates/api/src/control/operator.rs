//! Operations for operators: users, workspaces and projects of the whole installation, and their
//! suspension.
//!
//! Only operators of the installation can use them, with an unrestricted credential or in a browser
//! session. All other callers receive 404.

use serde::{Deserialize, Serialize};
use serde_json::json;
use types::permission::Rule;
use utoipa::ToSchema;

use super::people::AUDIT_QUERY;
use super::{
    Access, Body, Method, ORDER, Operation, PAGE, PAGE_SIZE, Parameter, Schemas, SuccessResponse,
    add, page,
};

/// All users.
pub const LIST_USERS: &Operation = &Operation {
    query: &[
        SEARCH,
        PAGE,
        PAGE_SIZE,
        sort(&["id", "email", "name"]),
        ORDER,
    ],
    refusals: &[400, 404],
    ..Operation::get(
        "list_operator_users",
        "/api/operator/users",
        "List the users of the installation",
        READ,
        "OperatorUserList",
    )
};

/// One user.
pub const GET_USER: &Operation = &get(
    "get_operator_user",
    "/api/operator/users/{user_id}",
    "Read a user",
    "OperatorUser",
);

/// Makes a user an operator, or an operator a user.
pub const CHANGE_USER: &Operation = &Operation {
    body: Some(Body::required(
        "OperatorUserChange",
        || json!({"role": "admin"}),
    )),
    refusals: &[409],
    ..Operation::new(
        "change_operator_user",
        Method::Patch,
        "/api/operator/users/{user_id}",
        "Change the role of a user in the installation",
        WRITE,
        SuccessResponse::json(200, "OperatorUser"),
    )
};

/// Suspends a user: the user cannot sign in, and the user's credentials stop working.
pub const SUSPEND_USER: &Operation = &suspend(
    "suspend_operator_user",
    "/api/operator/users/{user_id}/suspend",
    "Suspend a user",
    "OperatorUser",
);

/// Resumes a suspended user.
pub const RESUME_USER: &Operation = &resume(
    "resume_operator_user",
    "/api/operator/users/{user_id}/resume",
    "Lift the suspension of a user",
    "OperatorUser",
);

/// The browser sessions of a user.
pub const LIST_USER_SESSIONS: &Operation = &get(
    "list_operator_user_sessions",
    "/api/operator/users/{user_id}/sessions",
    "List the browser sessions of a user",
    "SessionList",
);

/// Ends one of them, with the tokens that were minted from it.
pub const END_USER_SESSION: &Operation = &Operation {
    refusals: &[404],
    ..Operation::new(
        "end_operator_user_session",
        Method::Delete,
        "/api/operator/users/{user_id}/sessions/{session_id}",
        "End a browser session of a user",
        WRITE,
        SuccessResponse::NO_CONTENT,
    )
};

/// All workspaces.
pub const LIST_WORKSPACES: &Operation = &Operation {
    query: &[SEARCH, PAGE, PAGE_SIZE, sort(&["id", "name"]), ORDER],
    refusals: &[400, 404],
    ..Operation::get(
        "list_operator_workspaces",
        "/api/operator/workspaces",
        "List the workspaces of the installation",
        READ,
        "OperatorWorkspaceList",
    )
};

/// One workspace.
pub const GET_WORKSPACE: &Operation = &get(
    "get_operator_workspace",
    "/api/operator/workspaces/{workspace_id}",
    "Read any workspace",
    "OperatorWorkspace",
);

/// Suspends a workspace: its members can only read.
pub const SUSPEND_WORKSPACE: &Operation = &suspend(
    "suspend_operator_workspace",
    "/api/operator/workspaces/{workspace_id}/suspend",
    "Suspend a workspace",
    "OperatorWorkspace",
);

/// Resumes a suspended workspace.
pub const RESUME_WORKSPACE: &Operation = &resume(
    "resume_operator_workspace",
    "/api/operator/workspaces/{workspace_id}/resume",
    "Lift the suspension of a workspace",
    "OperatorWorkspace",
);

/// All projects.
pub const LIST_PROJECTS: &Operation = &Operation {
    query: &[
        SEARCH,
        PAGE,
        PAGE_SIZE,
        sort(&["id", "name", "endpoint", "status", "plan", "deployment"]),
        ORDER,
    ],
    refusals: &[400, 404],
    ..Operation::get(
        "list_operator_projects",
        "/api/operator/projects",
        "List the projects of the installation",
        READ,
        "OperatorProjectList",
    )
};

/// One project.
pub const GET_PROJECT: &Operation = &get(
    "get_operator_project",
    "/api/operator/projects/{project_id}",
    "Read any project",
    "OperatorProject",
);

/// Suspends a project, which makes it unavailable.
pub const SUSPEND_PROJECT: &Operation = &suspend(
    "suspend_operator_project",
    "/api/operator/projects/{project_id}/suspend",
    "Suspend a project",
    "OperatorProject",
);

/// Resumes a suspended project.
pub const RESUME_PROJECT: &Operation = &resume(
    "resume_operator_project",
    "/api/operator/projects/{project_id}/resume",
    "Lift the suspension of a project",
    "OperatorProject",
);

/// The audit log of the installation, newest first.
pub const LIST_AUDIT: &Operation = &Operation {
    query: AUDIT_QUERY,
    refusals: &[400, 404],
    ..Operation::get(
        "list_operator_audit",
        "/api/operator/audit",
        "Audit log of the installation",
        READ,
        "AuditList",
    )
};

/// The clusters of engines, and their linked engines.
pub const LIST_ENGINES: &Operation = &Operation {
    refusals: &[400, 404],
    ..Operation::get(
        "list_operator_engines",
        "/api/operator/engines",
        "List the clusters of engines and their links",
        READ,
        "OperatorEngineList",
    )
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[
    LIST_USERS,
    GET_USER,
    CHANGE_USER,
    SUSPEND_USER,
    RESUME_USER,
    LIST_USER_SESSIONS,
    END_USER_SESSION,
    LIST_WORKSPACES,
    GET_WORKSPACE,
    SUSPEND_WORKSPACE,
    RESUME_WORKSPACE,
    LIST_PROJECTS,
    GET_PROJECT,
    SUSPEND_PROJECT,
    RESUME_PROJECT,
    LIST_AUDIT,
    LIST_ENGINES,
];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<OperatorUserList>(schemas);
    add::<OperatorWorkspaceList>(schemas);
    add::<OperatorProjectList>(schemas);
    add::<OperatorEngineList>(schemas);
    add::<Suspend>(schemas);
    add::<OperatorUserChange>(schemas);
}

const fn get(
    id: &'static str,
    path: &'static str,
    summary: &'static str,
    schema: &'static str,
) -> Operation {
    Operation {
        refusals: &[404],
        ..Operation::get(id, path, summary, READ, schema)
    }
}

const fn suspend(
    id: &'static str,
    path: &'static str,
    summary: &'static str,
    schema: &'static str,
) -> Operation {
    Operation {
        body: Some(Body::required(
            "Suspend",
            || json!({"reason": "Sends spam; ticket 4711."}),
        )),
        refusals: &[400, 404, 409, 413, 415],
        ..resume(id, path, summary, schema)
    }
}

const fn resume(
    id: &'static str,
    path: &'static str,
    summary: &'static str,
    schema: &'static str,
) -> Operation {
    Operation {
        refusals: &[404, 409],
        ..Operation::new(
            id,
            Method::Post,
            path,
            summary,
            WRITE,
            SuccessResponse::json(200, schema),
        )
    }
}

const READ: Access = Access::Operator(&[Rule {
    resource: "operator",
    actions: &["read"],
}]);

const WRITE: Access = Access::Operator(&[Rule {
    resource: "operator",
    actions: &["write"],
}]);

const SEARCH: Parameter = Parameter::text(
    "q",
    "Part of a name, address or endpoint, case-insensitive.",
);

const fn sort(columns: &'static [&'static str]) -> Parameter {
    Parameter::one_of(
        "sort",
        "Sort key of the list; default `id`, which sorts by age.",
        columns,
    )
}

/// Reason for a suspension; it is stored in the audit log.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Suspend {
    /// Shown to other operators, and to the members of a suspended workspace or project: 1 to 500
    /// characters.
    #[schema(example = "Sends spam; ticket 4711.", min_length = 1, max_length = 500)]
    pub reason: String,
}

/// A change to a user.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OperatorUserChange {
    pub role: InstallationRole,
}

/// Role of a user in the installation: a user, or an operator (`admin`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InstallationRole {
    User,
    Admin,
}

page! {
    /// A page of users.
    pub struct OperatorUserList {
        pub users: Vec<OperatorUser>,
        pub paging: Paging,
    }
}

/// A user, as operators see it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorUser {
    #[schema(example = "usr_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    #[schema(example = "ada@example.com")]
    pub email: String,
    pub name: String,
    /// `user` or `admin` (operator).
    #[schema(example = "user")]
    pub role: String,
    /// `active` or `suspended`.
    #[schema(example = "active")]
    pub status: String,
    /// True if the address is verified.
    pub email_verified: bool,
    /// True if a second factor is set up for signing in.
    pub second_factor: bool,
    /// Approximate time of the newest use of a browser session or credential that is still stored;
    /// absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub last_seen_at: Option<String>,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[schema(format = DateTime)]
    pub updated_at: String,
}

page! {
    /// A page of workspaces.
    pub struct OperatorWorkspaceList {
        pub workspaces: Vec<OperatorWorkspace>,
        pub paging: Paging,
    }
}

/// A workspace, as operators see it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorWorkspace {
    #[schema(example = "wks_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// `personal` or `team`.
    #[serde(rename = "type")]
    #[schema(example = "team")]
    pub kind: String,
    pub name: String,
    /// `active` or `suspended`.
    #[schema(example = "active")]
    pub status: String,
    /// Status of the subscription; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subscription_status: Option<String>,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[schema(format = DateTime)]
    pub updated_at: String,
}

page! {
    /// A page of projects.
    pub struct OperatorProjectList {
        pub projects: Vec<OperatorProject>,
        pub paging: Paging,
    }
}

/// A project, as operators see it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorProject {
    #[schema(example = "prj_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    pub workspace_id: String,
    pub name: String,
    /// Eight hex digits, the project's label in host names.
    #[schema(example = "0a1b2c3d")]
    pub endpoint: String,
    #[schema(example = "basic")]
    pub plan: String,
    #[schema(example = "other")]
    pub provider: String,
    /// Absent if routing is global.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub region: Option<String>,
    /// `active`, `unavailable` or `error`.
    #[schema(example = "active")]
    pub status: String,
    /// Time of the suspension; absent if the project is not suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub suspended_at: Option<String>,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[schema(format = DateTime)]
    pub updated_at: String,
}

/// The clusters of engines.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorEngineList {
    /// In the order of the configuration.
    pub clusters: Vec<OperatorCluster>,
    /// Version of the replicated configuration. An engine with this version is up to date.
    #[schema(example = 4711)]
    pub version: u64,
}

/// A cluster of engines.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorCluster {
    #[schema(example = "engine.example.com")]
    pub cluster_domain: String,
    /// True if there is a secret with which an engine can link to the platform.
    pub enrolled: bool,
    /// The linked engines.
    pub links: Vec<OperatorLink>,
    /// Certificates of the engines' own names, from reports of the last 15 minutes. Engines of
    /// earlier versions report none.
    pub certificates: Vec<OperatorCertificate>,
    /// Time of the last report of an engine; absent before the first report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub reported_at: Option<String>,
    /// Agents that are online, according to the last reports of the engines.
    pub clients: u64,
    /// Tunnels that are online, according to the last reports of the engines.
    pub tunnels: u64,
}

/// A linked engine.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorLink {
    /// Address from which the engine is linked.
    #[schema(example = "192.0.2.1")]
    pub address: String,
    /// Version of the program; absent for versions that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "0.1.0")]
    pub program_version: Option<String>,
    /// Time when the link was established.
    #[schema(format = DateTime)]
    pub linked_at: String,
    /// Time when this state was read.
    #[schema(format = DateTime)]
    pub seen_at: String,
    /// Configuration version that the engine had at that time.
    #[schema(example = 4711)]
    pub version: u64,
}

/// A certificate of an engine's own names.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorCertificate {
    /// `files`, or `acme` if the engine orders it from an authority.
    #[schema(example = "acme")]
    pub source: String,
    /// Its names, or those that are ordered.
    #[schema(example = json!(["engine.example.com", "*.t.engine.example.com"]))]
    pub names: Vec<String>,
    /// Expiry; absent until there is a certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub expires_at: Option<String>,
    /// Reason of the last failure, with the text of the authority; absent after a success. The
    /// certificate stays in use until it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub problem: Option<String>,
    /// Time of the next attempt after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub next_attempt_at: Option<String>,
    /// Time of the report.
    #[schema(format = DateTime)]
    pub reported_at: String,
}
