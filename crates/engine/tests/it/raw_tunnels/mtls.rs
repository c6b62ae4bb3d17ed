//! Visitors that authenticate with client certificates. `openssl` creates the certificates, and
//! `curl` also presents them.

mod authorities;
mod openssl;

use std::ops::Deref;
use std::sync::Arc;

use api::control::settings::ProjectSettings;
use api::link::CredentialProof;
use client::Properties;
use http::Request;
use rustls::client::Resumption;
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion, version};
use serde_json::{Value, json};
use testing::{EventSource, H2Visitor, RawVisitor, ReceivedResponse, TestTunnel, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use self::openssl::{CurlOutput, Identity, Pki, curl};
use crate::world::A;

const CLIENT: &str = "extendedKeyUsage=clientAuth\n";
const AUTHORITY: &str = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n";
const DAY: i64 = 86400;

/// A test world with keys and certificates.
struct World {
    world: crate::world::World,
    pki: Pki,
}

impl Deref for World {
    type Target = crate::world::World;

    fn deref(&self) -> &Self::Target {
        &self.world
    }
}

impl World {
    async fn new() -> Self {
        Self::with("").await
    }

    async fn with(sections: &str) -> Self {
        Self {
            world: crate::world::World::with(sections).await,
            pki: Pki::new(),
        }
    }

    /// Registers a certificate of `usr_ann`. Returns the id of its credential.
    async fn register(&self, identity: &Identity) -> String {
        let sha256 = identity.sha256();
        self.credential(CredentialProof::Certificate { sha256 }, None)
            .await
    }

    async fn register_authority(&self, certificate: String) -> String {
        self.credential(CredentialProof::Authority { certificate }, None)
            .await
    }

    async fn credential(&self, proof: CredentialProof, resources: Option<Value>) -> String {
        let change = |credential: &mut api::link::Credential| credential.resources = resources;
        let id = self.platform.add_credential_with("usr_ann", proof, change);
        self.engine.wait_for_changes().await;
        id
    }

    fn client(&self, identity: &Identity, alpns: &[&str]) -> Arc<ClientConfig> {
        identity.client(&self.engine, alpns, rustls::ALL_VERSIONS)
    }

    async fn http1(&self, host: &str, identity: &Identity) -> RawVisitor {
        let config = self.client(identity, &["http/1.1"]);
        RawVisitor::new(self.engine.visitor().connect(host, &config).await)
    }

    /// One GET on its own connection.
    async fn get(
        &self,
        host: &str,
        identity: &Identity,
        target: &str,
        fields: &str,
    ) -> ReceivedResponse {
        let mut visitor = self.http1(host, identity).await;
        visitor.request("GET", target, host, fields).await;
        visitor.answer().await
    }

    async fn status(&self, host: &str, identity: &Identity) -> u16 {
        self.get(host, identity, "/", "").await.status
    }
}

fn guarded() -> Properties {
    Properties::http().mtls_auth(true)
}

fn code(answer: &ReceivedResponse) -> (u16, Value) {
    (answer.status, answer.json()["code"].clone())
}

/// The values of a field that the service received.
fn received_values(body: &Value, name: &str) -> Vec<String> {
    let fields = body["headers"].as_array().unwrap().iter();
    fields
        .filter(|field| field[0] == name)
        .map(|field| field[1].as_str().unwrap().to_owned())
        .collect()
}

/// ED-3: every combination of key type, TLS version and HTTP version works, also with curl. The
/// service receives the visitor's identity, and ignores any that the visitor itself claims.
#[tokio::test]
async fn ed_3_a_certificate_authenticates_a_visitor() {
    let world = World::new().await;
    let service = Upstream::http1().await;
    let tunnel = world.publish(guarded(), &service).await;
    let host = tunnel.hostname();
    for kind in ["rsa:2048", "ec", "ed25519"] {
        let name = kind.replace(':', "");
        let identity = world.pki.self_signed(&name, kind, 30);
        let refused = world.get(host, &identity, "/", "").await;
        assert_eq!(
            code(&refused),
            (401, json!("invalid_certificate")),
            "{kind}"
        );
        let credential = world.register(&identity).await;
        for tls in ["1.2", "1.3"] {
            for http in ["--http1.1", "--http2"] {
                let options = [http, "--tls-max", tls, "--header", "svc-user-id: usr_root"];
                let CurlOutput {
                    status,
                    body,
                    errors,
                } = curl(&world.engine, host, Some(&identity), &options).await;
                assert_eq!(status, Some(200), "{kind} {tls} {http}: {body} {errors}");
                let body = serde_json::from_str(&body).unwrap();
                assert_eq!(received_values(&body, "svc-auth-method"), ["mtls"]);
                assert_eq!(
                    received_values(&body, "svc-credential-id"),
                    [credential.as_str()]
                );
                assert_eq!(received_values(&body, "svc-user-id"), ["usr_ann"]);
            }
        }
    }
}

/// ED-3: if a certificate is the only method, a connection without one is refused, and the log
/// record states that.
#[tokio::test]
async fn ed_3_the_handshake_requires_it_when_it_is_the_only_method() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let world = World::with(&format!("access_log: {{path: {log:?}}}\n")).await;
    let service = Upstream::http1().await;
    let tunnel = world.publish(guarded(), &service).await;
    let host = tunnel.hostname();
    for tls in ["1.2", "1.3"] {
        let curled = curl(&world.engine, host, None, &["--tls-max", tls]).await;
        assert_eq!(curled.status, None, "{curled:?}");
    }
    assert_eq!(service.accepted(), 0);
    world.world.engine.stop().await;
    let records = std::fs::read_to_string(log).unwrap();
    let records: Vec<Value> = records
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records.len(), 2, "{records:?}");
    for record in records {
        assert_eq!(record["rule"], "certificate");
        assert_eq!(record["outcome"], "refused");
        assert_eq!(
            record["tunnel_id"],
            tunnel.online().properties.id.clone().unwrap()
        );
    }
}

