//! `/edge/sign-in`: sign-in for visitors of tunnels. A browser that an engine does not
//! recognise authenticates here.
//!
//! The engine redirects it here with the name of the tunnel. The browser returns with a code that
//! is valid for a minute, at that name, in that browser. The name comes from the address, which
//! anyone can write. So the browser is only redirected to a tunnel of a project that the user may
//! use, on the cluster and at the port of that project, or to a custom domain of that project.

use std::sync::Arc;

use api::link::{EDGE_SESSION_SECONDS, SIGN_IN, SIGN_IN_TYPE, SignIn, SignInClaims};
use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use credentials::sign_statement;
use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use store::projects::VisibleProject;
use store::{Order, Paging, members, projects};
use types::form::{self, Form};
use types::permission::Permission;
use types::problem::Problem;
use types::tunnel::IdentityClaim;

use crate::app::App;
use crate::caller::access;
use crate::credentials::tokens;
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::pages::form::Form as SubmittedForm;
use crate::pages::layout::{MessagePage, PageRefusal, page_with, script_page, see_other};
use crate::pages::next_path::NextPath;
use crate::pages::signed_in;
use crate::people::session::{SignedIn, Visitor};
use crate::people::throttle::TooManyAttemptsError;
use crate::projects::{TunnelHost, region_of};
use crate::workspaces::role::Role;

/// Redirects the browser back with a code, once the user has signed in. If the service of the
/// tunnel receives facts about the user, a page states them first.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    RawQuery(query): RawQuery,
) -> Result<Response, PageRefusal> {
    let query = query.unwrap_or_default();
    let request = match Request::check(&app, &query).await? {
        Ok(request) => request,
        Err(page) => return Ok(*page),
    };
    let who = signed_in(visitor, &path(&request.sign_in))?;
    let found = match may_use(&app, &who, &request.host).await {
        Ok(found) => found,
        Err(refusal) => return refuse(&app, &who, &request, refusal).await,
    };
    if request.shared.is_empty() {
        return finish(&app, &who, &request, comes_from_form(&query));
    }
    Ok(share_page(&who, &request, found.role.into()))
}

/// Redirects the browser back after the user has agreed to share the facts on the page.
pub(super) async fn agree(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    RawQuery(query): RawQuery,
    _form: SubmittedForm,
) -> Result<Response, PageRefusal> {
    let request = match Request::check(&app, &query.unwrap_or_default()).await? {
        Ok(request) => request,
        Err(page) => return Ok(*page),
    };
    let who = signed_in(visitor, &path(&request.sign_in))?;
    match may_use(&app, &who, &request.host).await {
        Ok(_) => finish(&app, &who, &request, true),
        Err(refusal) => refuse(&app, &who, &request, refusal).await,
    }
}

/// A request with the form that engines send, for a host of a cluster.
struct Request {
    sign_in: SignIn,
    host: TunnelHost,
    /// Facts that the service receives.
    shared: Vec<IdentityClaim>,
}

impl Request {
    /// Checks the query, or returns the page for an invalid one.
    async fn check(app: &App, query: &str) -> HandlerResult<Result<Self, Box<Response>>> {
        let sign_in = parse_query(query);
        let parsed = sign_in.and_then(|sign_in| sign_in.shared_claims().map(|it| (sign_in, it)));
        let Some((sign_in, shared)) = parsed else {
            return Ok(Err(Box::new(invalid_link())));
        };
        let host = match TunnelHost::parse(&sign_in.host) {
            Some(host) => Some(host),
            None => TunnelHost::at_custom_domain(app, &sign_in.host).await?,
        };
        let Some(host) = host else {
            return Ok(Err(Box::new(invalid_link())));
        };
        // Checked before the sign-in: a host that is not in a cluster belongs to no project.
        if !host.is_in_cluster(app) {
            return Ok(Err(Box::new(tunnel_not_found())));
        }
        Ok(Ok(Self {
            sign_in,
            host,
            shared,
        }))
    }
}

