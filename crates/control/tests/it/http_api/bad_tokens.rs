//! CP-10: invalid tokens with a valid signature of the platform's own key.

use std::sync::Arc;

use aws_lc_rs::signature::Ed25519KeyPair;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use daemon::clock::ManualClock;
use serde_json::{Value, json};

use crate::support::{Person, START, TestControl, configuration};

const NOW: i64 = 1_767_225_600;

/// A platform whose key the test also has, and a user there.
struct TokenForge {
    control: TestControl,
    ada: Person,
    key: Ed25519KeyPair,
    kid: String,
    /// Claims of a valid token.
    claims: Value,
}

impl TokenForge {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("own.pem");
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        std::fs::write(&file, pair.serialize_pem()).unwrap();
        let mut config = configuration(directory.path(), None, "");
        config.signing_keys = vec![file];
        let clock = Arc::new(ManualClock::at(START.parse().unwrap()));
        let control = TestControl::opened(config, clock, directory).await.unwrap();
        let ada = control.person("ada").await;
        let minted = control.delegated(&ada, json!({"permissions": null})).await;
        Self {
            key: Ed25519KeyPair::from_pkcs8(pair.serialized_der()).unwrap(),
            kid: control.app.keys.signing().kid().unwrap().to_owned(),
            claims: ::credentials::inspect(&minted).unwrap()["claims"].clone(),
            control,
            ada,
        }
    }

    /// A token of these parts, with a valid signature.
    fn sign(&self, header: &str, claims: &str) -> String {
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(claims)
        );
        let signature = self.key.sign(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    fn header(&self) -> String {
        json!({"alg": "EdDSA", "typ": "JWT", "kid": self.kid}).to_string()
    }

    /// The valid claims, with one member replaced by this text.
    fn with(&self, name: &str, text: &str) -> String {
        let mut claims = self.claims.clone();
        claims[name] = json!("the place");
        let claims = claims.to_string().replace("\"the place\"", text);
        self.sign(&self.header(), &claims)
    }

    /// The valid header, with one more member.
    fn headed(&self, member: &str) -> String {
        let header = self.header().replacen('{', &format!("{{{member},"), 1);
        self.sign(&header, &self.claims.to_string())
    }

    async fn status(&self, token: &str) -> u16 {
        self.control.get("/api/whoami", token).await.status
    }
}

