//! A running `svc platform` with the test's catalogue, and a token of its operator.

use serde_json::{Value, json};

use super::program::{Home, RunningCommand};

/// The process, its address, and the token.
pub(crate) struct HostedPlatform {
    pub(crate) running: RunningCommand,
    pub(crate) base_url: String,
    pub(crate) token: String,
    /// The session cookie of the operator.
    cookie: String,
}

impl HostedPlatform {
    /// Starts it with this catalogue, signs in with a browser session, and creates a token.
    pub(crate) async fn start(home: &Home, catalog: Value) -> Self {
        Self::start_with(home, json!({ "catalog": catalog })).await
    }

    /// The same with these sections of the configuration.
    pub(crate) async fn start_with(home: &Home, sections: Value) -> Self {
        let address = format!("127.0.0.1:{}", ports::lease());
        let base_url = format!("http://{address}");
        let mut config = json!({
            "platform": {"base_url": base_url, "listen_addr": address, "data_dir": "data"},
            "engines": [{"cluster_domain": "engine.example.com", "tcp_ports": "20000-20999"}],
        });
        for (name, section) in sections.as_object().unwrap() {
            config[name] = section.clone();
        }
        std::fs::write(home.path().join("platform.yaml"), config.to_string()).unwrap();
        let mut running = home.start(&[
            "platform",
            "-c",
            "platform.yaml",
            "--create-admin",
            "ada@example.com",
            "--output",
            "json",
        ]);
        let ready = running.json().await;
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        let password = encoded(ready["admin_password"].as_str().unwrap());
        let signed_in = client
            .post(format!("{base_url}/login"))
            .header("origin", &base_url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(format!("email=ada%40example.com&password={password}"))
            .send()
            .await
            .unwrap();
        assert_eq!(signed_in.status(), 303, "{signed_in:?}");
        let cookie = signed_in.headers()["set-cookie"].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let issued: Value = client
            .post(format!("{base_url}/api/credentials"))
            .header("origin", &base_url)
            .header("cookie", &cookie)
            .json(&json!({"type": "pat", "name": "test"}))
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        Self {
            running,
            base_url,
            token: issued["token"].as_str().unwrap().to_owned(),
            cookie,
        }
    }

    /// Opens a page and submits its form.
    pub(crate) async fn submit(&self, page: &str, path: &str) {
        let client = reqwest::Client::new();
        let opened = client.get(page).header("cookie", &self.cookie).send();
        let opened = opened.await.unwrap().text().await.unwrap();
        let (_, form) = opened.split_once(&format!("action=\"{path}\"")).unwrap();
        let (form, _) = form.split_once("</form>").unwrap();
        let fields = form.split("<input").skip(1).filter_map(|input| {
            let of = |name: &str| input.split_once(name)?.1.split('"').next();
            Some(format!("{}={}", of(" name=\"")?, encoded(of(" value=\"")?)))
        });
        let sent = client
            .post(format!("{}{path}", self.base_url))
            .header("origin", &self.base_url)
            .header("cookie", &self.cookie)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(fields.collect::<Vec<_>>().join("&"))
            .send();
        let sent = sent.await.unwrap();
        assert_eq!(sent.status(), 200, "{}", sent.text().await.unwrap());
    }

    /// Logs the command line in.
    pub(crate) async fn login(&self, home: &Home) {
        let args = ["login", "--api-url", &self.base_url, "--token-stdin"];
        let output = home.run_with_input(&args, self.token.as_bytes()).await;
        assert_eq!(output.code, Some(0), "{output:?}");
    }
}

/// Encodes text for a form.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
