//! Passwords: which texts are acceptable, and how they are stored.
//!
//! argon2id (RFC 9106) with the OWASP parameters, 19 MiB and two passes. A hash costs a core tens
//! of milliseconds and that memory, so only a few run at the same time. When the queue is full,
//! clients are asked to retry. Without that limit a sign-in form could exhaust the server.

use std::sync::Arc;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version};
use credentials::Secret;
use tokio::sync::Semaphore;

use crate::config::PasswordCost;
use crate::runtime::random;

/// A text that a user typed as a password. `Debug` hides it, and it is cleared on drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Password(Secret);

impl Password {
    /// Accepts a password that was typed at a sign-in. Any text may be tried. Only its length is
    /// limited.
    ///
    /// # Errors
    /// The text is longer than any password can be.
    pub fn typed(text: impl Into<Vec<u8>>) -> Result<Self, BadPassword> {
        let password = Secret::new(text);
        if password.expose().len() > MAX_BYTES {
            return Err(BadPassword::TooLong);
        }
        Ok(Self(password))
    }

    /// Accepts a new password that the user with the address `email` has chosen.
    ///
    /// Only the length matters (NIST SP 800-63B-4 section 3.1.1.2). There are no rules about kinds
    /// of characters, and no expiry.
    ///
    /// # Errors
    /// The text is too short or too long, or can be guessed from the other fields of the form.
    pub fn chosen(text: impl Into<Vec<u8>>, email: &str) -> Result<Self, BadPassword> {
        let password = Self::typed(text)?;
        let text = std::str::from_utf8(password.0.expose()).map_err(|_| BadPassword::NotText)?;
        if text.chars().count() < MIN_CHARACTERS {
            return Err(BadPassword::TooShort);
        }
        let mut characters = text.chars();
        let first = characters.next();
        if characters.all(|character| Some(character) == first) {
            return Err(BadPassword::Guessable);
        }
        let local = email.split('@').next().unwrap_or_default();
        for known in [email, local] {
            if text.eq_ignore_ascii_case(known) {
                return Err(BadPassword::Guessable);
            }
        }
        Ok(password)
    }
}

/// Reasons that a text cannot be a password. The message is for the user who chose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPassword {
    /// Fewer than [`MIN_CHARACTERS`].
    #[error("Use at least 12 characters.")]
    TooShort,
    /// More than [`MAX_BYTES`].
    #[error("Use at most 256 bytes.")]
    TooLong,
    /// Not UTF-8.
    #[error("Use text.")]
    NotText,
    /// The user's own address, or one character repeated.
    #[error("Choose a password that is harder to guess.")]
    Guessable,
}

/// Shortest password that can be chosen. NIST requires 15 characters for a password alone and 8
/// beside a second factor. The second factor is optional here, so 12 with throttling is a
/// compromise.
pub const MIN_CHARACTERS: usize = 12;

/// Longest password, in bytes. It limits the data that a form can make the server read. Longer
/// passwords are not typed in practice.
pub const MAX_BYTES: usize = 256;

/// Hashes and verifies passwords, a few at a time.
#[derive(Clone, Debug)]
pub struct Passwords {
    running: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    parameters: Params,
    /// Verified if the user does not exist, so that the response takes as long.
    decoy: Arc<str>,
}

impl Passwords {
    /// Creates a hasher. At most `at_once` hashes run at the same time.
    ///
    /// # Errors
    /// Never with the current parameters.
    pub fn new(at_once: usize, cost: PasswordCost) -> Result<Self, HashError> {
        let parameters = match cost {
            PasswordCost::Production => Params::default(),
            PasswordCost::LowestForTests => {
                Params::new(Params::MIN_M_COST, Params::MIN_T_COST, 1, None)
                    .map_err(|error| HashError::Failed(error.to_string()))?
            }
        };
        let decoy = hash_now(&parameters, &Password(Secret::new("")), &[0; SALT_BYTES])?;
        Ok(Self {
            running: Arc::new(Semaphore::new(at_once.max(1))),
            waiting: Arc::new(Semaphore::new(at_once.max(1) * WAITING_FOR_EACH)),
            parameters,
            decoy: decoy.into(),
        })
    }

    /// Returns the PHC string to store for `password`, with its own salt.
    ///
    /// # Errors
    /// Too many hashes are waiting already, or the hash failed.
    pub async fn hash(&self, password: Password) -> Result<String, HashError> {
        let salt = random::bytes::<SALT_BYTES>()
            .map_err(|_| HashError::Failed("no randomness".to_owned()))?;
        let parameters = self.parameters.clone();
        self.run(move || hash_now(&parameters, &password, &salt))
            .await?
    }

    /// Compares `password` with the stored hash. `None` is for a user that does not exist or has no
    /// password. It takes as long and never matches.
    ///
    /// # Errors
    /// Too many hashes are waiting already, or the stored text is not a hash.
    pub async fn verify(
        &self,
        password: Password,
        stored: Option<String>,
    ) -> Result<Verdict, HashError> {
        let known = stored.is_some();
        let stored = stored.unwrap_or_else(|| self.decoy.to_string());
        let parameters = self.parameters.clone();
        self.run(move || {
            let hash =
                PasswordHash::new(&stored).map_err(|error| HashError::Failed(error.to_string()))?;
            let matches = Argon2::default()
                .verify_password(password.0.expose(), &hash)
                .is_ok();
            let current = Params::try_from(&hash).is_ok_and(|with| {
                (with.m_cost(), with.t_cost(), with.p_cost())
                    == (
                        parameters.m_cost(),
                        parameters.t_cost(),
                        parameters.p_cost(),
                    )
            });
            Ok(match (known && matches, current) {
                (false, _) => Verdict::Mismatch,
                (true, true) => Verdict::Match,
                (true, false) => Verdict::MatchNeedsRehash,
            })
        })
        .await?
    }

