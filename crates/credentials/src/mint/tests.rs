use serde_json::json;

use super::*;
use crate::sample::{NOW, keyring, pairs, secret, text, token};
use crate::{Keyring, verify};

fn request() -> MintRequest {
    MintRequest {
        kind: TokenKind::Auth,
        identity: Identity::User("u1".to_owned()),
        ttl_seconds: Some(300),
        permissions: None,
        resources: None,
    }
}

fn with_secret(request: &MintRequest) -> Result<String, MintError> {
    mint(&SigningKey::from_secret(&secret()).unwrap(), request, NOW).map(|token| text(&token))
}

#[test]
fn minted_tokens_verify() {
    let full = MintRequest {
        kind: TokenKind::App,
        identity: Identity::Client("c1".to_owned()),
        permissions: Some(vec![Permission::TunnelsStreamsCreateDelete]),
        resources: Some(json!({"tunnels": {"projects": ["p1"]}})),
        ..request()
    };
    let verified = verify(&with_secret(&full).unwrap(), &keyring(), NOW).unwrap();
    assert_eq!(verified.identity, full.identity);
    assert_eq!(
        (verified.issued_at, verified.limits.expires_at()),
        (Some(NOW), Some(NOW + 300))
    );
    assert!(verified.allows(Permission::TunnelsStreamsCreateDelete));
    assert!(!verified.allows(Permission::TunnelsResourcesReadOnly));
    assert!(!verified.limits.boundary().may_list("p2", None));
    let endless = MintRequest {
        kind: TokenKind::Pat,
        ttl_seconds: None,
        ..request()
    };
    assert_eq!(
        verify(&with_secret(&endless).unwrap(), &keyring(), NOW)
            .unwrap()
            .limits
            .expires_at(),
        None
    );
}

#[test]
fn every_kind_of_key_signs() {
    for pair in pairs() {
        let key = SigningKey::from_pem(&pair.private).unwrap().with_kid("k1");
        let token = text(&mint(&key, &request(), NOW).unwrap());
        let header = inspect(&token).unwrap()["header"].clone();
        assert_eq!(
            header,
            json!({"alg": pair.algorithm, "typ": "JWT", "kid": "k1"})
        );
        assert!(verify(&token, &Keyring::new().with_pem(&pair.public).unwrap(), NOW).is_ok());
        assert!(SigningKey::from_pem(&pair.public).is_err());
    }
    assert!(SigningKey::from_secret(&Secret::new("")).is_err());
}

/// Scanners find a personal access token by its start, whichever key signed it. Libraries for JWT
/// read it as before.
#[test]
fn every_personal_access_token_starts_with_the_same_text() {
    assert_eq!(URL_SAFE_NO_PAD.encode(PAT_HEADER_START), PAT_PREFIX);
    let pat = MintRequest {
        kind: TokenKind::Pat,
        ..request()
    };
    let token = with_secret(&pat).unwrap();
    assert!(token.starts_with(PAT_PREFIX), "{token}");
    assert!(verify(&token, &keyring(), NOW).is_ok());
    for pair in pairs() {
        let key = SigningKey::from_pem(&pair.private).unwrap().with_kid("k1");
        let provenance = |source| Provenance {
            issuer: "https://svc.example".to_owned(),
            id: "tok_1".to_owned(),
            source,
        };
        let endpoint = "0000000a".to_owned();
        let access = AccessClaims {
            client_id: "web".to_owned(),
            resource: "https://svc.example".to_owned(),
            scope: [Permission::TunnelsResourcesReadOnly].into_iter().collect(),
        };
        for (source, typ) in [
            (Source::TokenEndpoint(endpoint.clone()), "JWT"),
            (
                Source::AccessToken {
                    endpoint: endpoint.clone(),
                    claims: access.clone(),
                },
                "at+jwt",
            ),
        ] {
            let token = mint_from(&key, &pat, Some(&provenance(source)), NOW);
            let token = text(&token.unwrap());
            assert!(token.starts_with(PAT_PREFIX), "{token}");
            assert_eq!(
                inspect(&token).unwrap()["header"],
                json!({"kind": "svc-pat", "alg": pair.algorithm, "typ": typ, "kid": "k1"})
            );
        }
        // Short-lived tokens and those of applications are not personal access tokens.
        let token = text(&mint(&key, &request(), NOW).unwrap());
        assert!(!token.starts_with(PAT_PREFIX), "{token}");
    }
}

