//! `/device` (OA-4): a user types the code of a device, checks which client requests access, and
//! decides.
//!
//! There are two screens. The second is never skipped, even if the address contains the code: an
//! attacker who distributes such an address hopes that users approve without reading (RFC 8628
//! section 5.4).

use std::net::IpAddr;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use daemon::connections::source_network;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use serde_json::json;
use store::device_grants::{self, DeviceGrant};
use types::permission::Permissions;

use super::authorize::Workspaces;
use super::clients::Client;
use super::consent::{Group, groups};
use super::source::SourceField;
use super::user_code::UserCode;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::credentials::delegation;
use crate::credentials::delegation::Grant;
use crate::http_api::extract::{ClientIp, Query};
use crate::http_api::problem::HandlerResult;
use crate::pages::form::Form;
use crate::pages::layout::{MessagePage, PageRefusal, page, page_with};
use crate::pages::signed_in;
use crate::people::session::{SignedIn, Visitor};
use crate::people::throttle::TooManyAttemptsError;

#[derive(Template)]
#[template(path = "device.html")]
struct CodePage<'a> {
    user_code: &'a str,
    error: Option<&'a str>,
}

/// The form for the code.
pub(super) async fn show(visitor: Visitor, mut query: Query) -> Result<Response, PageRefusal> {
    let code = query.text("user_code").unwrap_or_default();
    let code = UserCode::parse(&code).map(UserCode::reveal);
    let path = match &code {
        Some(code) => format!("/device?user_code={code}"),
        None => "/device".to_owned(),
    };
    signed_in(visitor, &path)?;
    Ok(page(&CodePage {
        user_code: &code.unwrap_or_default(),
        error: None,
    }))
}

/// Handles the submitted code and shows the approval screen.
pub(super) async fn submit(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/device")?;
    let typed = form.text("user_code");
    match find(&app, &who, ip, &typed).await? {
        DeviceGrantLookup::Grant {
            code,
            grant,
            client,
        } => {
            let page = approval_page(&app, &who, ip, code, &grant, client).await?;
            Ok(page)
        }
        DeviceGrantLookup::NotFound => Ok(page_with(
            StatusCode::UNPROCESSABLE_ENTITY,
            &CodePage {
                user_code: &typed,
                error: Some(
                    "No device is waiting with this code. Check the code on its screen: codes \
                     expire after ten minutes.",
                ),
            },
        )),
        DeviceGrantLookup::TooSoon(TooManyAttemptsError(seconds)) => {
            let page = CodePage {
                user_code: "",
                error: Some("Too many attempts. Wait a little and try again."),
            };
            let mut response = page_with(StatusCode::TOO_MANY_REQUESTS, &page);
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
            Ok(response)
        }
    }
}

/// Handles the user's decision.
pub(super) async fn decide(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let who = signed_in(visitor, "/device")?;
    let typed = form.text("user_code");
    let DeviceGrantLookup::Grant {
        code,
        grant,
        client,
    } = find(&app, &who, ip, &typed).await?
    else {
        return Ok(invalid_code_page());
    };
    // Another user has signed in since the screen was made. The screen lists what the first user
    // could grant.
    if form.text("session") != who.session.id.as_str() {
        return Ok(approval_page(&app, &who, ip, code, &grant, client).await?);
    }
    let approval = Grant::of_oauth_client(&who.principal(), requested_permissions(&grant));
    let is_approved =
        form.text("decision") == "approve" && !approval.effective_permissions().is_empty();
    let approval = is_approved.then_some(approval);
    if !store_decision(&app, &who, ip, code, client, approval).await? {
        return Ok(invalid_code_page());
    }
    let (title, text) = if is_approved {
        (
            "Approved",
            "Go back to your device: it continues automatically in a few seconds.",
        )
    } else {
        ("Denied", "Access denied. You can close this page.")
    };
    Ok(page(&MessagePage {
        title,
        text,
        link: None,
    }))
}

enum DeviceGrantLookup<'a> {
    Grant {
        code: UserCode,
        grant: Box<DeviceGrant>,
        client: &'a Client,
    },
    NotFound,
    TooSoon(TooManyAttemptsError),
}

/// Looks a code up. A code that does not exist counts as a guess of the user, over all sessions,
/// and of the network (RFC 8628 section 5.1). A guess counts before the lookup, so that parallel
/// guesses all count. If the code exists, this one attempt is not counted.
async fn find<'a>(
    app: &'a App,
    who: &SignedIn,
    ip: IpAddr,
    typed: &str,
) -> HandlerResult<DeviceGrantLookup<'a>> {
    let (now, network) = (app.now(), source_network(ip));
    if let Err(wait) = app.oauth.codes_by_network.record_attempt(&network, now) {
        return Ok(DeviceGrantLookup::TooSoon(wait));
    }
    if let Err(wait) = app.oauth.codes_by_user.record_attempt(&who.user.id, now) {
        app.oauth.codes_by_network.undo_attempt(&network);
        return Ok(DeviceGrantLookup::TooSoon(wait));
    }
    let Some(code) = UserCode::parse(typed) else {
        return Ok(DeviceGrantLookup::NotFound);
    };
    let hash = code.hash(app)?;
    let grant = device_grants::pending(&mut *app.store.read().await?, hash, now).await?;
    let Some(grant) = grant else {
        return Ok(DeviceGrantLookup::NotFound);
    };
    app.oauth.codes_by_user.undo_attempt(&who.user.id);
    app.oauth.codes_by_network.undo_attempt(&network);
    let client = app.config.oauth.client(&grant.client_id);
    Ok(client.map_or(DeviceGrantLookup::NotFound, |client| {
        DeviceGrantLookup::Grant {
            code,
            grant: Box::new(grant),
            client,
        }
    }))
}