/// CP-10: each rule about the form and the claims of a token.
#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn cp_10_a_signature_is_not_enough() {
    let forge = TokenForge::new().await;
    let good = forge.sign(&forge.header(), &forge.claims.to_string());
    assert_eq!(forge.status(&good).await, 200, "the forged token works");
    let mut bad: Vec<(String, String)> = Vec::new();
    // Times: no leeway for `exp`, five seconds for the others; integers from 1970 on.
    for (name, text) in [
        ("exp", NOW.to_string()),
        ("exp", (NOW - 1).to_string()),
        ("nbf", (NOW + 6).to_string()),
        ("iat", (NOW + 6).to_string()),
    ] {
        bad.push((format!("{name} {text}"), forge.with(name, &text)));
    }
    for name in ["exp", "nbf", "iat"] {
        for text in [
            format!("{}.5", NOW + 100),
            format!("{}.0", NOW + 100),
            "2e9".to_owned(),
            format!("\"{}\"", NOW + 100),
            "-1".to_owned(),
            "-1767225700".to_owned(),
            "null".to_owned(),
            "true".to_owned(),
            "[]".to_owned(),
            "99999999999999999999".to_owned(),
        ] {
            bad.push((format!("{name} {text}"), forge.with(name, &text)));
        }
    }
    // Claims of the wrong JSON type, and unknown token types.
    for (name, text) in [
        ("type", "\"oauth\""),
        ("type", "\"AUTH\""),
        ("type", "\"\""),
        ("type", "1"),
        ("type", "null"),
        ("type", "[\"auth\"]"),
        ("type", "\"app\""),
        ("type", "\"pat\""),
        ("userId", "1"),
        ("userId", "\"\""),
        ("userId", "null"),
        ("userId", "[\"a\"]"),
        ("userId", "\"usr_01h455vb4pex5vsknk084sn02q\""),
        ("clientId", "{}"),
        ("permissions", "\"account.projects.read-only\""),
        ("permissions", "{}"),
        ("permissions", "[1]"),
        ("sourceCredentialId", "1"),
        ("sourceCredentialId", "\"crd_01h455vb4pex5vsknk084sn02q\""),
        ("sourceCredentialId", "\"ses_01h455vb4pex5vsknk084sn02q\""),
        ("sourceCredentialId", "\"nothing\""),
        ("sourceCredentialUpdatedAt", "1"),
        ("token_endpoint", "\"0A1B2C3D\""),
        ("token_endpoint", "\"0a1b2c3d\""),
        ("iss", "[]"),
        ("aud", "1"),
        ("jti", "1"),
        ("scope", "[]"),
        ("metadata", "[]"),
    ] {
        bad.push((format!("{name} {text}"), forge.with(name, text)));
    }
    // Header members that contain keys or change the signed data.
    for member in [
        r#""crit":["exp"]"#,
        r#""crit":[]"#,
        r#""b64":true"#,
        r#""b64":false"#,
        r#""jwk":{"kty":"OKP"}"#,
        r#""jku":"https://keys.example""#,
        r#""x5c":[]"#,
        r#""x5u":"https://keys.example""#,
        r#""x5t":"a""#,
        r#""zip":"DEF""#,
        r#""alg":"EdDSA""#,
        r#""kid":"again""#,
    ] {
        bad.push((member.to_owned(), forge.headed(member)));
    }
    let claims = forge.claims.to_string();
    for header in [
        json!({"typ": "JWT", "kid": forge.kid}),
        json!({"alg": "none", "kid": forge.kid}),
        json!({"alg": "HS256", "kid": forge.kid}),
        json!({"alg": "ES256", "kid": forge.kid}),
        json!({"alg": "EdDSA", "kid": "another"}),
        json!({"alg": "EdDSA", "kid": 1}),
        json!({"alg": "EdDSA", "typ": "logout+jwt"}),
        json!([]),
    ] {
        bad.push((header.to_string(), forge.sign(&header.to_string(), &claims)));
    }
    // Duplicate members at any depth.
    for twice in [
        format!("\"userId\":\"{}\",", forge.ada.user),
        r#""resources":{"tunnels":{},"tunnels":{}},"#.to_owned(),
    ] {
        let claims = claims.replacen('{', &format!("{{{twice}"), 1);
        bad.push((twice, forge.sign(&forge.header(), &claims)));
    }
    for payload in ["[]", "1", "", "null", "{} {}"] {
        bad.push((payload.to_owned(), forge.sign(&forge.header(), payload)));
    }
    // Encodings with padding, with the other alphabet, with leftover bits, and with more or fewer
    // parts.
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (header, payload) = signed.split_once('.').unwrap();
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let last = alphabet.find(signature.chars().last().unwrap()).unwrap();
    let twin = &alphabet[last + 1..last + 2];
    let left_over = format!("{signed}.{}{twin}", &signature[..signature.len() - 1]);
    for form in [
        format!("{good}="),
        format!("{good}=="),
        format!("{good}."),
        format!("{good}.{signature}"),
        format!("{signed}."),
        format!("{header}..{signature}"),
        format!(".{payload}.{signature}"),
        signed.to_owned(),
        "..".to_owned(),
        left_over,
        good.replacen('.', "%2E", 1),
    ] {
        bad.push((form.clone(), form));
    }
    // The limit is eight kibibytes.
    let filler = |length: usize| forge.with("filler", &format!("\"{}\"", "x".repeat(length)));
    let of_length = |fits: fn(usize) -> bool| {
        let mut tokens = (5000..6200).map(filler);
        tokens.find(|token| fits(token.len())).unwrap()
    };
    let longest = of_length(|length| (8189..=8192).contains(&length));
    assert_eq!(forge.status(&longest).await, 200);
    let long = of_length(|length| length > 8192);
    bad.push(("long".to_owned(), long));

    let mut bodies = Vec::new();
    for (what, token) in bad {
        let answer = forge.control.get("/api/whoami", &token).await;
        assert_eq!(
            answer.problem(),
            (401, "invalid_token".to_owned()),
            "{what}"
        );
        let challenge = answer.header("www-authenticate");
        assert!(challenge.contains("error=\"invalid_token\""), "{what}");
        assert!(challenge.contains("resource_metadata="), "{what}");
        bodies.push(answer.text);
    }
    // The answer does not reveal the invalid part.
    bodies.dedup();
    assert_eq!(bodies.len(), 1);
    assert_eq!(forge.status(&good).await, 200);
    for (name, at) in [("nbf", NOW + 5), ("iat", NOW + 5), ("exp", NOW + 1)] {
        let token = forge.with(name, &at.to_string());
        assert_eq!(forge.status(&token).await, 200, "{name}");
    }
    assert_eq!(forge.status(&forge.with("permissions", "null")).await, 200);
}
