//! Decisions of a managed engine, rule by rule.

mod combinations;

use std::sync::Arc;

use api::control::settings::{ProjectSettings, PublicAccessPolicy};
use api::link::{self, CredentialProof, Item, Membership, Platform};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credentials::{Keyring, Secret};
use jiff::Timestamp;
use serde_json::{Value, json};
use types::client::Client;
use types::query_credential::NAMES;
use types::tunnel::TunnelProperties;

use super::*;
use crate::access::{Digest, TunnelPolicy};
use crate::browser::{Cookie, Session};
use crate::clock::ManualClock;
use crate::directory::{Directory, Project};
use crate::live::{ClientHandle, Identity, LiveLimits, TunnelRegistry};

const NOW: i64 = 1_800_000_000;
const HOST: &str = "web-0000000a.t.engine.localhost";
const SECRET: &str = "a secret of thirty-two bytes or more";
const MAY: &str = "tunnels.streams.create-delete";

/// Result of a request. The service only receives admitted requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestResult {
    /// Admitted with this kind of proof; empty if none was needed.
    Service(&'static str),
    Refused(u16, &'static str),
    SignIn,
    Challenge,
    VerifyPassword,
}

/// A project with two users, one of whom may use it, and their proofs.
struct World {
    tokens: Arc<Tokens>,
    tenancy: Tenancy,
    directory: Arc<Directory>,
    seals: Seals,
    project: Arc<Project>,
}

fn project(settings: ProjectSettings) -> Item {
    Item::Project(Box::new(link::Project {
        id: "prj_1".to_owned(),
        endpoint: "0000000a".to_owned(),
        workspace_id: "wks_1".to_owned(),
        plan: "basic".to_owned(),
        provider: "other".to_owned(),
        region: None,
        suspended: false,
        settings,
        limits: link::Limits::default(),
        addresses: Vec::new(),
        domains: Vec::new(),
        held: Vec::new(),
        taken_down: Vec::new(),
    }))
}

fn person(id: &str, permissions: &[&str], sessions_after: i64) -> Item {
    Item::Person(link::Person {
        id: id.to_owned(),
        name: String::new(),
        memberships: vec![Membership {
            workspace_id: "wks_1".to_owned(),
            permissions: permissions.iter().map(|&name| name.to_owned()).collect(),
            role: None,
        }],
        sessions_after,
    })
}

fn certificate(id: &str, user: &str, digest: &Digest) -> Item {
    let [first, ..] = digest;
    let sha256 = format!("{first:02x}").repeat(digest.len());
    Item::Credential(Box::new(link::Credential {
        id: id.to_owned(),
        user_id: user.to_owned(),
        root: None,
        workspace_id: None,
        proof: CredentialProof::Certificate { sha256 },
        permissions: None,
        resources: None,
        expires_at: None,
    }))
}

impl World {
    fn new() -> Self {
        let directory = Arc::new(Directory::default());
        let platform = Platform {
            base_url: "https://platform.example".to_owned(),
            cluster_domain: "engine.localhost".to_owned(),
        };
        let items = vec![
            project(ProjectSettings::default()),
            person("ann", &[MAY], 0),
            person("bob", &[], 0),
            certificate("crd_ann", "ann", &[1; 32]),
            certificate("crd_bob", "bob", &[2; 32]),
        ];
        directory.replace(platform, items);
        let keys = Keyring::new().with_secret(&Secret::new(SECRET)).unwrap();
        Self {
            tokens: Tokens::new(keys),
            tenancy: Tenancy::Managed(Arc::clone(&directory)),
            project: directory.project("prj_1").unwrap(),
            directory,
            seals: Seals::derive(&Secret::new("of the cluster")).unwrap(),
        }
    }

    fn set(&self, policy: PublicAccessPolicy) {
        let settings = ProjectSettings {
            public_access_policy: policy,
            ..ProjectSettings::default()
        };
        self.directory.apply(vec![project(settings)]);
    }

    fn context(&self) -> AuthContext<'_> {
        AuthContext {
            tokens: &self.tokens,
            tenancy: &self.tenancy,
            seals: Some(&self.seals),
            now: NOW,
        }
    }

    fn tunnel(&self, requested: Value) -> Arc<LiveTunnel<()>> {
        let clock = Arc::new(ManualClock::at(Timestamp::from_second(NOW).unwrap()));
        let live = TunnelRegistry::new(LiveLimits::default(), clock);
        let mut client = Client::online(live.new_client_id());
        client.project_id = Some(self.project.id.to_string());
        let client_id = live.add_client(client, &self.project).unwrap().id;
        let subject = credentials::Identity::User("ann".to_owned());
        let properties: TunnelProperties = serde_json::from_value(requested).unwrap();
        let properties = properties.resolve().unwrap();
        let policy = TunnelPolicy::compile(&properties);
        let owner = ClientHandle {
            identity: Identity::new(&self.project.id, &subject),
            project: Arc::clone(&self.project),
            client_id,
            agent: Arc::new(()),
        };
        live.open_tunnel(owner, properties, policy).unwrap().tunnel
    }

    fn session(&self, user: &str, issued_at: i64) -> String {
        let session = Session {
            user_id: user.to_owned(),
            issued_at,
            id: "one".to_owned(),
            platform_session: None,
            name: None,
            email: None,
            shared: Vec::new(),
        };
        value_of(&session.set_cookie(&self.seals, HOST, &self.project))
    }

    fn worked(&self, peer: IpAddr) -> String {
        let challenges = Challenges::default();
        let puzzle = challenges.puzzle(HOST, peer, &self.seals, NOW);
        let cookie = (0_u32..).find_map(|number| {
            let number = number.to_string();
            let solution = crate::browser::Solution {
                puzzle: &puzzle.text,
                number: &number,
            };
            challenges
                .solve(solution, (HOST, peer), &"prj_1".into(), &self.seals, NOW)
                .ok()
        });
        value_of(&cookie.unwrap())
    }
}

