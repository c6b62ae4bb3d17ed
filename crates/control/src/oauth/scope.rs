//! The `scope` and `resource` parameters of requests.

use api::control::oauth::{MCP, MCP_SIGN_IN};
use types::permission::Permissions;

use super::error::{Code, OauthError};
use crate::config::Config;

/// Parses a `scope` (RFC 6749 section 3.3): names of permissions with one space between. Other names
/// are ignored, because many clients add `openid` or `offline_access` to every request. The token
/// response lists the granted scope. A scope without a permission is refused, because there is no
/// default.
pub(super) fn parse_scope(text: Option<&str>) -> Result<Permissions, OauthError> {
    let refused = |description: &str| Err(Code::InvalidScope.with_description(description));
    let Some(text) = text else {
        return refused("scope is missing");
    };
    if !text.split(' ').all(is_scope_token) {
        return refused("scope is not a list of names with one space between");
    }
    let known: Permissions = text
        .split(' ')
        .filter_map(|name| name.parse().ok())
        .collect();
    if known.is_empty() {
        return refused("scope contains no permission");
    }
    Ok(known)
}

/// A `scope-token` of RFC 6749 appendix A.4.
fn is_scope_token(name: &str) -> bool {
    let is_in_name = |byte: u8| byte.is_ascii_graphic() && !b"\"\\".contains(&byte);
    !name.is_empty() && name.bytes().all(is_in_name)
}

/// Checks a `resource` (RFC 8707). The only resource is the whole origin (OA-6), which is also the
/// default. Its address with an empty path is the same address (RFC 3986 section 6.2.3), and many
/// libraries write it so. The addresses of the MCP endpoints are accepted, because their metadata
/// names them (RFC 9728 section 3.3). The audience of the token is the origin in every case.
pub(super) fn resource(config: &Config, text: Option<&str>) -> Result<(), OauthError> {
    let Some(text) = text else {
        return Ok(());
    };
    // Scheme and host are case-insensitive (RFC 3986 section 6.2.2.1). The rest is not.
    let parts = text.split_at_checked(config.base_url.len());
    let rest = parts.filter(|(origin, _)| origin.eq_ignore_ascii_case(&config.base_url));
    match rest.map(|(_, rest)| rest) {
        Some("" | "/" | MCP | MCP_SIGN_IN) => Ok(()),
        _ => Err(Code::InvalidTarget
            .with_description(format!("the resource must be {}", config.base_url))),
    }
}
