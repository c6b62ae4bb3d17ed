//! The credential of an agent, and its providers.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use tokio::time::timeout;

use crate::{
    error::{ConnectError, Step},
    token_error::TokenError,
};

/// The credential of an agent or a dialling client. It is sent only to the engine.
///
/// It is the simplest [`TokenProvider`]: the same token each time.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Creates a token. Surrounding white space is removed, because files often end with it.
    pub fn new(token: &str) -> Self {
        Self(token.trim().to_owned())
    }

    /// The token text, for the code that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Provides the token of each connection, and can renew it.
///
/// It is called before each control channel, each dial and each API call, and may return a cached
/// token. When the engine refuses a token, it is called once more with that token. If it then
/// returns another one, the attempt is repeated immediately.
///
/// ```
/// use svc_client::{Token, TokenError, TokenFuture, TokenProvider};
///
/// /// A file that another program updates.
/// struct TokenFile(std::path::PathBuf);
///
/// impl TokenProvider for TokenFile {
///     fn token<'a>(&'a self, _refused: Option<&'a Token>) -> TokenFuture<'a> {
///         Box::pin(async {
///             let text = tokio::fs::read_to_string(&self.0).await;
///             // The other program may be about to write it.
///             text.map(|text| Token::new(&text)).map_err(TokenError::transient)
///         })
///     }
/// }
/// ```
pub trait TokenProvider: Send + Sync + 'static {
    /// Returns the token of the next connection. `refused` is the one that the engine has just
    /// refused.
    ///
    /// # Errors
    /// There is no token: for now ([`TokenError::transient`]), and an agent retries; or permanently
    /// ([`TokenError::lasting`]), which ends the agent.
    ///
    /// # Cancellation
    /// The future may be dropped at any time, and is dropped after [`TOKEN_TIMEOUT`]. If other
    /// tasks wait for the result, do the work in a separate task.
    fn token<'a>(&'a self, refused: Option<&'a Token>) -> TokenFuture<'a>;
}

/// The result of a [`TokenProvider`].
pub type TokenFuture<'a> = Pin<Box<dyn Future<Output = Result<Token, TokenError>> + Send + 'a>>;

impl TokenProvider for Token {
    fn token<'a>(&'a self, _refused: Option<&'a Token>) -> TokenFuture<'a> {
        let token = self.clone();
        Box::pin(async move { Ok(token) })
    }
}

impl<T: TokenProvider + ?Sized> TokenProvider for Arc<T> {
    fn token<'a>(&'a self, refused: Option<&'a Token>) -> TokenFuture<'a> {
        (**self).token(refused)
    }
}

/// The source of the tokens of a configuration: a [`Token`] or another [`TokenProvider`].
#[derive(Clone)]
pub struct Tokens(Source);

#[derive(Clone)]
enum Source {
    Fixed(Token),
    Provider(Arc<dyn TokenProvider>),
}

impl Tokens {
    /// Uses the tokens of a provider.
    pub fn from_provider(provider: impl TokenProvider) -> Self {
        Self(Source::Provider(Arc::new(provider)))
    }

    /// The token, if it is always the same.
    pub fn fixed(&self) -> Option<&Token> {
        match &self.0 {
            Source::Fixed(token) => Some(token),
            Source::Provider(_) => None,
        }
    }

    /// The token of the next connection.
    ///
    /// # Errors
    /// [`ConnectError::Token`], or [`ConnectError::TimedOut`] after [`TOKEN_TIMEOUT`].
    ///
    /// # Cancellation
    /// Safe: no state is kept.
    pub async fn token(&self) -> Result<Token, ConnectError> {
        match &self.0 {
            Source::Fixed(token) => Ok(token.clone()),
            Source::Provider(provider) => bounded(provider.token(None)).await,
        }
    }

    /// Returns another token after the engine has refused one, if the provider has another.
    pub(crate) async fn replacement(&self, refused: &Token) -> Result<Option<Token>, ConnectError> {
        match &self.0 {
            Source::Fixed(_) => Ok(None),
            Source::Provider(provider) => {
                let token = bounded(provider.token(Some(refused))).await?;
                Ok(Some(token).filter(|token| token != refused))
            }
        }
    }
}

async fn bounded(requested: TokenFuture<'_>) -> Result<Token, ConnectError> {
    match timeout(TOKEN_TIMEOUT, requested).await {
        Ok(token) => token.map_err(ConnectError::Token),
        Err(_elapsed) => Err(ConnectError::TimedOut(Step::Token)),
    }
}

impl From<Token> for Tokens {
    fn from(token: Token) -> Self {
        Self(Source::Fixed(token))
    }
}

/// Two values are equal if they have the same token or the same provider.
impl PartialEq for Tokens {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Source::Fixed(one), Source::Fixed(other)) => one == other,
            (Source::Provider(one), Source::Provider(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for Tokens {}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Source::Fixed(_) => "Tokens(fixed)",
            Source::Provider(_) => "Tokens(provider)",
        })
    }
}

/// Enough for a sign-in over the network: a few round trips and retries.
pub const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);