fn value_of(set_cookie: &str) -> String {
    let (_, rest) = set_cookie.split_once('=').unwrap();
    rest.split(';').next().unwrap().to_owned()
}

fn token(user: &str, secret: &str) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({"type": "pat", "userId": user});
    let signed = format!("{}.{}", part(&json!({"alg": "HS256"})), part(&claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn request_result(decision: &Decision) -> RequestResult {
    match &decision.outcome {
        Outcome::Allow(allowed) => {
            RequestResult::Service(allowed.proof.as_ref().map_or("", Proof::method))
        }
        Outcome::Refuse(problem) => {
            assert!(decision.reason.is_some(), "the log needs a reason");
            RequestResult::Refused(problem.status, problem.code)
        }
        Outcome::SignIn => RequestResult::SignIn,
        Outcome::Challenge => RequestResult::Challenge,
        Outcome::VerifyPassword => RequestResult::VerifyPassword,
    }
}

/// Result of a navigation with this session cookie.
fn with_session(world: &World, tunnel: &LiveTunnel<()>, host: &str, cookie: &str) -> RequestResult {
    let request = EdgeRequest {
        tunnel,
        visitor: VisitorInfo::at("192.0.2.7".parse().unwrap()),
        host,
        bearer: Bearer::Absent,
        password: PasswordProof::Absent,
        cookies: EdgeCookies {
            session: Cookie::One(cookie),
            ..EdgeCookies::default()
        },
        navigation: true,
        path: "/",
        query: None,
        reserved: NAMES,
    };
    request_result(&decide(&request, world.context()))
}

/// ED-2: a session is valid for twelve hours, for one host, until the user ends it or leaves.
#[test]
fn ed_2_a_session_is_valid_for_its_host_and_lifetime() {
    let world = World::new();
    let tunnel = world.tunnel(json!({"svc_auth": true}));
    let end = |cookie: &str| with_session(&world, &tunnel, HOST, cookie);
    let good = world.session("ann", NOW - 100);
    assert_eq!(end(&good), RequestResult::Service("session"));
    assert_eq!(
        with_session(&world, &tunnel, "b.t.engine.localhost", &good),
        RequestResult::SignIn
    );
    for (age, expected) in [
        (12 * 3600 - 1, RequestResult::Service("session")),
        (12 * 3600, RequestResult::SignIn),
        (-60, RequestResult::SignIn),
    ] {
        assert_eq!(end(&world.session("ann", NOW - age)), expected, "{age}");
    }
    assert_eq!(end(&world.session("nobody", NOW)), RequestResult::SignIn);
    let mut forged = good.clone();
    forged.replace_range(0..1, "A");
    assert_eq!(end(&forged), RequestResult::SignIn);
    let other = Seals::derive(&Secret::new("of another cluster")).unwrap();
    let session = Session {
        user_id: "ann".to_owned(),
        issued_at: NOW,
        id: "one".to_owned(),
        platform_session: None,
        name: None,
        email: None,
        shared: Vec::new(),
    };
    let foreign = value_of(&session.set_cookie(&other, HOST, &world.project));
    assert_eq!(end(&foreign), RequestResult::SignIn);

    // The user ends all sessions; a later one is valid.
    world.directory.apply(vec![person("ann", &[MAY], NOW - 50)]);
    assert_eq!(end(&good), RequestResult::SignIn);
    assert_eq!(
        end(&world.session("ann", NOW - 49)),
        RequestResult::Service("session")
    );
    // The user loses the role, then leaves.
    world.directory.apply(vec![person("ann", &[], 0)]);
    assert_eq!(
        end(&good),
        RequestResult::Refused(403, "insufficient_scope")
    );
    world.directory.apply(vec![Item::PersonGone {
        id: "ann".to_owned(),
    }]);
    assert_eq!(end(&good), RequestResult::SignIn);
}

/// ED-8: addresses, countries and TLS versions of the project, in addition to those of the tunnel.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn ed_8_a_projects_rules_apply_in_addition_to_the_tunnels() {
    let world = World::new();
    let open = world.tunnel(json!({}));
    let swiss = world.tunnel(json!({"geo_ip": ["CH"], "trusted_ips": ["192.0.2.0/24"]}));
    let ch: Country = "CH".parse().unwrap();
    let se: Country = "SE".parse().unwrap();
    let settings = |value: Value| serde_json::from_value::<ProjectSettings>(value).unwrap();
    let geo = (403, "country_not_allowed");
    let address = (403, "address_not_trusted");
    let version = (403, "tls_version_too_low");
    let fine = (200, "");
    let plain = json!({});
    let deny = json!({"geoIp": {"deny": ["SE"]}});
    let near = json!({"trustedIps": ["198.51.100.0/24"]});
    let modern = json!({"minTlsVersion": "tls1.3"});
    for (tunnel, policy, peer, country, tls, expected) in [
        (&open, &plain, "192.0.2.7", None, TlsVersion::Tls12, fine),
        (
            &swiss,
            &plain,
            "192.0.2.7",
            Some(&ch),
            TlsVersion::Tls12,
            fine,
        ),
        (
            &swiss,
            &plain,
            "192.0.2.7",
            Some(&se),
            TlsVersion::Tls12,
            geo,
        ),
        (&swiss, &plain, "192.0.2.7", None, TlsVersion::Tls12, geo),
        (
            &swiss,
            &plain,
            "192.0.3.7",
            Some(&ch),
            TlsVersion::Tls12,
            address,
        ),
        (
            &open,
            &deny,
            "192.0.2.7",
            Some(&ch),
            TlsVersion::Tls12,
            fine,
        ),
        (&open, &deny, "192.0.2.7", Some(&se), TlsVersion::Tls12, geo),
        (&open, &deny, "192.0.2.7", None, TlsVersion::Tls12, geo),
        (&open, &near, "198.51.100.1", None, TlsVersion::Tls12, fine),
        (&open, &near, "192.0.2.7", None, TlsVersion::Tls12, address),
        (
            &swiss,
            &near,
            "198.51.100.1",
            Some(&ch),
            TlsVersion::Tls12,
            address,
        ),
        (&open, &modern, "192.0.2.7", None, TlsVersion::Tls13, fine),
        (
            &open,
            &modern,
            "192.0.2.7",
            None,
            TlsVersion::Tls12,
            version,
        ),
    ] {
        world
            .directory
            .apply(vec![project(settings(policy.clone()))]);
        let visitor = VisitorInfo {
            country,
            tls_version: Some(tls),
            ..VisitorInfo::at(peer.parse().unwrap())
        };
        let decision = decide_connection(tunnel, visitor, world.context());
        let told = match request_result(&decision) {
            RequestResult::Refused(status, code) => (status, code),
            _ => (200, ""),
        };
        assert_eq!(told, expected, "{policy} {peer} {country:?} {tls:?}");
        let again = reauthorize_visit(tunnel, visitor, None, world.context());
        assert_eq!(again, expected == fine, "{policy} {peer}");
    }
}

/// A link password identifies no user, so its visits end when the project requires a proof.
#[test]
fn visits_without_a_proof_end_when_the_project_requires_one() {
    let world = World::new();
    let tunnel = world.tunnel(json!({"token_auth": true, "basic_auth": true}));
    let visitor = VisitorInfo::at("192.0.2.7".parse().unwrap());
    let is_valid = || reauthorize_visit(&tunnel, visitor, None, world.context());
    assert!(is_valid());
    world.set(PublicAccessPolicy::AuthRequired);
    assert!(!is_valid());
}

/// EN-11: a tunnel whose rule an engine cannot enforce admits no visitor.
#[test]
fn en_11_rules_that_cannot_be_enforced_refuse_all_visitors() {
    let world = World::new();
    let community = Tenancy::Community(Arc::new(Project::community()));
    for (requested, with_keys) in [
        (json!({"svc_auth": true}), 401),
        (json!({"challenge_mode": true}), 403),
        (json!({"mtls_auth": true}), 401),
    ] {
        let tunnel = world.tunnel(requested.clone());
        let status = |context: AuthContext<'_>| {
            let request = EdgeRequest {
                tunnel: &tunnel,
                visitor: VisitorInfo::at("192.0.2.7".parse().unwrap()),
                host: HOST,
                bearer: Bearer::Absent,
                password: PasswordProof::Absent,
                cookies: EdgeCookies::default(),
                navigation: false,
                path: "/",
                query: None,
                reserved: NAMES,
            };
            match request_result(&decide(&request, context)) {
                RequestResult::Refused(status, _) => status,
                _ => 200,
            }
        };
        assert_eq!(status(world.context()), with_keys, "{requested}");
        let stranger = AuthContext {
            tenancy: &community,
            ..world.context()
        };
        assert_eq!(status(stranger), 503, "{requested}");
        let without = AuthContext {
            seals: None,
            ..world.context()
        };
        let expected = if requested["mtls_auth"] == true {
            with_keys
        } else {
            503
        };
        assert_eq!(status(without), expected, "{requested}");
    }
}

