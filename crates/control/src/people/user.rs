//! `GET /api/user`: the person behind the credential.

use std::sync::Arc;

use api::control::people::User;
use axum::Json;
use axum::extract::State;
use types::problem::Problem;

use crate::app::App;
use crate::caller::{Anyone, Caller};
use crate::problem::Answer;

pub(super) async fn get(State(app): State<Arc<App>>, caller: Caller<Anyone>) -> Answer<Json<User>> {
    let mut read = app.store.read().await?;
    let user = store::users::by_id(&mut read, caller.who.user_id()?).await?;
    let user = user.ok_or_else(Problem::not_found)?;
    Ok(Json(User {
        id: user.id.to_string(),
        email: user.email,
        name: user.name,
        role: user.role.as_str().to_owned(),
        second_factor: user.totp_confirmed_at.is_some(),
        created_at: format!("{:.3}", user.created_at),
    }))
}
