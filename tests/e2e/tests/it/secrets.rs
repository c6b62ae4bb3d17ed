//! One run with every kind of secret, and then one search for them in everything that was written:
//! logs of every process at the highest level, the access log, databases, the engine's state and
//! its unsent reports, metrics, lists, records, events, the audit log, and the answers to refused
//! clients.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use e2e::{Answer, CLIENT, Curl, ManagedPair, Service, eventually};
use serde_json::{Value, json};

#[test]
fn no_secret_of_a_whole_run_is_written_anywhere() -> Result<()> {
    let mut managed = ManagedPair::with_full_logging(CALLBACK)?;
    let mut run = Run::new(&managed)?;
    run.a_person_at_the_pages()?;
    run.a_program_with_a_grant()?;
    run.a_device_that_waits()?;
    run.what_is_issued()?;
    run.visitors_and_agents()?;
    run.the_lists()?;
    let (secrets, mut sinks) = (run.secrets, run.sinks);
    // All pending data is on disk after they have exited.
    managed.engine.process().terminate()?;
    managed.engine.process().wait_for_exit()?;
    managed.control.process().terminate()?;
    managed.control.process().wait_for_exit()?;
    for (file, bytes) in managed.written_files()? {
        sinks.push((file.display().to_string(), bytes));
    }
    ensure!(secrets.len() > 25, "only {} secrets", secrets.len());
    for file in ["engine.log", "platform.log", "access.log", "link/state"] {
        let found = sinks.iter().find(|(name, _)| name.ends_with(file));
        ensure!(
            found.is_some_and(|(_, bytes)| !bytes.is_empty()),
            "no {file}"
        );
    }
    let mut findings = Vec::new();
    for (what, secret) in &secrets {
        ensure!(secret.len() >= 8, "{what} is found everywhere: {secret}");
        for (sink, bytes) in &sinks {
            if contains(bytes, secret.as_bytes()) {
                findings.push(format!("{sink} tells {what}"));
            }
        }
    }
    ensure!(findings.is_empty(), "{findings:#?}");
    Ok(())
}

struct Run<'a> {
    managed: &'a ManagedPair,
    /// Texts that must not be written anywhere, by description.
    secrets: BTreeMap<String, String>,
    /// Outputs that must not contain a secret.
    sinks: Vec<(String, Vec<u8>)>,
}

impl<'a> Run<'a> {
    fn new(managed: &'a ManagedPair) -> Result<Self> {
        let mut run = Self {
            managed,
            secrets: BTreeMap::new(),
            sinks: Vec::new(),
        };
        run.token("the administrator's token", managed.token());
        run.secret("the cluster's secret", &managed.enrolment_secret()?);
        let password = managed.control.ready()["admin_password"].as_str();
        run.secret(
            "the administrator's password",
            password.context("no password")?,
        );
        let jar = std::fs::read_to_string(managed.jar())?;
        let cookie = jar.lines().find(|line| line.contains("svc_session"));
        let cookie = cookie.and_then(|line| line.split('\t').next_back());
        run.secret("the session's cookie", cookie.context("no cookie")?);
        Ok(run)
    }

    fn secret(&mut self, what: &str, secret: &str) {
        self.secrets.insert(what.to_owned(), secret.to_owned());
    }

    /// A token, and the parts of it that are not the same in all.
    fn token(&mut self, what: &str, token: &str) {
        self.secret(what, token);
        for (part, text) in token.split('.').skip(1).enumerate() {
            self.secret(&format!("{what}, part {part}"), text);
        }
    }

    /// An answer that must not contain a secret.
    fn heard(&mut self, what: &str, answer: &Answer) {
        let all = [answer.heads.as_bytes(), &answer.body].concat();
        self.sinks.push((format!("the answer {what}"), all));
    }

    /// Opens a page or submits a form of the platform, as the signed-in user.
    fn page(&self, path: &str, fields: &[(&str, &str)]) -> Result<Answer> {
        let base = self.managed.control.base_url();
        let (url, jar) = (format!("{base}{path}"), self.managed.jar());
        let origin = format!("Origin: {base}");
        let fields: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut args = vec!["-b", &jar, "-H", &origin];
        for field in &fields {
            args.extend(["--data-urlencode", field]);
        }
        args.push(&url);
        Curl::plain().get(&args)
    }

