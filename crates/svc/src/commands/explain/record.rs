//! Lookup of the stored record of a visit by its reference.

use std::time::Duration;

use api::control::{
    projects::Project,
    records::{LOGS, LogList, StoredEvent},
};
use serde::Serialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use types::id::StreamId;

use super::advice;
use crate::{
    failure::{Code, Failure},
    output,
    platform::Session,
};

/// The projects whose records are searched.
#[derive(Debug)]
pub(super) enum RecordSource {
    One(Box<Project>),
    /// The caller's projects, limited to one page.
    All(Vec<Project>),
}

impl RecordSource {
    fn projects(&self) -> &[Project] {
        match self {
            Self::One(project) => std::slice::from_ref(project),
            Self::All(projects) => projects,
        }
    }

    /// The project, if there is exactly one candidate.
    pub(super) fn single_project(&self) -> Option<&Project> {
        match self {
            Self::One(project) => Some(project),
            Self::All(_) => None,
        }
    }
}

/// The search for one record.
#[derive(Debug)]
pub(super) struct Lookup<'a> {
    pub(super) session: &'a Session,
    pub(super) source: &'a RecordSource,
    pub(super) reference: StreamId,
}

/// The stored record of a visit.
#[derive(Debug, Default, Serialize)]
pub(in crate::commands) struct Record {
    pub(in crate::commands) reference: String,
    /// Start (RFC 3339).
    pub(in crate::commands) at: String,
    pub(in crate::commands) project_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) tunnel_id: Option<String>,
    /// `denied`, `failed` or `connected`.
    pub(in crate::commands) outcome: &'static str,
    pub(in crate::commands) request: Request,
    /// Status of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) status: Option<u64>,
    /// Code of the problem in the visitor's response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) problem: Option<String>,
    /// The visitor's authentication: `none`, `token`, `svc_auth`, `mtls` or `password`.
    pub(in crate::commands) proof: String,
    /// The rule that decided, unless the visit was served without error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) rule: Option<String>,
    /// Description of the rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) sentence: Option<String>,
    /// The description in the visitor's response, which names the accepted credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) detail: Option<String>,
    /// The exact finding, which the visitor does not see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) reason: Option<String>,
    /// Milliseconds until the stream to the service was established.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) establish_ms: Option<u64>,
    /// Milliseconds until the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) next_step: Option<&'static str>,
}

/// The request of the visitor, as far as it is stored.
#[derive(Debug, Default, Serialize)]
pub(in crate::commands) struct Request {
    /// Address of the visitor.
    pub(in crate::commands) from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) path: Option<String>,
}

impl Lookup<'_> {
    /// Waits until the engine has reported the record.
    pub(super) async fn wait(&self) -> Result<Record, Failure> {
        let deadline = Instant::now() + REPORT_TIMEOUT;
        let pause = match self.source {
            RecordSource::One(_) => PAUSE,
            RecordSource::All(_) => LONG_PAUSE,
        };
        let mut is_announced = false;
        loop {
            if let Some(event) = self.search().await? {
                return Ok(Record::from_event(&event));
            }
            if Instant::now() + pause > deadline {
                return Err(self.not_found_failure());
            }
            if !is_announced {
                is_announced = true;
                let most = REPORT_TIMEOUT.as_secs();
                output::message(&format!(
                    "waiting for the engine to report it, up to {most} seconds"
                ));
            }
            sleep(pause).await;
        }
    }

    async fn search(&self) -> Result<Option<StoredEvent>, Failure> {
        let mut refused = None;
        for project in self.source.projects() {
            let call = self.session.platform.call(LOGS, &[&project.id]);
            let answer = call.query("streamId", Some(self.reference)).answer().await;
            match answer.map_err(Failure::from) {
                Ok(LogList { mut logs, .. }) => {
                    if let Some(found) = logs.pop() {
                        return Ok(Some(found));
                    }
                }
                // A caller of several projects may lack permission to read the logs of some of
                // them.
                Err(failure) if failure.code() == Code::Refused => refused = Some(failure),
                Err(failure) => return Err(failure),
            }
        }
        match refused {
            Some(failure) if self.source.single_project().is_some() => Err(failure),
            _ => Ok(None),
        }
    }

    fn not_found_failure(&self) -> Failure {
        let (whose, hint) = match self.source {
            RecordSource::One(project) => (
                format!("project {}", project.endpoint),
                "if it belongs to another project, select that with --project; ",
            ),
            RecordSource::All(_) => ("your projects".to_owned(), ""),
        };
        let message = format!("no record of {} in {whose}", self.reference);
        Failure::new(Code::Failed, message).hint(format!(
            "{hint}the plan sets how long records are kept, and a request that reached no project \
             is only in the engine's access log"
        ))
    }
}