#[test]
fn permissions_and_actions_fit_together() {
    use Permission::{
        AccountPlanReadOnly, TunnelsResourcesReadOnly, TunnelsStreamsCreateDelete,
        TunnelsTunnelsCreateDelete, WebttyLogsReadOnly, WebttyLogsReadWrite,
        WebttySessionsReadOnly, WebttySessionsReadWrite,
    };
    for (permission, actions, fits) in [
        (TunnelsResourcesReadOnly, json!({"list": true}), true),
        (
            TunnelsResourcesReadOnly,
            json!({"list": false, "create": true}),
            false,
        ),
        (WebttySessionsReadOnly, json!({"connect": true}), false),
        (
            WebttyLogsReadOnly,
            json!({"list": {"filters": {"name": "x"}}}),
            true,
        ),
        (WebttyLogsReadWrite, json!({"list": true}), true),
        (WebttyLogsReadWrite, json!({"connect": true}), false),
        (TunnelsTunnelsCreateDelete, json!({"create": true}), true),
        (TunnelsTunnelsCreateDelete, json!({"list": true}), false),
        (
            TunnelsStreamsCreateDelete,
            json!({"connect": {"params": {"path": "/"}}}),
            true,
        ),
        (TunnelsStreamsCreateDelete, json!({"list": true}), false),
        (
            WebttySessionsReadWrite,
            json!({"list": true, "connect": true}),
            true,
        ),
        (WebttySessionsReadWrite, json!({"connect": true}), false),
        (AccountPlanReadOnly, json!({"list": true}), true),
    ] {
        let request = MintRequest {
            permissions: Some(vec![permission]),
            resources: Some(json!({"tunnels": {"scopes": {"tunnels": actions}}})),
            ..request()
        };
        let minted = with_secret(&request);
        assert_eq!(minted.is_ok(), fits, "{permission} {actions}");
        if let Err(MintError::Param(error)) = minted {
            assert_eq!(error.field, "permissions");
        }
    }
}

#[test]
fn unusable_tokens_are_not_minted() {
    for (request, field) in [
        (
            MintRequest {
                ttl_seconds: Some(0),
                ..request()
            },
            "ttl",
        ),
        (
            MintRequest {
                identity: Identity::User(String::new()),
                ..request()
            },
            "identity",
        ),
        (
            MintRequest {
                resources: Some(json!([])),
                ..request()
            },
            "resources",
        ),
        (
            MintRequest {
                resources: Some(json!({"tunnels": {"projects": []}})),
                ..request()
            },
            "resources.tunnels.projects",
        ),
        (
            MintRequest {
                resources: Some(json!({"tunnels": {"projects": ["p".repeat(8192)]}})),
                ..request()
            },
            "resources",
        ),
    ] {
        match with_secret(&request) {
            Err(MintError::Param(error)) => assert_eq!(error.field, field),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn inspecting_verifies_nothing() {
    let foreign = token(&json!({"type": "pat", "exp": 1}));
    assert_eq!(
        inspect(&foreign),
        Some(
            json!({"header": {"alg": "HS256", "typ": "JWT"}, "claims": {"type": "pat", "exp": 1}})
        )
    );
    assert_eq!(inspect("no.token"), None);
}

/// A key pair publishes its own public key, and only that key verifies its signatures.
#[test]
fn a_published_key_verifies_its_signatures() {
    for pair in pairs() {
        let key = SigningKey::from_pem(&pair.private).unwrap();
        let Some(id) = key.thumbprint() else {
            assert!(pair.algorithm != "EdDSA" && key.public_jwk().is_none());
            continue;
        };
        let key = key.with_kid(&id);
        let jwk = key.public_jwk().unwrap();
        assert_eq!((&jwk["kid"], &jwk["d"]), (&json!(id), &Value::Null));
        let published = Keyring::new()
            .with_jwks(&json!({ "keys": [jwk] }).to_string())
            .unwrap();
        let provenance = Provenance {
            issuer: "https://svc.example".to_owned(),
            id: "1".to_owned(),
            source: Source::Credential {
                id: "crd_1".to_owned(),
                updated_at: "2026-01-01T00:00:00Z".to_owned(),
            },
        };
        let token = mint_from(&key, &request(), Some(&provenance), NOW).unwrap();
        let verified = verify(&text(&token), &published, NOW).unwrap();
        assert_eq!(verified.credential_id.as_deref(), Some("crd_1"));
    }
}

/// The example of RFC 8037, appendix A.3.
#[test]
fn the_thumbprint_is_the_one_of_the_rfc() {
    let seed = URL_SAFE_NO_PAD
        .decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A")
        .unwrap();
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).unwrap();
    let key = SigningKey {
        id: None,
        algorithm: Algorithm::EdDsa,
        material: Material::Ed25519(pair),
    };
    assert_eq!(
        key.thumbprint().unwrap(),
        "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    );
}

/// RFC 8725 section 3.11: a document signed for another purpose is never a token.
#[test]
fn a_statement_is_not_a_token() {
    let key = SigningKey::from_secret(&secret()).unwrap();
    // Whatever its claims are.
    let claims = json!({"type": "auth", "userId": "u1", "iat": NOW, "exp": NOW + 60});
    let statement = text(&sign_statement(&key, "svc-sign-in+jwt", &claims).unwrap());
    let refused = verify(&statement, &keyring(), NOW).unwrap_err();
    assert_eq!(refused, crate::TokenRefusal::Header("typ"));
    assert_eq!(
        inspect(&statement).unwrap()["header"]["typ"],
        "svc-sign-in+jwt"
    );
    for token in ["JWT", "jwt", "at+jwt", "AT+JWT"] {
        assert!(sign_statement(&key, token, &claims).is_err(), "{token}");
    }
}
