//! A browser without a screen: cookies, forms and redirects.

use std::net::SocketAddr;

use axum::body::Body;
use http::header::{CONTENT_TYPE, COOKIE, SET_COOKIE};
use http::{Method, Request};
use serde_json::Value;

use super::{Answer, BASE_URL, PEER, TestControl};

/// A browser.
#[derive(Clone)]
pub(crate) struct Browser<'a> {
    control: &'a TestControl,
    /// `name=value` of the session.
    pub(crate) cookie: Option<String>,
    /// `name=value` of the cookie of a pending sign-in at the OpenID provider.
    pub(crate) sign_in: Option<String>,
    /// `name=value` of the cookie that identifies the browser before there is a session.
    pub(crate) known_by: Option<String>,
    pub(crate) ip: [u8; 4],
}

impl<'a> Browser<'a> {
    pub(super) fn new(control: &'a TestControl) -> Self {
        Self {
            control,
            cookie: None,
            sign_in: None,
            known_by: None,
            ip: PEER,
        }
    }

    pub(crate) async fn open(&mut self, path: &str) -> Answer {
        self.send(Method::GET, path, None, &[]).await
    }

    /// Submits one of our forms.
    pub(crate) async fn submit(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let origin = [("sec-fetch-site", "same-origin"), ("origin", BASE_URL)];
        self.submit_from(path, fields, &origin).await
    }

    /// Submits a form, with these browser headers.
    pub(crate) async fn submit_from(
        &mut self,
        path: &str,
        fields: &[(&str, &str)],
        headers: &[(&str, &str)],
    ) -> Answer {
        let pairs: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{name}={}", encode(value)))
            .collect();
        let kind = "application/x-www-form-urlencoded";
        self.send(Method::POST, path, Some((kind, pairs.join("&"))), headers)
            .await
    }

    pub(crate) async fn sign_in(&mut self, name: &str, password: &str) -> Answer {
        let email = format!("{}@example.com", name.to_lowercase());
        self.submit("/login", &[("email", &email), ("password", password)])
            .await
    }

    /// Calls the API with the session, like one of our pages.
    pub(crate) async fn api(&mut self, method: Method, path: &str, body: Value) -> Answer {
        let body = (!body.is_null()).then(|| ("application/json", body.to_string()));
        self.send(method, path, body, &[("sec-fetch-site", "same-origin")])
            .await
    }

    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for cookie in [&self.cookie, &self.sign_in, &self.known_by]
            .into_iter()
            .flatten()
        {
            request = request.header(COOKIE, cookie);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Some((kind, text)) => {
                request = request.header(CONTENT_TYPE, kind);
                Body::from(text)
            }
            None => Body::empty(),
        };
        let request = request.body(body).unwrap();
        let peer = SocketAddr::from((self.ip, 50_000));
        let answer = self.control.send_from(peer, request).await;
        for set in answer.headers.get_all(SET_COOKIE) {
            let pair = set.to_str().unwrap().split(';').next().unwrap();
            let kept = (!pair.ends_with('=')).then(|| pair.to_owned());
            if pair.starts_with("__Host-svc_passkey=") {
                self.known_by = kept;
            } else if pair.starts_with("__Host-svc_sign_in=") {
                self.sign_in = kept;
            } else {
                self.cookie = kept;
            }
        }
        answer
    }
}

fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}
