//! The link password of a tunnel: visitors without an account send it with HTTP Basic
//! authentication (RFC 7617).
//!
//! An agent hashes the password with argon2id (RFC 9106) and sends only the hash, as a PHC string.
//! An engine accepts hashes whose check costs a limited amount of memory and time.

use std::fmt;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version};

use crate::Secret;

/// A user name and the hash of its password. An empty name stands for every name.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkPassword {
    user: Box<str>,
    hash: PasswordHash,
}

/// The link passwords of a tunnel: at least one, and each user name once. `Debug` prints only their
/// number.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkPasswords {
    entries: Box<[LinkPassword]>,
    fingerprint: [u8; 32],
}

/// Reasons why link passwords are not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkPasswordError {
    /// No entry.
    #[error("a password is missing")]
    Missing,
    /// More than [`MAX_ENTRIES`].
    #[error("at most {MAX_ENTRIES} entries")]
    TooMany,
    /// Two entries with one name.
    #[error("a user name is repeated")]
    Repeated,
    /// A colon ends the name in the header, and control characters cannot be typed.
    #[error(
        "a user name has at most {MAX_USER_BYTES} bytes and neither colons nor control characters"
    )]
    User,
    /// The password cannot be sent, or is too long.
    #[error("a password has 1 to {MAX_PASSWORD_BYTES} bytes and no control characters")]
    Password,
    /// Not a PHC string of argon2id, version 19.
    #[error("the hash is not a PHC string of argon2id with version 19")]
    NotArgon2id,
    /// The check would take too much memory or time.
    #[error(
        "the hash needs more than m={MAX_MEMORY_KIB} (KiB), t={MAX_PASSES} or p={MAX_LANES}, or \
         its output is not {MIN_OUTPUT_BYTES} to {MAX_OUTPUT_BYTES} bytes"
    )]
    TooExpensive,
    /// The library failed.
    #[error("the password cannot be hashed")]
    Failed,
}

impl LinkPassword {
    /// Parses a user name and a PHC string.
    ///
    /// # Errors
    /// The name is malformed, or the hash is not argon2id within the limits.
    pub fn parse(user: &str, hash: &str) -> Result<Self, LinkPasswordError> {
        check_user(user)?;
        if hash.len() > MAX_HASH_BYTES {
            return Err(LinkPasswordError::NotArgon2id);
        }
        let hash = PasswordHash::new(hash).map_err(|_| LinkPasswordError::NotArgon2id)?;
        let is_argon2id = hash.algorithm.as_str() == "argon2id"
            && hash.version == Some(VERSION)
            && hash.salt.is_some();
        let Some(output) = hash.hash.as_ref().filter(|_| is_argon2id) else {
            return Err(LinkPasswordError::NotArgon2id);
        };
        let output_bytes = output.len();
        let cost = Params::try_from(&hash).map_err(|_| LinkPasswordError::NotArgon2id)?;
        if cost.m_cost() > MAX_MEMORY_KIB
            || cost.t_cost() > MAX_PASSES
            || cost.p_cost() > MAX_LANES
            || !(MIN_OUTPUT_BYTES..=MAX_OUTPUT_BYTES).contains(&output_bytes)
        {
            return Err(LinkPasswordError::TooExpensive);
        }
        Ok(Self {
            user: user.into(),
            hash,
        })
    }
}

impl LinkPasswords {
    /// The link passwords of one tunnel.
    ///
    /// # Errors
    /// There is none, there are too many, or a name is repeated.
    pub fn new(entries: Vec<LinkPassword>) -> Result<Self, LinkPasswordError> {
        if entries.is_empty() {
            return Err(LinkPasswordError::Missing);
        }
        if entries.len() > MAX_ENTRIES {
            return Err(LinkPasswordError::TooMany);
        }
        for (index, entry) in entries.iter().enumerate() {
            let mut before = entries.iter().take(index);
            if before.any(|other| other.user == entry.user) {
                return Err(LinkPasswordError::Repeated);
            }
        }
        // Neither a name nor a hash contains a line ending, so the text is unique.
        let lines = entries
            .iter()
            .map(|entry| format!("{}\n{}\n", entry.user, entry.hash));
        let fingerprint = crate::digest(&lines.collect::<String>());
        Ok(Self {
            entries: entries.into(),
            fingerprint,
        })
    }

    /// Compares a password with the hash of its user. It takes tens of milliseconds and the memory
    /// of the hash. An unknown user takes as long as a known one.
    pub fn verify(&self, user: &str, password: &Secret) -> bool {
        let known = self.entry(user);
        let Some(entry) = known.or(self.entries.first()) else {
            return false;
        };
        let matches = Argon2::default()
            .verify_password(password.expose(), &entry.hash)
            .is_ok();
        known.is_some() && matches
    }

