//! The API documents themselves (CP-7, CP-8, CP-9). They are also part of the API that they
//! describe.

use types::problem::ProblemBody;

use super::{Access, Method, Operation, Schemas, SuccessResponse, add};
use crate::engine::OPENAPI_MEDIA_TYPE;

/// The control plane's document.
pub const CONTROL_PLANE: &Operation = &Operation {
    stable: true,
    refusals: &[304],
    ..Operation::new(
        "get_control_plane_openapi",
        Method::Get,
        "/api/openapi.json",
        "This document",
        Access::Public,
        SuccessResponse::of_type(OPENAPI_MEDIA_TYPE, "AnyObject"),
    )
};

/// The engine's document, the same bytes as every engine of this version serves.
pub const ENGINE: &Operation = &Operation {
    id: "get_engine_openapi",
    path: "/api/engine/openapi.json",
    summary: "The OpenAPI document of the engine API",
    ..*CONTROL_PLANE
};

/// The catalogue that names both documents (RFC 9727).
pub const API_CATALOG: &Operation = &Operation {
    id: "get_api_catalog",
    path: "/.well-known/api-catalog",
    summary: "The API catalog",
    answer: SuccessResponse::of_type(LINKSET_MEDIA_TYPE, "AnyObject"),
    ..*CONTROL_PLANE
};

/// [`API_CATALOG`] by `HEAD`: the same header fields without a body (RFC 9727 section 2).
pub const API_CATALOG_HEAD: &Operation = &Operation {
    id: "head_api_catalog",
    method: Method::Head,
    summary: "The header fields of the API catalog",
    answer: SuccessResponse {
        status: 200,
        content: None,
    },
    ..*API_CATALOG
};

/// The keys that verify tokens of the platform (RFC 7517).
pub const JWKS: &Operation = &Operation {
    id: "get_jwks",
    path: "/.well-known/jwks.json",
    summary: "The public keys of the platform's tokens",
    stable: false,
    answer: SuccessResponse::of_type(JWKS_MEDIA_TYPE, "AnyObject"),
    ..*CONTROL_PLANE
};

/// The keys that verify assertions about visitors of the tunnels of a cluster (RFC 7517).
pub const IDENTITY_KEYS: &Operation = &Operation {
    id: "get_identity_keys",
    path: "/keyrings/identity/{cluster}",
    summary: "The public keys of the assertions that services of a cluster receive",
    refusals: &[304, 404],
    ..*JWKS
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[
    CONTROL_PLANE,
    ENGINE,
    API_CATALOG,
    API_CATALOG_HEAD,
    JWKS,
    IDENTITY_KEYS,
];

/// Media type of a linkset (RFC 9264 section 4.2).
pub const LINKSET_MEDIA_TYPE: &str = "application/linkset+json";

/// Media type of a JWK set (RFC 7517 section 8.5.2).
pub const JWKS_MEDIA_TYPE: &str = "application/jwk-set+json";

pub(super) fn schemas(schemas: &mut Schemas) {
    use utoipa::openapi::schema::{ObjectBuilder, Type};

    let any = ObjectBuilder::new().schema_type(Type::Object).build();
    schemas.push(("AnyObject".to_owned(), any.into()));
    add::<ProblemBody>(schemas);
}
