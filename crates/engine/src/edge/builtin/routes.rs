//! Routes that the edge serves itself on a tunnel's host, below `/.well-known/svc/`: the session,
//! the sign-out, the callback of a sign-in, and the challenge. They are never forwarded.

use api::link::{EDGE_SESSION_SECONDS, Record as Reported, SessionEndedRecord};
use http::header::SET_COOKIE;
use http1::FieldKind;
use serde::Serialize;
use types::form::Form;
use types::problem::Problem;
use types::tunnel::IdentityClaim;

use crate::access::{
    self, AuthContext, ChangeScope, EdgeRequest, Invalidations, Proof, RequiredProofs,
};
use crate::agents::Agent;
use crate::browser::{
    Browsers, CALLBACK, Challenges, LongTargetRedirect, Page, PageFooter, Session, SignInCallback,
    SignInRequest, SignIns, Solution,
};
use crate::core::Core;
use crate::edge::access_record::AccessRecord;
use crate::edge::response::local_response::EdgeResponse;
use crate::edge::routing::{HeaderFields, RequestInfo, values};

/// A built-in route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::edge) struct BuiltinRoute {
    kind: Kind,
    /// The path prefix that the request used.
    prefix: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Session,
    Logout,
    Callback,
    /// The way to a long target, after the callback or the challenge.
    LongTarget,
    Challenge,
}

const PREFIX: &str = "/.well-known/svc/";
const COMPAT_PREFIX: &str = "/.well-known/rstream/";

/// Query of the sign-out form, which requests a page as the response.
const WITH_PAGE: &str = "page";
/// Query of the page after a sign-out.
const SIGNED_OUT: &str = "signed-out";

impl BuiltinRoute {
    /// Finds the route with exactly this path. Any other spelling is forwarded to the service.
    /// `compat` also enables the paths of rstream.
    pub(in crate::edge) fn at_path(path: &str, compat: bool) -> Option<Self> {
        let prefixes = [Some(PREFIX), compat.then_some(COMPAT_PREFIX)];
        let found = prefixes.into_iter().flatten().find_map(|prefix| {
            let rest = path.strip_prefix(prefix)?;
            Some((prefix, rest))
        });
        let (prefix, rest) = found?;
        let kind = match rest {
            "session" => Kind::Session,
            "logout" => Kind::Logout,
            "callback" => Kind::Callback,
            "challenge" => Kind::Challenge,
            _ if is_long_target(path) => Kind::LongTarget,
            _ => return None,
        };
        Some(Self { kind, prefix })
    }

    /// Serves a request.
    pub(in crate::edge) fn answer<H: HeaderFields>(
        self,
        inbound: &RequestInfo<'_>,
        headers: &H,
        request: &EdgeRequest<'_, Agent>,
        core: &Core,
        record: &mut AccessRecord,
    ) -> Result<EdgeResponse, Box<Problem>> {
        let auth = core.auth_context();
        if let Some(refused) = access::refuse_visitor(request.tunnel, request.visitor, auth) {
            record.set_refusal(refused.rule, refused.reason.clone());
            return Err(Box::new(refused.into_problem()));
        }
        record.set_rule(RULE, None);
        let visit = BuiltinRequest {
            route: self,
            request,
            auth,
            authority: authority(inbound),
            footer: &core.page_footer,
        };
        let is_get = matches!(inbound.method.as_str(), "GET" | "HEAD");
        match (self.kind, inbound.method.as_str()) {
            (Kind::Session, _) if is_get => Ok(visit.session()),
            (Kind::Logout, _) if is_get => Ok(visit.sign_out_page()),
            (Kind::Logout, "POST") => visit.sign_out(headers, core),
            (Kind::Callback, "GET") => visit.callback(browsers(core)?, core, record),
            (Kind::LongTarget, "GET") => visit.long_target(browsers(core)?, headers),
            (Kind::Challenge, _) if is_get => visit.challenge(browsers(core)?),
            (Kind::Challenge, "POST") => visit.solve(browsers(core)?, headers, record),
            (Kind::Session, _) => Err(method_not_allowed("GET, HEAD")),
            (Kind::Callback | Kind::LongTarget, _) => Err(method_not_allowed("GET")),
            (Kind::Logout | Kind::Challenge, _) => Err(method_not_allowed("GET, HEAD, POST")),
        }
    }
}

