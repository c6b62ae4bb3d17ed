//! Metadata documents of clients: a client that is not registered publishes its description at an
//! `https` address, which is its `client_id` (OAuth Client ID Metadata Document,
//! draft-ietf-oauth-client-id-metadata-document).

use serde::Deserialize;
use serde::de::IgnoredAny;
use types::callback::Callback;

use super::clients::{CODE_GRANT, Client};
use super::document_url::DocumentUrl;
use crate::http_api::user_text::is_invisible;

/// Reasons that a document describes no client of this platform, as a clause about the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadDocument {
    #[error("it is not a JSON object with client_id and redirect_uris")]
    Format,
    #[error("its client_id is not its address")]
    OtherId,
    #[error("it describes a client with a secret or a key, and only public clients are accepted")]
    NotPublic,
    #[error("it does not describe a client of the authorization code grant")]
    OtherGrant,
    #[error("it has more than {MAX_CALLBACKS} callbacks")]
    TooManyCallbacks,
    #[error("it has no callback that is https, or http on the user's machine")]
    NoCallback,
}

/// The members that the platform uses (RFC 7591 section 2). All others are ignored.
#[derive(Deserialize)]
struct ClientDocument {
    client_id: String,
    client_name: Option<String>,
    redirect_uris: Vec<String>,
    token_endpoint_auth_method: Option<String>,
    grant_types: Option<Vec<String>>,
    response_types: Option<Vec<String>>,
    client_secret: Option<IgnoredAny>,
    client_secret_expires_at: Option<IgnoredAny>,
}

/// Reads the document that was served at the address.
///
/// The callbacks follow the rule of registered clients. Those of another kind, such as an
/// application's own scheme, are left out. A native application cannot list the port that it will
/// have, so any port of a listed callback on the user's machine is accepted (RFC 8252 section 7.3).
pub(super) fn read(text: &[u8], url: &DocumentUrl) -> Result<Client, BadDocument> {
    let document: ClientDocument = serde_json::from_slice(text).map_err(|_| BadDocument::Format)?;
    // Section 4.1 of the draft: byte for byte.
    if document.client_id != url.as_str() {
        return Err(BadDocument::OtherId);
    }
    let has_secret =
        document.client_secret.is_some() || document.client_secret_expires_at.is_some();
    let method = document.token_endpoint_auth_method.as_deref();
    if has_secret || method.is_some_and(|method| method != "none") {
        return Err(BadDocument::NotPublic);
    }
    let lacks = |list: &Option<Vec<String>>, word: &str| {
        let mut words = list.iter().flatten();
        list.is_some() && !words.any(|one| one == word)
    };
    if lacks(&document.grant_types, CODE_GRANT) || lacks(&document.response_types, "code") {
        return Err(BadDocument::OtherGrant);
    }
    if document.redirect_uris.len() > MAX_CALLBACKS {
        return Err(BadDocument::TooManyCallbacks);
    }
    let texts = document.redirect_uris.iter();
    let callbacks: Vec<_> = texts
        .filter_map(|text| Callback::parse(text).ok())
        .collect();
    if callbacks.is_empty() {
        return Err(BadDocument::NoCallback);
    }
    let client = Client::of_document(url);
    let name = document.client_name.as_deref().and_then(shown_name);
    Ok(client.described(name, callbacks))
}

/// A name that can be shown to users, by the rule for names of registered clients. One that could
/// change the text around it is left out.
fn shown_name(given: &str) -> Option<String> {
    let name = given.trim();
    let is_short = (1..=MAX_NAME_CHARS).contains(&name.chars().count());
    (is_short && !name.chars().any(is_invisible)).then(|| name.to_owned())
}

/// As long as the name of a registered client.
const MAX_NAME_CHARS: usize = 100;

