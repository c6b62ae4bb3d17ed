//! `GET /api/credentials`.

use std::sync::Arc;

use api::control::credentials::CredentialList;
use axum::Json;
use axum::extract::State;
use store::Order;
use store::credentials::{self as stored, Kind};
use types::problem::Problem;

use super::view::view;
use crate::app::App;
use crate::caller::{Caller, CredentialsRead};
use crate::http_api::extract::Query;
use crate::http_api::problem::HandlerResult;

pub(super) async fn list(
    Caller { principal: who, .. }: Caller<CredentialsRead>,
    State(app): State<Arc<App>>,
    mut query: Query,
) -> HandlerResult<Json<CredentialList>> {
    let page = query.page()?;
    let search = query.text("q");
    let kind = one_of(&mut query, "type", Kind::from_word, "pat, app or mtls")?;
    let is_good = one_of(&mut query, "status", status, "active or expired")?;
    let order = one_of(&mut query, "order", order, "asc or desc")?;
    query.finish()?;
    let now = app.now();
    let requested = stored::List {
        user: who.user.id,
        kind,
        active_at: is_good.filter(|good| *good).map(|_| now),
        ended_by: is_good.filter(|good| !good).map(|_| now),
        search: search.as_deref(),
        order: order.unwrap_or_default(),
        paging: page.rows(),
    };
    let mut read = app.store.read().await?;
    let found = stored::list(&mut read, &requested).await?;
    let items = found.items.iter();
    Ok(Json(CredentialList {
        credentials: items.map(|credential| view(credential, now)).collect(),
        paging: page.position(found.total),
    }))
}

/// A parameter with a fixed set of values. `expected` ends the sentence "`name` is not …".
fn one_of<T>(
    query: &mut Query,
    name: &str,
    of_word: fn(&str) -> Option<T>,
    expected: &str,
) -> HandlerResult<Option<T>> {
    let Some(word) = query.text(name) else {
        return Ok(None);
    };
    let detail = || Problem::invalid_request(format!("{name} is not {expected}"));
    let value = of_word(&word).ok_or_else(|| detail().with_field(name))?;
    Ok(Some(value))
}

/// True for the status of valid credentials, false for that of ended ones.
fn status(word: &str) -> Option<bool> {
    match word {
        "active" => Some(true),
        "expired" => Some(false),
        _ => None,
    }
}

fn order(word: &str) -> Option<Order> {
    match word {
        "asc" => Some(Order::Asc),
        "desc" => Some(Order::Desc),
        _ => None,
    }
}
