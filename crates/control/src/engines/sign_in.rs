//! `GET /edge/sign-in`: sign-in for visitors of tunnels. A browser that an engine does not
//! recognise authenticates here.
//!
//! The engine redirects it here with the name of the tunnel. The browser returns with a code that
//! is valid for a minute, at that name, in that browser. The name comes from the address, which
//! anyone can write. So the browser is only redirected to a tunnel of a project that the user may
//! use, on the cluster and at the port of that project.

use std::sync::Arc;

use api::link::{SIGN_IN, SIGN_IN_TYPE, SignIn, SignInClaims};
use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use credentials::sign_statement;
use http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use types::form::{self, Form};
use types::permission::Permission;
use types::problem::Problem;

use crate::app::App;
use crate::caller::access;
use crate::credentials::tokens;
use crate::http_api::problem::HandlerResult;
use crate::pages::layout::{MessagePage, NextPath, PageRefusal, page_with, script_page, see_other};
use crate::pages::signed_in;
use crate::people::session::{SignedIn, Visitor};
use crate::people::throttle::TooSoon;
use crate::projects::region_of;

/// Redirects the browser back with a code, once the user has signed in.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    RawQuery(query): RawQuery,
) -> Result<Response, PageRefusal> {
    let query = query.unwrap_or_default();
    let Some((sign_in, host)) = parse_query(&query) else {
        return Ok(invalid_link());
    };
    // Checked before the sign-in: a host that is not in a cluster belongs to no project.
    let mut regions = app.plan_service.catalogue().regions().iter();
    if !regions.any(|region| region.domain == host.domain && region.engine_port == host.port) {
        return Ok(tunnel_not_found());
    }
    let who = signed_in(visitor, &path(&sign_in))?;
    match may_use(&app, &who, &host).await {
        Ok(()) => match app.engines.codes.record_attempt(&who.user.id, app.now()) {
            Ok(()) => Ok(redirect_back(
                &app,
                &who,
                &sign_in,
                comes_from_form(&query),
            )?),
            Err(TooSoon(seconds)) => Ok(too_many(seconds)),
        },
        Err(refusal) => match refusal.problem().status {
            404 => Ok(tunnel_not_found()),
            403 | 409 => Ok(access_denied(&who, &refusal.problem().detail)),
            _ => Err(refusal.into()),
        },
    }
}

/// Checks that the user may open streams to the tunnels of the project.
async fn may_use(app: &App, who: &SignedIn, host: &TunnelHost) -> HandlerResult<()> {
    const PERMISSION: Permission = Permission::TunnelsStreamsCreateDelete;
    let principal = who.principal();
    let mut conn = app.store.read().await?;
    let endpoint = &host.endpoint;
    let found = access::project_of_endpoint(&mut conn, &principal, endpoint, PERMISSION).await?;
    drop(conn);
    let project = found.project;
    let is_there = region_of(app, &project)
        .is_some_and(|region| region.domain == host.domain && region.engine_port == host.port);
    if !is_there {
        return Err(Problem::not_found().into());
    }
    access::require_usable(&project)?;
    if !principal.allows(PERMISSION) {
        return Err(Problem::insufficient_scope(PERMISSION).into());
    }
    Ok(())
}