/// ED-3: the validity period of a directly registered certificate counts as well.
#[tokio::test]
async fn ed_3_a_registered_certificate_has_a_validity_period() {
    let world = World::new().await;
    let service = Upstream::http1().await;
    let tunnel = world.publish(guarded(), &service).await;
    let host = tunnel.hostname();
    let identity = world.pki.self_signed("own", "ec", 30);
    world.register(&identity).await;
    assert_eq!(world.status(host, &identity).await, 200);
    for (days, expected) in [(31, 401), (-31, 200), (-10, 401)] {
        world.clock.advance(days * DAY);
        assert_eq!(world.status(host, &identity).await, expected, "{days}");
    }
}

/// ED-3: the permissions and boundaries of the credential apply to each request, and its user must
/// be a member of the project.
#[tokio::test]
async fn ed_3_permissions_and_boundaries_of_the_credential_apply() {
    let world = World::new().await;
    let service = Upstream::http1().await;
    let tunnel = world.publish(guarded(), &service).await;
    let host = tunnel.hostname();
    let identity = world.pki.self_signed("own", "ec", 30);
    let proof = || CredentialProof::Certificate {
        sha256: identity.sha256(),
    };
    let refused = (403, json!("insufficient_scope"));
    let judged = async |change: &dyn Fn(&mut api::link::Credential), target: &str| {
        world
            .platform
            .add_credential_with("usr_ann", proof(), |credential| {
                credential.id = "crd_cert".to_owned();
                change(credential);
            });
        world.engine.wait_for_changes().await;
        let answer = world.get(host, &identity, target, "").await;
        if answer.status == 200 {
            return (200, answer.json()["target"].clone());
        }
        code(&answer)
    };
    let tunnels = |resources: Value| {
        move |credential: &mut api::link::Credential| {
            credential.resources = Some(json!({"tunnels": resources.clone()}));
        }
    };
    let path = |regex: &str| {
        tunnels(json!({"scopes": {"tunnels": {"connect": {"params": {"path": {"regex": regex}}}}}}))
    };
    assert_eq!(judged(&|_| {}, "/a").await, (200, json!("/a")));
    assert_eq!(
        judged(
            &|credential| credential.permissions =
                Some(vec!["tunnels.resources.read-only".to_owned()]),
            "/a"
        )
        .await,
        refused
    );
    assert_eq!(judged(&path("/api/.*"), "/a").await, refused);
    assert_eq!(
        judged(&path("/api/.*"), "/api/%61?b").await,
        (200, json!("/api/a?b"))
    );
    assert_eq!(judged(&path("/api/.*"), "/api/../a").await, refused);
    assert_eq!(
        judged(&tunnels(json!({"projects": ["prj_bbbbbbbb"]})), "/a").await,
        refused
    );
    assert_eq!(
        judged(
            &|credential| credential.user_id = "usr_eve".to_owned(),
            "/a"
        )
        .await,
        refused
    );
    assert_eq!(
        judged(&|credential| credential.expires_at = Some(1), "/a").await,
        (401, json!("invalid_certificate"))
    );
    assert_eq!(judged(&|_| {}, "/a").await, (200, json!("/a")));
}

