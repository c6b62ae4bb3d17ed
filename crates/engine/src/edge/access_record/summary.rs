//! The object of `stream.summary`: the data of a visit for the owner of the tunnel.
//!
//! It contains the decision and the result of the visit. It contains no credential, no query and no
//! request header except the browser's name. Texts that the visitor controls are truncated.

use std::net::IpAddr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use types::trace::TraceId;
use types::tunnel::Country;

use super::Outcome;
use crate::access::{PASSWORD_AND_PROOF, Proof, TokenForm};

/// A completed visit.
#[derive(Debug)]
pub(in crate::edge) struct CompletedVisit<'r> {
    pub(in crate::edge) stream_id: &'r str,
    pub(in crate::edge) project_id: &'r str,
    pub(in crate::edge) workspace_id: Option<&'r str>,
    pub(in crate::edge) cluster_id: Option<&'r str>,
    pub(in crate::edge) tunnel_id: Option<&'r str>,
    pub(in crate::edge) client_id: Option<&'r str>,
    /// Owner of the tunnel.
    pub(in crate::edge) user_id: Option<&'r str>,
    pub(in crate::edge) kind: &'static str,
    pub(in crate::edge) source: IpAddr,
    /// Country of the source address, if it was looked up.
    pub(in crate::edge) country: Option<&'r Country>,
    pub(in crate::edge) method: &'r str,
    pub(in crate::edge) host: &'r str,
    pub(in crate::edge) path: &'r str,
    pub(in crate::edge) trace_id: Option<TraceId>,
    pub(in crate::edge) status: Option<u16>,
    /// The rule that decided, as in the access log.
    pub(in crate::edge) rule: &'static str,
    /// Subject of the rule that refused the visitor. `reason` has the details.
    pub(in crate::edge) explain: Option<&'static str>,
    pub(in crate::edge) reason: Option<&'r str>,
    /// Code of the problem in the response to the visitor.
    pub(in crate::edge) problem: Option<&'static str>,
    /// Description in that response, if it depends on the tunnel.
    pub(in crate::edge) detail: Option<&'r str>,
    pub(in crate::edge) proof: Option<&'r Proof>,
    pub(in crate::edge) outcome: Outcome,
    /// The visit was revoked.
    pub(in crate::edge) is_revoked: bool,
    pub(in crate::edge) ended: Timestamp,
    pub(in crate::edge) total: Duration,
    /// Time until the stream to the service was open.
    pub(in crate::edge) time_to_stream: Option<Duration>,
    pub(in crate::edge) upstream_bytes: u64,
    pub(in crate::edge) downstream_bytes: u64,
}

/// Limit of a path, in bytes.
const PATH_BYTES: usize = 2048;
/// Limit of other texts that a visitor controls, in bytes.
const TEXT_BYTES: usize = 256;

