//! Routes and authorises a request, before any byte is sent to a service.

use std::sync::Arc;

use http::HeaderMap;
use http1::{
    Authority, BodyLength, Field, FieldKind, FieldValue, Fields, Method, Protocol, RequestTarget,
};
use types::path::NormalPath;
use types::problem::Problem;
use types::query_credential;
use types::trace::TraceId;
use types::tunnel;

use super::access_record::{AccessRecord, Outcome};
use super::connection_info::ConnectionInfo;
use crate::access::{
    self, BasicAuth, Bearer, EdgeRequest, PasswordCheck, PasswordProof, PasswordVerdict, Proof,
    Rule,
};
use crate::agents::Agent;
use crate::browser::EdgeCookies;
use crate::core::Core;
use crate::edge::builtin::cors::ListedOrigin;
use crate::edge::builtin::cross_site;
use crate::edge::builtin::routes::{BuiltinRoute, RULE, to_challenge, to_sign_in};
use crate::edge::builtin::terminal::Terminal;
use crate::edge::headers::forwarding::UpstreamRequestHead;
use crate::edge::headers::identity::VisitorIdentity;
use crate::edge::headers::loop_detection;
use crate::edge::http1::upgrade::Upgrade;
use crate::edge::response::error_format::ErrorFormat;
use crate::edge::response::local_response::EdgeResponse;
use crate::limits;
use crate::live::{LiveTunnel, Route};
use crate::webtty;

/// A request's head, in either HTTP version.
#[derive(Debug)]
pub(crate) struct RequestInfo<'b> {
    pub(crate) method: Method<'b>,
    pub(crate) target: RequestTarget<'b>,
    /// Host and port. The host is compared without regard to case.
    pub(crate) authority: Authority<'b>,
    pub(crate) body: BodyLength,
    /// The protocol of an upgrade.
    pub(crate) upgrade: Option<Protocol<'b>>,
    pub(crate) connection: &'b ConnectionInfo,
    /// The result of the check of the request's link password, if it was checked.
    pub(crate) password: Option<&'b PasswordVerdict>,
}

/// The header fields of a request.
pub(crate) trait HeaderFields {
    /// All fields with their kinds.
    fn fields(&self) -> impl Iterator<Item = Field<'_>>;
}

impl HeaderFields for Fields<'_> {
    fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        self.iter()
    }
}

impl HeaderFields for HeaderMap {
    fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        self.iter().map(|(name, value)| {
            let kind = FieldKind::of(name.as_str().as_bytes());
            Field {
                name: name.into(),
                value: value.into(),
                kind,
                hop_by_hop: kind.is_hop_by_hop(),
            }
        })
    }
}

/// A request that passed all checks.
#[derive(Debug)]
pub(crate) struct AdmittedRequest {
    pub(crate) tunnel: Arc<LiveTunnel<Agent>>,
    /// The head for the service in HTTP/1.1 syntax, also if the service uses HTTP/2.
    pub(crate) head: Vec<u8>,
    pub(crate) is_head: bool,
    /// The request may be retried when it is unknown whether the service received it (RFC 9110,
    /// section 9.2.2).
    pub(crate) idempotent: bool,
    pub(crate) upgrade: Option<Upgrade>,
    /// The visitor accepts trailers (`TE: trailers`).
    pub(crate) accepts_trailers: bool,
    /// Format of the edge's error responses.
    pub(crate) error_format: ErrorFormat,
    /// The visitor is authenticated and requests `Server-Timing` ([`DEBUG`]).
    pub(crate) server_timing: bool,
    /// The request opens a terminal, which the engine serves.
    pub(crate) terminal: Option<Box<Terminal>>,
    /// Number of tunnels of the same name that were tried before.
    pub(crate) failovers: u8,
    /// The proof that authorised the visitor.
    proof: Option<Proof>,
    /// The normalised path that was checked against the proof's boundary.
    checked_path: Option<NormalPath>,
}

impl AdmittedRequest {
    /// The proof that authorised the visitor.
    pub(super) fn proof(&self) -> Option<&Proof> {
        self.proof.as_ref()
    }

    /// Records a failure of the tunnel, which forwarded nothing to the service, and selects another
    /// tunnel of the same name that the visitor may use. Returns true if there is one.
    pub(crate) fn fail_over(&mut self, core: &Core, record: &mut AccessRecord) -> bool {
        self.tunnel.health.record_failure();
        if self.failovers >= MAX_FAILOVERS {
            return false;
        }
        let (proof, path) = (self.proof.as_ref(), self.checked_path.as_ref());
        let other = core.failover_target(&self.tunnel, |other| {
            !other.agent.is_revoked()
                && access::proof_covers(proof, &other.view, &other.project, path)
        });
        let Some(other) = other else { return false };
        self.failovers += 1;
        record.retarget(&other);
        self.tunnel = other;
        true
    }
}

