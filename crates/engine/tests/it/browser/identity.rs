//! The identity of a signed-in visitor (ED-2), in the fields that the tunnel requests.

use api::link::{Item, Membership, Person};
use client::{Properties, Target};
use credentials::{AssertionKey, Secret};
use http_body_util::BodyExt as _;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Value, json};
use testing::{H2Visitor, TestTunnel, Upstream, within};

use super::session::{finish_sign_in, signed_in, start_sign_in};
use super::{A, Jar, Site, parameter, received_values, with_sessions};

fn with_identity(fields: &[&str]) -> Properties {
    let fields = fields.iter().map(|&field| field.to_owned());
    with_sessions().identity(fields.collect())
}

/// Gives `usr_ann` this role.
async fn set_role(site: &Site, role: &str) {
    site.platform.send(vec![Item::Person(Person {
        id: "usr_ann".to_owned(),
        name: String::new(),
        memberships: vec![Membership {
            workspace_id: format!("wks_{A}"),
            permissions: vec!["tunnels.streams.create-delete".to_owned()],
            role: Some(role.to_owned()),
        }],
        sessions_after: 0,
    })]);
    site.engine.wait_for_changes().await;
}

/// A browser that has signed in and shares these facts.
async fn sharing(site: &Site, claims: &Value) -> Jar {
    let departure = start_sign_in(site, "/", &Jar::default()).await;
    let code = departure.code(site, claims);
    let answer = finish_sign_in(site, &code, &departure.state, &departure.jar).await;
    assert_eq!(answer.status, 302, "{}", answer.text());
    let mut jar = departure.jar;
    jar.take(&answer);
    jar
}

/// Names under which a service behind WSGI, CGI or PHP reads the fields of the tests.
const SPELLINGS: [&str; 16] = [
    "svc-user-email",
    "SVC_USER_EMAIL",
    "Svc.User.Email",
    "svc-user-name",
    "svc-user_name",
    "svc-user-groups",
    "svc~user~groups",
    "svc-assertion",
    "Svc_Assertion",
    "x-svc-user-email",
    "Remote-User",
    "remote_user",
    "REMOTE.USER",
    "remote+user",
    "X-WEBAUTH-NAME",
    "x_webauth-name",
];

/// The request's fields that any of these servers would take for one of the names.
fn taken_for<'a>(seen: &'a Value, list: &str, known: &str) -> Vec<&'a str> {
    let folded = |name: &str| {
        let fold = |c: char| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '_'
            }
        };
        name.chars().map(fold).collect::<String>()
    };
    let fields = seen[list].as_array().map_or(&[][..], Vec::as_slice);
    let same = fields
        .iter()
        .filter(|field| folded(field[0].as_str().unwrap()) == folded(known));
    same.map(|field| field[1].as_str().unwrap()).collect()
}

