//! Public keys in COSE form (RFC 9052 section 7, RFC 9053), and their signatures.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};

use crate::CeremonyError;
use crate::cbor::Reader;

/// The COSE numbers of the supported algorithms, best first: ES256, `EdDSA`, RS256.
pub const ALGORITHMS: [i64; 3] = [ES256, EDDSA, RS256];

/// The public key of an authenticator's credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublicKey<'a> {
    /// P-256: both coordinates.
    Es256([u8; 32], [u8; 32]),
    /// Ed25519.
    EdDsa([u8; 32]),
    /// RSA: modulus and exponent, big-endian.
    Rs256(&'a [u8], &'a [u8]),
}

impl<'a> PublicKey<'a> {
    /// Parses a key, and leaves the bytes after it. It accepts only the members of the key's type,
    /// because authenticators must not write others (Web Authentication level 3, section 6.5.1.1).
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, CeremonyError> {
        let pairs = reader.map()?;
        if !(4..=5).contains(&pairs) {
            return Err(UNKNOWN_KEY);
        }
        let (mut kind, mut algorithm, mut first) = (None, None, None);
        let (mut second, mut third) = (None, None);
        for _ in 0..pairs {
            let is_new = match reader.integer()? {
                1 => kind.replace(reader.integer()?).is_none(),
                3 => algorithm.replace(reader.integer()?).is_none(),
                -1 => first.replace(Member::read(reader)?).is_none(),
                -2 => second.replace(reader.bytes()?).is_none(),
                -3 => third.replace(reader.bytes()?).is_none(),
                _ => false,
            };
            if !is_new {
                return Err(UNKNOWN_KEY);
            }
        }
        match (kind, algorithm, first, second, third) {
            (Some(EC2), Some(ES256), Some(Member::Integer(P256)), Some(x), Some(y)) => {
                Ok(Self::Es256(coordinate(x)?, coordinate(y)?))
            }
            (Some(OKP), Some(EDDSA), Some(Member::Integer(CURVE25519)), Some(x), None) => {
                Ok(Self::EdDsa(coordinate(x)?))
            }
            (Some(RSA), Some(RS256), Some(Member::Bytes(modulus)), Some(exponent), None) => {
                Ok(Self::Rs256(modulus, exponent))
            }
            _ => Err(UNKNOWN_KEY),
        }
    }

    /// Checks that the signature over the message was made by this key.
    pub(crate) fn verify(self, message: &[u8], signature: &[u8]) -> Result<(), CeremonyError> {
        let verified = match self {
            Self::Es256(x, y) => {
                // SEC 1 section 2.3.3: an uncompressed point. A point that is not on the curve
                // verifies nothing.
                let point = [&[4][..], &x, &y].concat();
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(message, signature)
            }
            Self::EdDsa(x) => UnparsedPublicKey::new(&ED25519, x).verify(message, signature),
            Self::Rs256(n, e) => RsaPublicKeyComponents { n, e }.verify(
                &RSA_PKCS1_2048_8192_SHA256,
                message,
                signature,
            ),
        };
        verified.map_err(|_| CeremonyError("the signature does not match the key"))
    }
}

/// Value of label -1: a curve, or the modulus of an RSA key.
#[derive(Clone, Copy)]
enum Member<'a> {
    Integer(i64),
    Bytes(&'a [u8]),
}

impl<'a> Member<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, CeremonyError> {
        let mut ahead = *reader;
        if let Ok(integer) = ahead.integer() {
            *reader = ahead;
            return Ok(Self::Integer(integer));
        }
        reader.bytes().map(Self::Bytes)
    }
}

fn coordinate(bytes: &[u8]) -> Result<[u8; 32], CeremonyError> {
    bytes.try_into().map_err(|_| UNKNOWN_KEY)
}

const UNKNOWN_KEY: CeremonyError = CeremonyError("the key type is not supported");

// RFC 9053 section 7.1 and RFC 8230 section 4: types of keys, and curves.
const OKP: i64 = 1;
const EC2: i64 = 2;
const RSA: i64 = 3;
const P256: i64 = 1;
const CURVE25519: i64 = 6;

// RFC 9053 section 2, RFC 8812 section 2: algorithms.
const ES256: i64 = -7;
const EDDSA: i64 = -8;
const RS256: i64 = -257;