/// Limit of further agents of the same name that are tried for one request. After three failures
/// the visitor gets an error.
const MAX_FAILOVERS: u8 = 2;

/// Protocols that an upgrade may not select: they would carry HTTP requests without
/// the edge's checks of each request.
const FORBIDDEN_UPGRADES: &[&str] = &["h2c", "h2", "h3", "tls", "http"];

/// A request that is not forwarded, or not yet.
#[derive(Debug)]
pub(crate) enum Rejection {
    /// The edge's own response.
    Answer(EdgeResponse),
    /// The link password has to be checked first. The request is then routed again, with the
    /// result.
    VerifyPassword(Box<PasswordCheck>),
}

/// Routes and authorises a request.
///
/// # Errors
/// The service is not contacted.
pub(crate) fn route_and_authorize<H: HeaderFields>(
    inbound: &RequestInfo<'_>,
    headers: &H,
    core: &Core,
    record: &mut AccessRecord,
) -> Result<AdmittedRequest, Rejection> {
    let form = ErrorFormat::from_accept(values(headers, FieldKind::Accept));
    let host = inbound.authority.host();
    record.set_request(inbound.method.as_str(), host, inbound.target.path());
    record.set_trace(|| trace_of(headers));
    let mut page = None;
    admit(inbound, headers, core, record, form, &mut page).map_err(|response| match response {
        LocalResponse::Problem(problem) => {
            set_refused(record);
            let answer = record.problem_answer(&problem, form);
            Rejection::Answer(match page {
                Some(page) => page.allow(answer),
                None => answer,
            })
        }
        LocalResponse::Answer(answer) => {
            set_refused(record);
            record.set_status(answer.status);
            Rejection::Answer(answer)
        }
        LocalResponse::VerifyPassword(check) => Rejection::VerifyPassword(check),
    })
}

/// Records that the edge refused the visitor, unless the visit has failed.
fn set_refused(record: &mut AccessRecord) {
    if !record.has_failed() {
        record.set_outcome(Outcome::Refused);
    }
}

/// A response of the edge itself.
enum LocalResponse {
    Problem(Box<Problem>),
    Answer(EdgeResponse),
    VerifyPassword(Box<PasswordCheck>),
}

impl From<Box<Problem>> for LocalResponse {
    fn from(problem: Box<Problem>) -> Self {
        Self::Problem(problem)
    }
}

