//! `GET /api/user`: the person behind the credential.

use api::control::people::User;
use axum::Json;

use crate::caller::{Anyone, Caller};
use crate::wire::date;

pub(super) async fn get(caller: Caller<Anyone>) -> Json<User> {
    let user = caller.who.user;
    Json(User {
        id: user.id.to_string(),
        email: user.email,
        name: user.name,
        role: user.role.as_str().to_owned(),
        second_factor: user.totp_confirmed_at.is_some(),
        created_at: date(user.created_at),
    })
}
