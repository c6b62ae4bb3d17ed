//! The layer that counts requests of callers with a valid credential.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use api::control::{Access, operations};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::app::App;
use crate::caller;
use crate::http_api::problem::Refusal;

/// Identifies the caller of an operation that is not public, stores it for the handler, and takes a
/// token of that caller.
pub(crate) async fn limit_callers(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    if !is_guarded(&request) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    // An unidentified caller gets the same refusal as from the handler.
    let who = match caller::identify(&parts, &app).await {
        Ok(who) => who,
        Err(refusal) => return refusal.into_response(),
    };
    let (rate_limit, mut response) = match app.rate_limiter.take(&who) {
        Ok(rate_limit) => {
            parts.extensions.insert(who);
            let request = Request::from_parts(parts, body);
            (rate_limit, next.run(request).await)
        }
        Err(rate_limit) => {
            let refusal = Refusal::from(rate_limit.refusal());
            (rate_limit, refusal.into_response())
        }
    };
    rate_limit.write(response.headers_mut());
    response
}

/// True if the operation of the request requires a caller.
fn is_guarded(request: &Request) -> bool {
    static GUARDED: LazyLock<HashMap<(http::Method, &str), bool>> = LazyLock::new(|| {
        operations()
            .map(|operation| {
                let is_guarded = operation.access != Access::Public;
                ((operation.method.into(), operation.path), is_guarded)
            })
            .collect()
    });
    let Some(path) = request.extensions().get::<MatchedPath>() else {
        return false;
    };
    let known = |method| GUARDED.get(&(method, path.as_str())).copied();
    let method = request.method();
    // A HEAD without an operation of its own is answered as the GET.
    let as_get = || known(http::Method::GET).filter(|_| method == http::Method::HEAD);
    let found = known(method.clone()).or_else(as_get);
    found.unwrap_or(false)
}
