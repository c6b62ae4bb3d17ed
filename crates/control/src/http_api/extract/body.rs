//! JSON bodies.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use types::json::{self, Limits};
use types::problem::Problem;

use crate::app::App;
use crate::http_api::problem::{HandlerResult, Refusal};

/// A required JSON body.
///
/// Strict: integers are integer literals, members are not repeated, and with `deny_unknown_fields`
/// on the type an unknown one is refused by name. The error names the invalid member.
#[derive(Debug)]
pub struct Body<T>(pub T);

/// An optional JSON body.
#[derive(Debug)]
pub struct OptionalBody<T>(pub Option<T>);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &Arc<App>) -> HandlerResult<Self> {
        let (headers, bytes) = collect(request).await?;
        require_json(&headers)?;
        read(&bytes).map(Self)
    }
}

impl<T: DeserializeOwned> FromRequest<Arc<App>> for OptionalBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &Arc<App>) -> HandlerResult<Self> {
        let (headers, bytes) = collect(request).await?;
        if bytes.is_empty() {
            return Ok(Self(None));
        }
        require_json(&headers)?;
        read(&bytes).map(|body| Self(Some(body)))
    }
}

/// Parses a strict JSON document into a type.
///
/// # Errors
/// 400 with the invalid member.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> HandlerResult<T> {
    read_within(bytes, LIMITS)
}

/// [`read`] with other limits.
pub(crate) fn read_within<T: DeserializeOwned>(bytes: &[u8], limits: Limits) -> HandlerResult<T> {
    let value =
        json::parse(bytes, limits).map_err(|error| invalid_member(&error.field, error.message))?;
    // Serde would accept a list as the members in their order.
    if !value.is_object() {
        return Err(invalid_member(
            "",
            "the body must be a JSON object".to_owned(),
        ));
    }
    json::typed(value).map_err(|error| invalid_member(&error.field, error.message))
}

/// Size of the largest body of this API: two certificates and a boundary.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// As deep as any JSON of the platform.
const LIMITS: Limits = Limits {
    bytes: MAX_BODY_BYTES,
    depth: 32,
};

fn invalid_member(field: &str, message: String) -> Refusal {
    let problem = if field.is_empty() {
        Problem::invalid_request(message)
    } else {
        Problem::invalid_request(format!("{field}: {message}")).with_field(field)
    };
    problem.into()
}

async fn collect(request: Request) -> HandlerResult<(HeaderMap, Bytes)> {
    let (parts, body) = request.into_parts();
    Ok((parts.headers, read_body(body, MAX_BODY_BYTES).await?))
}

/// Reads a whole body, with limits of size and time. A body that never ends would occupy its
/// connection's slot forever.
pub(crate) async fn read_body(body: axum::body::Body, most: usize) -> Result<Bytes, Problem> {
    match timeout(BODY_TIMEOUT, Limited::new(body, most).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::content_too_large()),
        Ok(Err(_)) => Err(Problem::invalid_request("the body ended unexpectedly")),
        Err(_) => Err(Problem::invalid_request("the body took too long")),
    }
}

/// Enough for the largest body over the slowest line that a user would tolerate.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Requires `application/json`, or a type with a JSON suffix (RFC 6838 section 4.2.8). A form of
/// another site cannot send these types.
fn require_json(headers: &HeaderMap) -> HandlerResult<()> {
    let declared = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .map(|value| value.trim().to_ascii_lowercase());
    let is_json = |declared: &str| {
        declared == "application/json"
            || (declared.starts_with("application/") && declared.ends_with("+json"))
    };
    if declared.as_deref().is_some_and(is_json) {
        Ok(())
    } else {
        let detail = "The body must be declared as application/json.";
        Err(Problem::new(415, "unsupported_media_type", detail).into())
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(rename = "ttlSeconds")]
        ttl: Option<u32>,
        inner: Option<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code, reason = "read by serde alone")]
        list: Vec<u8>,
    }

    fn field(text: &str) -> String {
        let refusal = read::<Sample>(text.as_bytes()).unwrap_err();
        assert_eq!(refusal.problem().status, 400);
        refusal.problem().field.clone().unwrap_or_default()
    }

    /// Tokio's paused clock advances when all tasks wait. Without a limit this would wait forever.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_aborted() {
        let never = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        let refused = read_body(axum::body::Body::from_stream(never), 1).await;
        assert_eq!(refused.unwrap_err().detail, "the body took too long");
        let large = read_body("ab".into(), 1).await;
        assert_eq!(large.unwrap_err().status, 413);
        assert_eq!(read_body("a".into(), 1).await.unwrap(), "a");
    }

    #[test]
    fn errors_name_the_invalid_member() {
        assert_eq!(
            read::<Sample>(br#"{"ttlSeconds":60}"#).unwrap().ttl,
            Some(60)
        );
        assert!(
            read::<Sample>(br#"{"inner":{"list":[1]}}"#)
                .unwrap()
                .inner
                .is_some()
        );
        assert_eq!(field(r#"{"ttlSeconds":60.0}"#), "ttlSeconds");
        assert_eq!(field(r#"{"ttlSeconds":-1}"#), "ttlSeconds");
        assert_eq!(field(r#"{"ttlSeconds":1,"ttlSeconds":1}"#), "ttlSeconds");
        assert_eq!(field(r#"{"inner":{"list":[0,"x"]}}"#), "inner.list.1");
        assert_eq!(
            field(r#"{"inner":{}}"#),
            "inner.list",
            "a missing member is named"
        );
        assert_eq!(field("{"), "");
        assert_eq!(field("[]"), "");
    }

    #[test]
    fn only_json_content_types_are_accepted() {
        let mut headers = HeaderMap::new();
        assert!(require_json(&headers).is_err());
        for (declared, good) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/merge-patch+json", true),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
            ("multipart/form-data", false),
        ] {
            headers.insert(CONTENT_TYPE, declared.parse().unwrap());
            assert_eq!(require_json(&headers).is_ok(), good, "{declared}");
        }
    }
}
