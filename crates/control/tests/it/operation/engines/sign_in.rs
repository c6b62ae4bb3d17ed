//! `/edge/sign-in`: a browser that an engine sends here returns with a code, and is redirected
//! nowhere else.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Value, json};
use store::domains::State;
use store::members::Role;
use store::{domains, projects, users, workspaces};

use super::changes::custom_domain;
use super::linkable;
use crate::support::{Browser, PASSWORD, Person, Project, TestControl, both};

both! {
    a_user_returns_with_a_code_for_this_browser_only,
    sign_in_never_redirects_to_another_host,
    a_custom_domain_leads_back_to_its_project,
    only_members_of_the_project_are_redirected_back,
    a_refused_user_is_told_whom_to_ask_and_keeps_the_address,
    the_sign_in_page_names_the_tunnel,
    a_code_is_not_a_token,
    codes_are_rate_limited,
}

const NONCE: &str = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";

pub(super) fn host(project: &Project) -> String {
    format!("my-app-{}.t.engine.example:8443", project.endpoint)
}

pub(super) fn path(host: &str) -> String {
    let query = types::form::encode([("host", host), ("nonce", NONCE), ("state", "ab&c")]);
    format!("/edge/sign-in?{query}")
}

pub(super) async fn one(control: TestControl) -> (TestControl, Person, Project) {
    let control = linkable(control).await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    (control, ada, project)
}

/// The code in the redirect address.
pub(super) fn code(location: &str) -> String {
    let (_, query) = location.split_once("?code=").unwrap();
    query.split('&').next().unwrap().to_owned()
}

async fn a_user_returns_with_a_code_for_this_browser_only(control: TestControl) {
    let (control, ada, project) = one(control).await;
    let sign_in_path = path(&host(&project));
    // Without a session the sign-in comes first, and returns here.
    let mut browser = control.browser();
    let first = browser.open(&sign_in_path).await;
    assert_eq!(first.status, 303);
    let login = first.location.unwrap();
    assert!(
        login.starts_with("/login?next=/edge/sign-in?host="),
        "{login}"
    );
    let next = login.strip_prefix("/login?next=").unwrap();
    let next = next.replace("%26", "&").replace("%25", "%");
    let fields = [
        ("email", "ada@example.com"),
        ("password", PASSWORD),
        ("next", &next),
    ];
    let back = browser.submit("/login", &fields).await;
    let again = back.location.unwrap();
    assert!(again.starts_with("/edge/sign-in?"), "{again}");
    // The redirect follows a form, and browsers restrict form redirects to our own host. Therefore
    // a page leads on.
    let page = browser.open(&again).await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert_eq!(page.header("cache-control"), "no-store");
    assert_eq!(page.header("referrer-policy"), "no-referrer");
    let callback = format!(
        "<meta http-equiv=\"refresh\" content=\"0; url=https://{}/.well-known/svc/callback?code=",
        host(&project)
    );
    assert!(page.text.contains(&callback), "{}", page.text);
    // Signed in already, without a form in between.
    let answer = browser.open(&sign_in_path).await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("referrer-policy"), "no-referrer");
    assert!(
        answer
            .header("content-security-policy")
            .contains("frame-ancestors 'none'")
    );
    let location = answer.location.clone().unwrap();
    let wanted = format!("https://{}/.well-known/svc/callback?code=", host(&project));
    assert!(location.starts_with(&wanted), "{location}");
    assert!(location.ends_with("&state=ab%26c"), "{location}");

    let code = code(&location);
    let jwks = control.get("/.well-known/jwks.json", "").await.json();
    let key = DecodingKey::from_ed_components(jwks["keys"][0]["x"].as_str().unwrap()).unwrap();
    let mut validation = Validation::new(Algorithm::EdDSA);
    validation.set_audience(&[format!("https://{}", host(&project))]);
    validation.validate_exp = false;
    let decoded = jsonwebtoken::decode::<Value>(&code, &key, &validation).unwrap();
    assert_eq!(decoded.header.typ.as_deref(), Some(api::link::SIGN_IN_TYPE));
    assert_eq!(
        decoded.header.kid.as_deref(),
        jwks["keys"][0]["kid"].as_str()
    );
    let claims = decoded.claims;
    assert_eq!(
        (&claims["iss"], &claims["sub"]),
        (&json!("https://svc.example"), &json!(ada.user))
    );
    assert_eq!(claims["nonce"], json!(NONCE));
    // The tunnel requests nothing about the user, and so the engine receives nothing.
    assert_eq!(claims["identity"], json!([]));
    assert!(claims.get("email").is_none() && claims.get("name").is_none());
    let now = control.now().as_second();
    assert_eq!(
        (&claims["iat"], &claims["exp"]),
        (&json!(now), &json!(now + 60))
    );
    // Two requests return two codes.
    let second = browser.open(&sign_in_path).await.location.unwrap();
    assert_ne!(self::code(&second), code);
}