impl Record {
    /// Reads the object of `stream.summary`. Missing fields stay empty.
    pub(in crate::commands) fn from_event(event: &StoredEvent) -> Self {
        let summary = &event.payload;
        let text = |pointer: &str| {
            let value = summary.pointer(pointer).and_then(Value::as_str);
            value.map(str::to_owned)
        };
        let number = |pointer: &str| summary.pointer(pointer).and_then(Value::as_u64);
        let explanation = ["firewall", "routing", "response"]
            .iter()
            .find_map(|part| summary.get(part)?.get("explanation"))
            .unwrap_or(&Value::Null);
        let explained = |name: &str| {
            let value = explanation.get(name).and_then(Value::as_str);
            value.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let outcome = match (
            text("/firewall/decision").as_deref(),
            text("/response/outcome").as_deref(),
            text("/response/termination/by").as_deref(),
            text("/response/termination/reason").as_deref(),
        ) {
            (Some("denied"), ..) => "denied",
            // The stream was open, but the service did not respond completely.
            (_, Some("connected"), Some("upstream"), Some("error" | "timeout")) => "failed",
            (_, Some("connected"), ..) => "connected",
            _ => "failed",
        };
        let (rule, problem) = (explained("rule"), explained("problem"));
        let sentence = explained("sentence");
        let known = || {
            rule.as_deref()
                .and_then(advice::sentence)
                .map(str::to_owned)
        };
        let next_step = match (rule.as_deref(), problem.as_deref(), outcome) {
            // Each of several rules may admit the visitor.
            (_, Some("unauthenticated"), "denied") => advice::problem_next_step("unauthenticated"),
            (Some(rule), problem, "denied" | "failed") => {
                let for_problem = || problem.and_then(advice::problem_next_step);
                // The rule that admitted the visit has no advice for a failed service.
                let for_rule = || advice::next_step(rule);
                if outcome == "denied" {
                    for_rule().or_else(for_problem)
                } else {
                    for_problem().or_else(for_rule)
                }
            }
            (_, Some(problem), _) => advice::problem_next_step(problem),
            _ => None,
        };
        Self {
            reference: text("/stream_id").unwrap_or_default(),
            at: event.created_at.clone(),
            project_id: event.project_id.clone(),
            tunnel_id: text("/tunnel_id"),
            outcome,
            request: Request {
                from: text("/request/downstream/ip").unwrap_or_default(),
                method: text("/request/http/request/method"),
                host: text("/request/http/request/host"),
                path: text("/request/http/request/path"),
            },
            status: number("/response/http/status")
                .or_else(|| explanation.get("status").and_then(Value::as_u64)),
            proof: text("/firewall/rule/kind").unwrap_or_else(|| "none".to_owned()),
            sentence: sentence.or_else(known),
            detail: explained("detail"),
            reason: explained("reason"),
            establish_ms: number("/response/metrics/establish_ms"),
            duration_ms: number("/response/metrics/duration_ms"),
            rule,
            problem,
            next_step,
        }
    }
}

/// Time limit of the search. Engines report within ten seconds; the rest is for transmission.
const REPORT_TIMEOUT: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_secs(1);
/// Pause between searches of many projects.
const LONG_PAUSE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(payload: &Value) -> Record {
        let event = json!({
            "eventId": "log_1", "eventType": "stream.summary", "eventCategory": "stream_log",
            "projectId": "prj_1", "workspaceId": "wks_1", "payload": payload,
            "createdAt": "2026-11-20T17:00:00.500Z", "expiresAt": "2026-11-27T17:00:00.500Z",
        });
        Record::from_event(&serde_json::from_value(event).unwrap())
    }

