//! The `scope` and `resource` parameters of requests.

use types::permission::Permissions;

use super::error::{Code, OauthError};
use crate::config::Config;

/// Parses a `scope` (RFC 6749 section 3.3): names of permissions with one space between. An absent
/// scope is refused, because there is no default.
pub(super) fn scope(text: Option<&str>) -> Result<Permissions, OauthError> {
    let text = text.ok_or_else(|| Code::InvalidScope.with_description("scope is missing"))?;
    text.split(' ')
        .map(|name| {
            let name = name.parse();
            name.map_err(|_| {
                Code::InvalidScope.with_description("scope contains an unknown permission")
            })
        })
        .collect()
}

/// Checks a `resource` (RFC 8707). The only resource is the whole origin (OA-6), which is also the
/// default. Its address with an empty path is the same address (RFC 3986 section 6.2.3), and many
/// libraries write it so. The address of the MCP endpoint is accepted for clients that did not read
/// the metadata.
pub(super) fn resource(config: &Config, text: Option<&str>) -> Result<(), OauthError> {
    let Some(text) = text else {
        return Ok(());
    };
    // Scheme and host are case-insensitive (RFC 3986 section 6.2.2.1). The rest is not.
    let parts = text.split_at_checked(config.base_url.len());
    let rest = parts.filter(|(origin, _)| origin.eq_ignore_ascii_case(&config.base_url));
    match rest.map(|(_, rest)| rest) {
        Some("" | "/" | "/api/mcp") => Ok(()),
        _ => Err(Code::InvalidTarget
            .with_description(format!("the resource must be {}", config.base_url))),
    }
}
