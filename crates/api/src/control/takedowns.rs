//! Host names of tunnels that an operator has taken down: operations for operators, and the list for
//! the members of a project.

use serde::{Deserialize, Serialize};
use serde_json::json;
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::{
    Access, Body, Method, Operation, PAGE, PAGE_SIZE, Schemas, SuccessResponse, add, page,
};

/// All taken down host names.
pub const LIST: &Operation = &Operation {
    query: &[PAGE, PAGE_SIZE],
    refusals: &[400, 404],
    ..Operation::get(
        "list_operator_takedowns",
        "/api/operator/takedowns",
        "List the host names that were taken down",
        READ,
        "OperatorTakedownList",
    )
};

/// Takes down a host name: engines refuse its visitors, also those that are connected.
pub const CREATE: &Operation = &Operation {
    body: Some(Body::required(
        "CreateTakedown",
        || json!({"hostname": "shop-0a1b2c3d.t.eu.svc.example.com", "reason": "Phishing; ticket 4711."}),
    )),
    refusals: &[400, 404, 409, 413, 415],
    ..Operation::new(
        "create_operator_takedown",
        Method::Post,
        "/api/operator/takedowns",
        "Take down a host name of a tunnel",
        WRITE,
        SuccessResponse::json(201, "Takedown"),
    )
};

/// Restores a host name.
pub const DELETE: &Operation = &Operation {
    refusals: &[404],
    ..Operation::new(
        "delete_operator_takedown",
        Method::Delete,
        "/api/operator/takedowns/{hostname}",
        "Restore a host name that was taken down",
        WRITE,
        SuccessResponse::NO_CONTENT,
    )
};

/// The taken down host names of a project, with the reasons.
pub const LIST_OF_PROJECT: &Operation = &Operation::get(
    "list_project_takedowns",
    "/api/projects/tunnels/{project_id}/takedowns",
    "List the host names of a project that an operator has taken down",
    Access::Permitted(
        Permission::AccountProjectsReadOnly,
        &[Rule {
            resource: "projects",
            actions: &["read"],
        }],
    ),
    "TakedownList",
);

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[LIST, CREATE, DELETE, LIST_OF_PROJECT];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<OperatorTakedownList>(schemas);
    add::<CreateTakedown>(schemas);
    add::<TakedownList>(schemas);
}

const READ: Access = Access::Operator(&[Rule {
    resource: "operator",
    actions: &["read"],
}]);

const WRITE: Access = Access::Operator(&[Rule {
    resource: "operator",
    actions: &["write"],
}]);

/// A host name to take down.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTakedown {
    /// Name of a published tunnel, without a port: below the domain of the cluster, or a custom domain.
    /// The tunnel does not have to be online.
    #[schema(
        example = "shop-0a1b2c3d.t.eu.svc.example.com",
        min_length = 1,
        max_length = 1012
    )]
    pub hostname: String,
    /// Shown to other operators and to the members of the project: 1 to 500 characters.
    #[schema(example = "Phishing; ticket 4711.", min_length = 1, max_length = 500)]
    pub reason: String,
}

/// A host name that an operator has taken down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Takedown {
    /// The name.
    #[schema(example = "shop-0a1b2c3d.t.eu.svc.example.com")]
    pub hostname: String,
    /// The project that had the name at that time.
    #[schema(example = "prj_01h455vb4pex5vsknk084sn02q")]
    pub project_id: String,
    /// Reason of the operator.
    #[schema(example = "Phishing; ticket 4711.")]
    pub reason: String,
    /// Time of the takedown.
    #[schema(format = DateTime)]
    pub created_at: String,
}

page! {
    /// A page of taken down host names.
    pub struct OperatorTakedownList {
        pub takedowns: Vec<Takedown>,
        pub paging: Paging,
    }
}

/// The taken down host names of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TakedownList {
    /// The names, in alphabetical order.
    pub takedowns: Vec<Takedown>,
}
