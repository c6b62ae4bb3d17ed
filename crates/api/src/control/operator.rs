//! The operator's side: everybody's users, workspaces and projects, and keeping them from use.
//!
//! Only operators of the installation find it, with a credential that is not narrowed or in a
//! session; for everybody else it is not there.

use serde::{Deserialize, Serialize};
use serde_json::json;
use types::permission::Rule;
use utoipa::ToSchema;

use super::people::{PAGE, PAGE_SIZE};
use super::{Access, Answer, Body, Method, Operation, Paging, Parameter, Schemas, Shape, add};

/// Everybody who has an account.
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

/// One of them.
pub const GET_USER: &Operation = &get(
    "get_operator_user",
    "/api/operator/users/{user_id}",
    "Read a user",
    "OperatorUser",
);

/// Keeps a person from signing in, and everything that acts for the person from acting.
pub const SUSPEND_USER: &Operation = &suspend(
    "suspend_operator_user",
    "/api/operator/users/{user_id}/suspend",
    "Suspend a user",
    "OperatorUser",
);

/// Lets a person in again.
pub const RESUME_USER: &Operation = &resume(
    "resume_operator_user",
    "/api/operator/users/{user_id}/resume",
    "Let a suspended user in again",
    "OperatorUser",
);

/// Every workspace.
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

/// One of them.
pub const GET_WORKSPACE: &Operation = &get(
    "get_operator_workspace",
    "/api/operator/workspaces/{workspace_id}",
    "Read any workspace",
    "OperatorWorkspace",
);

/// Leaves a workspace's members with reading.
pub const SUSPEND_WORKSPACE: &Operation = &suspend(
    "suspend_operator_workspace",
    "/api/operator/workspaces/{workspace_id}/suspend",
    "Suspend a workspace",
    "OperatorWorkspace",
);

/// Lets a workspace be used again.
pub const RESUME_WORKSPACE: &Operation = &resume(
    "resume_operator_workspace",
    "/api/operator/workspaces/{workspace_id}/resume",
    "Let a suspended workspace be used again",
    "OperatorWorkspace",
);

/// Every project.
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

/// One of them.
pub const GET_PROJECT: &Operation = &get(
    "get_operator_project",
    "/api/operator/projects/{project_id}",
    "Read any project",
    "OperatorProject",
);

/// Makes a project unavailable.
pub const SUSPEND_PROJECT: &Operation = &suspend(
    "suspend_operator_project",
    "/api/operator/projects/{project_id}/suspend",
    "Suspend a project",
    "OperatorProject",
);

/// Makes a project available again.
pub const RESUME_PROJECT: &Operation = &resume(
    "resume_operator_project",
    "/api/operator/projects/{project_id}/resume",
    "Let a suspended project be used again",
    "OperatorProject",
);

/// The audit log of everything, newest first.
pub const LIST_AUDIT: &Operation = &Operation {
    query: &[PAGE, PAGE_SIZE],
    refusals: &[400, 404],
    ..Operation::get(
        "list_operator_audit",
        "/api/operator/audit",
        "Who did what on the installation",
        READ,
        "AuditList",
    )
};

/// The clusters of engines, and who of them is linked.
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
    SUSPEND_USER,
    RESUME_USER,
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
        body: Some(Body {
            schema: "Suspend",
            required: true,
            example: || json!({"reason": "Sends spam; ticket 4711."}),
        }),
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
        id,
        method: Method::Post,
        path,
        summary,
        access: Access::Operator(&[Rule {
            resource: "operator",
            actions: &["write"],
        }]),
        stable: false,
        query: &[],
        body: None,
        answer: Answer::json(200, schema),
        refusals: &[404, 409],
    }
}

const READ: Access = Access::Operator(&[Rule {
    resource: "operator",
    actions: &["read"],
}]);

const SEARCH: Parameter = Parameter {
    name: "q",
    description: "Part of a name, address or endpoint, in any case.",
    shape: Shape::Text,
};

const fn sort(columns: &'static [&'static str]) -> Parameter {
    Parameter {
        name: "sort",
        description: "What the list is sorted by; `id`, which is age, where it is absent.",
        shape: Shape::OneOf(columns),
    }
}

const ORDER: Parameter = Parameter {
    name: "order",
    description: "The direction; `asc` where it is absent.",
    shape: Shape::OneOf(&["asc", "desc"]),
};

/// Why something is suspended; the audit log keeps it.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Suspend {
    /// For other operators and, where it concerns a workspace or a project, for its members: 1 to
    /// 500 characters.
    #[schema(example = "Sends spam; ticket 4711.", min_length = 1, max_length = 500)]
    pub reason: String,
}

/// A page of users.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorUserList {
    pub users: Vec<OperatorUser>,
    #[serde(flatten)]
    pub paging: Paging,
}

/// A person, as operators see it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorUser {
    #[schema(example = "usr_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    #[schema(example = "ada@example.com")]
    pub email: String,
    pub name: String,
    /// `user`, or `admin`: an operator.
    #[schema(example = "user")]
    pub role: String,
    /// `active` or `suspended`.
    #[schema(example = "active")]
    pub status: String,
    /// Whether the address was proved.
    pub email_verified: bool,
    /// Whether signing in asks for a second factor.
    pub second_factor: bool,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[schema(format = DateTime)]
    pub updated_at: String,
}

/// A page of workspaces.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorWorkspaceList {
    pub workspaces: Vec<OperatorWorkspace>,
    #[serde(flatten)]
    pub paging: Paging,
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
    /// How its subscription stands; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub subscription_status: Option<String>,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[schema(format = DateTime)]
    pub updated_at: String,
}

/// A page of projects.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorProjectList {
    pub projects: Vec<OperatorProject>,
    #[serde(flatten)]
    pub paging: Paging,
}

/// A project, as operators see it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorProject {
    #[schema(example = "prj_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    pub workspace_id: String,
    pub name: String,
    /// Eight hex digits, the label of its host name.
    #[schema(example = "0a1b2c3d")]
    pub endpoint: String,
    #[schema(example = "basic")]
    pub plan: String,
    #[schema(example = "other")]
    pub provider: String,
    /// Absent where routing is global.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub region: Option<String>,
    /// `active`, `unavailable` or `error`.
    #[schema(example = "active")]
    pub status: String,
    /// Since when it is suspended; absent where it is not.
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
    /// Counts changes that engines are told of; an engine that has come so far knows everything.
    #[schema(example = 4711)]
    pub version: u64,
}

/// A cluster of engines.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorCluster {
    #[schema(example = "engine.example.com")]
    pub cluster_domain: String,
    /// Whether there is a secret with which an engine can link up.
    pub enrolled: bool,
    /// The engines that are linked.
    pub links: Vec<OperatorLink>,
    /// When an engine reported last; absent before the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub reported_at: Option<String>,
    /// Agents that are online, as the engines said last.
    pub clients: u64,
    /// Tunnels that are online, as the engines said last.
    pub tunnels: u64,
}

/// An engine that is linked.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorLink {
    /// Where it links from.
    #[schema(example = "192.0.2.1")]
    pub address: String,
    /// Since when.
    #[schema(format = DateTime)]
    pub linked_at: String,
    /// When that was looked at.
    #[schema(format = DateTime)]
    pub seen_at: String,
    /// How far it had been told by then.
    #[schema(example = 4711)]
    pub version: u64,
}
