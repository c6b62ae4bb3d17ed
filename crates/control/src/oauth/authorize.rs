//! `GET` and `POST /oauth/authorize` (OA-2): consent, and the way back with a code.

use std::sync::Arc;

use api::control::oauth::AUTHORIZE;
use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use http::header::REFERRER_POLICY;
use http::{HeaderValue, StatusCode};
use jiff::SignedDuration;
use serde_json::json;
use store::oauth_codes::{self, Code as StoredCode};
use store::{SecretHash, workspaces};

use super::approval::Approval;
use super::consent::{Group, groups};
use super::error::Code;
use super::request::{AuthorizationRequest, Refused, refusal};
use crate::app::App;
use crate::audit::{self, Action, Actor, Target};
use crate::delegation;
use crate::extract::ClientIp;
use crate::pages::form::Form;
use crate::pages::layout::{MessagePage, PageRefusal, page_leading_to, page_with, see_other};
use crate::pages::signed_in;
use crate::people::secret_link::LinkSecret;
use crate::people::session::{SignedIn, Visitor, later};
use crate::problem::Answer;

/// The consent page. There is no approval without it, also not for a client that was approved
/// before: a public client cannot prove to be the one that was (RFC 9700 section 4.14).
pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    RawQuery(query): RawQuery,
) -> Result<Response, PageRefusal> {
    let request = AuthorizationRequest::parse(&query.unwrap_or_default(), &app.config);
    let request = match request {
        Ok(request) => request,
        Err(refused) => return Ok(refused_response(&app, refused)),
    };
    if request.is_silent {
        let code = match visitor.signed_in() {
            Some(_) => Code::ConsentRequired,
            None => Code::LoginRequired,
        };
        let refused = request.refuse(code.because("a person has to look at this"));
        return Ok(refused_response(&app, refused));
    }
    let who = signed_in(visitor, &path(&request))?;
    Ok(consent_page(&app, &who, &request).await?)
}

/// What the person decided.
pub(super) async fn submit(
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    visitor: Visitor,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let query = form.text("request");
    let request = match AuthorizationRequest::parse(&query, &app.config) {
        Ok(request) => request,
        Err(refused) => return Ok(refused_response(&app, refused)),
    };
    let who = signed_in(visitor, &path(&request))?;
    // Somebody else signed in since the page was made: it showed what another could give.
    if form.text("session") != who.session.id.as_str() {
        return Ok(consent_page(&app, &who, &request).await?);
    }
    let actor = Actor::person(who.user.id).at(ip);
    let approval = Approval::within(&who, request.scope);
    let is_approved = form.text("decision") == "approve" && !approval.permissions.is_empty();
    if is_approved {
        let code = give_code(&app, &who, &request, approval, &actor).await?;
        let address = request.answer(&code.reveal(), &app.config.base_url);
        return Ok(to_callback(&address));
    }
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let (target, details) = (
        Target::User(who.user.id),
        json!({"client": request.client.id()}),
    );
    audit::record_with(
        &mut tx,
        &actor,
        None,
        Action::OauthDenied,
        target,
        details,
        now,
    )
    .await?;
    tx.commit().await?;
    let refused = request.refuse(Code::AccessDenied.because("the person did not approve"));
    Ok(refused_response(&app, refused))
}

/// Draws a code and notes all that it is bound to.
async fn give_code(
    app: &App,
    who: &SignedIn,
    request: &AuthorizationRequest<'_>,
    approval: Approval,
    actor: &Actor,
) -> Answer<LinkSecret> {
    delegation::refuse_suspended(app, [approval.resources.as_ref(), None]).await?;
    let now = app.now();
    let code = LinkSecret::draw()?;
    let stored = StoredCode {
        hash: SecretHash(code.hash()),
        client_id: request.client.id().to_owned(),
        redirect_uri: request.callback.as_str().to_owned(),
        challenge: SecretHash(request.challenge),
        user_id: who.user.id,
        session_id: who.session.id,
        permissions: approval.names(),
        resources: approval.resources,
        created_at: now,
        expires_at: later(now, CODE_LIFETIME),
    };
    let mut tx = app.store.begin().await?;
    oauth_codes::insert(&mut tx, &stored).await?;
    let details = json!({"client": stored.client_id, "scope": approval.permissions.to_string()});
    let target = Target::User(who.user.id);
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
    host: &'a str,
    is_this_machine: bool,
    email: &'a str,
    workspaces: Workspaces,
    groups: Vec<Group>,
    is_less: bool,
    request: String,
    session: &'a str,
}

async fn consent_page(
    app: &App,
    who: &SignedIn,
    request: &AuthorizationRequest<'_>,
) -> Answer<Response> {
    let approval = Approval::within(who, request.scope);
    let page = ConsentPage {
        client: request.client.name(),
        host: request.callback.host(),
        is_this_machine: request.callback.is_this_machine(),
        email: &who.user.email,
        workspaces: Workspaces::of(app, who).await?,
        groups: groups(approval.permissions),
        is_less: approval.permissions != request.scope,
        request: request.query(),
        session: who.session.id.as_str(),
    };
    Ok(page_leading_to(&page, request.callback))
}

/// The workspaces that a client gets into with a person.
pub(super) struct Workspaces {
    pub(super) names: Vec<String>,
    /// How many more there are.
    pub(super) more: usize,
}

impl Workspaces {
    pub(super) async fn of(app: &App, who: &SignedIn) -> Answer<Self> {
        let mut read = app.store.read().await?;
        let found = workspaces::of_user(&mut read, who.user.id).await?;
        let boundary = who.principal().boundary;
        let reached = found
            .into_iter()
            .filter(|workspace| boundary.reaches_workspace(workspace.id.as_str()));
        let mut names: Vec<_> = reached.map(|workspace| workspace.name).collect();
        let more = names.len().saturating_sub(MOST_NAMES);
        names.truncate(MOST_NAMES);
        Ok(Self { names, more })
    }
}

fn path(request: &AuthorizationRequest<'_>) -> String {
    format!("{AUTHORIZE}?{}", request.query())
}

fn refused_response(app: &App, refused: Refused<'_>) -> Response {
    match refused {
        Refused::Page(why) => {
            let text = format!(
                "This link was made wrongly: {why}. Go back to where you came from and try again. \
                 If it happens again, tell those who made it."
            );
            let page = MessagePage {
                title: "This link does not work",
                text: &text,
                link: None,
            };
            page_with(StatusCode::BAD_REQUEST, &page)
        }
        Refused::Callback {
            callback,
            state,
            error,
        } => {
            let issuer = &app.config.base_url;
            to_callback(&refusal(callback, state.as_deref(), &error, issuer))
        }
    }
}

/// 303, so that the browser never sends the consent form on (RFC 9700 section 4.12), and no word
/// of where it comes from (section 4.2).
fn to_callback(address: &str) -> Response {
    let mut response = see_other(address).into_response();
    let policy = HeaderValue::from_static("no-referrer");
    response.headers_mut().insert(REFERRER_POLICY, policy);
    response
}

/// OA-3.
const CODE_LIFETIME: SignedDuration = SignedDuration::from_mins(5);

/// For so long a used code still revokes what was issued for it.
pub(crate) const REUSE_IS_SEEN_FOR: SignedDuration = SignedDuration::from_hours(24);

/// What a page can list and a person reads.
const MOST_NAMES: usize = 12;
