//! The page of an invitation to a workspace.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::form::Form;
use super::layout::{MessagePage, PageRefusal, page, page_with, see_other};
use super::login::{WRONG, refusal};
use super::openid::Button;
use super::{with_cookie, with_next};
use crate::app::App;
use crate::http_api::extract::{Path, Query};
use crate::people::secret_link::LinkSecret;
use crate::people::session::{Browser, Visitor};
use crate::people::sign_in::with_password;
use crate::workspaces::invitations::{self, MAIL_PROOF, OpenInvitation, is_for};

#[derive(Template)]
#[template(path = "invitation.html")]
struct InvitationPage<'a> {
    action: &'a str,
    workspace: &'a str,
    invited_by: &'a str,
    email: &'a str,
    role: &'static str,
    viewer: InvitationViewer<'a>,
    name_error: Option<&'a str>,
    password_error: Option<&'a str>,
    openid: Option<Button<'a>>,
}

/// Visitor of an invitation page, which determines the form that it shows.
enum InvitationViewer<'a> {
    /// The invited user.
    Invited,
    /// Another signed-in user.
    Other { signed_in_as: &'a str },
    /// A visitor with the link from the mail. The address has an account.
    HasAccount,
    /// A visitor with the link from the mail. The address has no account yet.
    New { name: &'a str },
    /// A visitor with a copy of the link, such as the inviter. The page does not reveal if the
    /// address has an account.
    Unknown { name: &'a str },
    /// As [`Unknown`](Self::Unknown), with a link that creates no account.
    Copied,
}

/// Shows the invitation.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    Path(secret): Path<String>,
    mut query: Query,
) -> Result<Response, PageRefusal> {
    let proof = query.text(MAIL_PROOF).unwrap_or_default();
    let Some((secret, open)) = find(&app, &secret, &proof).await? else {
        return Ok(invalid_link_page());
    };
    let action = path(&secret, &open, &proof);
    Ok(page(&invitation_page(&app, &action, &open, &visitor, "")))
}

/// Joins the workspace, as the signed-in user or with a new account.
pub(super) async fn accept(
    State(app): State<Arc<App>>,
    visitor: Visitor,
    browser: Browser,
    Path(secret): Path<String>,
    mut query: Query,
    mut form: Form,
) -> Result<Response, PageRefusal> {
    let proof = query.text(MAIL_PROOF).unwrap_or_default();
    let Some((secret, open)) = find(&app, &secret, &proof).await? else {
        return used_link_page(&app, &visitor, &secret).await;
    };
    let action = path(&secret, &open, &proof);
    if let Visitor::SignedIn(who) = &visitor {
        if !is_for(&open.invitation, &who.user) {
            let retry_page = invitation_page(&app, &action, &open, &visitor, "");
            return Ok(page_with(StatusCode::FORBIDDEN, &retry_page));
        }
        return Ok(
            if invitations::accept(&app, &secret, who, open.has_mail_proof, browser.ip).await? {
                see_other("/welcome")
            } else {
                invalid_link_page()
            },
        );
    }
    let (name, password) = (form.text("name"), form.text("password"));
    // If the link cannot create an account, the response is the same for every address.
    if open.has_account || !open.creates_accounts {
        // The same form created the account a moment ago.
        if invitations::is_accepted_by_invitee(&app, &secret, &open).await? {
            return Ok(joined_page());
        }
        return sign_in(&app, &open, &action, &password, &browser).await;
    }
    match invitations::accept_as_new(&app, &secret, &open, &name, &password, &browser).await {
        Ok(Some(started)) => Ok(with_cookie(see_other("/welcome"), &started.set_cookie)),
        // The form was sent twice, and the other request created the account.
        Ok(None) if invitations::is_accepted_by_invitee(&app, &secret, &open).await? => {
            Ok(joined_page())
        }
        Ok(None) => Ok(invalid_link_page()),
        Err(refusal)
            if refusal.problem().status == 409
                && invitations::is_accepted_by_invitee(&app, &secret, &open).await? =>
        {
            Ok(joined_page())
        }
        Err(refusal) if refusal.problem().status == 400 => {
            let problem = refusal.problem();
            let mut retry_page = invitation_page(&app, &action, &open, &visitor, &name);
            if problem.field.as_deref() == Some("name") {
                retry_page.name_error = Some(&problem.detail);
            } else {
                retry_page.password_error = Some(&problem.detail);
            }
            Ok(page_with(StatusCode::UNPROCESSABLE_ENTITY, &retry_page))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// Handles the password for an address that already has an account. It signs the user in, counts
/// like any other attempt, and returns to the invitation.
async fn sign_in(
    app: &App,
    open: &OpenInvitation,
    action: &str,
    password: &str,
    browser: &Browser,
) -> Result<Response, PageRefusal> {
    match with_password(app, &open.invitation.email, password, browser).await {
        Ok(started) => {
            let next_page = if started.is_second_factor_pending {
                with_next("/login/second-factor", action)
            } else {
                action.to_owned()
            };
            Ok(with_cookie(see_other(&next_page), &started.set_cookie))
        }
        Err(error) => refusal(error, WRONG, |text| {
            let mut retry_page = invitation_page(app, action, open, &Visitor::Anonymous, "");
            retry_page.password_error = Some(text);
            retry_page
        }),
    }
}

async fn find(
    app: &App,
    secret: &str,
    proof: &str,
) -> Result<Option<(LinkSecret, OpenInvitation)>, PageRefusal> {
    let Some(secret) = LinkSecret::parse(secret) else {
        return Ok(None);
    };
    let open = invitations::look_up(app, &secret, proof).await?;
    Ok(open.map(|open| (secret, open)))
}

fn invitation_page<'a>(
    app: &'a App,
    action: &'a str,
    open: &'a OpenInvitation,
    visitor: &'a Visitor,
    name: &'a str,
) -> InvitationPage<'a> {
    let viewer = match visitor {
        Visitor::SignedIn(who) if is_for(&open.invitation, &who.user) => InvitationViewer::Invited,
        Visitor::SignedIn(who) => InvitationViewer::Other {
            signed_in_as: &who.user.email,
        },
        Visitor::Anonymous | Visitor::SecondFactorPending(_) if !open.creates_accounts => {
            InvitationViewer::Copied
        }
        Visitor::Anonymous | Visitor::SecondFactorPending(_) if !open.has_mail_proof => {
            InvitationViewer::Unknown { name }
        }
        Visitor::Anonymous | Visitor::SecondFactorPending(_) if open.has_account => {
            InvitationViewer::HasAccount
        }
        Visitor::Anonymous | Visitor::SecondFactorPending(_) => InvitationViewer::New { name },
    };
    InvitationPage {
        action,
        workspace: &open.workspace.name,
        invited_by: &open.invited_by,
        email: &open.invitation.email,
        role: open.invitation.role.as_str(),
        viewer,
        name_error: None,
        password_error: None,
        openid: Button::new(app, action),
    }
}

fn path(secret: &LinkSecret, open: &OpenInvitation, proof: &str) -> String {
    let path = format!("/invitations/{}", secret.reveal());
    if open.has_mail_proof {
        format!("{path}?{MAIL_PROOF}={proof}")
    } else {
        path
    }
}

/// The page for a used link. It depends on the visitor being the user who joined.
async fn used_link_page(
    app: &App,
    visitor: &Visitor,
    secret: &str,
) -> Result<Response, PageRefusal> {
    let Some(secret) = LinkSecret::parse(secret) else {
        return Ok(invalid_link_page());
    };
    match visitor {
        Visitor::SignedIn(who) if invitations::has_joined(app, &secret, who.user.id).await? => {
            Ok(see_other("/welcome"))
        }
        Visitor::SignedIn(_) => Ok(invalid_link_page()),
        Visitor::Anonymous | Visitor::SecondFactorPending(_)
            if invitations::is_accepted(app, &secret).await? =>
        {
            Ok(joined_page())
        }
        Visitor::Anonymous | Visitor::SecondFactorPending(_) => Ok(invalid_link_page()),
    }
}

fn joined_page() -> Response {
    page(&MessagePage {
        title: "You have joined",
        text: "The invitation was accepted. Sign in to continue.",
        link: Some(("/login", "Sign in")),
    })
}

fn invalid_link_page() -> Response {
    page_with(
        StatusCode::NOT_FOUND,
        &MessagePage {
            title: "This invitation does not work any more",
            text: "It was used or revoked, or has expired. Ask for another one.",
            link: Some(("/account", "Go to your account")),
        },
    )
}
