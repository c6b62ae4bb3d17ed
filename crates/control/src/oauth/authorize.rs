//! `GET` and `POST /oauth/authorize` (OA-2): the consent page, and the redirect with a code.

use std::sync::Arc;

use api::control::oauth::AUTHORIZE;
use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use http::header::{REFERRER_POLICY, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use jiff::SignedDuration;
use serde_json::json;
use store::oauth_codes::{self, Code as StoredCode};
use store::oauth_requests::{self, ShownRequest};
use store::{SecretHash, Tx, workspaces};
use types::id::UserId;

use super::client_documents::DocumentError;
use super::consent::{Group, groups};
use super::document_url::DocumentUrl;
use super::error::Code;
use super::request::{AuthorizationError, AuthorizationRequest, RequestParameters, error_url};
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::credentials::delegation;
use crate::credentials::delegation::Grant;
use crate::http_api::extract::ClientIp;
use crate::http_api::problem::HandlerResult;
use crate::pages::form::Form;
use crate::pages::layout::{MessagePage, PageRefusal, page_leading_to, page_with, see_other};
use crate::pages::signed_in;
use crate::people::secret_link::LinkSecret;
use crate::people::session::{SignedIn, Visitor, later};
use crate::people::throttle::TooManyAttemptsError;

/// The consent page. It is never skipped, even for a client that was approved before: a public
/// client cannot prove that it is the same client (RFC 9700 section 4.14).
pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    RawQuery(query): RawQuery,
) -> Result<Response, PageRefusal> {
    let query = query.unwrap_or_default();
    let parameters = match RequestParameters::parse(&query) {
        Ok(parameters) => parameters,
        Err(refused) => return Ok(error_response(&app, refused)),
    };
    // The platform fetches a client's document for signed-in users only. The callback is unknown
    // without the document, so even a silent request without a session gets the sign-in page
    // instead of an error at the callback.
    let visitor = match parameters.document_url(&app.config.oauth) {
        Some(_) => Visitor::SignedIn(signed_in(visitor, &format!("{AUTHORIZE}?{query}"))?),
        None => visitor,
    };
    let user = match &visitor {
        Visitor::SignedIn(who) => Some(who.user.id),
        Visitor::SecondFactorPending(_) | Visitor::Anonymous => None,
    };
    let request = match resolve_request(&app, parameters, user).await {
        Ok(request) => request,
        Err(refused) => return Ok(error_response(&app, refused)),
    };
    if request.is_silent {
        let code = match visitor.signed_in() {
            Some(_) => Code::ConsentRequired,
            None => Code::LoginRequired,
        };
        let refused = request.refuse(code.with_description("user interaction is required"));
        return Ok(error_response(&app, refused));
    }
    let who = signed_in(visitor, &authorize_path(&request))?;
    Ok(consent_page(&app, &who, &request).await?)
}

/// Handles the user's decision about the request that the page showed. The server stores the
/// request, so that the browser cannot change it, and it can be decided only once.
pub(super) async fn submit(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let Some(shown) = find_shown_request(&app, &form.text("request")).await? else {
        return Ok(already_decided_page());
    };
    let who = signed_in(visitor, &format!("{AUTHORIZE}?{}", shown.query))?;
    let request = match RequestParameters::parse(&shown.query) {
        Ok(parameters) => resolve_request(&app, parameters, Some(who.user.id)).await,
        Err(refused) => Err(refused),
    };
    let request = match request {
        Ok(request) => request,
        Err(refused) => return Ok(error_response(&app, refused)),
    };
    // The page belongs to another session: a different user may have signed in meanwhile. Its
    // permissions may differ, so the page is shown again.
    if shown.session_id != who.session.id {
        return Ok(consent_page(&app, &who, &request).await?);
    }
    let actor = Actor::user(who.user.id).with_ip(ip);
    let approval = Grant::of_oauth_client(&who.principal(), request.scope);
    let is_approved =
        form.text("decision") == "approve" && !approval.effective_permissions().is_empty();
    let now = app.now();
    let mut tx = app.store.begin().await?;
    if !oauth_requests::decide(&mut tx, shown.hash, who.session.id, now).await? {
        return Ok(already_decided_page());
    }
    if is_approved {
        delegation::refuse_suspended(&app, [approval.resources(), None]).await?;
        let code = issue_code(&app, tx, &who, &request, approval, &actor).await?;
        let address = request.success_url(&code.reveal(), &app.config.base_url);
        return Ok(to_callback(&address));
    }
    let (target, details) = (
        AuditTarget::User(who.user.id),
        json!({"client": request.client.id()}),
    );
    let action = Action::OauthDenied;
    audit::record_with(&mut tx, &actor, None, action, target, details, now).await?;
    tx.commit().await?;
    let refused = request.refuse(Code::AccessDenied.with_description("the user denied access"));
    Ok(error_response(&app, refused))
}