/// The redirect address must be, byte for byte, that of a tunnel on the cluster and port of the
/// project.
async fn sign_in_never_redirects_to_another_host(control: TestControl) {
    let (control, _, project) = one(control).await;
    let mut ada = control.signed_in("ada").await;
    let endpoint = &project.endpoint;
    let own = format!("a-{endpoint}.t.engine.example");
    let good = format!("{own}:8443");
    assert_eq!(ada.open(&path(&good)).await.status, 303);
    for (bad, status) in [
        (own.clone(), 404),
        (format!("{own}:443"), 400),
        (format!("{own}:08443"), 400),
        (format!("{own}:8444"), 404),
        (format!("{own}:80"), 404),
        (format!("evil.example@{good}"), 400),
        (format!("{good}@evil.example"), 400),
        (format!("{good}:x@evil.example"), 400),
        (format!("{good}\\@evil.example"), 400),
        (format!("evil.example\\{good}"), 400),
        (format!("evil.example/{good}"), 400),
        (format!("evil.example#{good}"), 400),
        (format!("evil.example?{good}"), 400),
        (format!("//{good}"), 400),
        (format!("{good}/"), 400),
        (format!("{own}.:8443"), 400),
        (format!("{own}.evil.example:8443"), 404),
        (format!("a-{endpoint}.t.engine.example.evil.example"), 404),
        (format!("a-{endpoint}.t.evil-engine.example:8443"), 404),
        (format!("a-{endpoint}.t.other.example"), 404),
        (format!("a-{endpoint}.engine.example:8443"), 400),
        (format!("{endpoint}.t.engine.example:8443"), 400),
        (format!("x.a-{endpoint}.t.engine.example:8443"), 400),
        (good.to_uppercase(), 400),
        (good.replace("engine", "Engine"), 400),
        (good.replace("engine", "\u{435}ngine"), 400),
        (good.replace('.', "\u{3002}"), 400),
        (good.replace("engine", "engin%65"), 400),
        (format!(" {good}"), 400),
        (format!("{good}\r\nset-cookie: a=b"), 400),
        (format!("{good}\t"), 400),
        (format!("a-{endpoint}.t.engine.example\0:8443"), 400),
        ("a-ffffffff.t.engine.example:8443".to_owned(), 404),
        ("engine.example:8443".to_owned(), 400),
        ("svc.example".to_owned(), 400),
        ("[::1]:8443".to_owned(), 400),
        (String::new(), 400),
    ] {
        let answer = ada.open(&path(&bad)).await;
        assert_eq!(
            (answer.status, &answer.location),
            (status, &None),
            "{bad:?}"
        );
        assert!(
            answer.header("content-type").starts_with("text/html"),
            "{bad:?}"
        );
        assert!(!answer.text.contains("evil"), "{bad:?}");
        // The sign-in does not lead there either.
        let anonymous = control.browser().open(&path(&bad)).await;
        let to = anonymous.location.unwrap_or_default();
        assert!(
            to.is_empty() || to.starts_with("/login?next=/edge/sign-in?"),
            "{bad:?} {to}"
        );
    }
    let good = path(&good);
    for bad in [
        good.replace(NONCE, "short"),
        good.replace(NONCE, &NONCE.replace('4', "+")),
        format!("{good}&host=evil.example"),
        good.replace("state=", "status="),
        good.replace("state=ab%26c", &format!("state={}", "a".repeat(2049))),
        good.replace("state=ab", "state=%0d%0a"),
        "/edge/sign-in".to_owned(),
    ] {
        let answer = ada.open(&bad).await;
        assert_eq!((answer.status, &answer.location), (400, &None), "{bad}");
    }
}