/// ED-3: registering another user's certificate, or its authority's, grants nothing and takes
/// nothing away.
#[tokio::test]
async fn ed_3_a_certificate_stays_valid_if_other_users_register_it() {
    let world = World::new().await;
    let pki = &world.pki;
    let service = Upstream::http1().await;
    let tunnel = world.publish(guarded(), &service).await;
    let host = tunnel.hostname();
    let root = pki.authority("root", 100);
    let own = pki.signed("own", "ec", "root", CLIENT, 100);
    for proof in [
        CredentialProof::Certificate {
            sha256: own.sha256(),
        },
        CredentialProof::Authority {
            certificate: root.clone(),
        },
    ] {
        world.platform.add_credential_with("usr_eve", proof, |_| {});
    }
    world.engine.wait_for_changes().await;
    let refused = world.get(host, &own, "/", "").await;
    assert_eq!(code(&refused), (403, json!("insufficient_scope")));
    world.register_authority(root).await;
    let answer = world.get(host, &own, "/", "").await;
    assert_eq!(received_values(&answer.json(), "svc-user-id"), ["usr_ann"]);
}

/// ED-5: the certificate is optional if the tunnel also accepts a token or a session. Two proofs in
/// one request are refused, valid or not.
#[tokio::test]
async fn ed_5_a_certificate_and_another_proof_are_ambiguous() {
    let world = World::new().await;
    let service = Upstream::http1().await;
    let both = guarded().token_auth(true).svc_auth(true);
    let tunnel = world.publish(both, &service).await;
    let only = world.publish(guarded(), &service).await;
    let (host, only) = (tunnel.hostname(), only.hostname());
    let known = world.pki.self_signed("known", "ec", 30);
    let unknown = world.pki.self_signed("unknown", "ec", 30);
    world.register(&known).await;
    let token = &world.token;
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let ambiguous = (400, json!("ambiguous_credentials"));
    for identity in [&known, &unknown] {
        for (target, fields) in [
            ("/".to_owned(), bearer.as_str()),
            ("/".to_owned(), "Authorization: Bearer nonsense\r\n"),
            (format!("/?svc.token={token}"), ""),
            ("/?svc.token=".to_owned(), ""),
            ("/".to_owned(), "Cookie: __Host-svc_auth=nonsense\r\n"),
        ] {
            let answer = world.get(host, identity, &target, fields).await;
            assert_eq!(code(&answer), ambiguous, "{target} {fields}");
        }
        let mut h2 = H2Visitor::over(
            world
                .engine
                .visitor()
                .connect(host, &world.client(identity, &["h2"]))
                .await,
        )
        .await;
        let request = Request::get(format!("https://{host}/"));
        let request = request.header("authorization", format!("Bearer {token}"));
        let request = request.body(H2Visitor::empty()).unwrap();
        let answer = H2Visitor::collect(h2.send(request).await.unwrap()).await;
        assert_eq!(code(&answer), ambiguous);
    }
    // A single proof, of either kind.
    let mut without = world.engine.visitor().http1(host).await;
    without.request("GET", "/", host, &bearer).await;
    let answer = without.answer().await.json();
    assert_eq!(received_values(&answer, "svc-auth-method"), ["token"]);
    without.request("GET", "/", host, "").await;
    assert_eq!(without.answer().await.status, 401);
    assert_eq!(world.status(host, &known).await, 200);
    assert_eq!(world.status(host, &unknown).await, 401);
    // A credential that no method of the tunnel reads is forwarded to the service.
    let answer = world.get(only, &known, "/", &bearer).await.json();
    assert_eq!(
        received_values(&answer, "authorization"),
        [format!("Bearer {token}")]
    );
    assert_eq!(received_values(&answer, "svc-auth-method"), ["mtls"]);
}

