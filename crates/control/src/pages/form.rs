//! Parsing of the platform's HTML forms.

use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use http::header::CONTENT_TYPE;
use types::problem::Problem;

use super::layout::PageRefusal;
use crate::app::App;
use crate::http_api::extract::{Query, read_body};

/// The fields of a form that was sent from a page of the platform. A layer over all routes refuses
/// forms of other sites ([`super::same_origin::require`]).
#[derive(Debug)]
pub struct Form(Query);

impl Form {
    /// Removes and returns a field. A missing field is empty.
    pub fn text(&mut self, name: &str) -> String {
        self.0.text(name).unwrap_or_default()
    }
}

impl FromRequest<Arc<App>> for Form {
    type Rejection = PageRefusal;

    async fn from_request(request: Request, _app: &Arc<App>) -> Result<Self, PageRefusal> {
        let (parts, body) = request.into_parts();
        let declared = parts
            .headers
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        let bytes = read_body(body, MAX_FORM_BYTES).await?;
        // A form without fields may have no content type.
        if !bytes.is_empty() && !declared.is_some_and(is_form) {
            return Err(Problem::invalid_request("This is not a form.").into());
        }
        let Ok(text) = std::str::from_utf8(&bytes) else {
            return Err(Problem::invalid_request("This form cannot be read.").into());
        };
        Ok(Self(Query::parse(text)?))
    }
}

fn is_form(declared: &str) -> bool {
    let kind = declared.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// The longest field is the path to continue at. The others are short.
const MAX_FORM_BYTES: usize = 32 * 1024;