/// Redirects to the tunnel with the code. The address is not cached, and not sent as a referrer.
/// This is a 303, except after a form: browsers apply the `form-action` of a form's page to
/// redirects, and no page allows a tunnel's host. Then a page redirects.
fn redirect_back(
    app: &App,
    who: &SignedIn,
    sign_in: &SignIn,
    by_page: bool,
) -> HandlerResult<Response> {
    let now = app.now();
    let host = &sign_in.host;
    let claims = SignInClaims {
        iss: app.config.base_url.clone(),
        aud: format!("https://{host}"),
        sub: who.user.id.to_string(),
        nonce: sign_in.nonce.clone(),
        jti: tokens::token_id(now)?,
        iat: now.as_second(),
        exp: now.as_second().saturating_add(CODE_SECONDS),
        sid: Some(who.session.id.to_string()),
        name: Some(who.user.name.clone()),
        email: Some(who.user.email.clone()),
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
fn parse_query(query: &str) -> Option<(SignIn, TunnelHost)> {
    let mut form = Form::parse(query).ok()?;
    let sign_in = SignIn {
        host: form.take("host")?,
        nonce: form.take("nonce")?,
        state: form.take("state")?,
    };
    let is_digest = |text: &str| {
        let is_one_of_them = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        text.len() == DIGEST_CHARACTERS && text.bytes().all(is_one_of_them)
    };
    let is_plain = sign_in.state.bytes().all(|byte| byte.is_ascii_graphic());
    let is_short =
        sign_in.state.len() <= MAX_STATE_BYTES && path(&sign_in).len() <= NextPath::MAX_BYTES;
    let fits = is_digest(&sign_in.nonce) && is_plain && is_short;
    let host = TunnelHost::parse(&sign_in.host)?;
    fits.then_some((sign_in, host))
}

/// Name and port of a published tunnel: `<slug>-<endpoint>.t.<domain>[:<port>]`, in canonical form.
#[derive(Debug, PartialEq, Eq)]
struct TunnelHost {
    endpoint: String,
    domain: String,
    port: u16,
}

impl TunnelHost {
    /// Parses a host strictly. The result is compared byte by byte and used in an address
    /// unchanged. So it has only letters, digits, dashes and dots, without a user, escapes or
    /// alternative spellings.
    fn parse(authority: &str) -> Option<Self> {
        let (name, port) = match authority.split_once(':') {
            None => (authority, HTTPS),
            Some((name, digits)) => {
                let port: u16 = digits.parse().ok()?;
                let is_canonical = port.to_string() == digits && port != HTTPS && port != 0;
                (name, is_canonical.then_some(port)?)
            }
        };
        let (label, domain) = name.split_once(".t.")?;
        let is_label = |label: &str| {
            let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            (1..=63).contains(&label.len())
                && label.bytes().all(inner)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let fits =
            name.len() <= MAX_NAME_BYTES && is_label(label) && domain.split('.').all(is_label);
        let (slug, endpoint) = label.rsplit_once('-').filter(|_| fits)?;
        let is_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        let is_endpoint = endpoint.len() == 8 && endpoint.bytes().all(is_hex);
        (is_endpoint && is_label(slug)).then(|| Self {
            endpoint: endpoint.to_owned(),
            domain: domain.to_owned(),
            port,
        })
    }
}

/// The path and query of this request, to which the browser returns after the sign-in.
fn path(sign_in: &SignIn) -> String {
    let query = form::encode([
        ("host", sign_in.host.as_str()),
        ("nonce", sign_in.nonce.as_str()),
        ("state", sign_in.state.as_str()),
        (AFTER, AFTER_SIGN_IN),
    ]);
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

fn access_denied(who: &SignedIn, detail: &str) -> Response {
    let text = format!(
        "{detail} You are signed in as {}. A manager of the workspace can give you access.",
        who.user.email
    );
    message_page(StatusCode::FORBIDDEN, "You cannot open this", &text)
}

fn message_page(status: StatusCode, title: &str, text: &str) -> Response {
    let link = Some(("/account", "Go to your account"));
    without_referrer(page_with(status, &MessagePage { title, text, link }))
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
/// Longest DNS name (RFC 1035 section 2.3.4).
const MAX_NAME_BYTES: usize = 253;
/// The default port of `https`.
const HTTPS: u16 = 443;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_parsed_in_canonical_form_only() {
        let host = TunnelHost::parse("my-app-0a1b2c3d.t.engine.example").unwrap();
        let wanted = TunnelHost {
            endpoint: "0a1b2c3d".to_owned(),
            domain: "engine.example".to_owned(),
            port: 443,
        };
        assert_eq!(host, wanted);
        let with_port = TunnelHost::parse("a-0a1b2c3d.t.engine.example:8443").unwrap();
        assert_eq!(with_port.port, 8443);
        for bad in [
            "",
            "engine.example",
            "0a1b2c3d.t.engine.example",
            "-0a1b2c3d.t.engine.example",
            "a-0A1B2C3D.t.engine.example",
            "A-0a1b2c3d.t.engine.example",
            "a-0a1b2c3d.T.engine.example",
            "a-0a1b2c3d.t.engine.example.",
            "a-0a1b2c3d.t.engine.example:443",
            "a-0a1b2c3d.t.engine.example:0443",
            "a-0a1b2c3d.t.engine.example:0",
            "a-0a1b2c3d.t.engine.example:+8443",
            "a-0a1b2c3d.t.engine.example:",
            "a-0a1b2c3d.t.engine.example:1:2",
            "a-0a1b2c3d.t.engine.example:65536",
            "a-0a1b2c3d.t.engine.example@evil.example",
            "evil.example@a-0a1b2c3d.t.engine.example",
            "a-0a1b2c3d.t.engine.example\\@evil.example",
            "a-0a1b2c3d.t.engine.example/x",
            "a-0a1b2c3d.t.engine.example?x",
            "a-0a1b2c3d.t.engine.example#x",
            "a-0a1b2c3d.t.engine%2eexample",
            "a-0a1b2c3d.t.engine\u{3002}example",
            "\u{430}-0a1b2c3d.t.engine.example",
            "a-0a1b2c3d.t.engine.example\r\nx",
            "a-0a1b2c3d.t.engine..example",
            "a-0a1b2c3d..t.engine.example",
            "x.a-0a1b2c3d.t.engine.example",
            "a-0a1b2c3.t.engine.example",
            "[::1]",
        ] {
            assert_eq!(TunnelHost::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_longest_request_fits_into_a_next_path() {
        let label = "a".repeat(54);
        let host = format!("{label}-0a1b2c3d.t.{}", ["b"; 90].join("."));
        let query = |state: &str| format!("host={host}&nonce={}&state={state}", "n".repeat(43));
        let (asked, _) = parse_query(&query(&"s".repeat(MAX_STATE_BYTES))).unwrap();
        assert_eq!(NextPath::parse(&path(&asked)).as_str(), path(&asked));
        assert!(parse_query(&query(&"s".repeat(MAX_STATE_BYTES + 1))).is_none());
        // Characters that need an escape of three characters each.
        let (asked, _) = parse_query(&query(&"%25".repeat(MAX_STATE_BYTES))).unwrap();
        assert_eq!(NextPath::parse(&path(&asked)).as_str(), path(&asked));
    }
}
