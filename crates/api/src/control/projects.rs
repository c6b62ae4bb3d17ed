//! Projects: list, resolve, create, change (CP-2, CP-4, CP-5).

use serde::{Deserialize, Serialize};
use serde_json::json;
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::plans::{Plan, Provider};
use super::{
    Access, Body, Method, ORDER, Operation, PAGE, Parameter, Schemas, SuccessResponse, add, page,
    page_size,
};

/// The projects that the caller may see (CP-2).
pub const LIST: &Operation = &Operation {
    stable: true,
    query: &[
        Parameter::text("q", "Part of a name or endpoint, case-insensitive."),
        Parameter::text("workspaceId", "Only projects of this workspace."),
        PAGE,
        page_size("Projects per page."),
        Parameter::one_of(
            "sort",
            "Sort key of the list; default `id`, which sorts by age.",
            &["id", "name", "endpoint", "status", "plan", "deployment"],
        ),
        ORDER,
    ],
    ..Operation::get(
        "list_tunnels_projects",
        "/api/projects/tunnels",
        "List projects",
        READ,
        "ProjectList",
    )
};

/// Returns one project by its id.
pub const GET: &Operation = &Operation::get(
    "get_tunnels_project",
    "/api/projects/tunnels/{project_id}",
    "Get a project",
    READ,
    "Project",
);

/// Returns one project by its endpoint (CP-5).
pub const RESOLVE: &Operation = &Operation {
    stable: true,
    ..Operation::get(
        "resolve_tunnels_project",
        "/api/projects/tunnels/resolve/{project_endpoint}",
        "Get a project by its endpoint",
        READ,
        "Project",
    )
};

/// Creates a project (CP-4).
pub const CREATE: &Operation = &Operation {
    stable: true,
    body: Some(Body::required("CreateProject", || {
        json!({
            "name": "staging",
            "plan": "basic",
            "provider": "other",
            "region": "local",
            "creationFingerprint": "qk6nq1v0r1cY3yW5c1mVb3x2D8r4m2X0hA7uXjvQdZk",
            "idempotencyKey": "0192f0c1-7c1e-7b43-9c59-6f6d0c6f7a11",
        })
    })),
    refusals: &[402, 409, 422],
    ..Operation::new(
        "create_tunnels_project",
        Method::Post,
        "/api/workspaces/{workspace_id}/projects/tunnels",
        "Create a project as previewed",
        write(&[rule(&["create"])]),
        SuccessResponse::json(201, "Project"),
    )
};

/// Renames a project.
pub const UPDATE: &Operation = &Operation {
    body: Some(Body::required(
        "UpdateProject",
        || json!({"name": "production"}),
    )),
    refusals: &[409],
    ..Operation::new(
        "update_tunnels_project",
        Method::Patch,
        "/api/projects/tunnels/{project_id}",
        "Rename a project",
        write(&[rule(&["update"])]),
        SuccessResponse::json(200, "Project"),
    )
};

/// Deletes a project.
pub const DELETE: &Operation = &Operation::new(
    "delete_tunnels_project",
    Method::Delete,
    "/api/projects/tunnels/{project_id}",
    "Delete a project",
    write(&[rule(&["delete"])]),
    SuccessResponse::NO_CONTENT,
);

/// Moves a project to another workspace.
pub const TRANSFER: &Operation = &Operation {
    body: Some(Body::required(
        "TransferProject",
        || json!({"workspaceId": "wks_01h455vb4pex5vsknk084sn02q"}),
    )),
    refusals: &[402, 409],
    ..Operation::new(
        "transfer_tunnels_project",
        Method::Post,
        "/api/projects/tunnels/{project_id}/transfer",
        "Move a project to another workspace",
        write(&[rule(&["transfer"])]),
        SuccessResponse::json(200, "Project"),
    )
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[LIST, GET, RESOLVE, CREATE, UPDATE, DELETE, TRANSFER];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<ProjectList>(schemas);
    add::<CreateProject>(schemas);
    add::<UpdateProject>(schemas);
    add::<TransferProject>(schemas);
}