/// ED-3: a TLS tunnel without HTTP is checked once per connection. A boundary with a path always
/// refuses it.
#[tokio::test]
async fn ed_3_a_connection_without_http_is_checked_once() {
    let world = World::new().await;
    let service = Upstream::tcp().await;
    let properties = Properties::tls().mtls_auth(true);
    let tunnel = world.publish(properties, &service).await;
    let identity = world.pki.self_signed("own", "ec", 30);
    let path = json!({"tunnels": {"scopes": {"tunnels": {"connect":
        {"params": {"path": {"regex": ".*"}}}}}}});
    let mut before = String::new();
    for (resources, passes) in [(None, true), (Some(path), false)] {
        if !before.is_empty() {
            world.platform.revoke(&before);
        }
        let proof = CredentialProof::Certificate {
            sha256: identity.sha256(),
        };
        before = world.credential(proof, resources).await;
        let config = world.client(&identity, &[]);
        let connecting = world.engine.visitor();
        let mut stream = connecting.connect(tunnel.hostname(), &config).await;
        let mut echo = [0; 4];
        let talking = async {
            stream.write_all(b"ping").await?;
            stream.flush().await?;
            stream.read_exact(&mut echo).await
        };
        let talked = testing::within("echo, or the end", talking).await;
        assert_eq!(talked.is_ok(), passes);
    }
}

/// ED-3: revoking a credential closes the connections that it authorised.
#[tokio::test]
async fn ed_3_a_revoked_credential_closes_its_connections() {
    let world = World::new().await;
    let source = EventSource::start().await;
    let tunnel = world.publish(guarded(), &source.upstream).await;
    let host = tunnel.hostname();
    let identity = world.pki.self_signed("own", "ec", 30);
    let direct = world.register(&identity).await;
    world.pki.authority("root", 100);
    let signed = world.pki.signed("signed", "ec", "root", CLIENT, 30);
    let authority = world.register_authority(world.pki.pem("root")).await;
    for (identity, credential) in [(&identity, direct), (&signed, authority)] {
        let mut visitor = world.http1(host, identity).await;
        visitor.request("GET", "/", host, "").await;
        assert_eq!(visitor.head().await.status, 200);
        let event = source.send("one");
        assert_eq!(visitor.chunk().await.unwrap(), event.as_bytes());
        let mut standing = world.http1(host, identity).await;
        world.platform.revoke(&credential);
        assert_eq!(visitor.chunk().await, None);
        world.engine.wait_for_changes().await;
        assert_eq!(standing.get("/", host).await.status, 401);
    }
}

