//! Stored forms of secrets. Their `Debug` output leaves the value out.

use std::fmt;

use crate::database::row::{Column, Row};
use crate::database::sql::Value;

/// SHA-256 of a secret that is random enough to need no salt.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SecretHash(pub [u8; 32]);

/// A password's hash in PHC form.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(pub String);

/// Bytes that the caller encrypted; the key is not in the database.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedBytes(pub Vec<u8>);

macro_rules! silent {
    ($($name:ident)+) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )+};
}

silent! { SecretHash PasswordHash SealedBytes }

impl Column for SecretHash {
    fn read(row: &Row, column: &str) -> Result<Self, String> {
        <[u8; 32]>::try_from(Vec::<u8>::read(row, column)?)
            .map(Self)
            .map_err(|_| "not 32 bytes".to_owned())
    }
}

impl Column for PasswordHash {
    fn read(row: &Row, column: &str) -> Result<Self, String> {
        String::read(row, column).map(Self)
    }
}

impl Column for SealedBytes {
    fn read(row: &Row, column: &str) -> Result<Self, String> {
        Vec::<u8>::read(row, column).map(Self)
    }
}

impl From<SecretHash> for Value {
    fn from(hash: SecretHash) -> Self {
        Self::Bytes(Some(hash.0.to_vec()))
    }
}

impl From<&PasswordHash> for Value {
    fn from(hash: &PasswordHash) -> Self {
        Self::from(hash.0.as_str())
    }
}

impl From<&SealedBytes> for Value {
    fn from(sealed: &SealedBytes) -> Self {
        Self::Bytes(Some(sealed.0.clone()))
    }
}