/// True for the path of a route to a long target: that of the callback, with an id.
fn is_long_target(path: &str) -> bool {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    path.strip_prefix(CALLBACK)
        .and_then(|rest| rest.strip_prefix('/'))
        .is_some_and(|id| id.len() == 16 && id.bytes().all(is_hex))
}

fn method_not_allowed(methods: &'static str) -> Box<Problem> {
    Box::new(Problem::only_allowed(methods))
}

/// The rule that logs and metrics show for these routes.
pub(in crate::edge) const RULE: &str = "edge";

/// The authority that the visitor used, in lower case and without the default port.
pub(in crate::edge) fn authority(inbound: &RequestInfo<'_>) -> String {
    let host = inbound.authority.host().to_ascii_lowercase();
    match inbound.authority.port() {
        None | Some(443) => host,
        Some(port) => format!("{host}:{port}"),
    }
}

/// Redirects a browser to the sign-in, which returns to the requested page.
pub(in crate::edge) fn to_sign_in(
    inbound: &RequestInfo<'_>,
    request: &EdgeRequest<'_, Agent>,
    core: &Core,
) -> Result<EdgeResponse, Box<Problem>> {
    let unavailable = || Box::new(Problem::unavailable());
    let browsers = browsers(core)?;
    let directory = core.tenancy.directory().ok_or_else(unavailable)?;
    let authority = authority(inbound);
    let sign_in_request = sign_in_request(request, &authority);
    let now = core.unix_seconds();
    let departure = SignIns::redirect_to_platform(
        sign_in_request,
        &target(request),
        core.config.limits.header_bytes,
        &browsers.seals,
        directory,
        now,
    );
    let departure = departure.ok_or_else(unavailable)?;
    let answer = EdgeResponse::redirect(302, departure.location);
    Ok(with_cookies(answer, departure.set_cookies))
}

fn with_cookies(answer: EdgeResponse, set_cookies: Vec<String>) -> EdgeResponse {
    let with = |answer: EdgeResponse, cookie| answer.with_header(SET_COOKIE, cookie);
    set_cookies.into_iter().fold(answer, with)
}

/// Redirects a browser to the challenge, which returns to the requested page.
pub(in crate::edge) fn to_challenge(
    request: &EdgeRequest<'_, Agent>,
    core: &Core,
) -> Result<EdgeResponse, Box<Problem>> {
    let seals = &browsers(core)?.seals;
    let route = format!("{PREFIX}challenge");
    let head_bytes = core.config.limits.header_bytes;
    let page = Challenges::page(&route, request.host, &target(request), head_bytes, seals);
    let page = page.ok_or_else(|| Box::new(Problem::internal()))?;
    let answer = EdgeResponse::redirect(302, page.location);
    Ok(with_cookies(answer, page.set_cookies))
}

/// Path and query of a request, without a credential in it.
fn target(request: &EdgeRequest<'_, Agent>) -> String {
    let query = request.query.unwrap_or_default();
    let query = match types::query_credential::extract(query, request.reserved) {
        Ok(Some(extracted)) => extracted.rest,
        _ => query.to_owned(),
    };
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{}{mark}{query}", request.path)
}

fn sign_in_request<'a>(request: &EdgeRequest<'a, Agent>, authority: &'a str) -> SignInRequest<'a> {
    SignInRequest {
        host: request.host,
        authority,
        cookies: request.cookies,
        project: &request.tunnel.project,
        policy: &request.tunnel.policy,
    }
}

fn browsers(core: &Core) -> Result<&Browsers, Box<Problem>> {
    core.browsers
        .as_ref()
        .ok_or_else(|| Box::new(Problem::not_found()))
}

