//! `GET /api/credentials`.

use std::sync::Arc;

use api::control::Paging;
use api::control::credentials::CredentialList;
use axum::Json;
use axum::extract::State;
use store::credentials as stored;
use types::problem::Problem;

use super::view::view;
use crate::app::App;
use crate::caller::{Caller, CredentialsRead};
use crate::extract::Query;
use crate::problem::Answer;

pub(super) async fn list(
    Caller { who, .. }: Caller<CredentialsRead>,
    State(app): State<Arc<App>>,
    mut query: Query,
) -> Answer<Json<CredentialList>> {
    let page = query.page()?;
    query.finish()?;
    let paging = store::Paging::new(page.page, page.size).ok_or_else(Problem::internal)?;
    let mut read = app.store.read().await?;
    let found = stored::list(&mut read, who.user.id, paging).await?;
    Ok(Json(CredentialList {
        credentials: found.items.iter().map(view).collect(),
        paging: Paging::new(page.page, page.size, found.total),
    }))
}