/// Sends a request with hostile copies of all fields, as fields and as trailers, with HTTP/1.1 and
/// with HTTP/2. Returns the requests that the service received.
async fn attack(site: &Site, credential: (&str, &str)) -> [Value; 2] {
    let host = site.host();
    let (name, value) = credential;
    let lines: String = SPELLINGS.map(|name| format!("{name}: root\r\n")).concat();
    let own = "Sec-Fetch-Site: same-origin";
    let fields = format!("{name}: {value}\r\n{own}\r\nTransfer-Encoding: chunked\r\n{lines}");
    let mut visitor = site.engine.visitor().http1(host).await;
    visitor.request("POST", "/", host, &fields).await;
    let body = format!("2\r\nok\r\n0\r\nx-sum: 1\r\n{lines}\r\n");
    visitor.send(body).await;
    let answer = visitor.answer().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let by_http1 = answer.json();

    let mut trailers = hyper::HeaderMap::new();
    let mut request = hyper::Request::post(format!("https://{host}/"))
        .header("sec-fetch-site", "same-origin")
        .header(name, value);
    for spelling in SPELLINGS {
        let spelling: http::HeaderName = spelling.parse().unwrap();
        request = request.header(&spelling, "root");
        trailers.insert(spelling, "root".parse().unwrap());
    }
    trailers.insert("x-sum", "1".parse().unwrap());
    let body = H2Visitor::full("ok").with_trailers(async { Some(Ok(trailers)) });
    let request = request.body(body.boxed_unsync()).unwrap();
    let response = site.engine.visitor().h2(host).await.send(request).await;
    let answer = H2Visitor::collect(response.unwrap()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    [by_http1, answer.json()]
}

/// ED-2: the service receives what its tunnel requests, under the names that it wants, once, and
/// nothing of a visitor's copies. The encoding is that of the documentation.
#[tokio::test]
async fn ed_2_a_service_receives_the_identity_that_its_tunnel_requests() {
    let properties = with_identity(&[
        "email",
        "name",
        "groups",
        "email=Remote-User",
        "name=X-WEBAUTH-NAME",
    ]);
    for h2c in [false, true] {
        let mut site = Site::start(properties.clone()).await;
        if h2c {
            site.service = Upstream::h2c().await;
            let target: Target = site.service.addr().to_string().parse().unwrap();
            let agent = site.tunnel.agent().clone();
            let h2c = properties.clone().named("h2").http_version("h2c");
            site.tunnel = TestTunnel::open(agent, h2c, target).await;
        }
        set_role(&site, "member").await;
        let departure = start_sign_in(&site, "/", &Jar::default()).await;
        let claims = json!({
            "identity": ["email", "name", "groups"],
            "name": "Jürgen Österreich",
            "email": "j%r@example.com",
        });
        let code = departure.code(&site, &claims);
        let answer = finish_sign_in(&site, &code, &departure.state, &departure.jar).await;
        let mut jar = departure.jar;
        jar.take(&answer);
        let cookie = jar.field();
        let cookie = cookie.trim_start_matches("Cookie: ").trim();
        for seen in attack(&site, ("cookie", cookie)).await {
            for (name, value) in [
                ("svc-user-id", "usr_ann"),
                ("svc-user-email", "j%25r@example.com"),
                ("remote-user", "j%25r@example.com"),
                ("svc-user-name", "J%C3%BCrgen %C3%96sterreich"),
                ("x-webauth-name", "J%C3%BCrgen %C3%96sterreich"),
                ("svc-user-groups", "member"),
            ] {
                assert_eq!(taken_for(&seen, "headers", name), [value], "{name}: {seen}");
                assert_eq!(received_values(&seen, name), [value], "{name}: {seen}");
            }
            assert!(!seen.to_string().contains("root"), "{seen}");
        }
        // The role is the current one, without another sign-in.
        set_role(&site, "admin").await;
        let seen = site.get("/", &jar.field()).await.json();
        assert_eq!(received_values(&seen, "svc-user-groups"), ["admin"]);
    }
}

/// ED-2: the token of a user is not the user. Its bearer gets no identity, and cannot write one.
#[tokio::test]
async fn ed_2_a_token_has_no_identity() {
    let all = [
        "email",
        "name",
        "groups",
        "assertion",
        "email=Remote-User",
        "name=X-WEBAUTH-NAME",
        "id=X-Id",
    ];
    let site = Site::start(with_identity(&all).token_auth(true)).await;
    set_role(&site, "member").await;
    let bearer = format!("Bearer {}", site.token);
    for seen in attack(&site, ("authorization", &bearer)).await {
        assert_eq!(received_values(&seen, "svc-user-id"), ["usr_ann"]);
        for name in SPELLINGS.into_iter().chain(["x-id"]) {
            assert!(
                taken_for(&seen, "headers", name).is_empty(),
                "{name}: {seen}"
            );
        }
        assert!(!seen.to_string().contains("root"), "{seen}");
    }
    // Trailers with other names pass to a service with HTTP/1.1.
    let [seen, _] = attack(&site, ("authorization", &bearer)).await;
    assert_eq!(seen["trailers"], json!([["x-sum", "1"]]));
}

/// ED-2: a service that requests nothing receives only the id.
#[tokio::test]
async fn ed_2_a_tunnel_that_requests_no_identity_gets_none() {
    let site = Site::start(with_sessions()).await;
    set_role(&site, "member").await;
    let jar = signed_in(&site).await;
    let seen = site
        .get("/", &format!("{}Remote-User: x\r\n", jar.field()))
        .await
        .json();
    assert_eq!(received_values(&seen, "svc-user-id"), ["usr_ann"]);
    for name in [
        "svc-user-email",
        "svc-user-name",
        "svc-user-groups",
        "svc-assertion",
    ] {
        assert!(received_values(&seen, name).is_empty(), "{name}");
    }
    // A name that the owner did not map has no meaning here.
    assert_eq!(received_values(&seen, "remote-user"), ["x"]);
}

/// ED-2: a service verifies an assertion with the published key of the cluster. The assertion is
/// for this tunnel and for one minute.
#[tokio::test]
async fn ed_2_a_service_can_verify_the_identity_of_the_visitor() {
    let site = Site::start(with_identity(&["email", "name", "groups", "assertion"])).await;
    set_role(&site, "member").await;
    let jar = sharing(
        &site,
        &json!({"name": "Jürgen", "identity": ["email", "name", "groups"]}),
    )
    .await;
    let seen = site.get("/", &jar.field()).await.json();
    let [assertion] = received_values(&seen, "svc-assertion")[..] else {
        panic!("{seen}");
    };
    let key = AssertionKey::derive(&Secret::new(site.platform.secret())).unwrap();
    let jwk: Jwk = serde_json::from_value(key.jwk().clone()).unwrap();
    let audience = format!("https://{}", site.host());
    let mut validation = Validation::new(Algorithm::ES256);
    validation.set_audience(&[&audience]);
    validation.set_issuer(&[site.platform.base_url()]);
    let decoding = DecodingKey::from_jwk(&jwk).unwrap();
    let verified = jsonwebtoken::decode::<Value>(assertion, &decoding, &validation).unwrap();
    assert_eq!(verified.header.kid, jwk.common.key_id);
    let claims = verified.claims;
    for (name, value) in [
        ("sub", json!("usr_ann")),
        ("email", json!("ann@example.com")),
        ("name", json!("Jürgen")),
        ("groups", json!(["member"])),
        ("project_id", json!("prj_aaaaaaaa")),
    ] {
        assert_eq!(claims[name], value, "{claims}");
    }
    let [issued, expires] = ["iat", "exp"].map(|name| claims[name].as_i64().unwrap());
    assert_eq!(expires - issued, 60);
    // It is not a token of the platform.
    let answer = site
        .send(
            "GET",
            "/",
            &format!("Authorization: Bearer {assertion}\r\n"),
        )
        .await;
    assert_eq!(answer.status, 401);

    // Only the facts that the tunnel requests are in an assertion.
    let site = Site::start(with_identity(&["assertion"])).await;
    let seen = site.get("/", &signed_in(&site).await.field()).await.json();
    let assertion = received_values(&seen, "svc-assertion");
    let read = credentials::inspect(assertion[0]).unwrap();
    let mut names: Vec<_> = read["claims"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    names.sort();
    assert_eq!(names, ["aud", "exp", "iat", "iss", "project_id", "sub"]);
}

/// ED-2: the engine requests only what the tunnel requests. A user who has not agreed to share it
/// signs in again, also if the tunnel changes during a session.
#[tokio::test]
async fn ed_2_a_user_agrees_to_every_fact() {
    let mut site = Site::start(with_sessions()).await;
    let departure = site.open("/", &Jar::default()).await;
    let location = departure.header("location").unwrap();
    assert!(!location.contains("identity"), "{location}");
    let jar = sharing(&site, &json!({"identity": []})).await;
    assert_eq!(site.get("/", &jar.field()).await.status, 200);
    // The owner opens the tunnel again and requests more.
    let agent = site.tunnel.agent().clone();
    let target: Target = site.service.addr().to_string().parse().unwrap();
    let same_host = with_identity(&["name=x-name", "email", "assertion"]).hostname(site.host());
    let old = std::mem::replace(
        &mut site.tunnel,
        TestTunnel::open(agent.clone(), with_sessions(), target.clone()).await,
    );
    within("the end of the tunnel", old.close()).await;
    site.tunnel = TestTunnel::open(agent, same_host, target).await;
    let before = site.service.accepted();
    assert_eq!(site.get("/", &jar.field()).await.status, 401);
    let answer = site.open("/", &jar).await;
    assert_eq!(answer.status, 302);
    let location = answer.header("location").unwrap();
    assert_eq!(parameter(location, "identity"), "email,name");
    assert_eq!(site.service.accepted(), before);
    // A code for less than that leads to the sign-in again.
    let partial = sharing(&site, &json!({"identity": ["email"]})).await;
    assert_eq!(site.open("/", &partial).await.status, 302);
    // A platform that does not state an address has none that is verified.
    let claims = json!({"identity": ["email", "name"], "email": null});
    let agreed = sharing(&site, &claims).await;
    let seen = site.get("/", &agreed.field()).await.json();
    assert_eq!(received_values(&seen, "x-name"), ["Ann"]);
    assert!(received_values(&seen, "svc-user-email").is_empty());
    // A platform of an earlier version does not ask its users.
    let earlier = sharing(&site, &json!({})).await;
    let seen = site.get("/", &earlier.field()).await.json();
    assert_eq!(
        received_values(&seen, "svc-user-email"),
        ["ann@example.com"]
    );
}

/// ED-2: an option that could not take effect, and a header with another meaning.
#[tokio::test]
async fn ed_2_an_identity_needs_sessions_and_a_free_header() {
    let site = Site::start(with_sessions()).await;
    let agent = site.tunnel.agent();
    for (properties, reason) in [
        (
            Properties::http().identity(vec!["email".to_owned()]),
            "set svc_auth",
        ),
        (with_identity(&["email=Host"]), "another meaning"),
        (with_identity(&["email=authorization"]), "another meaning"),
        (
            with_identity(&["email=x_user"]),
            "letters, digits and dashes",
        ),
        (with_identity(&["phone"]), "expected id, email"),
        (
            with_identity(&["email=x-user", "id=X-User"]),
            "the same header",
        ),
    ] {
        let mut refused = agent.open(properties);
        let refused = within("refusal", refused.online()).await.unwrap_err();
        let text = format!("{refused:?}");
        assert!(text.contains(reason) && text.contains("identity"), "{text}");
    }
}