impl From<Problem> for LocalResponse {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

/// The steps from a request to its admission: find the tunnel, decide, limit, and write the head
/// for the service. `page` becomes the page that sent the request, if the tunnel lists its origin.
fn admit<H: HeaderFields>(
    inbound: &RequestInfo<'_>,
    headers: &H,
    core: &Core,
    record: &mut AccessRecord,
    form: ErrorFormat,
    page: &mut Option<ListedOrigin>,
) -> Result<AdmittedRequest, LocalResponse> {
    let connection = inbound.connection;
    let tunnel = find_tunnel(inbound, core, record)?;
    record.set_tunnel(&tunnel);
    *page = ListedOrigin::of_request(headers, &tunnel.policy);
    let is_terminal = webtty::is_terminal_tunnel(&tunnel.view);
    check_handshake(&tunnel, inbound, is_terminal, record)?;
    let country = core.country_for(&tunnel, connection.source);
    record.set_country(country.as_ref());
    let visitor = access::VisitorInfo {
        country: country.as_ref(),
        tls_version: connection.tls_version,
        certificate: connection.certificate.as_ref(),
        ..access::VisitorInfo::at(connection.source)
    };
    let (password, check) = link_password(inbound, headers, &tunnel, core);
    let builtin = BuiltinRoute::at_path(inbound.target.path(), core.config.compat_rstream);
    let request = EdgeRequest {
        cookies: edge_cookies(headers, builtin.is_some() || tunnel.policy.reads_cookies()),
        navigation: is_navigation(inbound, headers, form),
        bearer: Bearer::from_values(values(headers, FieldKind::Authorization)),
        password,
        tunnel: &tunnel,
        visitor,
        host: &connection.server_name,
        path: inbound.target.path(),
        query: inbound.target.query(),
        reserved: reserved_parameters(core),
    };
    if let Some(builtin) = builtin {
        return Err(LocalResponse::Answer(
            builtin.answer(inbound, headers, &request, core, record)?,
        ));
    }
    if let Some(page) = page
        && let Some(answer) = ListedOrigin::answer_preflight(inbound, headers, &tunnel.policy)
    {
        check_preflight(&request, core, record)?;
        return Err(LocalResponse::Answer(page.clone().allow(answer)));
    }
    let allowed = decide(inbound, headers, (&request, check), core, record)?;
    let target = upstream_target(inbound.target, &allowed).ok_or_else(Problem::internal)?;
    let terminal = is_terminal.then(|| Terminal::from_request(inbound, headers, target.query()));
    let terminal = terminal.transpose()?.map(Box::new);
    check_loop(headers, core, record)?;
    acquire_capacity(&tunnel, core, record)?;
    record.register_visit(&tunnel, visitor, allowed.proof.as_ref());
    let upgrade = inbound.upgrade.filter(|upgrade| may_upgrade_to(*upgrade));
    let upstream_head = UpstreamRequestHead {
        method: inbound.method,
        target,
        authority: inbound.authority,
        source: connection.source,
        engine: core.cdn_loop_id.as_value(),
        body: inbound.body,
        upgrade,
        proof: allowed.proof.as_ref(),
        strip_authorization: allowed.strip_authorization,
        pass_headers: tunnel.policy.pass_headers(),
        reserved: reserved_parameters(core),
        identity: tunnel.policy.identity(),
        visitor: visitor_identity(allowed.proof.as_ref(), &tunnel, core),
    };
    let mut head = Vec::with_capacity(HEAD_CAPACITY);
    upstream_head.write(&mut head, headers.fields());
    Ok(AdmittedRequest {
        head,
        is_head: inbound.method == Method::Head,
        idempotent: inbound.method.is_idempotent() && upgrade.is_none(),
        upgrade: upgrade.map(|protocol| Upgrade::new(protocol, websocket_key(headers))),
        accepts_trailers: accepts_trailers(headers),
        error_format: form,
        server_timing: allowed.proof.is_some() && wants_timing(headers),
        terminal,
        failovers: 0,
        proof: allowed.proof,
        checked_path: allowed.path,
        tunnel,
    })
}

/// The cookies of the edge, if a decision depends on them.
fn edge_cookies<H: HeaderFields>(headers: &H, are_read: bool) -> EdgeCookies<'_> {
    if are_read {
        EdgeCookies::from_fields(values(headers, FieldKind::Cookie))
    } else {
        EdgeCookies::default()
    }
}

/// True if the visitor accepts trailers of the response (`TE: trailers`).
fn accepts_trailers<H: HeaderFields>(headers: &H) -> bool {
    let mut te = headers.fields().filter(|field| field.kind == FieldKind::Te);
    te.any(|field| field.value.eq_ignore_ascii_case(b"trailers"))
}

/// The identity for the service, if the visitor has signed in and the tunnel requests it.
fn visitor_identity(
    proof: Option<&Proof>,
    tunnel: &LiveTunnel<Agent>,
    core: &Core,
) -> Option<VisitorIdentity> {
    let key = core.browsers.as_ref().map(|browsers| &browsers.assertions);
    VisitorIdentity::of(proof, tunnel, core.auth_context(), key)
}

/// The state of the request's link password, and the check that it needs. At a tunnel without link
/// passwords, Basic credentials are for the service.
fn link_password<H: HeaderFields>(
    inbound: &RequestInfo<'_>,
    headers: &H,
    tunnel: &LiveTunnel<Agent>,
    core: &Core,
) -> (PasswordProof, Option<PasswordCheck>) {
    let policy = &tunnel.policy;
    if !policy.required_proofs().password {
        return (PasswordProof::Absent, None);
    }
    let basic = BasicAuth::from_values(values(headers, FieldKind::Authorization));
    let source = inbound.connection.source;
    core.link_passwords
        .state(policy, basic, source, inbound.password)
}

/// Returns true if a browser opens a page, so that it can follow a redirect to the sign-in.
fn is_navigation<H: HeaderFields>(
    inbound: &RequestInfo<'_>,
    headers: &H,
    form: ErrorFormat,
) -> bool {
    form == ErrorFormat::Page
        && matches!(inbound.method, Method::Get | Method::Head)
        && inbound.upgrade.is_none()
        && may_navigate(headers)
}

