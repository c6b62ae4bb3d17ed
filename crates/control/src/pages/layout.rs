//! Common parts of all pages: the style, the headers, and the error page.

use std::sync::{Arc, LazyLock};

use askama::Template;
use aws_lc_rs::digest;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, StatusCode};
use types::callback::Callback;
use types::contact::AbuseContact;
use types::problem::Problem;

use crate::app::App;
use crate::http_api::problem::Refusal;

/// The style sheet. It is inline, so that a page (also an error page) is one request.
pub const STYLE: &str = concat!(
    include_str!("templates/tokens.css"),
    include_str!("templates/style.css")
);

tokio::task_local! {
    /// The configured contact for reports of abuse, in the task of a request.
    static ABUSE_CONTACT: Option<AbuseContact>;
}

/// Gives the contact for reports of abuse to all pages of the request. The layout reads it, so that
/// no page, also no error page, can lack it.
pub(crate) async fn with_abuse_contact(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let contact = app.config.abuse_contact.clone();
    ABUSE_CONTACT.scope(contact, next.run(request)).await
}

/// The contact for reports of abuse that the layout shows.
pub fn abuse_contact() -> Option<AbuseContact> {
    // Outside of a request there is no configuration.
    ABUSE_CONTACT.try_with(Option::clone).ok().flatten()
}

/// A page with status 200.
pub fn page(template: &impl Template) -> Response {
    page_with(StatusCode::OK, template)
}

/// A page with a status.
pub fn page_with(status: StatusCode, template: &impl Template) -> Response {
    match template.render() {
        Ok(html) => html_response(status, html),
        Err(error) => {
            // Templates write to a string, so that this is a defect of a template.
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "a page could not be rendered"
            );
            daemon::problem::response(&Problem::internal(), None)
        }
    }
}

/// A page with status 200 whose form ends at a client's callback.
///
/// Browsers apply `form-action` to redirects after a form as well, so the policy has to allow the
/// callback. It also has to allow redirects of the callback, which depend on the client. So it
/// allows the callback's scheme and not its host.
pub fn page_leading_to(template: &impl Template, callback: &Callback) -> Response {
    let schemes = if callback.as_str().starts_with("https:") {
        "https:"
    } else {
        "http: https:"
    };
    let mut response = page(template);
    let policy = security_policy(&format!("'self' {schemes}"), "");
    response
        .headers_mut()
        .insert(CONTENT_SECURITY_POLICY, policy);
    response
}

/// A page with a script of the forms.
pub fn script_page(status: StatusCode, template: &impl Template) -> Response {
    let mut response = page_with(status, template);
    response
        .headers_mut()
        .insert(CONTENT_SECURITY_POLICY, SCRIPT_POLICY.clone());
    response
}

/// A page with a terminal, which connects to the engine of its project.
///
/// Scripts are files of the platform, and text cannot become markup or code. Scripts may write
/// styles, because the terminal draws that way. Styles cannot load anything from other origins.
pub fn terminal_page(template: &impl Template, connect: &[String]) -> Response {
    let mut response = page(template);
    let policy = format!(
        "default-src 'none'; img-src 'self'; style-src 'self' 'unsafe-inline'; script-src 'self'; \
         connect-src 'self' {}; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; \
         require-trusted-types-for 'script'",
        connect.join(" ")
    );
    // Domains of the configuration are host names. If one were not, the policy would allow nothing.
    let policy = HeaderValue::try_from(policy);
    response.headers_mut().insert(
        CONTENT_SECURITY_POLICY,
        policy.unwrap_or(HeaderValue::from_static("default-src 'none'")),
    );
    response
}

/// Redirects to a path of the platform with 303, after a form (RFC 9110 section 15.4.4).
pub fn see_other(path: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let headers = response.headers_mut();
    let location = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/"));
    headers.insert(LOCATION, location);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A page with one sentence and an optional link.
#[derive(Template)]
#[template(path = "message.html")]
pub struct MessagePage<'a> {
    pub title: &'a str,
    pub text: &'a str,
    /// Path and label of the link.
    pub link: Option<(&'a str, &'a str)>,
}

