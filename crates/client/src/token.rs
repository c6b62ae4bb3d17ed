//! The credential of an agent, and where it comes from.

use std::{error::Error, fmt, pin::Pin, sync::Arc, time::Duration};

use tokio::time::timeout;

use crate::error::{ConnectError, Step};

/// The credential of an agent or a dialler. It is sent to the engine alone.
///
/// It is the simplest [`TokenProvider`]: the same token each time.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Takes a token as it was given; surrounding white space is cut, as files end in it.
    pub fn new(token: &str) -> Self {
        Self(token.trim().to_owned())
    }

    /// The token itself, for the one place that sends it.
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
/// It is asked before each control channel, each dial and each call of the API; what it returns may
/// come from memory. When the engine refuses a token, it is asked once more with that token: a provider
/// that returns another one has the attempt repeated with it, immediately.
///
/// ```
/// use svc_client::{Token, TokenError, TokenFuture, TokenProvider};
///
/// /// A file that another program keeps fresh.
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
    /// The token of the next connection. `refused` is the one that the engine has just refused.
    ///
    /// # Errors
    /// There is no token: for now ([`TokenError::transient`]), after which an agent tries again, or for
    /// good ([`TokenError::lasting`]), which ends the agent.
    ///
    /// # Cancellation
    /// The future may be dropped at any time, and is after [`TOKEN_TIMEOUT`]; a provider that other
    /// tasks wait for does its work in a task of its own.
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

/// A provider has no token.
#[derive(Clone)]
pub struct TokenError {
    source: Arc<dyn Error + Send + Sync>,
    is_transient: bool,
}

impl TokenError {
    /// There may be one later.
    pub fn transient(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(source.into(), true)
    }

    /// There will be none unless somebody acts: the sign-in behind it has ended, a secret is missing.
    pub fn lasting(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(source.into(), false)
    }

    /// Whether there may be a token later.
    pub fn is_transient(&self) -> bool {
        self.is_transient
    }

    fn new(source: Box<dyn Error + Send + Sync>, is_transient: bool) -> Self {
        Self {
            source: source.into(),
            is_transient,
        }
    }
}

impl fmt::Debug for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenError")
            .field("source", &self.source)
            .field("is_transient", &self.is_transient)
            .finish()
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no token")
    }
}

impl Error for TokenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
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
    /// Those of a provider.
    pub fn from_provider(provider: impl TokenProvider) -> Self {
        Self(Source::Provider(Arc::new(provider)))
    }

    /// The one token, where it is always the same.
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
    /// Safe: nothing is kept.
    pub async fn token(&self) -> Result<Token, ConnectError> {
        match &self.0 {
            Source::Fixed(token) => Ok(token.clone()),
            Source::Provider(provider) => bounded(provider.token(None)).await,
        }
    }

    /// Another token in the place of one that the engine has refused, where the provider has one.
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

async fn bounded(asked: TokenFuture<'_>) -> Result<Token, ConnectError> {
    match timeout(TOKEN_TIMEOUT, asked).await {
        Ok(token) => token.map_err(ConnectError::Token),
        Err(_elapsed) => Err(ConnectError::TimedOut(Step::Token)),
    }
}

impl From<Token> for Tokens {
    fn from(token: Token) -> Self {
        Self(Source::Fixed(token))
    }
}

/// Two are equal that have the same token, or the same provider.
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

/// As long as a sign-in over the network may take: a few round trips and retries.
pub const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);
