//! Client ids that are addresses of metadata documents.

use reqwest::Url;

/// The address of a metadata document, exactly as a URL parser writes it. So the text that the
/// document is compared with is also the address that is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DocumentUrl(Url);

impl DocumentUrl {
    /// Parses a `client_id` that is the address of a document (section 3 of the draft). A query is
    /// refused as well, because one document could have any number of ids with it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_URL_BYTES {
            return None;
        }
        let url = Url::parse(text).ok()?;
        let is_plain = url.scheme() == "https"
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none();
        // The parser resolves dot segments, and escapes what browsers would escape.
        (is_plain && url.as_str() == text).then_some(Self(url))
    }

    pub(super) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub(super) fn url(&self) -> &Url {
        &self.0
    }

    /// Host, with the port if there is one, as it is displayed to users.
    pub(super) fn host(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        match self.0.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }
}

/// Limit for the address of a document, which is in each token of the client. Real ones are far
/// shorter.
const MAX_URL_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "https://app.example/oauth/client.json";

    #[test]
    fn an_id_is_an_https_address_as_parsers_write_it() {
        for (text, host) in [
            (ID, "app.example"),
            ("https://app.example/", "app.example"),
            ("https://app.example:8443/client", "app.example:8443"),
            ("https://[2001:db8::1]/client", "[2001:db8::1]"),
        ] {
            let url = DocumentUrl::parse(text).unwrap();
            assert_eq!((url.as_str(), url.host().as_str()), (text, host));
        }
        for text in [
            "",
            "web",
            "https://app.example",
            "http://app.example/client",
            "http://127.0.0.1/client",
            "https://APP.example/client",
            "https://app.example:443/client",
            "https://app.example/a/../client",
            "https://app.example/a/%2e%2e/client",
            "https://app.example/./client",
            "https://user@app.example/client",
            "https://user:pass@app.example/client",
            "https://app.example/client?",
            "https://app.example/client?x=1",
            "https://app.example/client#",
            "https://app.example/ä",
            "https://app.example/a b",
            "https:app.example/client",
            "https://app.example\\client",
            " https://app.example/client",
            "https://127.1/client",
        ] {
            assert_eq!(DocumentUrl::parse(text), None, "{text}");
        }
        let long = |bytes: usize| format!("https://a.example/{}", "a".repeat(bytes - 18));
        assert!(DocumentUrl::parse(&long(MAX_URL_BYTES)).is_some());
        assert!(DocumentUrl::parse(&long(MAX_URL_BYTES + 1)).is_none());
    }
}