    fn a_person_at_the_pages(&mut self) -> Result<()> {
        let email = "ada@example.com";
        let wrong = "a-password-that-is-not-hers-4711";
        self.secret("a wrong password", wrong);
        let refused = self.page("/login", &[("email", email), ("password", wrong)])?;
        self.heard("to a wrong password", &refused);
        self.page("/reset", &[("email", email)])?;
        let mut mail = String::new();
        eventually("the mail", || {
            // Mails wrap their lines.
            mail = self
                .managed
                .mails()
                .unwrap_or_default()
                .concat()
                .replace("=\r\n", "")
                .replace("=\n", "");
            Ok(mail.contains("/reset/"))
        })?;
        let (_, link) = mail.split_once("/reset/").context("no link")?;
        let link: String = link.chars().take_while(|c| !c.is_whitespace()).collect();
        let new = "a-new-password-of-hers-that-is-long-0815";
        self.secret("the secret of a link to a new password", &link);
        self.secret("a password that was too late", new);
        let page = self.page("/account/second-factor", &[("x", "y")])?.text();
        let key = page.split_once("<code class=\"key\">").context("no key")?.1;
        let key = key.split_once('<').context("no key")?.0;
        self.secret("the key of an authenticator, as it is shown", key);
        self.secret("the key of an authenticator", &key.replace(' ', ""));
        let code = self.page("/account/second-factor/confirm", &[("code", "000000")])?;
        ensure!(code.status < 500, "{code:?}");
        let late = self.page(
            &format!("/reset/{}x", &link[..link.len() - 1]),
            &[("password", new)],
        )?;
        self.heard("to a secret that is not it", &late);
        Ok(())
    }

    fn a_program_with_a_grant(&mut self) -> Result<()> {
        let verifier = "verifier-of-the-program-that-nobody-else-may-see";
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        let asked = format!(
            "/oauth/authorize?client_id={CLIENT}&redirect_uri={CALLBACK}&response_type=code\
             &scope=tunnels.resources.read-only&state=state-of-the-program\
             &code_challenge={challenge}&code_challenge_method=S256"
        );
        let base = self.managed.control.base_url();
        let (url, jar) = (format!("{base}{asked}"), self.managed.jar());
        let page = Curl::plain().get(&["-b", &jar, &url])?;
        let (request, session) = (hidden(&page, "request")?, hidden(&page, "session")?);
        let fields = [
            ("request", &*request),
            ("session", &session),
            ("decision", "approve"),
        ];
        let back = self.page("/oauth/authorize", &fields)?;
        let address = back
            .header("location")
            .with_context(|| format!("nobody returned: {back:?}"))?;
        let code = address.split_once("code=").context("no code")?.1;
        let code = code.split('&').next().unwrap_or_default().to_owned();
        self.secret("the verifier of a grant", verifier);
        self.secret("the code of a grant", &code);
        let redeem = |code: &str| {
            self.page(
                "/oauth/token",
                &[
                    ("grant_type", "authorization_code"),
                    ("client_id", CLIENT),
                    ("redirect_uri", CALLBACK),
                    ("code", code),
                    ("code_verifier", verifier),
                ],
            )
        };
        let granted = redeem(&code)?;
        let token = granted.json()["access_token"].as_str().map(str::to_owned);
        let token = token.with_context(|| format!("no token: {granted:?}"))?;
        let again = redeem(&code)?;
        self.token("the token of a grant", &token);
        self.heard("to a code that is used twice", &again);
        let revoked = self.page("/oauth/revoke", &[("token", &token), ("client_id", CLIENT)])?;
        self.heard("to a revocation", &revoked);
        Ok(())
    }

    fn a_device_that_waits(&mut self) -> Result<()> {
        let asked = self.page(
            "/oauth/device_authorization",
            &[
                ("client_id", "svc-cli"),
                ("scope", "tunnels.resources.read-only"),
            ],
        )?;
        let given = asked.json();
        let code = given["device_code"].as_str();
        let code = code.with_context(|| format!("no code: {asked:?}"))?;
        self.secret("the code of a device", code);
        let user = given["user_code"].as_str().context("no code")?;
        self.secret("the code that a person types", user);
        for code in [code, "a-code-of-a-device-that-is-none"] {
            let waiting = self.page(
                "/oauth/token",
                &[
                    ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
                    ("client_id", "svc-cli"),
                    ("device_code", code),
                ],
            )?;
            self.heard("to a device", &waiting);
        }
        let typed = self.page("/device", &[("user_code", "ZZZZ-ZZZZ")])?;
        self.heard("to a wrong code", &typed);
        Ok(())
    }