    /// Runs work off the async threads. Cancel-safe: abandoned work runs to its end and keeps its
    /// permit until then, so that a client cannot get a second core by disconnecting.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, HashError> {
        let queue_permit = Arc::clone(&self.waiting)
            .try_acquire_owned()
            .map_err(|_| HashError::Busy)?;
        let hash_permit = Arc::clone(&self.running)
            .acquire_owned()
            .await
            .map_err(|_| HashError::Busy)?;
        tokio::task::spawn_blocking(move || {
            let _places = (queue_permit, hash_permit);
            work()
        })
        .await
        .map_err(|error| HashError::Failed(error.to_string()))
    }
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The password is wrong, or the user does not exist.
    Mismatch,
    /// The password is right.
    Match,
    /// The password is right but the hash has old parameters. Hash it again while the text is
    /// available.
    MatchNeedsRehash,
}

/// Reasons that a hash could not be computed or compared.
#[derive(Debug, thiserror::Error)]
pub enum HashError {
    /// The queue is full. The client can try again in a second.
    #[error("too many passwords are being checked")]
    Busy,
    /// The stored hash cannot be parsed, or the library failed.
    #[error("password hash: {0}")]
    Failed(String),
}

fn hash_now(
    parameters: &Params,
    password: &Password,
    salt: &[u8; SALT_BYTES],
) -> Result<String, HashError> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters.clone())
        .hash_password_with_salt(password.0.expose(), salt)
        .map(|hash| hash.to_string())
        .map_err(|error| HashError::Failed(error.to_string()))
}

/// RFC 9106 section 3.1 recommends 16 bytes.
const SALT_BYTES: usize = 16;

/// Number of waiting requests for each running one. The queue is about a second of work.
const WAITING_FOR_EACH: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const EMAIL: &str = "ada.lovelace@example.com";

    fn typed(text: &str) -> Password {
        Password::typed(text).unwrap()
    }

    #[test]
    fn length_is_the_only_rule_about_form() {
        for good in [
            "correct horse",
            "            x",
            "пароль пароль",
            "123456789012",
        ] {
            assert!(Password::chosen(good, EMAIL).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("elevenchars", BadPassword::TooShort),
            ("пароль", BadPassword::TooShort),
            ("aaaaaaaaaaaaaaaa", BadPassword::Guessable),
            ("Ada.Lovelace@example.com", BadPassword::Guessable),
            ("ADA.LOVELACE", BadPassword::Guessable),
            (&"long".repeat(65), BadPassword::TooLong),
        ] {
            assert_eq!(Password::chosen(bad, EMAIL), Err(why), "{bad}");
        }
        assert_eq!(
            Password::chosen([0xff; 20], EMAIL),
            Err(BadPassword::NotText)
        );
    }

    #[test]
    fn production_hashes_are_argon2id_with_the_recommended_work() {
        let hash = hash_now(&Params::default(), &typed("correct horse"), &[7; 16]).unwrap();
        assert!(
            hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{hash}"
        );
    }

    #[tokio::test]
    async fn a_password_verifies_only_against_its_own_hash() {
        let passwords = Passwords::new(4, PasswordCost::LowestForTests).unwrap();
        let stored = passwords.hash(typed("correct horse")).await.unwrap();
        let again = passwords.hash(typed("correct horse")).await.unwrap();
        assert_ne!(stored, again, "each has its own salt");
        let verify = async |text, stored| passwords.verify(typed(text), stored).await.unwrap();
        assert_eq!(
            verify("correct horse", Some(stored.clone())).await,
            Verdict::Match
        );
        assert_eq!(
            verify("correct horsf", Some(stored)).await,
            Verdict::Mismatch
        );
    }

    #[tokio::test]
    async fn a_missing_user_never_matches_even_with_the_decoy_password() {
        let passwords = Passwords::new(4, PasswordCost::LowestForTests).unwrap();
        for text in ["", "correct horse"] {
            let verdict = passwords.verify(typed(text), None).await.unwrap();
            assert_eq!(verdict, Verdict::Mismatch);
        }
    }

    #[tokio::test]
    async fn a_hash_with_old_parameters_reports_that_it_needs_renewal() {
        let weak = Passwords::new(4, PasswordCost::LowestForTests).unwrap();
        let stored = weak.hash(typed("correct horse")).await.unwrap();
        let strong = Passwords::new(1, PasswordCost::Production).unwrap();
        let verdict = strong
            .verify(typed("correct horse"), Some(stored))
            .await
            .unwrap();
        assert_eq!(verdict, Verdict::MatchNeedsRehash);
    }

    #[tokio::test]
    async fn a_full_queue_refuses_requests_until_it_drains() {
        let passwords = Passwords::new(4, PasswordCost::LowestForTests).unwrap();
        let all = u32::try_from(4 * WAITING_FOR_EACH).unwrap();
        let line = Arc::clone(&passwords.waiting)
            .try_acquire_many_owned(all)
            .unwrap();
        let refused = passwords.hash(typed("correct horse")).await;
        assert!(matches!(refused, Err(HashError::Busy)));
        drop(line);
        assert!(passwords.hash(typed("correct horse")).await.is_ok());
    }

    #[test]
    fn debug_output_hides_the_password() {
        assert!(!format!("{:?}", typed("correct horse")).contains("horse"));
    }
}