/// Finds the client of the request and validates the request. The client is registered, or
/// described by a document that the platform fetches for this user.
async fn resolve_request(
    app: &App,
    parameters: RequestParameters,
    user: Option<UserId>,
) -> Result<AuthorizationRequest, AuthorizationError> {
    let clients = &app.config.oauth;
    let client = match (parameters.document_url(clients), user) {
        (Some(url), Some(user)) => {
            let found = app.oauth.documents.client(&url, user, app.now()).await;
            Some(found.map_err(|error| unusable_document(&url, &error))?)
        }
        _ => parameters.registered_client(clients),
    };
    AuthorizationRequest::of_client(parameters, client, &app.config)
}

fn unusable_document(url: &DocumentUrl, error: &DocumentError) -> AuthorizationError {
    let host = url.host();
    tracing::info!(host, %error, "the metadata document of an OAuth client was not used");
    match error {
        DocumentError::TooSoon(TooManyAttemptsError(seconds)) => {
            AuthorizationError::TooSoon(*seconds)
        }
        DocumentError::Busy => AuthorizationError::TooSoon(BUSY_SECONDS),
        other => AuthorizationError::Page(format!("its client is at {host}, and {other}")),
    }
}

/// Finds the request that a page showed, by the secret in the submitted form.
async fn find_shown_request(app: &App, secret: &str) -> HandlerResult<Option<ShownRequest>> {
    let Some(secret) = LinkSecret::parse(secret) else {
        return Ok(None);
    };
    let hash = SecretHash(secret.hash());
    let mut read = app.store.read().await?;
    Ok(oauth_requests::find(&mut read, hash, app.now()).await?)
}

/// The page for a form that was submitted already, or too late.
fn already_decided_page() -> Response {
    let page = MessagePage {
        title: "This page was already answered",
        text: "It can be answered once, within half an hour. Go back to the application, and try \
            again.",
        link: None,
    };
    page_with(StatusCode::BAD_REQUEST, &page)
}

/// Issues a code: stores everything that it is bound to, and commits the transaction in which the
/// request was decided.
async fn issue_code(
    app: &App,
    mut tx: Tx,
    who: &SignedIn,
    request: &AuthorizationRequest,
    approval: Grant,
    actor: &Actor,
) -> HandlerResult<LinkSecret> {
    let now = app.now();
    let code = LinkSecret::draw()?;
    let stored = StoredCode {
        hash: SecretHash(code.hash()),
        client_id: request.client.id().to_owned(),
        redirect_uri: request.callback.as_str().to_owned(),
        challenge: SecretHash(request.challenge),
        user_id: who.user.id,
        session_id: who.session.id,
        permissions: approval.permission_names().unwrap_or_default(),
        resources: approval.resources().cloned(),
        created_at: now,
        expires_at: later(now, CODE_LIFETIME),
    };
    oauth_codes::insert(&mut tx, &stored).await?;
    let details =
        json!({"client": stored.client_id, "scope": approval.effective_permissions().to_string()});
    let target = AuditTarget::User(who.user.id);
    audit::record_with(
        &mut tx,
        actor,
        None,
        Action::OauthApproved,
        target,
        details,
        now,
    )
    .await?;
    tx.commit().await?;
    Ok(code)
}

#[derive(Template)]
#[template(path = "consent.html")]
struct ConsentPage<'a> {
    client: &'a str,
    /// Host of the client's metadata document, if the client is not registered.
    document_host: Option<&'a str>,
    /// Host of the callback.
    host: &'a str,
    is_this_machine: bool,
    email: &'a str,
    workspaces: Workspaces,
    groups: Vec<Group>,
    /// The user cannot grant all requested permissions.
    omits_permissions: bool,
    request: String,
    session: &'a str,
}

