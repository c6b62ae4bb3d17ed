//! Certificates of a registered certificate authority (ED-3).

use serde_json::json;
use testing::Upstream;

use super::{AUTHORITY, CLIENT, DAY, World, code, guarded, received_values};
use crate::raw_tunnels::mtls::openssl::curl;

/// Extensions without the purpose of the certificate.
const NO_PURPOSE: &str = "basicConstraints=CA:FALSE\n";

/// ED-3: a certificate of a registered authority needs a complete chain, the client purpose, and a
/// current validity period.
#[tokio::test]
async fn ed_3_an_authority_vouches_for_its_certificates() {
    let world = World::new().await;
    let pki = &world.pki;
    let service = Upstream::http1().await;
    let tunnel = world.publish(guarded(), &service).await;
    let host = tunnel.hostname();
    let root = pki.authority("root", 400);
    pki.authority("stranger", 400);
    pki.signed("between", "ec", "root", AUTHORITY, 300);
    let own = pki.signed("own", "rsa:2048", "root", CLIENT, 100);
    let plain = pki.signed("plain", "ed25519", "root", NO_PURPOSE, 100);
    let server = pki.signed("server", "ec", "root", "extendedKeyUsage=serverAuth\n", 100);
    let foreign = pki.signed("foreign", "ec", "stranger", CLIENT, 100);
    let alone = pki.signed("below", "ec", "between", CLIENT, 100);
    let chained = pki.with("below", "between");
    let misled = pki.with("foreign", "between");
    // A visitor's own certificate is not an authority.
    pki.signed("pretender", "ec", "own", CLIENT, 100);
    let pretender = pki.with("pretender", "own");

    let credential = world.register_authority(root).await;
    for (identity, expected) in [
        (&own, 200),
        (&plain, 200),
        (&chained, 200),
        (&alone, 401),
        (&server, 401),
        (&foreign, 401),
        (&misled, 401),
        (&pretender, 401),
    ] {
        assert_eq!(world.status(host, identity).await, expected, "{identity:?}");
    }
    let answer = world.get(host, &chained, "/", "").await.json();
    assert_eq!(
        received_values(&answer, "svc-credential-id"),
        [credential.as_str()]
    );
    let curled = curl(&world.engine, host, Some(&chained), &[]).await;
    assert_eq!(curled.status, Some(200), "{curled:?}");

    // Time passes, also for open connections.
    let mut standing = world.http1(host, &own).await;
    assert_eq!(standing.get("/", host).await.status, 200);
    world.clock.advance(101 * DAY);
    let expired = standing.get("/", host).await;
    assert_eq!(code(&expired), (401, json!("invalid_certificate")));
    assert_eq!(world.status(host, &own).await, 401);
}

/// ED-3: the validity periods of the authority and of the intermediate certificates count as well.
#[tokio::test]
async fn ed_3_an_authority_has_a_validity_period() {
    let world = World::new().await;
    let pki = &world.pki;
    let service = Upstream::http1().await;
    let tunnel = world.publish(guarded(), &service).await;
    let host = tunnel.hostname();
    let short = pki.authority("short", 10);
    let own = pki.signed("own", "ec", "short", CLIENT, 100);
    let root = pki.authority("root", 100);
    pki.signed("between", "ec", "root", AUTHORITY, 10);
    pki.signed("below", "ec", "between", CLIENT, 100);
    let below = pki.with("below", "between");
    world.register_authority(short).await;
    world.register_authority(root).await;
    let mut standing = [
        world.http1(host, &own).await,
        world.http1(host, &below).await,
    ];
    for visitor in &mut standing {
        assert_eq!(visitor.get("/", host).await.status, 200);
    }
    world.clock.advance(11 * DAY);
    for visitor in &mut standing {
        assert_eq!(visitor.get("/", host).await.status, 401);
    }
    assert_eq!(world.status(host, &own).await, 401);
    assert_eq!(world.status(host, &below).await, 401);
}
