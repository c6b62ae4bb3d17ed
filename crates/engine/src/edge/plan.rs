//! What happens to a request: routed once, judged once, before a byte of it goes anywhere.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use http1::{BodyLength, Field, FieldKind, Fields, Method, Target};
use types::problem::Problem;
use types::query_credential;
use types::tunnel::Protocol;

use super::answer::{Answer, wants_html};
use super::forwarding::Onward;
use super::record::{Outcome, Record};
use crate::access::{self, Bearer, EdgeRequest};
use crate::agents::Agent;
use crate::core::Core;
use crate::live::{LiveTunnel, Route};

/// A request as the edge reads it, whichever HTTP version it came in.
#[derive(Debug)]
pub(crate) struct Inbound<'b> {
    pub(crate) method: Method<'b>,
    pub(crate) target: Target<'b>,
    /// Without port; compared without regard to case.
    pub(crate) host: &'b str,
    /// With port, as it came.
    pub(crate) authority: &'b str,
    pub(crate) body: BodyLength,
    /// The protocol that the visitor wants to change to.
    pub(crate) upgrade: Option<&'b str>,
    /// The server name of the TLS handshake, in lower case.
    pub(crate) server_name: &'b str,
    pub(crate) source: IpAddr,
}

/// Where the fields of a request are.
pub(crate) trait Heads {
    /// All fields, each with what it is.
    fn fields(&self) -> impl Iterator<Item = Field<'_>>;
}

impl Heads for Fields<'_> {
    fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        self.iter()
    }
}

impl Heads for HeaderMap {
    fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        self.iter().map(|(name, value)| {
            let name = name.as_str().as_bytes();
            let kind = FieldKind::of(name);
            Field {
                name,
                value: value.as_bytes(),
                kind,
                hop_by_hop: kind.is_hop_by_hop(),
            }
        })
    }
}

/// A request that may go on.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) tunnel: Arc<LiveTunnel<Agent>>,
    /// The head for the service, in HTTP/1.1, whatever the service speaks.
    pub(crate) head: Vec<u8>,
    pub(crate) is_head: bool,
    /// It may be sent again when it is open whether the service got it (RFC 9110, 9.2.2).
    pub(crate) idempotent: bool,
    pub(crate) upgrade: bool,
    /// The visitor understands trailers (`TE: trailers`).
    pub(crate) trailers: bool,
    /// A person's browser: errors of ours are pages.
    pub(crate) html: bool,
}

/// Protocols that an upgrade may not lead to: they would put an HTTP connection of its own into
/// the tunnel, past every check that the edge makes for each request.
const NOT_TUNNELLED: &[&str] = &["h2c", "h2", "h3", "tls", "http"];

/// Decides about a request.
///
/// # Errors
/// The answer that the visitor gets instead; the service does not hear of the request.
pub(crate) fn plan<H: Heads>(
    inbound: &Inbound<'_>,
    heads: &H,
    core: &Core,
    record: &mut Record,
) -> Result<Forward, Answer> {
    let html = {
        let mut accepts = heads
            .fields()
            .filter(|field| field.kind == FieldKind::Accept);
        accepts.any(|field| wants_html(Some(field.value)))
    };
    record.request(inbound.method.as_str(), inbound.host, inbound.target.path);
    judge(inbound, heads, core, record, html).map_err(|problem| {
        record.ended(Outcome::Refused);
        record.status(problem.status);
        Answer::problem(&problem, html)
    })
}

fn judge<H: Heads>(
    inbound: &Inbound<'_>,
    heads: &H,
    core: &Core,
    record: &mut Record,
    html: bool,
) -> Result<Forward, Box<Problem>> {
    if !inbound.host.eq_ignore_ascii_case(inbound.server_name) {
        record.decided("host", None);
        return Err(Box::new(Problem::misdirected_request()));
    }
    let tunnel = match core.live.route(inbound.server_name) {
        Route::Online(tunnel) => tunnel,
        Route::Offline => {
            record.decided("offline", None);
            return Err(Box::new(Problem::tunnel_offline(OFFLINE_RETRY)));
        }
        Route::Unknown => {
            record.decided("unknown", None);
            return Err(Box::new(Problem::tunnel_not_found()));
        }
    };
    record.tunnel(&tunnel);
    if tunnel.view.properties.protocol != Some(Protocol::Http) {
        // The name was another kind of tunnel's when the handshake was made, or is one now.
        record.decided("host", None);
        return Err(Box::new(Problem::misdirected_request()));
    }
    let authorization = heads
        .fields()
        .filter(|field| field.kind == FieldKind::Authorization);
    let reserved = if core.config.compat_rstream {
        query_credential::COMPAT_NAMES
    } else {
        query_credential::NAMES
    };
    let request = EdgeRequest {
        tunnel: &tunnel,
        peer: inbound.source,
        bearer: Bearer::among(authorization.map(|field| field.value)),
        path: inbound.target.path,
        query: inbound.target.query,
        reserved,
    };
    let decision = access::decide(&request, &core.tokens, core.unix_seconds());
    record.decided(decision.rule.as_str(), decision.reason);
    let allowed = match decision.outcome {
        access::Outcome::Allow(allowed) => allowed,
        access::Outcome::Refuse(problem) => return Err(Box::new(problem)),
    };
    if let Some(proof) = &allowed.proof {
        record.proof(proof);
    }
    let path = allowed
        .path
        .as_ref()
        .map_or(inbound.target.path, |path| path.as_str());
    let query = match &allowed.query {
        // Nothing is left of it: the question mark goes too.
        Some(rest) if rest.is_empty() => None,
        Some(rest) => Some(rest.as_str()),
        None => inbound.target.query,
    };
    let upgrade = inbound.upgrade.filter(|upgrade| may_upgrade_to(upgrade));
    let onward = Onward {
        method: inbound.method.as_str(),
        target: Target { path, query },
        authority: inbound.authority,
        source: inbound.source,
        body: inbound.body,
        upgrade,
        proof: allowed.proof.as_ref(),
        strip_authorization: allowed.strip_authorization,
        reserved,
    };
    let mut head = Vec::with_capacity(HEAD_CAPACITY);
    onward.write(&mut head, heads.fields());
    let mut te = heads.fields().filter(|field| field.kind == FieldKind::Te);
    Ok(Forward {
        head,
        is_head: inbound.method == Method::Head,
        idempotent: inbound.method.is_idempotent() && upgrade.is_none(),
        upgrade: upgrade.is_some(),
        trailers: te.any(|field| field.value.eq_ignore_ascii_case(b"trailers")),
        html,
        tunnel,
    })
}

/// Seconds after which a visitor of an offline tunnel may try again: an agent's reconnect takes
/// about that long.
const OFFLINE_RETRY: u32 = 5;

/// Most heads fit without growing.
const HEAD_CAPACITY: usize = 1024;

fn may_upgrade_to(protocol: &str) -> bool {
    let name = protocol.split('/').next().unwrap_or_default().trim();
    !protocol.contains(',')
        && !NOT_TUNNELLED
            .iter()
            .any(|not| name.eq_ignore_ascii_case(not))
}
