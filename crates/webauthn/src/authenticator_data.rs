//! Authenticator data, the signed data of an authenticator (Web Authentication level 3, section
//! 6.1): the hash of the relying party's id, flags, a counter, and at registration the new
//! credential.

use crate::cbor::Reader;
use crate::key::PublicKey;
use crate::{CeremonyError, MAX_CREDENTIAL_ID};

/// Authenticator data, parsed completely.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuthenticatorData<'a> {
    pub(crate) rp_id_hash: [u8; 32],
    flags: u8,
    pub(crate) sign_count: u32,
    pub(crate) credential: Option<Credential<'a>>,
}

/// A new credential.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credential<'a> {
    pub(crate) id: &'a [u8],
    /// The key in COSE form, as it was sent.
    pub(crate) public_key: &'a [u8],
}

impl<'a> AuthenticatorData<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, CeremonyError> {
        let (rp_id_hash, rest) = bytes.split_first_chunk().ok_or(TRUNCATED)?;
        let ([flags], rest) = rest.split_first_chunk().ok_or(TRUNCATED)?;
        let (count, rest) = rest.split_first_chunk().ok_or(TRUNCATED)?;
        let (credential, rest) = if flags & ATTESTED_CREDENTIAL == 0 {
            (None, rest)
        } else {
            let (credential, rest) = Credential::read(rest)?;
            (Some(credential), rest)
        };
        let mut rest = Reader::new(rest);
        if flags & EXTENSIONS != 0 {
            rest.skip()?;
        }
        if !rest.rest().is_empty() {
            return Err(CeremonyError(
                "the authenticator data is longer than its parts",
            ));
        }
        let data = Self {
            rp_id_hash: *rp_id_hash,
            flags: *flags,
            sign_count: u32::from_be_bytes(*count),
            credential,
        };
        if data.has(BACKED_UP) && !data.has(BACKUP_ELIGIBLE) {
            return Err(CeremonyError(
                "the passkey is backed up although it may not be",
            ));
        }
        Ok(data)
    }

    /// True if a user was present and agreed.
    pub(crate) fn user_present(&self) -> bool {
        self.has(USER_PRESENT)
    }

    /// True if the authenticator has verified the user, by a PIN or a finger.
    pub(crate) fn user_verified(&self) -> bool {
        self.has(USER_VERIFIED)
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl<'a> Credential<'a> {
    /// Section 6.5.1: the manufacturer's id for its model, then the credential's id and key.
    fn read(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), CeremonyError> {
        let (_model, rest) = bytes.split_first_chunk::<16>().ok_or(TRUNCATED)?;
        let (length, rest) = rest.split_first_chunk().ok_or(TRUNCATED)?;
        let length = usize::from(u16::from_be_bytes(*length));
        if !(1..=MAX_CREDENTIAL_ID).contains(&length) {
            return Err(CeremonyError("the credential's id has an invalid length"));
        }
        let (id, rest) = rest.split_at_checked(length).ok_or(TRUNCATED)?;
        let mut reader = Reader::new(rest);
        PublicKey::read(&mut reader)?;
        let behind = reader.rest();
        let public_key = rest.get(..rest.len() - behind.len()).ok_or(TRUNCATED)?;
        Ok((Self { id, public_key }, behind))
    }
}

const TRUNCATED: CeremonyError = CeremonyError("the authenticator data is truncated");

const USER_PRESENT: u8 = 1;
const USER_VERIFIED: u8 = 1 << 2;
const BACKUP_ELIGIBLE: u8 = 1 << 3;
const BACKED_UP: u8 = 1 << 4;
const ATTESTED_CREDENTIAL: u8 = 1 << 6;
const EXTENSIONS: u8 = 1 << 7;
