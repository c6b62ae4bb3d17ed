//! `--client` with `--key-file`: an application signs its own tokens, and renews them.

use std::path::PathBuf;

use clap::Args;
use client::{Token, TokenError, TokenFuture, TokenProvider, Tokens};
use credentials::{Identity, MintRequest, SigningKey, TokenKind};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::failure::Failure;

/// The flags of commands that may act as an application.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ClientKey {
    /// Act as this application, with its --key-file instead of a token
    #[arg(long, value_name = "ID", requires = "key_file", hide_short_help = true)]
    client: Option<String>,

    /// Private key of the --client (PEM); the command signs its tokens and renews them
    #[arg(long, value_name = "FILE", requires = "client", hide_short_help = true)]
    key_file: Option<PathBuf>,
}

impl ClientKey {
    /// The tokens of the application. `None` without these flags.
    pub(crate) fn tokens(&self) -> Result<Option<Tokens>, Failure> {
        let (Some(client), Some(path)) = (&self.client, &self.key_file) else {
            return Ok(None);
        };
        let pem = daemon::files::read_bounded(path, MAX_KEY_BYTES).map_err(|error| {
            Failure::usage(format!(
                "the key in {} cannot be read: {error}",
                path.display()
            ))
            .named("key_file")
            .hint("check --key-file: `svc credential create --type app` writes such a file")
        })?;
        let pem = String::from_utf8_lossy(&pem);
        let key = SigningKey::from_pem(&pem).map_err(|error| {
            Failure::usage(format!(
                "the key in {} cannot be used: {error}",
                path.display()
            ))
            .named("key_file")
            .hint("check --key-file: the private key of the application, in PEM form")
        })?;
        if client.is_empty() {
            return Err(Failure::usage("--client is empty")
                .hint("`svc credential list` shows the ids of applications"));
        }
        Ok(Some(Tokens::from_provider(ClientTokens {
            key,
            client: client.clone(),
            current: Mutex::new(None),
        })))
    }
}

/// Signs the tokens of an application.
struct ClientTokens {
    key: SigningKey,
    client: String,
    current: Mutex<Option<SignedToken>>,
}

/// A token, and the time at which it was signed, in Unix seconds.
struct SignedToken {
    token: Token,
    signed_at: i64,
}

impl ClientTokens {
    /// The current token, or a new one if that is old or was refused.
    fn token_at(&self, now: i64, refused: Option<&Token>) -> Result<Token, TokenError> {
        let mut current = self.current.lock();
        if let Some(SignedToken { token, signed_at }) = &*current
            && refused != Some(token)
            && (*signed_at..signed_at.saturating_add(RENEW_AFTER_SECONDS)).contains(&now)
        {
            return Ok(token.clone());
        }
        let request = MintRequest {
            kind: TokenKind::App,
            identity: Identity::Client(self.client.clone()),
            ttl_seconds: Some(TOKEN_SECONDS),
            permissions: None,
            resources: None,
        };
        let minted = credentials::mint(&self.key, &request, now).map_err(TokenError::lasting)?;
        let token = Token::new(&String::from_utf8_lossy(minted.expose()));
        *current = Some(SignedToken {
            token: token.clone(),
            signed_at: now,
        });
        Ok(token)
    }
}

impl TokenProvider for ClientTokens {
    fn token<'a>(&'a self, refused: Option<&'a Token>) -> TokenFuture<'a> {
        let token = self.token_at(Timestamp::now().as_second(), refused);
        Box::pin(async move { token })
    }
}

/// Lifetime of a token: the longest that engines accept of an application.
pub(crate) const TOKEN_SECONDS: u32 = 3600;

/// A token is used for this time. Every use then has most of the lifetime left, and clients that
/// dial often do not sign each time.
const RENEW_AFTER_SECONDS: i64 = 300;

/// A private key in PEM has less than 4 KiB.
const MAX_KEY_BYTES: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PKCS_ECDSA_P521_SHA512};

    use super::*;

    fn tokens() -> ClientTokens {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P521_SHA512).unwrap();
        ClientTokens {
            key: SigningKey::from_pem(&pair.serialize_pem()).unwrap(),
            client: "crd_1".to_owned(),
            current: Mutex::new(None),
        }
    }

    #[test]
    fn a_token_is_reused_for_a_while_and_replaced_when_it_is_old_or_refused() {
        let tokens = tokens();
        let first = tokens.token_at(1_000, None).unwrap();
        assert_eq!(tokens.token_at(1_299, None).unwrap(), first);
        let second = tokens.token_at(1_300, None).unwrap();
        assert_ne!(second, first);
        assert_ne!(tokens.token_at(1_301, Some(&second)).unwrap(), second);
        // A clock that was set back must not leave a token that is not valid yet.
        let reset = tokens.token_at(500, None).unwrap();
        let claims = credentials::inspect(reset.expose()).unwrap();
        assert_eq!(claims["claims"]["exp"], 500 + i64::from(TOKEN_SECONDS));
        assert_eq!(claims["claims"]["clientId"], "crd_1");
    }
}
