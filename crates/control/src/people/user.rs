//! `GET /api/user`: the user of the credential.

use std::sync::Arc;

use api::control::people::User;
use axum::Json;
use axum::extract::State;

use super::email_change;
use crate::app::App;
use crate::caller::{AnyCaller, Caller};
use crate::http_api::problem::HandlerResult;
use crate::http_api::wire::date;

pub(super) async fn get(
    State(app): State<Arc<App>>,
    caller: Caller<AnyCaller>,
) -> HandlerResult<Json<User>> {
    let user = caller.principal.user;
    let pending = email_change::pending(&app, &user).await?;
    Ok(Json(User {
        id: user.id.to_string(),
        email: user.email,
        email_verified: user.email_verified,
        pending_email: pending,
        name: user.name,
        role: user.role.as_str().to_owned(),
        second_factor: user.totp_confirmed_at.is_some(),
        created_at: date(user.created_at),
    }))
}
