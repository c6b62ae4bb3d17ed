//! The complete report about one visit, as JSON or text.

use serde::Serialize;

use super::{
    advice,
    record::Record,
    token::TokenCheck,
    visit::{Visit, VisitResponse},
};
use crate::output::plain;

/// All findings about one visit.
#[derive(Debug, Serialize)]
pub(super) struct VisitReport {
    /// The request that was made from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    visit: Option<Visit>,
    /// The token of that request.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<TokenCheck>,
    /// The record of the engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<Record>,
    /// Reason why no record was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
    /// Suggested fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_step: Option<String>,
}

impl VisitReport {
    /// A report for a reference.
    pub(super) fn of_record(record: Record) -> Self {
        Self {
            next_step: record.next_step.map(str::to_owned),
            visit: None,
            token: None,
            record: Some(record),
            unknown: None,
        }
    }

    /// A report for an address.
    pub(super) fn of_visit(
        visit: Visit,
        token: Option<TokenCheck>,
        record: Option<Record>,
        unknown: Option<String>,
    ) -> Self {
        Self {
            next_step: next_step(&visit, token.as_ref(), record.as_ref()),
            visit: Some(visit),
            token,
            record,
            unknown,
        }
    }

    /// The report as text.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Lines::default();
        if let Some(visit) = &self.visit {
            lines.visit(visit);
        }
        if let Some(token) = &self.token {
            lines.token(token);
        }
        if let Some(record) = &self.record {
            lines.record(record);
        }
        if let Some(unknown) = &self.unknown {
            lines.heading("record");
            lines.field("none", unknown);
        }
        if let Some(next_step) = &self.next_step {
            lines.0.push(String::new());
            lines.0.push(format!("next: {next_step}"));
        }
        lines.0
    }
}

/// Returns the advice for the most direct cause: observations from here first, then the record.
fn next_step(visit: &Visit, token: Option<&TokenCheck>, record: Option<&Record>) -> Option<String> {
    if let Some(certificate) = visit.certificate.as_ref().filter(|seen| !seen.trusted) {
        let why = certificate.problem.as_deref().unwrap_or("unknown");
        return Some(format!(
            "the certificate is not trusted ({why}): install one for this name on the engine, or \
             pass its CA with --ca-file"
        ));
    }
    if let Some(error) = &visit.error {
        // With TLS 1.3 this alert arrives with the first bytes after the handshake.
        let asks = error.contains("CertificateRequired");
        return Some(if asks {
            "the name requires a client certificate, which `svc explain` does not send: `curl \
             --cert FILE --key FILE` does"
                .to_owned()
        } else {
            "the connection was closed before a response: see the engine's log".to_owned()
        });
    }
    let answer = visit.answer.as_ref()?;
    let is_refused = matches!(answer.status, 401 | 403);
    if let Some(trouble) = token
        .and_then(TokenCheck::first_problem)
        .filter(|_| is_refused)
    {
        return Some(format!("use another token: {trouble}"));
    }
    let known = record.and_then(|record| record.next_step);
    let known = known.or_else(|| answer.code.as_deref().and_then(advice::problem_next_step));
    known
        .filter(|_| answer.reference.is_some())
        .map(str::to_owned)
}

#[derive(Debug, Default)]
struct Lines(Vec<String>);

impl Lines {
    fn heading(&mut self, text: &str) {
        if !self.0.is_empty() {
            self.0.push(String::new());
        }
        self.0.push(plain(text));
    }

    fn field(&mut self, name: &str, value: &str) {
        self.0.push(format!("  {name:11} {}", plain(value)));
    }