/// Stores the decision, once. False if another decision was first, or the code has expired.
async fn store_decision(
    app: &App,
    who: &SignedIn,
    ip: IpAddr,
    code: UserCode,
    client: &Client,
    approval: Option<Grant>,
) -> HandlerResult<bool> {
    if let Some(approval) = &approval {
        delegation::refuse_suspended(app, [approval.resources(), None]).await?;
    }
    let now = app.now();
    let hash = code.hash(app)?;
    let by = (who.user.id, who.session.id);
    let mut tx = app.store.begin().await?;
    let (is_noted, action, details) = if let Some(approval) = &approval {
        let stored = device_grants::Approval {
            permissions: &approval.permission_names().unwrap_or_default(),
            resources: approval.resources(),
        };
        let is_noted = device_grants::approve(&mut tx, hash, by, stored, now).await?;
        let scope = approval.effective_permissions().to_string();
        let details = json!({"client": client.id(), "scope": scope});
        (is_noted, Action::OauthApproved, details)
    } else {
        let is_noted = device_grants::deny(&mut tx, hash, by, now).await?;
        let details = json!({"client": client.id()});
        (is_noted, Action::OauthDenied, details)
    };
    if is_noted {
        let actor = Actor::user(who.user.id).with_ip(ip);
        let target = AuditTarget::User(who.user.id);
        audit::record_with(&mut tx, &actor, None, action, target, details, now).await?;
        tx.commit().await?;
    }
    Ok(is_noted)
}

/// True if a request came from another network than the person who approves it. Addresses of
/// different families cannot be compared, and a loopback address is not a place.
fn is_elsewhere(from: IpAddr, here: IpAddr) -> bool {
    let (from, here) = (from.to_canonical(), here.to_canonical());
    let is_comparable =
        from.is_ipv4() == here.is_ipv4() && !from.is_loopback() && !here.is_loopback();
    is_comparable && source_network(from) != source_network(here)
}

#[derive(Template)]
#[template(path = "device_approval.html")]
struct ApprovalPage<'a> {
    client: &'a str,
    user_code: String,
    sayings: Vec<SourceField>,
    ip: &'a str,
    country: Option<String>,
    is_elsewhere: bool,
    age: String,
    email: &'a str,
    workspaces: Workspaces,
    groups: Vec<Group>,
    omits_permissions: bool,
    session: &'a str,
}

async fn approval_page(
    app: &App,
    who: &SignedIn,
    ip: IpAddr,
    code: UserCode,
    grant: &DeviceGrant,
    client: &Client,
) -> HandlerResult<Response> {
    let requested = requested_permissions(grant);
    let approval = Grant::of_oauth_client(&who.principal(), requested);
    let from: Option<IpAddr> = grant.ip.parse().ok();
    let sayings = grant.source.clone().map(serde_json::from_value);
    Ok(page(&ApprovalPage {
        client: client.name(),
        user_code: code.reveal(),
        sayings: sayings.and_then(Result::ok).unwrap_or_default(),
        ip: &grant.ip,
        country: from.and_then(|from| app.plan_service.country(from)),
        is_elsewhere: from.is_none_or(|from| is_elsewhere(from, ip)),
        age: age(grant.created_at, app.now()),
        email: &who.user.email,
        workspaces: Workspaces::of(app, who).await?,
        groups: groups(approval.effective_permissions()),
        omits_permissions: approval.effective_permissions() != requested,
        session: who.session.id.as_str(),
    }))
}

fn requested_permissions(grant: &DeviceGrant) -> Permissions {
    let names = grant.permissions.iter();
    names.flat_map(|name| name.parse()).collect()
}

/// The age of a request, as text.
fn age(then: Timestamp, now: Timestamp) -> String {
    match now.duration_since(then).as_secs() {
        ..60 => "less than a minute ago".to_owned(),
        60..120 => "a minute ago".to_owned(),
        seconds => format!("{} minutes ago", seconds / 60),
    }
}

fn invalid_code_page() -> Response {
    page_with(
        StatusCode::NOT_FOUND,
        &MessagePage {
            title: "This request has already ended",
            text: "It was already decided, or has expired. Start again on the device.",
            link: Some(("/device", "Enter another code")),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_comparable_addresses_are_elsewhere() {
        for (from, here, expected) in [
            ("198.51.100.7", "203.0.113.5", true),
            ("198.51.100.7", "198.51.100.7", false),
            ("2001:db8:1::1", "2001:db8:2::1", true),
            // The command line used IPv4, and the browser IPv6.
            ("198.51.100.7", "2001:db8:2::1", false),
            ("2001:db8:1::1", "203.0.113.5", false),
            ("127.0.0.1", "203.0.113.5", false),
            ("203.0.113.5", "127.0.0.1", false),
            ("::1", "2001:db8:2::1", false),
            ("::ffff:198.51.100.7", "198.51.100.7", false),
        ] {
            let is = is_elsewhere(from.parse().unwrap(), here.parse().unwrap());
            assert_eq!(is, expected, "{from} {here}");
        }
    }
}
