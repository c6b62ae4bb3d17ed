//! Operations of the Engine API that are forwarded.

use api::engine::{Access, Method, OPERATIONS, SSE, WEBSOCKET};
use types::permission::Permission;
use types::problem::Problem;

use crate::caller::Principal;
use crate::http_api::problem::HandlerResult;

/// An operation, found by the method and the path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ForwardedOperation {
    /// The permission that the user needs.
    pub(super) permission: Permission,
    /// True for the stream of events.
    pub(super) is_event_stream: bool,
}

impl ForwardedOperation {
    /// The operation of a request. Operations with other credentials than a bearer token and
    /// WebSockets are not forwarded.
    ///
    /// # Errors
    /// 404 if no operation has the path, 405 if none has the path and the method.
    pub(super) fn find(method: &http::Method, path: &str) -> HandlerResult<Self> {
        let mut allowed = Vec::new();
        for operation in OPERATIONS {
            let permission = match operation.access {
                Access::Permitted(permission, _) => permission,
                // The engine requires none. Members who may see nothing of the engine are refused.
                Access::Authenticated => Permission::TunnelsResourcesReadOnly,
                Access::Public | Access::Granted => continue,
            };
            if operation.path == WEBSOCKET || !matches(operation.path, path) {
                continue;
            }
            let own = match operation.method {
                Method::Get => "GET",
                Method::Post => "POST",
                Method::Delete => "DELETE",
            };
            allowed.push(own);
            if method.as_str() == own {
                return Ok(Self {
                    permission,
                    is_event_stream: operation.path == SSE,
                });
            }
        }
        let refusal = match allowed.as_slice() {
            [] => Problem::not_found(),
            // No path of the Engine API has more than two methods.
            [one] => Problem::only_allowed(one),
            ["GET", "DELETE"] => Problem::only_allowed("GET, DELETE"),
            ["GET", "POST"] => Problem::only_allowed("GET, POST"),
            _ => Problem::only_allowed("GET, POST, DELETE"),
        };
        Err(refusal.into())
    }

    /// The permissions of the token for the request, of those that the session has. Only those of
    /// the user's role take effect.
    pub(super) fn token_permissions(self, who: &Principal) -> Vec<Permission> {
        // For events of terminals, which are part of the stream on request.
        let of_terminals = Permission::WebttySessionsReadOnly;
        let has_terminals = self.is_event_stream && who.allows(of_terminals);
        let more = has_terminals.then_some(of_terminals);
        std::iter::once(self.permission).chain(more).collect()
    }
}

/// True if the path is an instance of the template. A parameter is a plain word, so that the path
/// means the same for every parser.
fn matches(template: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    let all = template.split('/').all(|wanted| {
        parts.next().is_some_and(|part| {
            if wanted.starts_with('{') {
                is_plain(part)
            } else {
                part == wanted
            }
        })
    });
    all && parts.next().is_none()
}

fn is_plain(part: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (1..=MAX_PARAMETER).contains(&part.len()) && part.bytes().all(is_plain)
}

/// Ids have about 30 characters.
const MAX_PARAMETER: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, path: &str) -> Result<Permission, u16> {
        let method: http::Method = method.parse().unwrap();
        ForwardedOperation::find(&method, path)
            .map(|operation| operation.permission)
            .map_err(|refusal| refusal.problem().status)
    }

    #[test]
    fn an_operation_is_found_by_its_path_and_method() {
        let reads = Ok(Permission::TunnelsResourcesReadOnly);
        for path in [
            "/api/clients",
            "/api/tunnels",
            "/api/tunnels/a1",
            "/api/sse",
        ] {
            assert_eq!(found("GET", path), reads, "{path}");
            assert_eq!(found("PUT", path), Err(405), "{path}");
        }
        assert_eq!(found("GET", "/api/auth"), reads);
        let closes = Ok(Permission::TunnelsTunnelsCreateDelete);
        assert_eq!(found("DELETE", "/api/tunnels/a1"), closes);
        assert_eq!(found("DELETE", "/api/tunnels"), Err(405));
        let sessions = "/api/webtty/sessions";
        assert_eq!(
            found("GET", sessions),
            Ok(Permission::WebttySessionsReadOnly)
        );
        let stream = ForwardedOperation::find(&http::Method::GET, "/api/sse").unwrap();
        assert!(stream.is_event_stream);
    }

    #[test]
    fn nothing_else_is_forwarded() {
        for path in [
            "/api/websocket",
            "/api/openapi.json",
            "/api/tunnels/",
            "/api/tunnels/..",
            "/api/tunnels/%2e%2e",
            "/api/tunnels/a/b",
            "/api/tunnels/a?b",
            "/api//tunnels",
            "/api",
            "",
            "/",
        ] {
            assert_eq!(found("GET", path), Err(404), "{path}");
        }
    }
}