/// Redirects to the tunnel, unless the user signs in too often.
fn finish(
    app: &App,
    who: &SignedIn,
    request: &Request,
    by_page: bool,
) -> Result<Response, PageRefusal> {
    match app.engines.codes.record_attempt(&who.user.id, app.now()) {
        Ok(()) => Ok(redirect_back(app, who, request, by_page)?),
        Err(TooManyAttemptsError(seconds)) => Ok(too_many(seconds)),
    }
}

/// The page for a user who may not use the tunnel.
async fn refuse(
    app: &App,
    who: &SignedIn,
    request: &Request,
    refusal: Refusal,
) -> Result<Response, PageRefusal> {
    let Request { sign_in, host, .. } = request;
    match refusal.problem().status {
        404 => {
            let text = "You have no tunnel with this name. It may have been moved or deleted. \
                Ask the person who gave you the address to invite this account.";
            let (status, title) = (StatusCode::NOT_FOUND, "Tunnel not found");
            Ok(no_access((who, sign_in), status, (title, text)))
        }
        403 | 409 => {
            let whom = managers(app, who, host).await?;
            let text = format!("{} {whom} can give you access.", refusal.problem().detail);
            let (status, title) = (StatusCode::FORBIDDEN, "You cannot open this");
            Ok(no_access((who, sign_in), status, (title, &text)))
        }
        _ => Err(refusal.into()),
    }
}

/// The page with the facts that the service of the tunnel receives.
#[derive(Template)]
#[template(path = "share.html")]
struct SharePage<'a> {
    host: &'a str,
    /// The path and query of this page, to which its form is sent.
    path: &'a str,
    account: &'a str,
    email: Option<&'a str>,
    is_verified: bool,
    name: Option<&'a str>,
    role: Option<&'a str>,
    hours: i64,
}

fn share_page(who: &SignedIn, request: &Request, role: Role) -> Response {
    let shares = |claim| request.shared.contains(&claim);
    let name = Some(who.user.name.as_str());
    let page = SharePage {
        host: &request.sign_in.host,
        path: &path(&request.sign_in),
        account: &who.user.email,
        email: Some(who.user.email.as_str()).filter(|_| shares(IdentityClaim::Email)),
        is_verified: who.user.email_verified,
        name: name.filter(|_| shares(IdentityClaim::Name)),
        role: Some(role.as_str()).filter(|_| shares(IdentityClaim::Groups)),
        hours: EDGE_SESSION_SECONDS / 3600,
    };
    with_own_referrer(script_page(StatusCode::OK, &page))
}

/// Checks that the user may open streams to the tunnels of the project.
async fn may_use(app: &App, who: &SignedIn, host: &TunnelHost) -> HandlerResult<VisibleProject> {
    const PERMISSION: Permission = Permission::TunnelsStreamsCreateDelete;
    let principal = who.principal();
    let mut conn = app.store.read().await?;
    let endpoint = &host.endpoint;
    let found = access::project_of_endpoint(&mut conn, &principal, endpoint, PERMISSION).await?;
    drop(conn);
    let project = &found.project;
    let is_there = region_of(app, project)
        .is_some_and(|region| region.domain == host.domain && region.engine_port == host.port);
    if !is_there {
        return Err(Problem::not_found().into());
    }
    access::require_usable(project)?;
    if !principal.allows(PERMISSION) {
        return Err(Problem::insufficient_scope(PERMISSION).into());
    }
    Ok(found)
}