/// A request to a built-in route.
struct BuiltinRequest<'a, 'r> {
    route: BuiltinRoute,
    request: &'a EdgeRequest<'r, Agent>,
    auth: AuthContext<'a>,
    authority: String,
    footer: &'a PageFooter,
}

impl BuiltinRequest<'_, '_> {
    /// Returns the visitor's identity, if its cookie or certificate proves one.
    fn session(&self) -> EdgeResponse {
        let decision = access::decide(self.request, self.auth);
        let proof = match decision.outcome {
            access::Outcome::Allow(allowed) => allowed.proof,
            _ => None,
        };
        let required = self.request.tunnel.policy.required_proofs();
        let project = &self.request.tunnel.project;
        let state = project.state();
        let session = match &proof {
            Some(Proof::Session(session)) => Some(session),
            _ => None,
        };
        let authenticated = proof.is_some();
        // An older platform states the name and the address at every sign-in, and a session may be
        // older than the tunnel. The pages of a tunnel read only what it requests.
        let policy = &self.request.tunnel.policy;
        let is_shared = |claim: IdentityClaim| policy.shared_claims().any(|shared| shared == claim);
        let view = SessionView {
            auth: AuthView {
                authenticated,
                method: proof.as_ref().map(Proof::method),
            },
            user: proof
                .as_ref()
                .and_then(Proof::user_id)
                .map(|user_id| UserView {
                    user_id,
                    name: session
                        .and_then(|session| session.name.as_deref())
                        .filter(|_| is_shared(IdentityClaim::Name)),
                    email: session
                        .and_then(|session| session.email.as_deref())
                        .filter(|_| is_shared(IdentityClaim::Email)),
                }),
            tunnel: TunnelView {
                host: &self.authority,
                workspace_id: state.workspace_id.as_deref().filter(|_| authenticated),
                project_id: authenticated.then_some(&*project.id),
            },
            policies: policies(required, self.route.prefix),
        };
        EdgeResponse::json(&view)
    }

    fn sign_out_page(&self) -> EdgeResponse {
        if self.request.query == Some(SIGNED_OUT) {
            return EdgeResponse::page(Page::signed_out());
        }
        let action = format!("{}logout?{WITH_PAGE}", self.route.prefix);
        EdgeResponse::page(Page::sign_out(&action))
    }

    fn sign_out<H: HeaderFields>(
        &self,
        headers: &H,
        core: &Core,
    ) -> Result<EdgeResponse, Box<Problem>> {
        self.require_same_origin(headers)?;
        self.end_session(core);
        let answer = if self.request.query == Some(WITH_PAGE) {
            let page = format!("{}logout?{SIGNED_OUT}", self.route.prefix);
            EdgeResponse::redirect(303, page)
        } else {
            EdgeResponse::no_content()
        };
        Ok(answer.with_header(SET_COOKIE, Session::clear_cookie()))
    }

    /// Ends the session of the request's cookie, also for copies of that cookie. On this engine it
    /// ends immediately, together with the visits that it authorised. Other engines end it when the
    /// platform has sent them the change.
    fn end_session(&self, core: &Core) {
        let project = &self.request.tunnel.project;
        let cookie = self.request.cookies.session.value();
        let known = self.auth.seals.zip(self.auth.tenancy.directory());
        let Some((cookie, (seals, directory))) = cookie.zip(known) else {
            return;
        };
        let now = core.unix_seconds();
        let session = Session::from_cookie(cookie, seals, self.request.host, project);
        let Some(session) = session.ok().filter(|it| it.check(directory, now).is_ok()) else {
            return;
        };
        let ended = session.ended_id();
        directory.end(&ended, now.saturating_add(EDGE_SESSION_SECONDS));
        let scope = ChangeScope::Token(ended.into());
        core.tokens.directory_changed(Invalidations::one(scope));
        if let Some(reports) = &core.reports {
            reports
                .records
                .push(Reported::SessionEnded(SessionEndedRecord {
                    project_id: project.id.to_string(),
                    id: session.id,
                }));
        }
    }