/// A refusal that is shown as a page. It is the error type of page handlers, for use with `?`.
#[derive(Debug)]
pub enum PageRefusal {
    /// A page with the error.
    Problem(Box<Problem>),
    /// A redirect to a path of the platform that the visitor has to visit first.
    SeeOther(String),
}

impl From<Problem> for PageRefusal {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl From<Refusal> for PageRefusal {
    fn from(refusal: Refusal) -> Self {
        Self::Problem(Box::new(refusal.problem().clone()))
    }
}

impl From<store::Error> for PageRefusal {
    fn from(error: store::Error) -> Self {
        Refusal::from(error).into()
    }
}

impl IntoResponse for PageRefusal {
    fn into_response(self) -> Response {
        let problem = match self {
            Self::Problem(problem) => *problem,
            Self::SeeOther(path) => return see_other(&path),
        };
        let status =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = page_with(
            status,
            &MessagePage {
                title: problem.title(),
                text: &problem.detail,
                link: Some(("/account", "Go to your account")),
            },
        );
        if let Some(seconds) = problem.retry_after {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

fn html_response(status: StatusCode, html: String) -> Response {
    let mut response = Response::new(Body::from(html));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let fixed = HeaderValue::from_static;
    headers.insert(CONTENT_TYPE, fixed("text/html; charset=utf-8"));
    // Pages contain data of the visitor.
    headers.insert(CACHE_CONTROL, fixed("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY.clone());
    headers.insert(X_CONTENT_TYPE_OPTIONS, fixed("nosniff"));
    // Addresses contain reset secrets, which other sites must not see. The value is not
    // `no-referrer`: with it a browser sends `Origin: null` with the platform's own forms (Fetch,
    // "serializing a request origin").
    headers.insert(REFERRER_POLICY, fixed("same-origin"));
    headers.insert("cross-origin-opener-policy", fixed("same-origin"));
    response
}

/// The policy forbids scripts, frames and external resources. It allows the platform's icon, and the
/// one style by its hash (CSP level 3).
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| security_policy("'self'", ""));

/// The policy for pages with a script of the forms. It also allows to load the script from its file
/// and to fetch a challenge from the platform. The script cannot turn text into markup or code
/// (Trusted Types).
static SCRIPT_POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let more = "; script-src 'self'; connect-src 'self'; require-trusted-types-for 'script'";
    security_policy("'self'", more)
});

fn security_policy(form_action: &str, more: &str) -> HeaderValue {
    let hash = BASE64_STANDARD.encode(digest::digest(&digest::SHA256, STYLE.as_bytes()));
    let policy = format!(
        "default-src 'none'; img-src 'self'; style-src 'sha256-{hash}'; form-action {form_action}; \
         frame-ancestors 'none'; base-uri 'none'{more}"
    );
    // Base64 is visible ASCII. If it were not, the policy would allow nothing.
    HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(response: Response) -> String {
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX)
            .await
            .unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn the_style_is_in_the_page_exactly_as_the_policy_hashes_it() {
        let response = PageRefusal::from(Problem::not_found()).into_response();
        assert_eq!(response.status(), 404);
        let policy = response.headers()["content-security-policy"]
            .to_str()
            .unwrap()
            .to_owned();
        let html = text(response).await;
        let start = html.find("<style>").unwrap() + 7;
        let style = &html[start..html.find("</style>").unwrap()];
        let hash = BASE64_STANDARD.encode(digest::digest(&digest::SHA256, style.as_bytes()));
        assert!(
            policy.contains(&format!("style-src 'sha256-{hash}'")),
            "{policy}"
        );
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
        assert!(
            !html.contains("<script") && !html.contains("style="),
            "{html}"
        );
    }

    #[tokio::test]
    async fn user_text_is_escaped() {
        let page = page(&MessagePage {
            title: "<b>",
            text: "a & \"b\" <script>",
            link: None,
        });
        let html = text(page).await;
        assert!(
            !html.contains("<script>") && !html.contains("<b>\n"),
            "{html}"
        );
    }
}