/// The tunnel of the host name. The name of the request must be that of the handshake.
fn find_tunnel(
    inbound: &RequestInfo<'_>,
    core: &Core,
    record: &mut AccessRecord,
) -> Result<Arc<LiveTunnel<Agent>>, Box<Problem>> {
    let server_name = &inbound.connection.server_name;
    if !inbound.authority.host().eq_ignore_ascii_case(server_name) {
        record.set_rule("host", None);
        return Err(Problem::misdirected_request().into());
    }
    let (rule, problem) = match core.route(server_name) {
        Route::Online(_) if !core.serves_names() => {
            record.set_rule("offline", None);
            record.set_outcome(Outcome::Failed);
            return Err(Problem::tunnel_offline(OFFLINE_RETRY).into());
        }
        Route::Online(tunnel) if !core.has_lost_name(&tunnel) => return Ok(tunnel),
        Route::Offline | Route::Unknown if core.is_taken_down(server_name) => {
            record.set_refusal(Rule::TakenDown, None);
            return Err(access::hostname_taken_down().into());
        }
        Route::Offline => {
            record.set_rule("offline", None);
            // No rule refused the visitor, and the service is expected to return.
            record.set_outcome(Outcome::Failed);
            return Err(Problem::tunnel_offline(OFFLINE_RETRY).into());
        }
        Route::Unknown if !core.has_platform_snapshot() => {
            let problem = Problem::unavailable().with_retry_after(OFFLINE_RETRY);
            ("uninformed", problem)
        }
        Route::Unknown if core.is_starting() && core.namespace.classify(server_name).is_some() => {
            ("starting", Problem::tunnel_starting(STARTUP_RETRY))
        }
        Route::Online(_) | Route::Unknown => ("unknown", Problem::tunnel_not_found()),
    };
    record.set_rule(rule, None);
    Err(problem.into())
}

/// Checks that the handshake of the connection matches the tunnel that has the host name now.
fn check_handshake(
    tunnel: &LiveTunnel<Agent>,
    inbound: &RequestInfo<'_>,
    is_terminal: bool,
    record: &mut AccessRecord,
) -> Result<(), Box<Problem>> {
    if tunnel.view.properties.protocol != Some(tunnel::Protocol::Http) && !is_terminal {
        // The host name now belongs to another kind of tunnel than during the handshake.
        record.set_rule("host", None);
        return Err(Problem::misdirected_request().into());
    }
    let is_required = tunnel.policy.required_proofs().certificate;
    if is_required && !inbound.connection.certificate_requested {
        // The tunnel is newer than the connection. A new handshake will request the certificate.
        let reason = "the handshake did not ask for a certificate";
        record.set_rule("host", Some(reason.into()));
        return Err(Problem::misdirected_request().into());
    }
    Ok(())
}

/// Checks a preflight, which the edge answers, by the rules that precede a credential: those about
/// all visitors, and the project's policy for public access.
fn check_preflight(
    request: &EdgeRequest<'_, Agent>,
    core: &Core,
    record: &mut AccessRecord,
) -> Result<(), Box<Problem>> {
    let context = core.auth_context();
    let refused = access::refuse_visitor(request.tunnel, request.visitor, context).or_else(|| {
        let decision = access::decide(request, context);
        (decision.rule == Rule::PublicAccess).then_some(decision)
    });
    if let Some(refused) = refused {
        record.set_refusal(refused.rule, refused.reason.clone());
        return Err(Box::new(refused.into_problem()));
    }
    record.set_rule(RULE, None);
    Ok(())
}

/// Authorises the request.
fn decide<H: HeaderFields>(
    inbound: &RequestInfo<'_>,
    headers: &H,
    (request, check): (&EdgeRequest<'_, Agent>, Option<PasswordCheck>),
    core: &Core,
    record: &mut AccessRecord,
) -> Result<access::Admission, LocalResponse> {
    let decision = access::decide(request, core.auth_context());
    let rule = decision.rule;
    let allowed = match decision.outcome {
        access::Outcome::Allow(allowed) => {
            record.set_rule(rule.as_str(), decision.reason);
            allowed
        }
        access::Outcome::VerifyPassword => {
            return Err(match check {
                Some(check) => LocalResponse::VerifyPassword(Box::new(check)),
                None => Problem::internal().into(),
            });
        }
        outcome => {
            record.set_refusal(rule, decision.reason);
            return Err(match outcome {
                access::Outcome::SignIn => {
                    LocalResponse::Answer(to_sign_in(inbound, request, core)?)
                }
                access::Outcome::Challenge => LocalResponse::Answer(to_challenge(request, core)?),
                access::Outcome::Refuse(problem) => problem.into(),
                access::Outcome::Allow(_) | access::Outcome::VerifyPassword => {
                    Problem::internal().into()
                }
            });
        }
    };
    if let Some(proof) = &allowed.proof {
        record.set_proof(proof);
    }
    cross_site::check(rule, inbound, headers, request, record)?;
    Ok(allowed)
}

/// The target for the service: the path that was checked, without the credentials of the query.
fn upstream_target<'b>(
    inbound: RequestTarget<'b>,
    allowed: &'b access::Admission,
) -> Option<RequestTarget<'b>> {
    let target = match &allowed.query {
        // Nothing is left of the query, so the question mark is removed as well.
        Some(rest) if rest.is_empty() => inbound.without_query(),
        Some(rest) => inbound.with_query(rest)?,
        None => inbound,
    };
    match &allowed.path {
        Some(path) => target.with_path(path.as_str()),
        None => Some(target),
    }
}