    fn callback(
        &self,
        browsers: &Browsers,
        core: &Core,
        record: &mut AccessRecord,
    ) -> Result<EdgeResponse, Box<Problem>> {
        let failed = || {
            let detail = "Signing in did not work. Start again.";
            Box::new(Problem::new(403, "sign_in_failed", detail))
        };
        if !self.request.tunnel.policy.required_proofs().session {
            return Err(Box::new(Problem::not_found()));
        }
        let Some([code, state]) = self.parameters(["code", "state"]) else {
            record.set_rule(RULE, Some("no code, or no state".into()));
            return Err(failed());
        };
        let sign_in_request = sign_in_request(self.request, &self.authority);
        let known = (self.auth.tokens, self.auth.tenancy);
        let sign_ins = &browsers.sign_ins;
        let now = core.unix_seconds();
        match sign_ins.complete(
            sign_in_request,
            (&code, &state),
            &browsers.seals,
            known,
            now,
        ) {
            Ok(SignInCallback::SignedIn {
                location,
                set_cookies,
            }) => {
                // Without a new session the browser has one, which was recorded before.
                if !set_cookies.is_empty() {
                    let tunnel = self.request.tunnel;
                    let publisher = &tunnel.identity.subject;
                    let signed_in = &tunnel.project.signed_in;
                    signed_in.record(self.request.host, publisher, now);
                }
                let answer = EdgeResponse::redirect(302, location);
                Ok(with_cookies(answer, set_cookies))
            }
            Ok(SignInCallback::Restarted { location }) => {
                record.set_rule(RULE, Some("begun again, for another tab's secret".into()));
                Ok(EdgeResponse::redirect(302, location))
            }
            Err(refused) => {
                record.set_rule(RULE, Some(refused.to_string().into()));
                Err(if refused.is_not_allowed() {
                    let detail = "You are signed in, but may not use this project.";
                    Box::new(Problem::new(403, "not_a_member", detail))
                } else {
                    failed()
                })
            }
        }
    }

    /// Redirects to a long target, which the browser kept.
    fn long_target<H: HeaderFields>(
        &self,
        browsers: &Browsers,
        headers: &H,
    ) -> Result<EdgeResponse, Box<Problem>> {
        let required = self.request.tunnel.policy.required_proofs();
        if !required.session && !required.challenge {
            return Err(Box::new(Problem::not_found()));
        }
        let id = self.request.path.rsplit('/').next().unwrap_or_default();
        let fields = values(headers, FieldKind::Cookie);
        let redirect = self.parameters(["to"]).and_then(|[to]| {
            LongTargetRedirect::read(&browsers.seals, self.request.host, (id, &to), fields)
        });
        let redirect = redirect.ok_or_else(|| {
            let detail = "This address was not made here. Open the page that you want again.";
            Box::new(Problem::invalid_request(detail))
        })?;
        // The authority is fixed before the target is appended.
        let location = format!("https://{}{}", self.authority, redirect.target);
        let answer = EdgeResponse::redirect(302, location);
        Ok(with_cookies(answer, redirect.clear_cookies))
    }

    fn challenge(&self, browsers: &Browsers) -> Result<EdgeResponse, Box<Problem>> {
        let seals = &browsers.seals;
        let host = self.request.host;
        if !self.request.tunnel.policy.required_proofs().challenge {
            return Err(Box::new(Problem::not_found()));
        }
        let to = self.parameters(["to"]);
        // Only targets that this engine sealed are followed.
        let target = to
            .and_then(|[to]| Challenges::target(host, &to, seals))
            .unwrap_or_else(|| "/".to_owned());
        let target = format!("https://{}{target}", self.authority);
        let peer = self.request.visitor.peer;
        let now = self.auth.now;
        let passed = self.request.cookies.challenge.value();
        if passed.is_some_and(|cookie| Challenges::is_passed(cookie, (host, peer), seals, now)) {
            return Ok(EdgeResponse::redirect(302, target));
        }
        let puzzle = browsers.challenges.puzzle(host, peer, seals, now);
        let route = format!("{}challenge", self.route.prefix);
        let page = Page::challenge(&puzzle, (&route, &target), self.footer);
        Ok(EdgeResponse::page(page))
    }