/// The host may be a custom domain that engines serve, at the port of the project.
async fn a_custom_domain_leads_back_to_its_project(control: TestControl) {
    let (control, ada, project) = one(control).await;
    let mut tx = control.app.store.begin().await.unwrap();
    for (number, (name, state)) in [
        ("app.example.com", State::Verified),
        ("*.shop.example.com", State::Warned),
        ("pending.example.com", State::Pending),
        ("lost.example.com", State::Suspended),
    ]
    .into_iter()
    .enumerate()
    {
        let domain = custom_domain(&control, (&ada, &project), number, name, state);
        domains::insert(&mut tx, &domain).await.unwrap();
    }
    tx.commit().await.unwrap();
    let mut browser = control.signed_in("ada").await;
    for host in ["app.example.com:8443", "a.shop.example.com:8443"] {
        let location = browser.open(&path(host)).await.location.unwrap();
        let wanted = format!("https://{host}/.well-known/svc/callback?code=");
        assert!(location.starts_with(&wanted), "{location}");
    }
    for (host, status) in [
        ("app.example.com", 404),
        ("app.example.com:8444", 404),
        ("shop.example.com:8443", 400),
        ("a.b.shop.example.com:8443", 400),
        ("*.shop.example.com:8443", 400),
        ("pending.example.com:8443", 400),
        ("lost.example.com:8443", 400),
        ("App.example.com:8443", 400),
        ("app.example.com.:8443", 400),
    ] {
        let answer = browser.open(&path(host)).await;
        assert_eq!((answer.status, &answer.location), (status, &None), "{host}");
    }
    control.person("eve").await;
    let mut stranger = control.signed_in("eve").await;
    let refused = stranger.open(&path("app.example.com:8443")).await;
    assert_eq!((refused.status, &refused.location), (404, &None));
}

