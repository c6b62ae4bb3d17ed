//! A configuration with a control plane.

use super::*;

const MANAGED: &str = "
engine: {host: engine.example.com}
certs: {static: {cert_file: cert.pem, key_file: key.pem}}
control_plane: {url: 'https://platform.example', token_file: token}
";

fn load(variables: &[(&str, &str)]) -> Result<EngineConfig, ConfigError> {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("engine.yaml");
    fs::write(&path, MANAGED).unwrap();
    let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    EngineConfig::load(Some(&path), variables.iter().map(own)).map_err(first)
}

fn platform(variables: &[(&str, &str)]) -> ControlPlane {
    match load(variables).unwrap().auth {
        Auth::Platform(platform) => platform,
        Auth::Keys(_) => panic!("a community engine"),
    }
}

#[test]
fn a_control_plane_makes_a_managed_engine() {
    let all = platform(&[
        ("SVC_CONTROL_PLANE__CA_FILE", "ca.pem"),
        ("SVC_CONTROL_PLANE__DATA_DIR", "state"),
    ]);
    let expected = ControlPlane {
        url: "https://platform.example".to_owned(),
        token_file: "token".into(),
        ca_file: Some("ca.pem".into()),
        data_dir: "state".into(),
    };
    assert_eq!(all, expected);
}

#[test]
fn the_environment_determines_the_state_directory() {
    let data_dir = |variables: &[(&str, &str)]| platform(variables).data_dir;
    let home = ("HOME", "/people/svc");
    let shared = ("XDG_STATE_HOME", "/state");
    let own = ("STATE_DIRECTORY", "/var/lib/svc:/var/lib/other");
    assert_eq!(data_dir(&[home, shared, own]), Path::new("/var/lib/svc"));
    assert_eq!(
        data_dir(&[home, shared]),
        Path::new("/state/svc/engine/engine.example.com")
    );
    let at_home = Path::new("/people/svc/.local/state/svc/engine/engine.example.com");
    assert_eq!(data_dir(&[home, ("XDG_STATE_HOME", "relative")]), at_home);
    let error = load(&[]).unwrap_err();
    assert_eq!(error.key, "control_plane.data_dir");
}

#[test]
fn settings_that_conflict_with_a_control_plane_are_refused_at_their_key() {
    let secret = "0123456789abcdef-0123456789abcdef";
    for (variable, value, key) in [
        (
            "SVC_AUTH__JWT__TOKEN_JWT_SECRET",
            secret,
            "auth.jwt.token_jwt_secret",
        ),
        (
            "SVC_AUTH__JWT__PUBLIC_KEYS",
            "[a.pem]",
            "auth.jwt.public_keys",
        ),
        (
            "SVC_AUTH__JWT__JWKS_URL",
            "https://a.example",
            "auth.jwt.jwks_url",
        ),
        (
            "SVC_CONTROL_PLANE__URL",
            "http://platform.example",
            "control_plane.url",
        ),
        (
            "SVC_CONTROL_PLANE__URL",
            "https://platform.example/x",
            "control_plane.url",
        ),
        (
            "SVC_CONTROL_PLANE__TOKEN_FILE",
            "",
            "control_plane.token_file",
        ),
    ] {
        let error = load(&[("HOME", "/people/svc"), (variable, value)]).unwrap_err();
        assert_eq!(error.key, key, "{variable}={value}");
    }
    let error = with(&[
        ("control_plane.url", "https://platform.example"),
        ("control_plane.token_file", "token"),
        ("control_plane.data_dir", "state"),
    ]);
    let error = error.unwrap_err();
    assert_eq!(error.key, "auth.jwt.token_jwt_secret");
}

#[test]
fn a_check_reads_the_named_files() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str| dir.path().join(name);
    let names = [
        "engine.example.com".to_owned(),
        "*.t.engine.example.com".to_owned(),
    ];
    let certificate = rcgen::generate_simple_self_signed(names).unwrap();
    fs::write(file("cert.pem"), certificate.cert.pem()).unwrap();
    fs::write(file("key.pem"), certificate.signing_key.serialize_pem()).unwrap();
    let mut config = load(&[("HOME", "/people/svc")]).unwrap();
    config.certificate = Some(CertFiles {
        cert: file("cert.pem"),
        key: file("key.pem"),
    });
    let Auth::Platform(platform) = config.auth.clone() else {
        panic!("a managed engine")
    };
    let inspected = |ca_file: Option<&str>| {
        let platform = ControlPlane {
            token_file: file("token"),
            ca_file: ca_file.map(file),
            ..platform.clone()
        };
        let config = EngineConfig {
            auth: Auth::Platform(platform),
            ..config.clone()
        };
        config.inspect(0).map_err(|errors| first(errors).key)
    };
    assert_eq!(inspected(None).unwrap_err(), "control_plane.token_file");
    fs::write(file("token"), "an-enrolment-secret\n").unwrap();
    let warnings = inspected(None).unwrap();
    let about_projects = |warning: &Warning| warning.message.contains(" *.engine.example.com");
    assert!(warnings.iter().any(about_projects), "{warnings:?}");
    assert!(inspected(Some("cert.pem")).is_ok());
    assert_eq!(
        inspected(Some("key.pem")).unwrap_err(),
        "control_plane.ca_file"
    );
    assert_eq!(
        inspected(Some("none")).unwrap_err(),
        "control_plane.ca_file"
    );
}

#[test]
fn the_domains_of_a_managed_engine_are_those_of_its_platform() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("engine.yaml");
    let text = format!("{MANAGED}domains: [{{name: app.example.com}}]\n");
    fs::write(&path, text).unwrap();
    let home = ("HOME".to_owned(), "/people/svc".to_owned());
    let error = first(EngineConfig::load(Some(&path), [home]).unwrap_err());
    assert_eq!(error.key, "domains");
    assert!(error.message.contains("svc domain add"), "{error}");
}
