//! The next step for each rule of the edge.
//!
//! The record contains the rule and its description. The advice is defined here, because this crate
//! has the names of the commands.

/// Description of a rule that has none in the record, because no tunnel or no request was found.
pub(super) fn sentence(rule: &str) -> Option<&'static str> {
    Some(match rule {
        "host" => "The name is not served on this connection.",
        "offline" => "The tunnel's agent is not connected.",
        "starting" => "The engine had just started, and no agent had connected with this name yet.",
        "unknown" => "No tunnel has this name.",
        "uninformed" => "The engine has not yet received its state from the platform.",
        "loop" => "The request loops: the tunnel's service sends it back to the edge.",
        "http" => "The request is malformed, or larger than the edge accepts.",
        "edge" => "This is a route of the edge itself.",
        _ => return None,
    })
}

/// Suggested fix after this rule refused a visitor.
pub(super) fn next_step(rule: &str) -> Option<&'static str> {
    Some(match rule {
        "private" => {
            "connect to it with `svc dial`, or publish it: start its agent without `--no-publish`"
        }
        "suspended" => "see the project's status with `svc project list`",
        "taken_down" => "see the operator's reason with `svc project takedowns`",
        "unenforceable" => "remove the access rule, or use an engine that supports it",
        "trusted_ips" => {
            "connect from one of the trusted addresses, or change `trusted_ips` of the tunnel, or \
             `trustedIps` with `svc project settings set`"
        }
        "geo_ip" => {
            "connect from an allowed country, or change `geo_ip` of the tunnel, or `geoIp` with \
             `svc project settings set`"
        }
        "tls_version" => {
            "use a newer client, or change `minTlsVersion` with `svc project settings set`"
        }
        "public_access" => {
            "add an access rule to the tunnel (`--token-auth`, `--svc-auth`), or change \
             `publicAccessPolicy` with `svc project settings set`"
        }
        "rate_limit" => "send fewer requests; the project's plan sets the rate limit",
        "ambiguous" => {
            "send one proof: the client certificate, the token, the cookie or the link password"
        }
        "query_credential" => {
            "put the complete `svc.token` into the address exactly once, or use \
                               the header"
        }
        "challenge" => "open it in a browser, or send a valid token",
        "token" => {
            "send a valid token: `svc token inspect` shows its contents, `svc token create` \
             creates one"
        }
        "session" => "open it in a browser and sign in as a member of the project's workspace",
        "cross_site" => {
            "open it from a page of the tunnel itself, or list the page's origin with \
             `--allowed-origins` of the agent"
        }
        "certificate" => {
            "present a registered client certificate: `svc credential list` shows them"
        }
        "password" => {
            "send the link password: those of the tunnel are in the `--basic-auth-file` of its agent, \
             or were entered with `--basic-auth`. After many wrong ones, wait as long as `Retry-After` \
             says"
        }
        "permission" => "use a credential with `tunnels.streams.create-delete`",
        "boundary" => "use a credential whose `resources` include this project, tunnel and path",
        "path" => "request a plain path: no encoded slashes, no dot segments",
        "host" => "use one name for TLS (SNI) and for `Host`",
        "offline" => "restart its agent; `svc clients` shows the connected agents",
        "starting" => {
            "try again: agents reconnect within seconds. If it persists, `svc clients` shows the \
             connected agents"
        }
        "unknown" => "`svc tunnels` shows the names that are online",
        "uninformed" => {
            "try again soon; if it persists, check the engine's connection to its \
                         platform"
        }
        "loop" => {
            "point the agent, or the service behind it, at the service itself instead of at a public \
             name of this engine"
        }
        "http" => "correct the request: the reason states what is wrong with it",
        _ => return None,
    })
}

/// Suggested fix for an incomplete or invalid response of the service.
pub(super) fn problem_next_step(code: &str) -> Option<&'static str> {
    Some(match code {
        "upstream_unreachable" | "upstream_timeout" => {
            "check whether the service behind the agent answers: the output of its `svc forward` \
             shows each stream"
        }
        "access_ended" => {
            "send the request again: the response states who may visit the tunnel now"
        }
        "upstream_invalid_response" => {
            "correct the response of the service, or the scheme (http or https) of its address"
        }
        "loop_detected" => return next_step("loop"),
        "service_unavailable" => "try again soon",
        "rate_limited" => return next_step("rate_limit"),
        "invalid_certificate" => return next_step("certificate"),
        "misdirected_request" => return next_step("host"),
        "tunnel_offline" => return next_step("offline"),
        "tunnel_not_found" => return next_step("unknown"),
        "unauthenticated" => {
            "use what the address needs: `svc token create` creates a token, a browser signs in, \
             and `svc credential list` shows the registered client certificates"
        }
        "invalid_token" => return next_step("token"),
        "password_required" | "invalid_password" => return next_step("password"),
        "insufficient_scope" => return next_step("boundary"),
        "ambiguous_credentials" => return next_step("ambiguous"),
        "challenge_required" => return next_step("challenge"),
        "cross_site_request" => return next_step("cross_site"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use engine::access::Rule;

    use super::*;

    #[test]
    fn every_refusing_rule_has_a_next_step() {
        for rule in Rule::ALL {
            let has_advice = next_step(rule.as_str()).is_some();
            assert_eq!(has_advice, *rule != Rule::Public, "{}", rule.as_str());
            assert_eq!(sentence(rule.as_str()), None, "the record shows it");
        }
        for rule in [
            "host",
            "offline",
            "starting",
            "unknown",
            "uninformed",
            "loop",
            "http",
        ] {
            assert!(
                sentence(rule).is_some() && next_step(rule).is_some(),
                "{rule}"
            );
        }
    }
}