const READ: Access = Access::Permitted(
    Permission::AccountProjectsReadOnly,
    &[Rule {
        resource: "projects",
        actions: &["read"],
    }],
);

const fn write(rules: &'static [Rule]) -> Access {
    Access::Permitted(Permission::AccountProjectsReadWrite, rules)
}

/// The part of the permission that an operation uses.
const fn rule(actions: &'static [&'static str]) -> Rule {
    Rule {
        resource: "projects",
        actions,
    }
}

/// A tunnels project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Project {
    /// Id.
    #[schema(example = "prj_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// The workspace that owns the project.
    #[schema(example = "wks_01h455vb4pex5vsknk084sn02q")]
    pub workspace_id: String,
    /// Display name; not unique.
    pub name: String,
    /// Eight hex digits that identify the project in host names.
    #[schema(example = "e7e8a732")]
    pub endpoint: String,
    /// `<endpoint>.<domain>:<engine port>`, the engine address that older SDKs use.
    pub url: String,
    /// Domain of the cluster; the engine is `<endpoint>.<domain>`.
    pub domain: String,
    /// Port of the engine.
    pub engine_port: u16,
    /// Port of the TURN service.
    pub turn_port: u16,
    /// Port of the TURN service over TLS.
    pub turns_port: u16,
    /// Domain of the TURN service.
    pub turn_domain: String,
    /// Realm of the TURN service.
    pub turn_realm: String,
    /// Status of the project.
    pub status: ProjectStatus,
    /// Routing of its traffic; the same as `routing`.
    pub placement: Placement,
    /// Routing of its traffic.
    pub routing: Placement,
    /// Provider of the region.
    pub provider: Provider,
    /// Region.
    pub region: String,
    /// Plan.
    pub plan: Plan,
    /// Shared or dedicated engine.
    pub deployment: Deployment,
}

/// Status of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProjectStatus {
    /// The project can be used.
    Active,
    /// Suspended by the operator.
    Unavailable,
    /// The project has an error.
    Error,
}

/// Routing of the traffic of a project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Through the region of the project.
    #[default]
    Regional,
}

/// Deployment of the engine of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Deployment {
    /// An engine shared with other projects.
    Shared,
    /// A dedicated engine.
    Dedicated,
}

page! {
    /// One page of projects.
    #[derive(PartialEq, Eq)]
    pub struct ProjectList {
        /// The projects of the page.
        pub projects: Vec<Project>,
        /// Position of this page in the list.
        pub paging: Paging,
    }
}

/// Properties of a new project. No member selects a payment method: unknown members are refused
/// (CP-4c).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateProject {
    /// Display name: 1 to 64 characters.
    #[schema(min_length = 1, max_length = 64)]
    pub name: String,
    /// The plan.
    pub plan: Plan,
    /// The provider.
    pub provider: Provider,
    /// The region.
    #[schema(min_length = 1, max_length = 64)]
    pub region: String,
    /// Routing of its traffic.
    #[serde(default)]
    #[schema(required = false)]
    pub routing: Placement,
    /// The confirmed fingerprint of the plan, from the plan configuration.
    #[schema(min_length = 1, max_length = 128)]
    pub creation_fingerprint: String,
    /// The caller's key for this creation. A repeated request with the same key returns the project
    /// that the first one created. 1 to 128 visible ASCII characters.
    #[schema(min_length = 1, max_length = 128, pattern = "^[!-~]{1,128}$")]
    pub idempotency_key: String,
}

/// The changeable properties of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateProject {
    /// Display name: 1 to 64 characters.
    #[schema(min_length = 1, max_length = 64)]
    pub name: String,
}

/// Target of a project transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TransferProject {
    /// The workspace that receives it.
    #[schema(example = "wks_01h455vb4pex5vsknk084sn02q")]
    pub workspace_id: String,
}