async fn consent_page(
    app: &App,
    who: &SignedIn,
    request: &AuthorizationRequest,
) -> HandlerResult<Response> {
    let approval = Grant::of_oauth_client(&who.principal(), request.scope);
    let now = app.now();
    let secret = LinkSecret::draw()?;
    let shown = ShownRequest {
        hash: SecretHash(secret.hash()),
        user_id: who.user.id,
        session_id: who.session.id,
        query: request.query(),
        expires_at: later(now, PAGE_LIFETIME),
    };
    let mut tx = app.store.begin().await?;
    oauth_requests::insert(&mut tx, &shown, MAX_OPEN_PAGES).await?;
    tx.commit().await?;
    let page = ConsentPage {
        client: request.client.name(),
        document_host: request.client.document_host(),
        host: request.callback.host(),
        is_this_machine: request.callback.is_this_machine(),
        email: &who.user.email,
        workspaces: Workspaces::of(app, who).await?,
        groups: groups(approval.effective_permissions()),
        omits_permissions: approval.effective_permissions() != request.scope,
        request: secret.reveal(),
        session: who.session.id.as_str(),
    };
    Ok(page_leading_to(&page, &request.callback))
}

/// The workspaces that a client can access on behalf of a user.
pub(super) struct Workspaces {
    pub(super) names: Vec<String>,
    /// Number of further workspaces that are not listed.
    pub(super) more: usize,
}

impl Workspaces {
    pub(super) async fn of(app: &App, who: &SignedIn) -> HandlerResult<Self> {
        let mut read = app.store.read().await?;
        let found = workspaces::of_user(&mut read, who.user.id).await?;
        let limits = who.principal().limits;
        let reached = found
            .into_iter()
            .filter(|workspace| limits.boundary().reaches_workspace(workspace.id.as_str()));
        let mut names: Vec<_> = reached.map(|workspace| workspace.name).collect();
        let more = names.len().saturating_sub(MAX_WORKSPACE_NAMES);
        names.truncate(MAX_WORKSPACE_NAMES);
        Ok(Self { names, more })
    }
}

/// The path and the query with which a user returns to the request after sign-in.
fn authorize_path(request: &AuthorizationRequest) -> String {
    format!("{AUTHORIZE}?{}", request.query())
}

fn error_response(app: &App, error: AuthorizationError) -> Response {
    match error {
        AuthorizationError::Page(why) => {
            let text = format!(
                "This link is invalid: {why}. Go back to the application and try again. If it \
                 happens again, contact its developers."
            );
            let page = MessagePage {
                title: "This link does not work",
                text: &text,
                link: None,
            };
            page_with(StatusCode::BAD_REQUEST, &page)
        }
        AuthorizationError::TooSoon(seconds) => {
            let page = MessagePage {
                title: "Please wait",
                text: "Too many applications were connected in a short time. Wait a little, go back \
                    to the application, and try again.",
                link: None,
            };
            let mut response = page_with(StatusCode::TOO_MANY_REQUESTS, &page);
            let seconds = HeaderValue::from(seconds);
            response.headers_mut().insert(RETRY_AFTER, seconds);
            response
        }
        AuthorizationError::Callback {
            callback,
            state,
            error,
        } => {
            let issuer = &app.config.base_url;
            to_callback(&error_url(&callback, state.as_deref(), &error, issuer))
        }
    }
}

/// Responds with 303, so that the browser does not send the consent form again (RFC 9700 section
/// 4.12), and without a `Referer` (section 4.2).
fn to_callback(address: &str) -> Response {
    let mut response = see_other(address).into_response();
    let policy = HeaderValue::from_static("no-referrer");
    response.headers_mut().insert(REFERRER_POLICY, policy);
    response
}

/// Time in which the consent page can be submitted: long enough to read it and ask a colleague. An
/// approval of a page that was open all night is not accepted.
const PAGE_LIFETIME: SignedDuration = SignedDuration::from_mins(30);

/// Maximum number of open consent pages per user: a few tabs.
const MAX_OPEN_PAGES: u32 = 20;

/// Seconds to wait if too many documents are being fetched. A fetch ends within a few seconds.
const BUSY_SECONDS: u32 = 5;

/// Time in which a code can be redeemed (OA-3).
const CODE_LIFETIME: SignedDuration = SignedDuration::from_mins(5);

/// Time for which a used code is kept. If it is presented again in this time, the token that was
/// issued for it is revoked.
pub(crate) const CODE_REUSE_WINDOW: SignedDuration = SignedDuration::from_hours(24);

/// Maximum number of workspaces that the page lists, so that the page stays readable.
const MAX_WORKSPACE_NAMES: usize = 12;