    /// Credentials of every kind, each used, rotated or revoked.
    fn what_is_issued(&mut self) -> Result<()> {
        let managed = self.managed;
        let project = format!("/api/projects/tunnels/{}", managed.project());
        let made = |path: &str, body: Value, field: &str| -> Result<(Value, String)> {
            let answer = managed.call("POST", path, Some(&body))?;
            let json = answer.json();
            let secret = json[field].as_str().map(str::to_owned);
            let secret = secret.with_context(|| format!("{path}: {answer:?}"))?;
            Ok((json, secret))
        };
        let (_, token) = made(
            "/api/tokens",
            json!({"permissions": ["tunnels.streams.create-delete"], "ttlSeconds": 300}),
            "token",
        )?;
        self.token("a delegated token", &token);
        let pat = json!({"type": "pat", "name": "another"});
        let (issued, token) = made("/api/credentials", pat, "token")?;
        self.token("another token", &token);
        let id = issued["credential"]["id"].as_str().context("no id")?;
        let rotate = format!("/api/credentials/{id}/rotate");
        let (_, token) = made(&rotate, json!({"overlapSeconds": 60}), "token")?;
        self.token("a rotated token", &token);
        let webhook = json!({
            "name": "in", "events": ["tunnel.created"],
            "config": {"url": "https://127.0.0.1:1/in?key=secret-of-the-receiver"},
        });
        let webhooks = format!("{project}/webhooks");
        let (hook, secret) = made(&webhooks, webhook, "signingSecret")?;
        self.secret("the secret of a webhook", &secret);
        self.secret("its key", secret.trim_start_matches("whsec_"));
        let hook = hook["id"].as_str().or(hook["webhook"]["id"].as_str());
        let rotate = format!("{webhooks}/{}/secret/rotate", hook.context("no id")?);
        let (_, secret) = made(&rotate, json!({}), "signingSecret")?;
        self.secret("the next secret of a webhook", &secret);
        let turn = format!("{project}/turn-server/credentials");
        let (_, password) = made(&turn, json!({}), "credential")?;
        self.secret("the password of a relay", &password);
        let revoked = managed.call("DELETE", &format!("/api/credentials/{id}"), None)?;
        ensure!(revoked.status == 204, "{revoked:?}");
        Ok(())
    }