    /// The name of the entry that applies to a user: its own, or the empty one that stands for
    /// every name. `None` for an unknown user.
    pub fn entry_name(&self, user: &str) -> Option<&str> {
        self.entry(user).map(|entry| &*entry.user)
    }

    fn entry(&self, user: &str) -> Option<&LinkPassword> {
        let with_name = |name: &str| self.entries.iter().find(|entry| &*entry.user == name);
        with_name(user).or_else(|| with_name(""))
    }

    /// The names with their hashes as PHC strings, for another engine that checks the passwords.
    pub fn entries(&self) -> impl Iterator<Item = (&str, String)> {
        let entries = self.entries.iter();
        entries.map(|entry| (&*entry.user, entry.hash.to_string()))
    }

    /// A value that identifies this set of names and hashes.
    pub fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }
}

impl fmt::Debug for LinkPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkPassword")
    }
}

impl fmt::Debug for LinkPasswords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkPasswords({})", self.entries.len())
    }
}

/// Returns the PHC string for a password: argon2id with 19 MiB and two passes, the parameters that
/// OWASP recommends.
///
/// # Errors
/// The password is empty, too long, or has control characters (RFC 7617 section 2).
pub fn hash(password: &Secret, salt: &[u8; SALT_BYTES]) -> Result<String, LinkPasswordError> {
    let bytes = password.expose();
    let is_control = |byte: &u8| byte.is_ascii_control();
    if bytes.is_empty() || bytes.len() > MAX_PASSWORD_BYTES || bytes.iter().any(is_control) {
        return Err(LinkPasswordError::Password);
    }
    Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::default())
        .hash_password_with_salt(bytes, salt)
        .map(|hash| hash.to_string())
        .map_err(|_| LinkPasswordError::Failed)
}

/// Checks a user name.
///
/// # Errors
/// It is too long, or contains a colon or a control character.
pub fn check_user(user: &str) -> Result<(), LinkPasswordError> {
    let is_forbidden = |character: char| character == ':' || character.is_control();
    if user.len() > MAX_USER_BYTES || user.contains(is_forbidden) {
        return Err(LinkPasswordError::User);
    }
    Ok(())
}

/// Maximum number of link passwords of a tunnel.
pub const MAX_ENTRIES: usize = 16;
/// Maximum length of a user name, in bytes.
pub const MAX_USER_BYTES: usize = 128;
/// Maximum length of a password, in bytes.
pub const MAX_PASSWORD_BYTES: usize = 256;
/// Length of a salt, in bytes (RFC 9106 section 3.1).
pub const SALT_BYTES: usize = 16;