async fn only_members_of_the_project_are_redirected_back(control: TestControl) {
    let (control, ada, project) = one(control).await;
    let sign_in_path = path(&host(&project));
    let status = async |browser: &mut Browser<'_>| browser.open(&sign_in_path).await.status;
    for (name, role, wanted) in [
        ("owner", Some(Role::Owner), 303),
        ("member", Some(Role::Member), 303),
        ("viewer", Some(Role::Viewer), 403),
        ("stranger", None, 404),
    ] {
        let person = control.person(name).await;
        if let Some(role) = role {
            control.join(&person, ada.workspace, role).await;
        }
        let mut browser = control.signed_in(name).await;
        assert_eq!(status(&mut browser).await, wanted, "{name}");
    }
    let mut browser = control.signed_in("ada").await;
    let change = async |on: bool| {
        let now = control.now();
        let mut tx = control.app.store.begin().await.unwrap();
        let (active, suspended) = (workspaces::Status::Active, workspaces::Status::Suspended);
        let (from, to) = if on {
            (active, suspended)
        } else {
            (suspended, active)
        };
        let changed = workspaces::change_status(&mut tx, ada.workspace, from, to, now).await;
        assert!(changed.unwrap());
        tx.commit().await.unwrap();
    };
    change(true).await;
    assert_eq!(status(&mut browser).await, 403);
    change(false).await;
    let mut tx = control.app.store.begin().await.unwrap();
    projects::suspend(&mut tx, project.id, control.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let page = browser.open(&sign_in_path).await;
    assert_eq!(page.status, 403);
    assert!(page.text.contains("ada@example.com"));
    let mut tx = control.app.store.begin().await.unwrap();
    projects::resume(&mut tx, project.id, control.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(status(&mut browser).await, 303);
    // A user without access to the platform counts as signed out, and must sign in.
    let mut tx = control.app.store.begin().await.unwrap();
    let (from, to) = (users::Status::Active, users::Status::Suspended);
    users::change_status(&mut tx, ada.user, from, to, control.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let out = browser.open(&sign_in_path).await.location.unwrap();
    assert!(out.starts_with("/login?next="), "{out}");
}

async fn a_refused_user_is_told_whom_to_ask_and_keeps_the_address(control: TestControl) {
    let (control, ada, project) = one(control).await;
    let sign_in_path = path(&host(&project));
    let viewer = control.person("viewer").await;
    control.join(&viewer, ada.workspace, Role::Viewer).await;
    control.person("stranger").await;
    for (name, status) in [("viewer", 403), ("stranger", 404)] {
        let mut browser = control.signed_in(name).await;
        let page = browser.open(&sign_in_path).await;
        assert_eq!(page.status, status);
        // Forms of a page without a referrer have no origin, and would be refused.
        assert_eq!(page.header("referrer-policy"), "same-origin");
        assert!(page.text.contains(&format!("<b>{name}@example.com</b>")));
        // Only members of the workspace see who manages it.
        let names_manager = page.text.contains("ada@example.com can give you access");
        assert_eq!(names_manager, name == "viewer", "{}", page.text);
        // A script keeps the fragment, which browsers drop when the form is sent.
        let script = "<script src=\"/fragment.js\" defer></script>";
        assert!(page.text.contains(script), "{}", page.text);
        let policy = page.header("content-security-policy");
        assert!(policy.contains("script-src 'self'"), "{policy}");
        let next = page.between("name=\"next\" value=\"", "\"");
        let next = next.replace("&#38;", "&").replace("&amp;", "&");
        let out = browser.submit("/logout", &[("next", &next)]).await;
        let login = out.location.unwrap();
        assert!(
            login.starts_with("/login?next=/edge/sign-in?host="),
            "{login}"
        );
        let fields = [
            ("email", "ada@example.com"),
            ("password", PASSWORD),
            ("next", next.as_str()),
        ];
        let back = browser.submit("/login", &fields).await;
        let page = browser.open(&back.location.unwrap()).await;
        let callback = "/.well-known/svc/callback?code=";
        assert!(page.text.contains(callback), "{}", page.text);
    }
    // The address after a sign-out is one of the platform.
    for bad in ["https://evil.example", "//evil.example", "/\\evil.example"] {
        let mut browser = control.signed_in("ada").await;
        let out = browser.submit("/logout", &[("next", bad)]).await;
        let login = out.location.as_deref();
        assert_eq!(login, Some("/login?next=/"), "{bad}");
    }
}

async fn the_sign_in_page_names_the_tunnel(control: TestControl) {
    let (control, ada, project) = one(control).await;
    let own = host(&project);
    let mut tx = control.app.store.begin().await.unwrap();
    for (number, (name, state)) in [
        ("app.example.com", State::Verified),
        ("new.example.com", State::Pending),
    ]
    .into_iter()
    .enumerate()
    {
        let domain = custom_domain(&control, (&ada, &project), number, name, state);
        domains::insert(&mut tx, &domain).await.unwrap();
    }
    tx.commit().await.unwrap();
    let login = async |host: &str| {
        let next = path(host).replace('%', "%25").replace('&', "%26");
        let mut browser = control.browser();
        browser.open(&format!("/login?next={next}")).await.text
    };
    for own in [own.as_str(), "app.example.com:8443"] {
        let named = format!("You are going to <b>{own}</b>.");
        assert!(login(own).await.contains(&named), "{own}");
    }
    // A stranger cannot write a name of their own onto the page.
    for foreign in [
        "my-bank-0a1b2c3d.t.evil.example",
        "my-app-0a1b2c3d.t.engine.example:444",
        "app.example.com",
        "new.example.com:8443",
        "evil.example",
    ] {
        let page = login(foreign).await;
        assert!(!page.contains("You are going to"), "{foreign}");
        assert!(!page.contains(&format!("<b>{foreign}")), "{foreign}");
    }
}

/// A code authenticates nothing here, and an engine does not accept a token as a code.
async fn a_code_is_not_a_token(control: TestControl) {
    let (control, ada, project) = one(control).await;
    let mut browser = control.signed_in("ada").await;
    let location = browser.open(&path(&host(&project))).await.location.unwrap();
    let answer = control.get("/api/whoami", &code(&location)).await;
    assert_eq!(answer.problem(), (401, "invalid_token".to_owned()));
    let header = ada.token.split('.').next().unwrap();
    let header = BASE64_URL_SAFE_NO_PAD.decode(header).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    assert_ne!(header["typ"], api::link::SIGN_IN_TYPE);
}

/// A script that signs its user in without end gets codes at a limited rate. Other users are not
/// affected.
async fn codes_are_rate_limited(control: TestControl) {
    let (control, _ada, project) = one(control).await;
    let sign_in_path = path(&host(&project));
    let mut browser = control.signed_in("ada").await;
    for _ in 0..=100 {
        assert_eq!(browser.open(&sign_in_path).await.status, 303);
    }
    let answer = browser.open(&sign_in_path).await;
    assert_eq!(answer.status, 429, "{}", answer.text);
    assert_eq!(answer.header("retry-after"), "1");
    control.clock.advance(1);
    assert_eq!(browser.open(&sign_in_path).await.status, 303);
}
