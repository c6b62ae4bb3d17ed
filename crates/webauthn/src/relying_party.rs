//! The two ceremonies: registration of a passkey, and authentication with a passkey.

use std::net::IpAddr;

use aws_lc_rs::digest::{SHA256, digest};
use subtle::ConstantTimeEq as _;

use crate::CeremonyError;
use crate::authenticator_data::AuthenticatorData;
use crate::cbor::Reader;
use crate::client_data::ClientData;
use crate::key::PublicKey;

/// The platform as relying party: passkeys are bound to its host, and only its pages may request
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelyingParty {
    id: String,
    origin: String,
}

/// A browser's response for a new passkey (section 7.1).
#[derive(Clone, Copy, Debug)]
pub struct Registration<'a> {
    /// `response.clientDataJSON`.
    pub client_data: &'a [u8],
    /// `response.attestationObject`.
    pub attestation: &'a [u8],
}

/// A new passkey, for the caller to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPasskey {
    /// The authenticator's id for it, at most [`crate::MAX_CREDENTIAL_ID`] bytes.
    pub credential_id: Vec<u8>,
    /// Public key in COSE form.
    pub public_key: Vec<u8>,
    /// The authenticator's counter; 0 if it has none.
    pub sign_count: u32,
    /// True if the authenticator has verified the user.
    pub user_verified: bool,
}

/// A browser's response for an authentication (section 7.2).
#[derive(Clone, Copy, Debug)]
pub struct Assertion<'a> {
    /// `response.clientDataJSON`.
    pub client_data: &'a [u8],
    /// `response.authenticatorData`.
    pub authenticator_data: &'a [u8],
    /// `response.signature`.
    pub signature: &'a [u8],
}

/// A verified authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasskeyAssertion {
    /// The authenticator's counter, to be compared with the stored one.
    pub sign_count: u32,
    /// True if the authenticator has verified the user.
    pub user_verified: bool,
}

impl RelyingParty {
    /// The platform at `base_url`, an origin: `scheme://host[:port]`. `None` if browsers support no
    /// passkeys there: at an address without a name, or without TLS beyond this machine.
    pub fn for_base_url(base_url: &str) -> Option<Self> {
        let (scheme, authority) = base_url.split_once("://")?;
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => authority,
        };
        let is_local = host == "localhost" || host.ends_with(".localhost");
        let is_trusted = scheme == "https" || (scheme == "http" && is_local);
        let is_name = !host.is_empty() && !host.starts_with('[') && host.parse::<IpAddr>().is_err();
        (is_trusted && is_name).then(|| Self {
            id: host.to_owned(),
            origin: base_url.to_owned(),
        })
    }

    /// The host that passkeys are bound to.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Verifies a new passkey. `is_ours` returns true if the caller recently issued the challenge
    /// for this purpose.
    ///
    /// The attestation statement is ignored: none is requested, and without one the key is as
    /// trustworthy as the session that sends it.
    ///
    /// # Errors
    /// The reason, for the log.
    pub fn register(
        &self,
        response: Registration<'_>,
        is_ours: impl FnOnce(&[u8]) -> bool,
    ) -> Result<NewPasskey, CeremonyError> {
        self.check_client_data(response.client_data, "webauthn.create", is_ours)?;
        let data = self.authenticator_data(read_attestation_object(response.attestation)?)?;
        let credential = data
            .credential
            .ok_or(CeremonyError("the credential is missing"))?;
        Ok(NewPasskey {
            credential_id: credential.id.to_vec(),
            public_key: credential.public_key.to_vec(),
            sign_count: data.sign_count,
            user_verified: data.user_verified(),
        })
    }

    /// Verifies an authentication with the passkey of this public key, in COSE form. `is_ours` as
    /// in [`Self::register`].
    ///
    /// # Errors
    /// The reason, for the log.
    pub fn verify(
        &self,
        public_key: &[u8],
        response: Assertion<'_>,
        is_ours: impl FnOnce(&[u8]) -> bool,
    ) -> Result<PasskeyAssertion, CeremonyError> {
        self.check_client_data(response.client_data, "webauthn.get", is_ours)?;
        let data = self.authenticator_data(response.authenticator_data)?;
        let client_data_hash = digest(&SHA256, response.client_data);
        let signed = [response.authenticator_data, client_data_hash.as_ref()].concat();
        PublicKey::read(&mut Reader::new(public_key))?.verify(&signed, response.signature)?;
        Ok(PasskeyAssertion {
            sign_count: data.sign_count,
            user_verified: data.user_verified(),
        })
    }

    /// Checks the client data: its type, its origin, and a challenge of the platform.
    fn check_client_data(
        &self,
        client_data: &[u8],
        purpose: &str,
        is_ours: impl FnOnce(&[u8]) -> bool,
    ) -> Result<(), CeremonyError> {
        let data = ClientData::read(client_data)?;
        if data.purpose != purpose {
            return Err(CeremonyError("the response is for another operation"));
        }
        if data.origin != self.origin {
            return Err(CeremonyError("the requesting page has another origin"));
        }
        if !is_ours(&data.challenge) {
            return Err(CeremonyError("the challenge is unknown or too old"));
        }
        Ok(())
    }

    /// Checks that the data is for this relying party and that a user was present.
    fn authenticator_data<'a>(
        &self,
        bytes: &'a [u8],
    ) -> Result<AuthenticatorData<'a>, CeremonyError> {
        let data = AuthenticatorData::read(bytes)?;
        let expected = digest(&SHA256, self.id.as_bytes());
        if !bool::from(expected.as_ref().ct_eq(&data.rp_id_hash)) {
            return Err(CeremonyError("the passkey is for another host"));
        }
        if !data.user_present() {
            return Err(CeremonyError("the user was not present"));
        }
        Ok(data)
    }
}

/// The authenticator data of an attestation object (section 6.5.4).
fn read_attestation_object(object: &[u8]) -> Result<&[u8], CeremonyError> {
    let mut reader = Reader::new(object);
    let pairs = reader.map()?;
    let (mut format, mut statement, mut data) = (None, None, None);
    for _ in 0..pairs {
        let is_new = match reader.text()? {
            "fmt" => format.replace(reader.text()?).is_none(),
            "attStmt" => statement.replace(reader.skip()?).is_none(),
            "authData" => data.replace(reader.bytes()?).is_none(),
            _ => false,
        };
        if !is_new {
            return Err(NO_ATTESTATION);
        }
    }
    match (format, statement, data) {
        (Some(_), Some(()), Some(data)) if reader.rest().is_empty() => Ok(data),
        _ => Err(NO_ATTESTATION),
    }
}

const NO_ATTESTATION: CeremonyError = CeremonyError("the attestation object is malformed");