/// Maximum length of a PHC string, in bytes. That of a recommended hash has 97.
const MAX_HASH_BYTES: usize = 256;
/// Memory that the check of one password may take at an engine, in KiB: 64 MiB.
const MAX_MEMORY_KIB: u32 = 64 * 1024;
/// Passes over that memory. RFC 9106 section 4 recommends three with 64 MiB.
const MAX_PASSES: u32 = 3;
/// Lanes. The library computes them one after the other.
const MAX_LANES: u32 = 4;
/// Shorter outputs could be hit by chance.
const MIN_OUTPUT_BYTES: usize = 16;
const MAX_OUTPUT_BYTES: usize = 64;
/// Version 1.3 of argon2.
const VERSION: u32 = 19;

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: [u8; SALT_BYTES] = [7; SALT_BYTES];

    /// A cheap hash.
    fn cheap(password: &str) -> String {
        let cost = Params::new(Params::MIN_M_COST, 1, 1, None).unwrap();
        let hasher = Argon2::new(Algorithm::Argon2id, Version::V0x13, cost);
        let hash = hasher.hash_password_with_salt(password.as_bytes(), &SALT);
        hash.unwrap().to_string()
    }

    fn entry(user: &str, password: &str) -> LinkPassword {
        LinkPassword::parse(user, &cheap(password)).unwrap()
    }

    #[test]
    fn a_password_is_valid_for_its_user_only() {
        let both = vec![entry("ann", "one"), entry("bob", "two")];
        let passwords = LinkPasswords::new(both).unwrap();
        for (user, password, expected) in [
            ("ann", "one", true),
            ("bob", "two", true),
            ("ann", "two", false),
            ("eve", "one", false),
            ("", "one", false),
            ("ann", "", false),
        ] {
            let secret = Secret::new(password);
            assert_eq!(passwords.verify(user, &secret), expected, "{user}");
        }
    }

    #[test]
    fn an_empty_name_matches_every_name_without_an_entry() {
        let both = vec![entry("ann", "one"), entry("", "two")];
        let passwords = LinkPasswords::new(both).unwrap();
        assert!(passwords.verify("anybody", &Secret::new("two")));
        assert!(passwords.verify("", &Secret::new("two")));
        assert!(!passwords.verify("ann", &Secret::new("two")));
        for (user, name) in [("ann", "ann"), ("bob", ""), ("", "")] {
            assert_eq!(passwords.entry_name(user), Some(name), "{user}");
        }
        let one = LinkPasswords::new(vec![entry("ann", "one")]).unwrap();
        assert_eq!(one.entry_name("bob"), None);
    }

    #[test]
    fn only_affordable_argon2id_hashes_are_accepted() {
        let good = cheap("one");
        assert!(LinkPassword::parse("ann", &good).is_ok());
        let changed = |from: &str, to: &str| {
            assert!(good.contains(from), "{good}");
            LinkPassword::parse("ann", &good.replacen(from, to, 1))
        };
        for (from, to, why) in [
            ("argon2id", "argon2i", LinkPasswordError::NotArgon2id),
            ("argon2id", "scrypt", LinkPasswordError::NotArgon2id),
            ("v=19", "v=16", LinkPasswordError::NotArgon2id),
            ("$v=19", "", LinkPasswordError::NotArgon2id),
            ("m=8", "m=x", LinkPasswordError::NotArgon2id),
            ("m=8", "m=65537", LinkPasswordError::TooExpensive),
            ("t=1", "t=4", LinkPasswordError::TooExpensive),
        ] {
            assert_eq!(changed(from, to), Err(why), "{to}");
        }
        assert!(changed("m=8", "m=65536").is_ok());
        assert!(changed("t=1", "t=3").is_ok());
        for bad in ["", "one", "$argon2id$v=19$m=8,t=1,p=1", &"$".repeat(300)] {
            let refused = LinkPassword::parse("ann", bad);
            assert_eq!(refused, Err(LinkPasswordError::NotArgon2id), "{bad}");
        }
    }

    #[test]
    fn names_are_distinct_and_their_number_is_limited() {
        assert_eq!(
            LinkPasswords::new(Vec::new()),
            Err(LinkPasswordError::Missing)
        );
        let twice = vec![entry("ann", "one"), entry("ann", "two")];
        assert_eq!(LinkPasswords::new(twice), Err(LinkPasswordError::Repeated));
        let many = |count: usize| (0..count).map(|it| entry(&it.to_string(), "one")).collect();
        assert!(LinkPasswords::new(many(MAX_ENTRIES)).is_ok());
        assert_eq!(
            LinkPasswords::new(many(MAX_ENTRIES + 1)),
            Err(LinkPasswordError::TooMany)
        );
        for bad in ["a:b", "a\nb", &"a".repeat(MAX_USER_BYTES + 1)] {
            let refused = LinkPassword::parse(bad, &cheap("one"));
            assert_eq!(refused, Err(LinkPasswordError::User), "{bad:?}");
        }
    }

    #[test]
    fn a_new_hash_is_argon2id_with_the_recommended_work() {
        let text = hash(&Secret::new("correct horse"), &SALT).unwrap();
        assert!(
            text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{text}"
        );
        let entries = vec![LinkPassword::parse("", &text).unwrap()];
        let passwords = LinkPasswords::new(entries).unwrap();
        assert!(passwords.verify("ann", &Secret::new("correct horse")));
        for bad in ["", "a\tb", &"a".repeat(MAX_PASSWORD_BYTES + 1)] {
            let refused = hash(&Secret::new(bad), &SALT);
            assert_eq!(refused, Err(LinkPasswordError::Password), "{bad:?}");
        }
    }

    #[test]
    fn the_fingerprint_changes_with_each_name_and_hash() {
        let of = |entries: Vec<LinkPassword>| *LinkPasswords::new(entries).unwrap().fingerprint();
        let one = of(vec![entry("ann", "one")]);
        assert_eq!(one, of(vec![entry("ann", "one")]));
        assert_ne!(one, of(vec![entry("bob", "one")]));
        assert_ne!(one, of(vec![entry("ann", "two")]));
    }

    #[test]
    fn debug_output_hides_names_and_hashes() {
        let passwords = LinkPasswords::new(vec![entry("ann", "one")]).unwrap();
        assert_eq!(format!("{passwords:?}"), "LinkPasswords(1)");
        assert_eq!(format!("{:?}", entry("ann", "one")), "LinkPassword");
    }
}