    #[test]
    fn a_refusal_is_read_with_its_rule_and_next_step() {
        let record = read(&json!({
            "stream_id": "0af7651916cd43dd8448eb21",
            "request": {"downstream": {"ip": "192.0.2.7"}, "http": {"request": {"method": "GET",
                "scheme": "https", "host": "web.example", "path": "/a"}}},
            "firewall": {"decision": "denied", "rule": {"kind": "none"}, "explanation": {
                "rule": "token", "sentence": "Visitors need a valid token.",
                "reason": "the token is expired", "problem": "invalid_token", "status": 401}},
            "routing": {"outcome": "not_routed"},
            "response": {"outcome": "failed", "failure": {"kind": "refused"}},
        }));
        assert_eq!((record.outcome, record.status), ("denied", Some(401)));
        assert_eq!(record.reason.as_deref(), Some("the token is expired"));
        assert_eq!(record.next_step, advice::next_step("token"));
        assert_eq!(record.request.path.as_deref(), Some("/a"));
    }

    #[test]
    fn a_visitor_without_a_credential_is_shown_every_way_in() {
        let detail = "This address needs a token or a browser session.";
        let record = read(&json!({
            "firewall": {"decision": "denied", "rule": {"kind": "none"}, "explanation": {
                "rule": "session", "reason": "no session", "problem": "unauthenticated",
                "detail": detail, "status": 401}},
        }));
        assert_eq!(record.detail.as_deref(), Some(detail));
        let next_step = record.next_step.unwrap();
        assert!(next_step.contains("svc token create") && next_step.contains("browser"));
    }

    #[test]
    fn offline_tunnels_and_services_are_distinguished() {
        let away = read(&json!({
            "firewall": {"decision": "allowed", "rule": {"kind": "none"}},
            "routing": {"outcome": "not_routed", "failure": {"kind": "not_found"},
                "explanation": {"rule": "offline", "problem": "tunnel_offline"}},
            "response": {"outcome": "failed", "failure": {"kind": "not_found"}},
        }));
        assert_eq!(away.outcome, "failed");
        assert!(away.sentence.unwrap().contains("agent is not connected"));
        assert!(away.next_step.unwrap().contains("restart its agent"));
        let broken = read(&json!({
            "firewall": {"decision": "allowed", "rule": {"kind": "token"}},
            "routing": {"outcome": "not_routed", "explanation":
                {"rule": "token", "problem": "upstream_unreachable"}},
            "response": {"outcome": "failed"},
        }));
        assert!(broken.next_step.unwrap().contains("svc forward"));
    }

    #[test]
    fn a_service_that_broke_off_has_failed() {
        let ended = |by: &str, reason: &str| {
            let record = read(&json!({
                "firewall": {"decision": "allowed"},
                "response": {"outcome": "connected",
                    "termination": {"by": by, "reason": reason}},
            }));
            record.outcome
        };
        assert_eq!(ended("upstream", "error"), "failed");
        assert_eq!(ended("upstream", "timeout"), "failed");
        assert_eq!(ended("unknown", "closed"), "connected");
        assert_eq!(ended("server", "closed"), "connected");
    }

    #[test]
    fn missing_fields_of_a_record_stay_empty() {
        let record = read(&json!({}));
        assert_eq!((record.outcome, record.proof.as_str()), ("failed", "none"));
        assert!(record.rule.is_none() && record.next_step.is_none());
    }
}