/// Redirects to the tunnel with the code. The address is not cached, and not sent as a referrer.
/// This is a 303, except after a form: browsers apply the `form-action` of a form's page to
/// redirects, and no page allows a tunnel's host. Then a page redirects.
fn redirect_back(
    app: &App,
    who: &SignedIn,
    request: &Request,
    by_page: bool,
) -> HandlerResult<Response> {
    let now = app.now();
    let sign_in = &request.sign_in;
    let host = &sign_in.host;
    let shares = |claim| request.shared.contains(&claim);
    let claims = SignInClaims {
        iss: app.config.base_url.clone(),
        aud: format!("https://{host}"),
        sub: who.user.id.to_string(),
        nonce: sign_in.nonce.clone(),
        jti: tokens::token_id(now)?,
        iat: now.as_second(),
        exp: now.as_second().saturating_add(CODE_SECONDS),
        sid: Some(who.session.id.to_string()),
        // The engine and the service receive only the facts that the tunnel requests. Services use
        // the address to identify users, so it must be verified.
        name: shares(IdentityClaim::Name).then(|| who.user.name.clone()),
        email: (shares(IdentityClaim::Email) && who.user.email_verified)
            .then(|| who.user.email.clone()),
        identity: Some(request.shared.clone()),
    };
    let claims = serde_json::to_value(claims).map_err(|_| Problem::internal())?;
    let code = sign_statement(&app.keys.signing(), SIGN_IN_TYPE, &claims)?;
    let code = tokens::text(&code)?;
    let query = form::encode([("code", code.as_str()), ("state", sign_in.state.as_str())]);
    let address = format!("https://{host}/.well-known/svc/callback?{query}");
    if by_page {
        let address = &address;
        let redirect = RedirectPage { host, address };
        return Ok(without_referrer(script_page(StatusCode::OK, &redirect)));
    }
    let mut response = without_referrer(see_other(&address).into_response());
    let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    response
        .headers_mut()
        .insert(CONTENT_SECURITY_POLICY, policy);
    Ok(response)
}

/// A page that redirects the browser. Its script adds the fragment of the requested address.
#[derive(Template)]
#[template(path = "redirect.html")]
struct RedirectPage<'a> {
    host: &'a str,
    address: &'a str,
}

/// The query, if it has the form that engines send.
fn parse_query(query: &str) -> Option<SignIn> {
    let mut form = Form::parse(query).ok()?;
    let sign_in = SignIn {
        host: form.take("host")?,
        nonce: form.take("nonce")?,
        state: form.take("state")?,
        identity: form.take("identity").unwrap_or_default(),
    };
    let is_digest = |text: &str| {
        let is_one_of_them = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        text.len() == DIGEST_CHARACTERS && text.bytes().all(is_one_of_them)
    };
    let is_plain = sign_in.state.bytes().all(|byte| byte.is_ascii_graphic());
    let is_short =
        sign_in.state.len() <= MAX_STATE_BYTES && path(&sign_in).len() <= NextPath::MAX_BYTES;
    let fits = is_digest(&sign_in.nonce) && is_plain && is_short;
    fits.then_some(sign_in)
}

/// The path and query of this request, to which the browser returns after the sign-in.
fn path(sign_in: &SignIn) -> String {
    let mut fields = vec![
        ("host", sign_in.host.as_str()),
        ("nonce", sign_in.nonce.as_str()),
        ("state", sign_in.state.as_str()),
    ];
    if !sign_in.identity.is_empty() {
        fields.push(("identity", sign_in.identity.as_str()));
    }
    fields.push((AFTER, AFTER_SIGN_IN));
    let query = form::encode(fields);
    format!("{SIGN_IN}?{query}")
}

/// True if the browser comes from a sign-in form of the platform.
fn comes_from_form(query: &str) -> bool {
    let after = Form::parse(query)
        .ok()
        .and_then(|mut form| form.take(AFTER));
    after.as_deref() == Some(AFTER_SIGN_IN)
}

fn invalid_link() -> Response {
    let text = "This link is invalid. Go back to the previous page and try again. If it happens \
        again, contact the operator of this service.";
    message_page(StatusCode::BAD_REQUEST, "This link does not work", text)
}

fn tunnel_not_found() -> Response {
    let text = "You have no tunnel with this name. It may have been moved or deleted, or you are \
        signed in with another account.";
    message_page(StatusCode::NOT_FOUND, "Tunnel not found", text)
}