    #[expect(
        clippy::too_many_lines,
        reason = "a test tells one story from start to end"
    )]
    fn visitors_and_agents(&mut self) -> Result<()> {
        let managed = self.managed;
        let service = Service::mirror()?.to_string();
        let agent = managed.forward(&service, &["--http", "--name", "web", "--token-auth"])?;
        let address = agent.url("/x");
        let good = managed.token();
        let bad = format!(
            "{}.{}",
            good.rsplit_once('.').context("a token")?.0,
            "B".repeat(86)
        );
        self.secret("a wrong signature", &"B".repeat(86));
        let dots = good.replace('.', "%2E");
        let basic = "YXBwbGljYXRpb246c2VjcmV0LW9mLXRoZS1zZXJ2aWNl";
        let inner = "session-of-the-service-that-is-not-ours";
        self.secret("a password of the application", basic);
        self.secret("a cookie of the application", inner);
        self.secret(
            "a parameter of the application",
            "parameter-of-the-application",
        );
        let cookie = format!("Cookie: __Host-svc_auth={inner}; app={inner}");
        let bearer = |token: &str| format!("Authorization: Bearer {token}");
        let referer = format!("Referer: {address}?svc.token={good}");
        let curl = Curl::new(&managed.engine);
        let visits: [(&str, u64, Vec<String>); VISITS] = [
            (
                "with a bearer",
                200,
                vec!["-H".into(), bearer(good), address.clone()],
            ),
            (
                "in the query",
                200,
                vec![format!(
                    "{address}?a=parameter-of-the-application&svc.token={good}"
                )],
            ),
            (
                "in the query, escaped",
                200,
                vec![format!("{address}?svc%2Etoken={dots}")],
            ),
            (
                "in the other spelling",
                200,
                vec![format!("{address}?rstream.token={good}")],
            ),
            (
                "beside other credentials",
                200,
                vec![
                    "-H".into(),
                    format!("Authorization: Basic {basic}"),
                    "-H".into(),
                    cookie.clone(),
                    "-H".into(),
                    referer,
                    format!("{address}?svc.token={good}"),
                ],
            ),
            (
                "with a bad bearer",
                401,
                vec!["-H".into(), bearer(&bad), address.clone()],
            ),
            (
                "with a bad query",
                401,
                vec![format!("{address}?svc.token={bad}")],
            ),
            (
                "twice",
                400,
                vec![format!("{address}?svc.token={good}&svc.token={good}")],
            ),
            (
                "with something behind it",
                400,
                vec![format!("{address}?svc.token={good}%zz")],
            ),
            (
                "under a name that is none",
                401,
                vec![format!("{address}?SVC.TOKEN={good}")],
            ),
            (
                "with a cookie alone",
                401,
                vec!["-H".into(), cookie, address.clone()],
            ),
            (
                "at a name that nobody has",
                404,
                vec![
                    "-H".into(),
                    bearer(good),
                    address.replacen("https://", "https://x", 1) + "?svc.token=" + good,
                ],
            ),
        ];
        for (how, status, args) in visits {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let answer = curl.get(&args)?;
            ensure!(answer.status == status, "{how}: {answer:?}");
            // A service that mirrors its requests returns its own data.
            if status == 200 {
                ensure!(!answer.text().contains(good), "{how}: {answer:?}");
            } else {
                self.heard(how, &answer);
            }
        }
        // Sent to the Engine API, and by an agent.
        for token in [good, &bad, "no.token.at-all"] {
            managed.api_status(token)?;
        }
        let api = format!(
            "https://{}/api/tunnels?svc.token={good}&params=%7B",
            managed.address()?
        );
        self.heard("of the Engine API to a query", &curl.get(&[&api])?);
        let refused = managed.refused(&service, &bad)?;
        self.sinks
            .push(("an agent that is refused".to_owned(), refused));
        self.sinks.push(("the agent".to_owned(), agent.full_log()?));
        // Bad bearers at the platform.
        for (path, token) in [("/api/whoami", &*bad), ("/api/mcp", "no.token.at-all")] {
            let answer = managed.control.call(token, "GET", path, None)?;
            self.heard("of the platform to a bad bearer", &answer);
        }
        let body = json!({"type": "pat", "name": good, "permissions": "wrong"});
        let answer = managed.call("POST", "/api/credentials", Some(&body))?;
        self.heard("of the platform to a wrong body", &answer);
        Ok(())
    }

    /// Lists that can be read: they contain the objects, and no secrets.
    fn the_lists(&mut self) -> Result<()> {
        let managed = self.managed;
        let project = format!("/api/projects/tunnels/{}", managed.project());
        let listed = managed
            .call("GET", "/api/workspaces?type=personal", None)?
            .json();
        let workspace = listed["workspaces"][0]["id"]
            .as_str()
            .context("no workspace")?;
        // Those that had a tunnel: all but the one at an unknown name.
        eventually("records of the visits", || {
            let logs = managed.call("GET", &format!("{project}/logs?pageSize=100"), None)?;
            let count = logs.json()["logs"].as_array().map_or(0, Vec::len);
            Ok(count >= VISITS - 1)
        })?;
        for path in [
            "/api/credentials".to_owned(),
            "/api/whoami".to_owned(),
            "/api/user".to_owned(),
            format!("/api/workspaces/{workspace}/audit?pageSize=100"),
            format!("/api/workspaces/{workspace}/members"),
            project.clone(),
            format!("{project}/settings"),
            format!("{project}/logs?pageSize=100"),
            format!("{project}/events?pageSize=100"),
            format!("{project}/usage"),
            format!("{project}/webhooks"),
        ] {
            let answer = managed.call("GET", &path, None)?;
            ensure!(answer.status == 200, "{path}: {answer:?}");
            self.heard(&path, &answer);
        }
        let hooks = managed
            .call("GET", &format!("{project}/webhooks"), None)?
            .json();
        let hook = hooks["webhooks"][0]["id"].as_str().context("no webhook")?;
        let path = format!("{project}/webhooks/{hook}/deliveries");
        self.heard("of deliveries", &managed.call("GET", &path, None)?);
        let curl = Curl::new(&managed.engine);
        let bearer = format!("Authorization: Bearer {}", managed.token());
        for path in [
            "/api/tunnels",
            "/api/clients",
            "/api/auth",
            "/api/openapi.json",
        ] {
            let url = format!("https://{}{path}", managed.address()?);
            self.heard(path, &curl.get(&["-H", &bearer, &url])?);
        }
        for path in ["/metrics", "/healthz", "/readyz"] {
            let answer = Curl::plain().get(&[&managed.metrics_url(path)])?;
            self.heard(path, &answer);
        }
        Ok(())
    }
}

/// The value of a hidden field in a page's form.
fn hidden(page: &Answer, name: &str) -> Result<String> {
    let text = page.text();
    let mark = format!("name=\"{name}\" value=\"");
    let field = text.split_once(&mark);
    let (_, rest) = field.with_context(|| format!("no {name}: {page:?}"))?;
    let value = rest.split_once('"').context("no end")?.0;
    Ok(value.replace("&#38;", "&").replace("&amp;", "&"))
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

const CALLBACK: &str = "http://127.0.0.1:9/callback";

/// Approximate number of visits to the published service.
const VISITS: usize = 12;
