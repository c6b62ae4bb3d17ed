//! Warnings and errors about the files that a configuration names: certificates and keys.

use super::*;

/// 2039-12-31T12:00:00Z: half a day before the certificates of these tests expire.
const NOON_BEFORE: i64 = 2_208_988_800 - 12 * 3600;
const YEARS_BEFORE: i64 = 1_800_000_000;

/// A configuration whose certificate has these names and expires at the end of 2039.
fn config(names: &[&str], variables: &[(&str, &str)]) -> (TempDir, EngineConfig) {
    let dir = TempDir::new().unwrap();
    let names = names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_after = date_time_ymd(2040, 1, 1);
    fs::write(
        dir.path().join("cert.pem"),
        params.self_signed(&key).unwrap().pem(),
    )
    .unwrap();
    fs::write(dir.path().join("key.pem"), key.serialize_pem()).unwrap();
    let mut config = with(variables).unwrap();
    config.certificate = Some(CertFiles {
        cert: dir.path().join("cert.pem"),
        key: dir.path().join("key.pem"),
    });
    (dir, config)
}

const BOTH: [&str; 2] = ["tunnel.example.com", "*.t.tunnel.example.com"];

fn warned(names: &[&str], variables: &[(&str, &str)], now: i64) -> Vec<&'static str> {
    let (_dir, config) = config(names, variables);
    config
        .inspect(now)
        .unwrap()
        .iter()
        .map(|warning| warning.key)
        .collect()
}

#[test]
fn a_correct_configuration_has_no_warnings() {
    assert!(warned(&BOTH, &[], YEARS_BEFORE).is_empty());
}

/// EN-10.
#[test]
fn en_10_missing_names_are_warned_about() {
    let (_dir, config) = config(&["tunnel.example.com"], &[]);
    let warnings = config.inspect(YEARS_BEFORE).unwrap();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].key, "certs.static.cert_file");
    assert!(warnings[0].message.contains("*.t.tunnel.example.com"));
}

#[test]
fn an_expiry_causes_a_warning_before_and_after_it() {
    assert_eq!(warned(&BOTH, &[], NOON_BEFORE), ["certs.static.cert_file"]);
    assert_eq!(
        warned(&BOTH, &[], 2_300_000_000),
        ["certs.static.cert_file"]
    );
}

#[test]
fn ineffective_and_too_broad_settings_cause_warnings() {
    let keys = warned(
        &BOTH,
        &[
            ("metrics.prometheus.enabled", "true"),
            ("edge.trusted_proxies", "[0.0.0.0/0]"),
            ("geoip.file", "x.mmdb"),
        ],
        YEARS_BEFORE,
    );
    assert_eq!(
        keys,
        [
            "metrics.prometheus.listen_addr",
            "edge.trusted_proxies",
            "geoip.file"
        ]
    );
}

#[test]
fn files_that_are_missing_or_broken_are_errors_at_their_key() {
    let (dir, config) = config(&BOTH, &[("auth.jwt.public_keys", "[/nonexistent/key.pem]")]);
    let error = || first(config.inspect(YEARS_BEFORE).unwrap_err()).key;
    assert_eq!(error(), "auth.jwt.public_keys.0");
    fs::write(dir.path().join("key.pem"), "nothing").unwrap();
    assert_eq!(error(), "certs.static.key_file");
    fs::remove_file(dir.path().join("cert.pem")).unwrap();
    assert_eq!(error(), "certs.static.cert_file");
}

#[test]
fn the_certificate_of_a_cluster_has_the_name_of_this_engine() {
    for (engine, is_accepted) in [("engine-1", true), ("engine-2", false)] {
        let name = crate::cluster::engine_name("prod", "engine-1");
        let (link, _) = self::config(&[&name], &[]);
        let file = |name: &str| link.path().join(name).display().to_string();
        let (cert, key) = (file("cert.pem"), file("key.pem"));
        let section = [
            ("cluster.name", "prod"),
            ("cluster.engine", engine),
            ("cluster.advertise", "10.0.0.11:7443"),
            ("cluster.ca_file", &cert),
            ("cluster.cert_file", &cert),
            ("cluster.key_file", &key),
            ("cluster.etcd.endpoints", "['http://127.0.0.1:2379']"),
        ];
        let (_dir, config) = config(&BOTH, &section);
        let inspected = config.inspect(YEARS_BEFORE);
        assert_eq!(inspected.is_ok(), is_accepted, "{engine}: {inspected:?}");
        if let Err(errors) = inspected {
            let error = first(errors);
            assert_eq!(error.key, "cluster.cert_file");
            assert!(error.message.contains("svc cluster add engine-2"));
        }
    }
}

#[test]
fn public_keys_are_read_and_a_broken_one_is_named() {
    let (dir, mut config) = config(&BOTH, &[]);
    let (good, bad) = (dir.path().join("good.pem"), dir.path().join("bad.pem"));
    fs::write(&good, KeyPair::generate().unwrap().public_key_pem()).unwrap();
    fs::write(
        &bad,
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
    )
    .unwrap();
    let auth = |public_keys| JwtAuth {
        secrets: vec![],
        public_keys,
        jwks_url: None,
    };
    let keys = auth(vec![good.clone()]);
    assert!(!keys.keyring(false).unwrap().is_empty());
    config.auth = Auth::Keys(auth(vec![good, bad]));
    let error = first(config.inspect(YEARS_BEFORE).unwrap_err());
    assert_eq!(error.key, "auth.jwt.public_keys.1");
    assert!(error.message.contains("bad.pem"), "{error}");
}