/// More callbacks than any client has. Each request is compared with all of them.
const MAX_CALLBACKS: usize = 32;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ID: &str = "https://app.example/oauth/client.json";

    fn url() -> DocumentUrl {
        DocumentUrl::parse(ID).unwrap()
    }

    fn good() -> Value {
        json!({
            "client_id": ID,
            "client_name": "App",
            "redirect_uris": ["https://app.example/cb", "http://127.0.0.1/cb", "app:/cb"],
        })
    }

    fn with(name: &str, value: Value) -> Result<Client, BadDocument> {
        let mut document = good();
        document[name] = value;
        read(document.to_string().as_bytes(), &url())
    }

    #[test]
    fn a_document_describes_a_public_client_of_the_code_grant() {
        let client = read(good().to_string().as_bytes(), &url()).unwrap();
        assert_eq!((client.id(), client.name()), (ID, "App"));
        assert!(!client.is_device());
        assert!(client.callback("https://app.example/cb").is_some());
        assert!(client.callback("http://127.0.0.1:49152/cb").is_some());
        for other in [
            "app:/cb",
            "https://app.example:1/cb",
            "https://app.example/",
        ] {
            assert!(client.callback(other).is_none(), "{other}");
        }
        for (name, value) in [
            ("client_name", Value::Null),
            ("client_name", json!("")),
            ("client_name", json!("App\u{202e}")),
            ("client_name", json!("a".repeat(101))),
        ] {
            let client = with(name, value).unwrap();
            assert_eq!(client.name(), "app.example", "the host instead");
        }
        for (name, value) in [
            ("token_endpoint_auth_method", json!("none")),
            (
                "grant_types",
                json!(["authorization_code", "refresh_token"]),
            ),
            ("response_types", json!(["code"])),
            ("anything", json!({"x": 1})),
        ] {
            assert!(with(name, value.clone()).is_ok(), "{name}: {value}");
        }
    }

    #[test]
    fn other_documents_are_refused() {
        for (name, value, error) in [
            ("client_id", json!(format!("{ID}/")), BadDocument::OtherId),
            (
                "client_id",
                json!("https://APP.example/oauth/client.json"),
                BadDocument::OtherId,
            ),
            ("client_id", Value::Null, BadDocument::Format),
            ("client_secret", json!("x"), BadDocument::NotPublic),
            ("client_secret_expires_at", json!(0), BadDocument::NotPublic),
            (
                "token_endpoint_auth_method",
                json!("client_secret_basic"),
                BadDocument::NotPublic,
            ),
            (
                "token_endpoint_auth_method",
                json!("private_key_jwt"),
                BadDocument::NotPublic,
            ),
            ("grant_types", json!([]), BadDocument::OtherGrant),
            (
                "grant_types",
                json!(["client_credentials"]),
                BadDocument::OtherGrant,
            ),
            ("response_types", json!(["token"]), BadDocument::OtherGrant),
            ("redirect_uris", json!([]), BadDocument::NoCallback),
            (
                "redirect_uris",
                json!(["app:/cb", "http://app.example/cb"]),
                BadDocument::NoCallback,
            ),
            (
                "redirect_uris",
                json!(["https://*.example/cb"]),
                BadDocument::NoCallback,
            ),
            (
                "redirect_uris",
                json!("https://app.example/cb"),
                BadDocument::Format,
            ),
            ("redirect_uris", Value::Null, BadDocument::Format),
        ] {
            assert_eq!(
                with(name, value.clone()).unwrap_err(),
                error,
                "{name}: {value}"
            );
        }
        let many = |count: usize| json!(vec!["https://app.example/cb"; count]);
        assert!(with("redirect_uris", many(MAX_CALLBACKS)).is_ok());
        let error = with("redirect_uris", many(MAX_CALLBACKS + 1)).unwrap_err();
        assert_eq!(error, BadDocument::TooManyCallbacks);
        let twice =
            format!("{{\"client_id\":\"{ID}\",\"client_id\":\"{ID}\",\"redirect_uris\":[]}}");
        for text in ["", "[]", "null", "<html>", &twice] {
            assert_eq!(
                read(text.as_bytes(), &url()).unwrap_err(),
                BadDocument::Format,
                "{text}"
            );
        }
    }
}
