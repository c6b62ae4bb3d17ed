//! Grants of the authorization server.

pub mod device_grants;
pub mod oauth_codes;
pub mod oauth_requests;