    /// The solution is in the query, so that there is no body to read.
    fn solve<H: HeaderFields>(
        &self,
        browsers: &Browsers,
        headers: &H,
        record: &mut AccessRecord,
    ) -> Result<EdgeResponse, Box<Problem>> {
        self.require_same_origin(headers)?;
        let given = self.parameters(["puzzle", "number"]);
        let [puzzle, number] = given
            .ok_or_else(|| Box::new(Problem::invalid_request("puzzle and number are required")))?;
        let solution = Solution {
            puzzle: &puzzle,
            number: &number,
        };
        let from = (self.request.host, self.request.visitor.peer);
        let project = &self.request.tunnel.project.id;
        let now = self.auth.now;
        let solved = browsers
            .challenges
            .solve(solution, from, project, &browsers.seals, now);
        match solved {
            Ok(cookie) => Ok(EdgeResponse::no_content().with_header(SET_COOKIE, cookie)),
            Err(unsolved) => {
                record.set_rule(RULE, Some(unsolved.to_string().into()));
                let detail = "The challenge was not passed.";
                Err(Box::new(Problem::new(403, "challenge_failed", detail)))
            }
        }
    }

    /// The values of these query parameters. `None` unless each occurs exactly once.
    fn parameters<const N: usize>(&self, names: [&str; N]) -> Option<[String; N]> {
        let mut form = Form::parse(self.request.query.unwrap_or_default()).ok()?;
        let values = names.map(|name| form.take(name).unwrap_or_default());
        values
            .iter()
            .all(|value| !value.is_empty())
            .then_some(values)
    }

    /// Refuses cross-site requests of browsers. Other clients send none of the checked fields.
    fn require_same_origin<H: HeaderFields>(&self, headers: &H) -> Result<(), Box<Problem>> {
        let own_origin = format!("https://{}", self.authority);
        let is_same_origin = headers.fields().all(|field| {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name.as_bytes());
            if is("origin") {
                field.value.eq_ignore_ascii_case(own_origin.as_bytes())
            } else if is("referer") {
                let (host, rest) = field
                    .value
                    .split_at_checked(own_origin.len())
                    .unwrap_or_default();
                host.eq_ignore_ascii_case(own_origin.as_bytes())
                    && matches!(rest.first(), None | Some(b'/' | b'?'))
            } else {
                !is("sec-fetch-site") || matches!(field.value.as_bytes(), b"same-origin" | b"none")
            }
        });
        if is_same_origin {
            return Ok(());
        }
        let detail = "Only pages of this address may send this request.";
        Err(Box::new(Problem::new(403, "cross_origin", detail)))
    }
}

/// The response of `session`. Without a proof it contains only the tunnel's requirements.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionView<'a> {
    auth: AuthView,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<UserView<'a>>,
    tunnel: TunnelView<'a>,
    policies: Vec<&'static str>,
}

#[derive(Serialize)]
struct AuthView {
    authenticated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UserView<'a> {
    user_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TunnelView<'a> {
    host: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    project_id: Option<&'a str>,
}

/// The proofs that the tunnel requires, as the API names them.
fn policies(required: RequiredProofs, prefix: &str) -> Vec<&'static str> {
    let session = if prefix == PREFIX {
        "svc-auth"
    } else {
        "rstream-auth"
    };
    let all = [
        (required.token, "token-auth"),
        (required.session, session),
        (required.certificate, "mtls-auth"),
        (required.challenge, "challenge-mode"),
        (required.password, "basic-auth"),
    ];
    let enabled = all.into_iter().filter(|(is_required, _)| *is_required);
    enabled.map(|(_, name)| name).collect()
}