impl CompletedVisit<'_> {
    /// `connected`, `failed` or `denied`.
    pub(in crate::edge) fn outcome(&self) -> &'static str {
        if self.denial().is_some() {
            "denied"
        } else if self.outcome == Outcome::Failed && !self.is_revoked {
            "failed"
        } else if self.time_to_stream.is_some() {
            "connected"
        } else {
            "failed"
        }
    }

    /// Start time of the visit.
    pub(in crate::edge) fn created_at(&self) -> Timestamp {
        let total = SignedDuration::try_from(self.total).unwrap_or_default();
        self.ended.checked_sub(total).unwrap_or(self.ended)
    }

    pub(in crate::edge) fn summary(&self) -> Value {
        object([
            ("workspace_id", self.workspace_id.map(Value::from)),
            ("project_id", Some(self.project_id.into())),
            ("cluster_id", self.cluster_id.map(Value::from)),
            ("user_id", self.user_id.map(Value::from)),
            ("client_id", self.client_id.map(Value::from)),
            ("tunnel_id", self.tunnel_id.map(Value::from)),
            ("stream_id", Some(self.stream_id.into())),
            ("created_at", Some(json!(self.created_at()))),
            ("terminated_at", Some(json!(self.ended))),
            ("request", Some(self.request())),
            ("firewall", Some(self.firewall())),
            ("routing", Some(self.routing())),
            ("response", Some(self.response())),
        ])
    }

    fn request(&self) -> Value {
        let is_known = self.kind == "http" && !self.method.is_empty();
        let http = is_known.then(|| {
            let request = json!({
                "method": truncate(self.method, TEXT_BYTES),
                "scheme": "https",
                "host": truncate(self.host, TEXT_BYTES),
                "path": truncate(self.path, PATH_BYTES),
            });
            object([
                ("request", Some(request)),
                // Our extension.
                ("trace_id", self.trace_id.map(|id| id.to_string().into())),
            ])
        });
        let geolocation = self
            .country
            .map(|country| json!({"country": country.as_str()}));
        let downstream = object([
            ("ip", Some(json!(self.source))),
            ("geolocation", geolocation),
        ]);
        object([("downstream", Some(downstream)), ("http", http)])
    }

    /// Reason why the edge refused the visitor. `None` if it did not.
    fn denial(&self) -> Option<Value> {
        if self.outcome != Outcome::Refused {
            return None;
        }
        let unauthorized = |reason: &str| json!({"kind": "unauthorized", "reason": reason});
        let policy = |policy: &str| json!({"kind": "unauthorized", "reason": "policy_denied", "policy": policy});
        let capacity = || json!({"kind": "refused", "reason": "capacity"});
        Some(match self.rule {
            // No tunnel was found, so no rule refused the visitor.
            "" | "none" | "host" | "offline" | "starting" | "unknown" | "uninformed" => {
                return None;
            }
            "trusted_ips" => policy("ip"),
            "geo_ip" => policy("geo"),
            "ambiguous" if self.reason == Some(PASSWORD_AND_PROOF) => policy("other"),
            "certificate" | "ambiguous" => policy("mtls"),
            "challenge" => policy("challenge"),
            "tls_version" | "public_access" | "suspended" | "taken_down" => policy("other"),
            "session" => unauthorized("missing_token"),
            "password" => match self.status {
                Some(429 | 503) => capacity(),
                _ if self.problem == Some("password_required") => unauthorized("missing_token"),
                _ => unauthorized("invalid_token"),
            },
            "token" | "query_credential" => unauthorized("invalid_token"),
            "permission" | "boundary" | "path" => unauthorized("insufficient_scope"),
            "http" => json!({"kind": "refused", "reason": "unsupported"}),
            "rate_limit" => capacity(),
            _ => json!({"kind": "refused", "reason": "policy"}),
        })
    }

    fn firewall(&self) -> Value {
        let rule = match self.proof {
            // A password identifies no user, so the visit has no proof.
            None if self.rule == "password" && self.denial().is_none() => {
                json!({"kind": "password"})
            }
            None => json!({"kind": "none"}),
            Some(Proof::Token { token, form }) => json!({
                "kind": "token",
                "source": match form {
                    _ if self.kind == "dial" => "client",
                    TokenForm::Query => "query",
                    TokenForm::Header => "authorization",
                },
                "tokenType": token.kind.as_str(),
            }),
            Some(Proof::Session(_)) => json!({"kind": "svc_auth"}),
            Some(Proof::Certificate { .. }) => json!({"kind": "mtls"}),
        };
        match self.denial() {
            None => json!({"decision": "allowed", "rule": rule}),
            Some(failure) => json!({
                "decision": "denied",
                "rule": rule,
                "failure": failure,
                "explanation": self.explanation(),
            }),
        }
    }

    /// The deciding rule in words (our extension). It is in the part that describes the end of the
    /// visit.
    fn explanation(&self) -> Value {
        object([
            ("rule", Some(self.rule.into())),
            ("sentence", self.explain.map(Value::from)),
            (
                "reason",
                self.reason
                    .map(|reason| truncate(reason, TEXT_BYTES).into()),
            ),
            ("problem", self.problem.map(Value::from)),
            ("detail", self.detail.map(Value::from)),
            ("status", self.status.map(Value::from)),
        ])
    }

    fn routing(&self) -> Value {
        if self.time_to_stream.is_some() {
            return json!({"outcome": "routed"});
        }
        match self.failure() {
            _ if self.denial().is_some() => json!({"outcome": "not_routed"}),
            failure => json!({
                "outcome": "not_routed",
                "failure": {"kind": failure},
                "explanation": self.explanation(),
            }),
        }
    }

    fn failure(&self) -> &'static str {
        match (self.rule, self.status, self.outcome) {
            ("offline" | "starting" | "unknown" | "host", ..) => "not_found",
            (_, Some(504), _) => "timeout",
            (_, _, Outcome::Refused) => "refused",
            _ => "io",
        }
    }

    fn response(&self) -> Value {
        let Some(opened) = self.time_to_stream else {
            return json!({"outcome": "failed", "failure": {"kind": self.failure()}});
        };
        let (by, reason) = match self.outcome {
            _ if self.is_revoked => ("server", "closed"),
            _ if self.status == Some(504) => ("upstream", "timeout"),
            Outcome::Served => ("unknown", "closed"),
            Outcome::Abandoned => ("downstream", "closed"),
            Outcome::Failed | Outcome::Refused => ("upstream", "error"),
        };
        let metrics = json!({
            "establish_ms": millis(opened),
            "duration_ms": millis(self.total),
            "upstream_bytes": self.upstream_bytes,
            "downstream_bytes": self.downstream_bytes,
        });
        let termination = json!({"by": by, "reason": reason});
        let http = self.status.map(|status| json!({"status": status}));
        let has_explanation = matches!(self.outcome, Outcome::Failed | Outcome::Refused);
        object([
            ("outcome", Some("connected".into())),
            ("metrics", Some(metrics)),
            ("termination", Some(termination)),
            ("http", http),
            ("explanation", has_explanation.then(|| self.explanation())),
        ])
    }
}

