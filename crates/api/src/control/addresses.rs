//! Reserved TCP addresses of a project: ports of its cluster that no other project can publish on.

use serde::{Deserialize, Serialize};
use serde_json::json;
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::{Access, Body, Method, Operation, Schemas, SuccessResponse, add};

/// The reserved addresses of a project.
pub const LIST: &Operation = &Operation::get(
    "list_project_tcp_addresses",
    "/api/projects/tunnels/{project_id}/addresses",
    "List the reserved TCP addresses of a project",
    Access::Permitted(Permission::AccountProjectsReadOnly, &[rule(&["read"])]),
    "TcpAddressList",
);

/// Reserves one more address.
pub const RESERVE: &Operation = &Operation {
    id: "reserve_project_tcp_address",
    method: Method::Post,
    summary: "Reserve a TCP address",
    access: WRITE,
    body: Some(Body::optional("ReserveTcpAddress", || json!({}))),
    answer: SuccessResponse::json(201, "TcpAddress"),
    refusals: &[409],
    ..*LIST
};

/// Releases a reserved address.
pub const RELEASE: &Operation = &Operation {
    id: "release_project_tcp_address",
    method: Method::Delete,
    path: "/api/projects/tunnels/{project_id}/addresses/{address_id}",
    summary: "Release a reserved TCP address",
    access: WRITE,
    answer: SuccessResponse::NO_CONTENT,
    ..*LIST
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[LIST, RESERVE, RELEASE];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<TcpAddressList>(schemas);
    add::<ReserveTcpAddress>(schemas);
}

const WRITE: Access = Access::Permitted(Permission::AccountProjectsReadWrite, &[rule(&["update"])]);

/// The part of the permission that an operation uses.
const fn rule(actions: &'static [&'static str]) -> Rule {
    Rule {
        resource: "projects",
        actions,
    }
}

/// A reserved TCP address of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TcpAddress {
    /// Id.
    #[schema(example = "adr_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// The project.
    pub project_id: String,
    /// Domain of the cluster that has the port.
    #[schema(example = "eu.svc.example.com")]
    pub domain: String,
    /// The port.
    #[schema(minimum = 1)]
    pub port: u16,
    /// Time of the reservation.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// All reserved addresses of a project, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TcpAddressList {
    /// The addresses.
    pub addresses: Vec<TcpAddress>,
}

/// The request has no members, because the platform picks the port.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReserveTcpAddress {}
