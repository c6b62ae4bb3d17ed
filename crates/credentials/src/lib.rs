//! Token formats, claims, keys and their verification, without IO and without a clock.
//!
//! [`verify`] turns a token and a time into a [`Verified`] value or a [`Refused`] reason for the
//! log. Cryptography is the library's; what is ours is which key may speak, which form a token
//! has, and what its claims mean.

mod keyring;
mod mint;
mod secret;
mod token;
mod verify;
pub mod watch;

pub use self::keyring::{BadKey, Keyring};
pub use self::mint::{BadMint, MintRequest, SigningKey, inspect, mint};
pub use self::secret::Secret;
pub use self::token::{Identity, TokenKind};
pub use self::verify::{Refused, Verified, digest, verify};