fn too_many(seconds: u32) -> Response {
    let text = "You signed in to many tunnels in a short time. Wait a little and try again.";
    let mut response = message_page(StatusCode::TOO_MANY_REQUESTS, "Too many sign-ins", text);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// The page for a user without access. It offers another account, and keeps the address.
#[derive(Template)]
#[template(path = "no_access.html")]
struct NoAccessPage<'a> {
    title: &'a str,
    text: &'a str,
    email: &'a str,
    host: &'a str,
    next: &'a str,
}

fn no_access(
    (who, sign_in): (&SignedIn, &SignIn),
    status: StatusCode,
    (title, text): (&str, &str),
) -> Response {
    let page = NoAccessPage {
        title,
        text,
        email: &who.user.email,
        host: &sign_in.host,
        next: &path(sign_in),
    };
    with_own_referrer(script_page(status, &page))
}

/// The members of the workspace who may change roles, as the subject of a sentence. The user is a
/// member as well, and may list the members.
async fn managers(app: &App, who: &SignedIn, host: &TunnelHost) -> HandlerResult<String> {
    let nobody_named = || "A manager of the workspace".to_owned();
    let mut conn = app.store.read().await?;
    let found = projects::of_user_by_endpoint(&mut conn, who.user.id, &host.endpoint).await?;
    let Some(found) = found else {
        return Ok(nobody_named());
    };
    let workspace = found.project.workspace_id;
    // The oldest members first, which include the founder.
    let (sort, order) = (members::Sort::Id, Order::Asc);
    let all = members::list(&mut conn, workspace, None, sort, order, Paging::DEFAULT).await?;
    let is_manager = |member: &members::Member| {
        matches!(member.role, members::Role::Owner | members::Role::Admin)
            && member.status == members::Status::Active
            && member.id != who.user.id
    };
    let managers = all.items.into_iter().filter(is_manager);
    let emails: Vec<_> = managers
        .take(MAX_NAMED)
        .map(|member| member.email)
        .collect();
    Ok(match emails.as_slice() {
        [] => nobody_named(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    })
}

/// Enough that one of them answers.
const MAX_NAMED: usize = 3;

fn message_page(status: StatusCode, title: &str, text: &str) -> Response {
    let link = Some(("/account", "Go to your account"));
    without_referrer(page_with(status, &MessagePage { title, text, link }))
}

/// A page with a form. Its address is not sent to other sites. Browsers send the forms of a page
/// with the policy `no-referrer` with the origin `null`, which the platform refuses.
fn with_own_referrer(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

/// Addresses before and after the redirect must not be sent to other sites.
fn without_referrer(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Parameter of the platform that states the previous page.
const AFTER: &str = "after";
const AFTER_SIGN_IN: &str = "sign-in";

/// Lifetime of a code. A browser uses it immediately.
const CODE_SECONDS: i64 = 60;
/// Base64url of 32 bytes.
const DIGEST_CHARACTERS: usize = 43;
/// Limit for the engine's own state: the sealed address that the visitor requested. It is returned
/// with a code of less than a kilobyte, in an address far below the eight kilobytes that servers
/// accept.
const MAX_STATE_BYTES: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_request_fits_into_a_next_path() {
        let label = "a".repeat(54);
        let host = format!("{label}-0a1b2c3d.t.{}", ["b"; 90].join("."));
        let query = |state: &str| {
            let nonce = "n".repeat(43);
            format!("host={host}&nonce={nonce}&state={state}&identity=email,name,groups")
        };
        let requested = parse_query(&query(&"s".repeat(MAX_STATE_BYTES))).unwrap();
        assert_eq!(
            NextPath::parse(&path(&requested)).as_str(),
            path(&requested)
        );
        assert!(parse_query(&query(&"s".repeat(MAX_STATE_BYTES + 1))).is_none());
        // Characters that need an escape of three characters each.
        let requested = parse_query(&query(&"%25".repeat(MAX_STATE_BYTES))).unwrap();
        assert_eq!(
            NextPath::parse(&path(&requested)).as_str(),
            path(&requested)
        );
    }
}