/// Refuses a request that has passed through this engine too often (RFC 8586).
fn check_loop<H: HeaderFields>(
    headers: &H,
    core: &Core,
    record: &mut AccessRecord,
) -> Result<(), Box<Problem>> {
    let cdn_loop = values(headers, FieldKind::CdnLoop);
    if loop_detection::count_passes(cdn_loop, &core.config.host) >= loop_detection::MAX_PASSES {
        record.set_rule("loop", None);
        return Err(Problem::loop_detected().into());
    }
    Ok(())
}

/// Counts the request against the plan's rates and the limits of concurrent visits.
fn acquire_capacity(
    tunnel: &LiveTunnel<Agent>,
    core: &Core,
    record: &mut AccessRecord,
) -> Result<(), Box<Problem>> {
    limits::count_request(&tunnel.project, &tunnel.meters, &*core.clock).map_err(|exceeded| {
        record.set_refusal(Rule::RateLimit, Some(exceeded.to_string().into()));
        Problem::from(exceeded)
    })?;
    let slot = record.acquire_slot(&tunnel.project);
    slot.map_err(|full| Problem::from(full).into())
}

/// False if the browser reports that the request is not a navigation (Fetch Metadata,
/// `Sec-Fetch-Mode`): a script or a page's part cannot follow a redirect to the sign-in. Browsers
/// without the field are not excluded.
fn may_navigate<H: HeaderFields>(headers: &H) -> bool {
    let mut modes = headers.fields().filter(|field| field.is("sec-fetch-mode"));
    modes.all(|mode| mode.value.as_bytes() == b"navigate")
}

/// The trace that a request belongs to (W3C Trace Context).
fn trace_of<H: HeaderFields>(headers: &H) -> Option<TraceId> {
    let fields = headers.fields().filter(|field| field.is("traceparent"));
    TraceId::of_request(fields.map(|field| field.value.as_bytes()))
}

/// The values of all fields of a kind.
pub(in crate::edge) fn values<H: HeaderFields>(
    headers: &H,
    kind: FieldKind,
) -> impl Iterator<Item = &[u8]> {
    let fields = headers.fields().filter(move |field| field.kind == kind);
    fields.map(|field| field.value.as_bytes())
}

/// The query parameters that carry credentials.
fn reserved_parameters(core: &Core) -> &'static [&'static str] {
    if core.config.compat_rstream {
        query_credential::COMPAT_NAMES
    } else {
        query_credential::NAMES
    }
}

/// The first key of a WebSocket handshake.
fn websocket_key<H: HeaderFields>(headers: &H) -> Option<FieldValue<'_>> {
    let mut keys = headers
        .fields()
        .filter(|field| field.kind == FieldKind::SecWebSocketKey);
    keys.next().map(|field| field.value)
}

/// With `svc-debug: timing`, an authenticated visitor gets `Server-Timing` with the time of the
/// edge and of the service. The field is not forwarded.
const DEBUG: &str = "svc-debug";

fn wants_timing<H: HeaderFields>(headers: &H) -> bool {
    headers.fields().any(|field| {
        field.kind == FieldKind::SvcReserved
            && field.is(DEBUG)
            && field.value.as_bytes() == b"timing"
    })
}

/// Seconds in `Retry-After` for an offline tunnel: an agent reconnects in about that time.
const OFFLINE_RETRY: u32 = 5;

/// Seconds in `Retry-After` while the engine waits for agents after its start: the smallest value,
/// because most agents are back within a second.
const STARTUP_RETRY: u32 = 1;

/// Initial capacity of the head buffer. Most request heads fit.
const HEAD_CAPACITY: usize = 1024;

fn may_upgrade_to(protocol: Protocol<'_>) -> bool {
    !FORBIDDEN_UPGRADES
        .iter()
        .any(|forbidden| protocol.name().eq_ignore_ascii_case(forbidden))
}
