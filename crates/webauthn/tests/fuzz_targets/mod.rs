//! Properties that hold for any input: a response is parsed or refused, and one without a valid
//! signature is never accepted. `fuzz/` feeds this function with generated input, the test below
//! with changed pieces of an authenticator's output.

use webauthn::{Assertion, Registration, RelyingParty};

/// A response of a browser in three length-prefixed pieces.
pub(crate) fn webauthn(data: &[u8]) {
    let party = RelyingParty::for_base_url("https://svc.example").unwrap();
    let (client_data, rest) = piece(data);
    let (attestation, signature) = piece(rest);
    let registration = Registration {
        client_data,
        attestation,
    };
    if let Ok(made) = party.register(registration, |_| true) {
        assert!((1..=webauthn::MAX_CREDENTIAL_ID).contains(&made.credential_id.len()));
        // A registered key can be parsed again. The signature is checked, and never valid.
        let assertion = Assertion {
            client_data:
                br#"{"type":"webauthn.get","challenge":"","origin":"https://svc.example"}"#,
            authenticator_data: &attestation[attestation.len().saturating_sub(37)..],
            signature,
        };
        assert!(party.verify(&made.public_key, assertion, |_| true).is_err());
    }
    let assertion = Assertion {
        client_data,
        authenticator_data: attestation,
        signature,
    };
    assert!(party.verify(client_data, assertion, |_| true).is_err());
}

fn piece(data: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = data.split_first_chunk() else {
        return (&[], &[]);
    };
    let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
    rest.split_at(length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::webauthn;
    use crate::authenticator::{Authenticator, Key};

    proptest! {
        #[test]
        fn changed_registrations_are_parsed_or_refused(at in any::<prop::sample::Index>(), byte: u8) {
            let device = Authenticator::at("https://svc.example", Key::es256());
            let client_data = device.client_data("webauthn.create", b"challenge");
            let attestation = device.attestation();
            let mut data = Vec::new();
            for piece in [&client_data, &attestation] {
                data.extend(u16::try_from(piece.len()).unwrap().to_be_bytes());
                data.extend(piece);
            }
            webauthn(&data);
            let at = at.index(data.len());
            data[at] = byte;
            webauthn(&data);
            webauthn(&data[..at]);
        }
    }
}
