//! Live data of the dashboard of `svc up`, whose engine has a certificate of a private authority.

use reqwest::header::{CONTENT_TYPE, COOKIE, ORIGIN, SET_COOKIE};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::installation::sign_in;
use super::up::web_service;
use crate::installed::{RunningUp, up};
use crate::program::{Home, SOON};

/// A browser at the platform, with a session.
struct Page {
    client: reqwest::Client,
    base: String,
    cookie: String,
}

impl Page {
    async fn open(up: &RunningUp) -> Self {
        let base = up.ready_field("base_url").to_owned();
        let (email, password) = (
            up.ready_field("admin_email"),
            up.ready_field("admin_password"),
        );
        let answer = sign_in(&base, email, password).await;
        assert_eq!(answer.status(), 303, "{answer:?}");
        assert_eq!(answer.headers()["location"], "/");
        let cookie = answer.headers()[SET_COOKIE].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        Self {
            client: reqwest::Client::new(),
            base,
            cookie,
        }
    }

    async fn get(&self, path: &str) -> reqwest::Response {
        self.send(self.client.get(format!("{}{path}", self.base)))
            .await
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> reqwest::Response {
        let request = request.header(COOKIE, &self.cookie);
        request.header(ORIGIN, &self.base).send().await.unwrap()
    }
}

/// Reads up to a text.
async fn read_until(stream: &mut reqwest::Response, text: &str) -> String {
    let mut all = String::new();
    while !all.contains(text) {
        let chunk = timeout(SOON, stream.chunk()).await.unwrap().unwrap();
        let chunk = chunk.unwrap_or_else(|| panic!("it ended after {all}"));
        all.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    all
}

#[tokio::test]
async fn a_page_of_the_platform_sees_tunnels_appear_and_its_session_end() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let page = Page::open(&up).await;
    let engine = format!("/engine/{}/api", up.ready_field("project_id"));
    let none: Value = page
        .get(&format!("{engine}/tunnels"))
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(none, json!([]));

    let mut stream = page.get(&format!("{engine}/sse")).await;
    assert_eq!(stream.status(), 200);
    read_until(&mut stream, "state.initial").await;
    let (_service, port) = web_service(0).await;
    let target = port.to_string();
    let mut agent = home.start(&["forward", &target, "--name", "web", "-o", "json"]);
    agent.json().await;
    read_until(&mut stream, "tunnel.created").await;
    let tunnels = page.get(&format!("{engine}/tunnels")).await;
    let tunnels: Value = tunnels.json().await.unwrap();
    assert_eq!(tunnels[0]["name"], "web");

    let out = page.client.post(format!("{}/logout", page.base));
    let form = "application/x-www-form-urlencoded";
    page.send(out.header(CONTENT_TYPE, form)).await;
    read_until(&mut stream, ": closed").await;
    assert_eq!(page.get(&format!("{engine}/tunnels")).await.status(), 401);
}