    fn optional_field(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    fn visit(&mut self, visit: &Visit) {
        self.heading(&format!("GET {}", visit.url));
        if let Some(answer) = &visit.answer {
            self.answer(answer);
        }
        self.optional_field("failed", visit.error.as_deref());
        if let Some(certificate) = &visit.certificate {
            self.heading("certificate");
            self.field("names", &certificate.names.join(", "));
            self.field("signed by", &certificate.issuer);
            self.field("expires", &certificate.expires_at);
            let trusted = match &certificate.problem {
                None => "yes",
                Some(problem) => problem,
            };
            self.field("trusted", trusted);
        }
    }

    fn answer(&mut self, answer: &VisitResponse) {
        let code = answer.code.as_deref().unwrap_or_default();
        let status = format!("{} {code}", answer.status);
        self.field("answered", status.trim_end());
        self.optional_field("said", answer.detail.as_deref());
        self.optional_field("leads to", answer.location.as_deref());
        // Only the edge sends references, so a reference identifies its responses.
        let by = match &answer.reference {
            Some(_) => "the edge",
            None if answer.location.is_some() => "the edge or the service",
            None => "the service",
        };
        self.field("by", by);
        self.optional_field("reference", answer.reference.as_deref());
        let total = format!("{:.1} ms over {}", answer.total_ms, answer.version);
        let timing = match (answer.edge_ms, answer.service_ms) {
            (Some(edge), Some(service)) => {
                format!("{total}; of it {edge:.1} ms in the edge, {service:.1} ms in the service")
            }
            _ => total,
        };
        self.field("took", &timing);
    }

    fn token(&mut self, token: &TokenCheck) {
        self.heading("token (contents only; the signature is verified by the engine)");
        if !token.readable {
            self.field("form", "not a token");
            return;
        }
        self.field("type", token.kind.as_deref().unwrap_or("unknown"));
        let expiry = match (&token.expires_at, token.expired) {
            (None, _) => "never".to_owned(),
            (Some(at), true) => format!("{at} (expired)"),
            (Some(at), false) => at.clone(),
        };
        self.field("expires", &expiry);
        let permissions = match &token.permissions {
            None => "all permissions of its owner".to_owned(),
            Some(all) => all.join(", "),
        };
        self.field("permits", &permissions);
        if !token.permitted {
            self.field("lacks", "tunnels.streams.create-delete");
        }
        self.field("boundary", token.boundary.sentence());
    }

    fn record(&mut self, record: &Record) {
        self.heading(&format!("record {}", record.reference));
        let request = &record.request;
        let method = request.method.as_deref().unwrap_or("a connection");
        let host = request.host.as_deref().unwrap_or_default();
        let path = request.path.as_deref().unwrap_or_default();
        let place = format!("{method} {host}{path}");
        self.field("asked", place.trim_end());
        self.field("from", &request.from);
        self.field("at", &record.at);
        let status = record.status.map(|status| format!(" with {status}"));
        let code = record.problem.as_deref().map(|code| format!(" {code}"));
        let outcome = match record.outcome {
            "denied" => "refused by the edge",
            "connected" => "allowed",
            _ => "not served",
        };
        self.field(
            "outcome",
            &format!(
                "{outcome}{}{}",
                status.unwrap_or_default(),
                code.unwrap_or_default()
            ),
        );
        let proof = match record.proof.as_str() {
            "none" => "no valid proof",
            "svc_auth" => "a session",
            "mtls" => "a client certificate",
            "password" => "the link password",
            other => other,
        };
        self.field("proof", proof);
        self.optional_field("rule", record.rule.as_deref());
        self.optional_field("about", record.sentence.as_deref());
        self.optional_field("said", record.detail.as_deref());
        self.optional_field("because", record.reason.as_deref());
        if let Some(duration) = record.duration_ms {
            let opened = record.establish_ms.unwrap_or_default();
            self.field(
                "took",
                &format!("{duration} ms, {opened} ms to the service"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Request;
    use super::*;

    #[test]
    fn a_record_in_plain_words() {
        let record = Record {
            reference: "0af7651916cd43dd8448eb21".to_owned(),
            at: "2026-11-20T17:00:00.500Z".to_owned(),
            outcome: "denied",
            request: Request {
                from: "192.0.2.7".to_owned(),
                method: Some("GET".to_owned()),
                host: Some("web-e7e8a732.t.engine.example".to_owned()),
                path: Some("/re\u{1b}ports".to_owned()),
            },
            status: Some(401),
            problem: Some("invalid_token".to_owned()),
            proof: "none".to_owned(),
            rule: Some("token".to_owned()),
            sentence: Some("Visitors need a valid token.".to_owned()),
            reason: Some("the token is expired".to_owned()),
            next_step: advice::next_step("token"),
            ..Record::default()
        };
        insta::assert_snapshot!(VisitReport::of_record(record).lines().join("\n"));
    }
}