/// ED-3: each handshake needs its own proof. No session is resumed if a certificate is requested,
/// and none of another tunnel.
#[tokio::test]
async fn ed_3_no_ticket_replaces_a_certificate() {
    let world = World::new().await;
    let service = Upstream::http1().await;
    let guarded_by_it = world.publish(guarded(), &service).await;
    let open = world.publish(Properties::http(), &service).await;
    let identity = world.pki.self_signed("own", "ec", 30);
    world.register(&identity).await;
    for versions in [[&version::TLS13], [&version::TLS12]] {
        let config = identity.client(&world.engine, &["http/1.1"], &versions);
        let mut config = ClientConfig::clone(&config);
        config.resumption = Resumption::in_memory_sessions(8);
        let config = Arc::new(config);
        for (tunnel, expected) in [
            (&guarded_by_it, [HandshakeKind::Full, HandshakeKind::Full]),
            (&open, [HandshakeKind::Full, HandshakeKind::Resumed]),
        ] {
            for expected in expected {
                let host = tunnel.hostname();
                let stream = world.engine.visitor().connect(host, &config).await;
                assert_eq!(stream.get_ref().1.handshake_kind(), Some(expected));
                let answer = RawVisitor::new(stream).get("/", host).await;
                assert_eq!(answer.status, 200);
            }
        }
    }
}

/// ED-3: a certificate that was presented to one tunnel is not a proof for another one on the same
/// connection. A connection from before the certificate was required cannot present one.
#[tokio::test]
async fn ed_3_a_connection_does_not_authenticate_at_another_tunnel() {
    let world = World::new().await;
    let service = Upstream::http1().await;
    let named = |properties: Properties, slug: &str| {
        properties.hostname(format!("{slug}-{A}.t.engine.localhost"))
    };
    let tunnel = world.publish(named(guarded(), "one"), &service).await;
    let other = world.publish(named(guarded(), "two"), &service).await;
    let identity = world.pki.self_signed("own", "ec", 30);
    world.register(&identity).await;
    let config = world.client(&identity, &["h2"]);
    let stream = world
        .engine
        .visitor()
        .connect(tunnel.hostname(), &config)
        .await;
    let mut h2 = H2Visitor::over(stream).await;
    assert_eq!(h2.get("/", tunnel.hostname()).await.status, 200);
    let answer = h2.get("/", other.hostname()).await;
    assert_eq!(code(&answer), (421, json!("misdirected_request")));

    let host = format!("three-{A}.t.engine.localhost");
    let open = world
        .publish(named(Properties::http(), "three"), &service)
        .await;
    let mut older = world.http1(&host, &identity).await;
    assert_eq!(older.get("/", &host).await.status, 200);
    open.close().await;
    let _asks = world.publish(named(guarded(), "three"), &service).await;
    let answer = older.get("/", &host).await;
    assert_eq!(code(&answer), (421, json!("misdirected_request")));
    assert_eq!(world.status(&host, &identity).await, 200);
}

/// ED-8: the newer of the tunnel's and the project's minimum version applies. A change at the
/// project applies from the next handshake on.
#[tokio::test]
async fn ed_8_the_newer_of_both_minimum_versions_applies() {
    let world = World::new().await;
    let service = Upstream::http1().await;
    let tunnels = [
        world.publish(Properties::http(), &service).await,
        world
            .publish(Properties::tls(), &Upstream::tcp().await)
            .await,
    ];
    let strict = Properties::http().tls_min_version("tls1.3");
    let strict = world.publish(strict, &service).await;
    let old = world.pki.self_signed("any", "ec", 30);
    let old = old.client(&world.engine, &[], &[&version::TLS12]);
    let shakes = async |tunnel: &TestTunnel| {
        let visiting = world.engine.visitor();
        let stream = visiting.try_connect(tunnel.hostname(), &old).await;
        stream.map(|stream| stream.get_ref().1.protocol_version())
    };
    let tls12 = Some(Some(ProtocolVersion::TLSv1_2));
    for (minimum, expected) in [
        (json!(null), tls12),
        (json!("tls1.3"), None),
        (json!("tls1.2"), tls12),
    ] {
        let changed = settings(&minimum);
        world.change(|project| project.settings = changed).await;
        for tunnel in &tunnels {
            assert_eq!(shakes(tunnel).await, expected, "{minimum}");
        }
        assert_eq!(shakes(&strict).await, None);
    }
}

fn settings(minimum: &Value) -> ProjectSettings {
    let settings = match minimum {
        Value::Null => json!({}),
        minimum => json!({"minTlsVersion": minimum}),
    };
    serde_json::from_value(settings).unwrap()
}