/// ED-8: publication is also checked when a tunnel is opened.
#[test]
fn ed_8_a_project_restricts_the_tunnels_of_its_agents() {
    use crate::access::{PublicationError, may_publish};
    let world = World::new();
    let settings = |value: Value| serde_json::from_value::<ProjectSettings>(value).unwrap();
    let auth = json!({"publicAccessPolicy": "auth-required"});
    let none = json!({"publicAccessPolicy": "forbidden"});
    let no_tcp = json!({"publishedTcpEnabled": false});
    for (policy, requested, expected) in [
        (&json!({}), json!({}), Ok(())),
        (&auth, json!({}), Err(PublicationError::ProofNeeded)),
        (
            &auth,
            json!({"challenge_mode": true}),
            Err(PublicationError::ProofNeeded),
        ),
        (
            &auth,
            json!({"protocol": "tcp"}),
            Err(PublicationError::ProofNeeded),
        ),
        (&auth, json!({"token_auth": true}), Ok(())),
        (&auth, json!({"svc_auth": true}), Ok(())),
        (&auth, json!({"mtls_auth": true}), Ok(())),
        (&auth, json!({"publish": false}), Ok(())),
        (
            &none,
            json!({"token_auth": true}),
            Err(PublicationError::Forbidden),
        ),
        (&none, json!({"publish": false}), Ok(())),
        (
            &no_tcp,
            json!({"protocol": "tcp"}),
            Err(PublicationError::Tcp),
        ),
        (&no_tcp, json!({}), Ok(())),
    ] {
        world
            .directory
            .apply(vec![project(settings(policy.clone()))]);
        let properties: TunnelProperties = serde_json::from_value(requested.clone()).unwrap();
        let properties = properties.resolve().unwrap();
        assert_eq!(
            may_publish(&properties, &world.project),
            expected,
            "{policy} {requested}"
        );
    }
}

/// All of the same user, for the same certificate.
#[test]
fn the_credentials_of_a_certificate_are_bounded() {
    let world = World::new();
    let more = (0..20).map(|number| certificate(&format!("crd_{number}"), "ann", &[1; 32]));
    world.directory.apply(more.collect());
    let certificate = ClientCertificate::with_digest([1; 32]);
    let found = certificate.credentials(&world.directory, &world.project, NOW);
    assert_eq!(found.unwrap().len(), 16);
}