/// An object of the members that have a value.
fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let members = members.into_iter();
    members
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect::<Map<_, _>>()
        .into()
}

/// The start of a text, truncated at a character boundary.
fn truncate(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes))
        .unwrap_or_default()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit() -> CompletedVisit<'static> {
        CompletedVisit {
            stream_id: "0af7651916cd43dd8448eb21",
            project_id: "prj_1",
            workspace_id: Some("wks_1"),
            cluster_id: None,
            tunnel_id: Some("tun_1"),
            client_id: None,
            user_id: Some("usr_1"),
            kind: "http",
            source: [192, 0, 2, 7].into(),
            country: None,
            method: "GET",
            host: "web.t.engine.example",
            path: "/a",
            trace_id: None,
            status: Some(200),
            explain: None,
            reason: None,
            problem: None,
            detail: None,
            rule: "public",
            proof: None,
            outcome: Outcome::Served,
            is_revoked: false,
            ended: "2026-11-20T17:00:02Z".parse().unwrap(),
            total: Duration::from_millis(1500),
            time_to_stream: Some(Duration::from_millis(12)),
            upstream_bytes: 3,
            downstream_bytes: 5,
        }
    }

    #[test]
    fn a_visit_that_was_served() {
        assert_eq!(visit().outcome(), "connected");
        assert_eq!(
            visit().summary(),
            json!({
                "workspace_id": "wks_1", "project_id": "prj_1", "user_id": "usr_1",
                "tunnel_id": "tun_1", "stream_id": "0af7651916cd43dd8448eb21",
                "created_at": "2026-11-20T17:00:00.5Z", "terminated_at": "2026-11-20T17:00:02Z",
                "request": {
                    "downstream": {"ip": "192.0.2.7"},
                    "http": {"request": {"method": "GET", "scheme": "https",
                        "host": "web.t.engine.example", "path": "/a"}},
                },
                "firewall": {"decision": "allowed", "rule": {"kind": "none"}},
                "routing": {"outcome": "routed"},
                "response": {
                    "outcome": "connected",
                    "metrics": {"establish_ms": 12, "duration_ms": 1500,
                        "upstream_bytes": 3, "downstream_bytes": 5},
                    "termination": {"by": "unknown", "reason": "closed"},
                    "http": {"status": 200},
                },
            })
        );
    }

    #[test]
    fn summaries_of_refused_visits_and_of_offline_tunnels() {
        let refused = |rule| CompletedVisit {
            outcome: Outcome::Refused,
            time_to_stream: None,
            rule,
            ..visit()
        };
        let denied = refused("trusted_ips");
        assert_eq!(denied.outcome(), "denied");
        let summary = denied.summary();
        assert_eq!(summary["firewall"]["decision"], "denied");
        assert_eq!(summary["firewall"]["failure"]["policy"], "ip");
        assert_eq!(summary["routing"], json!({"outcome": "not_routed"}));
        let too_many = refused("rate_limit").summary();
        let failure = json!({"kind": "refused", "reason": "capacity"});
        assert_eq!(too_many["firewall"]["failure"], failure);
        let country = "CH".parse().unwrap();
        let foreign = CompletedVisit {
            country: Some(&country),
            ..refused("geo_ip")
        };
        let downstream = foreign.summary()["request"]["downstream"].clone();
        assert_eq!(
            downstream,
            json!({"ip": "192.0.2.7", "geolocation": {"country": "CH"}})
        );
        let lost = refused("offline");
        assert_eq!(lost.outcome(), "failed");
        let summary = lost.summary();
        assert_eq!(summary["firewall"]["decision"], "allowed");
        assert_eq!(summary["response"]["failure"]["kind"], "not_found");
        assert_eq!(summary["routing"]["explanation"]["rule"], "offline");
        let broken = CompletedVisit {
            outcome: Outcome::Failed,
            reason: Some("the service broke off"),
            ..visit()
        };
        assert_eq!(broken.outcome(), "failed");
        let revoked = CompletedVisit {
            is_revoked: true,
            outcome: Outcome::Failed,
            ..visit()
        };
        assert_eq!(revoked.outcome(), "connected");
        let explanation = &broken.summary()["response"]["explanation"];
        assert_eq!(explanation["reason"], "the service broke off");
    }

    #[test]
    fn refusals_of_link_passwords_have_the_kinds_of_other_refusals() {
        let failure = |rule, status, problem, reason| {
            let refused = CompletedVisit {
                outcome: Outcome::Refused,
                time_to_stream: None,
                rule,
                status: Some(status),
                problem: Some(problem),
                reason: Some(reason),
                ..visit()
            };
            refused.summary()["firewall"]["failure"].clone()
        };
        let unauthorized = |reason: &str| json!({"kind": "unauthorized", "reason": reason});
        let capacity = json!({"kind": "refused", "reason": "capacity"});
        let ambiguous = |policy: &str| json!({"kind": "unauthorized", "reason": "policy_denied", "policy": policy});
        let certificate = "a client certificate and another proof";
        for (rule, status, problem, reason, expected) in [
            (
                "password",
                401,
                "password_required",
                "no password",
                unauthorized("missing_token"),
            ),
            (
                "password",
                401,
                "invalid_password",
                "a wrong name",
                unauthorized("invalid_token"),
            ),
            (
                "password",
                429,
                "too_many_requests",
                "too many",
                capacity.clone(),
            ),
            ("password", 503, "service_unavailable", "too many", capacity),
            (
                "ambiguous",
                400,
                "ambiguous_credentials",
                PASSWORD_AND_PROOF,
                ambiguous("other"),
            ),
            (
                "ambiguous",
                400,
                "ambiguous_credentials",
                certificate,
                ambiguous("mtls"),
            ),
        ] {
            assert_eq!(
                failure(rule, status, problem, reason),
                expected,
                "{problem}"
            );
        }
    }

    #[test]
    fn visitor_texts_are_truncated_at_a_character_boundary() {
        let path = format!("/{}", "é".repeat(PATH_BYTES));
        let visit = CompletedVisit {
            path: &path,
            method: "",
            ..visit()
        };
        assert!(visit.summary()["request"].get("http").is_none());
        let visit = CompletedVisit {
            method: "GET",
            ..visit
        };
        let summary = visit.summary();
        let path = summary["request"]["http"]["request"]["path"].as_str();
        assert_eq!(path.unwrap().len(), PATH_BYTES - 1);
    }
}
