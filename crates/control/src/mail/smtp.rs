//! Mail over a server (RFC 5321): one connection for each mail, a few tries, nobody waits for it.
//!
//! What stands in a mail opens accounts, so it is never said before TLS is up where TLS is wanted,
//! and a log line has neither the mail, nor whom it is for, nor what the server said about that.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use credentials::Secret;
use daemon::files::read_bounded;
use jiff::Timestamp;
use lettre::address::Envelope;
use lettre::transport::smtp;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::section::{SmtpConfig, SmtpTls};
use super::{MailError, MailerError, Message, Sender, unique};

/// A mail server, and the mails that are on their way to it.
pub struct Smtp {
    config: SmtpConfig,
    from: Sender,
    hello: ClientId,
    tls: Option<TlsParameters>,
    password: Option<Secret>,
    /// Room for further mails.
    room: Semaphore,
    /// Connections that may be open.
    connections: Semaphore,
    /// The process ends: what is waiting is tried a last time.
    hurry: CancellationToken,
}

impl fmt::Debug for Smtp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Smtp")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Smtp {
    /// A server that is not asked yet. `host` is ours: what we say in `EHLO`.
    pub(super) fn open(
        config: &SmtpConfig,
        from: Sender,
        host: &str,
    ) -> Result<Arc<Self>, MailerError> {
        let tls = match config.tls {
            SmtpTls::None => None,
            SmtpTls::StartTls | SmtpTls::Implicit => Some(tls(config)?),
        };
        let password = match &config.login {
            None => None,
            Some((_, file)) => {
                let bytes = read_bounded(file, MAX_FILE_BYTES)
                    .map_err(|error| MailerError::new(file, error.to_string()))?;
                Some(Secret::new(bytes.trim_ascii()))
            }
        };
        // RFC 5321 section 4.1.3: an address is written in brackets.
        let hello = match host.trim_matches(['[', ']']).parse() {
            Ok(std::net::IpAddr::V4(address)) => ClientId::Ipv4(address),
            Ok(std::net::IpAddr::V6(address)) => ClientId::Ipv6(address),
            Err(_) => ClientId::Domain(host.to_owned()),
        };
        Ok(Arc::new(Self {
            config: config.clone(),
            from,
            hello,
            tls,
            password,
            room: Semaphore::new(QUEUE),
            connections: Semaphore::new(CONNECTIONS),
            hurry: CancellationToken::new(),
        }))
    }

    /// Sends the mail, trying again where that can help.
    pub(super) async fn send(&self, message: &Message, now: Timestamp) -> Result<(), MailError> {
        let _room = self.room.try_acquire().map_err(|_| MailError::QueueFull)?;
        let id = unique(now).map_err(MailError::File)?;
        // The same text and id each time: a server that took it twice can tell.
        let text = message.to_rfc_5322(&self.from, now, &id);
        // The library ends the last line by itself.
        let text = text.strip_suffix("\r\n").unwrap_or(&text);
        let envelope = self.envelope(message)?;
        let mut waits = WAITS.into_iter();
        loop {
            let hurried = self.hurry.is_cancelled();
            let error = match self.try_once(&envelope, text.as_bytes()).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let Some(wait) = waits.next().filter(|_| error.may_pass() && !hurried) else {
                return Err(error);
            };
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a mail is tried again later"
            );
            tokio::select! {
                () = sleep(wait) => {}
                () = self.hurry.cancelled() => {}
            }
        }
    }

    /// Waits no more between tries: each mail has one left.
    pub(super) fn hurry(&self) {
        self.hurry.cancel();
    }

    fn envelope(&self, message: &Message) -> Result<Envelope, MailError> {
        let address = |text: &str| text.parse().map_err(|_| MailError::Address);
        let from = address(self.from.address())?;
        let to = address(message.to().as_str())?;
        Envelope::new(Some(from), vec![to]).map_err(|_| MailError::Address)
    }

    async fn try_once(&self, envelope: &Envelope, text: &[u8]) -> Result<(), MailError> {
        // Closed by nobody; were it, there would be no connection to be had.
        let Ok(_connection) = self.connections.acquire().await else {
            return Err(MailError::QueueFull);
        };
        match timeout(WHOLE_TRY, self.deliver(envelope, text)).await {
            Ok(delivered) => delivered,
            Err(_) => Err(MailError::TooSlow),
        }
    }

    async fn deliver(&self, envelope: &Envelope, text: &[u8]) -> Result<(), MailError> {
        let implicit = match self.config.tls {
            SmtpTls::Implicit => self.tls.clone(),
            SmtpTls::StartTls | SmtpTls::None => None,
        };
        let server = (self.config.host.as_str(), self.config.port);
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(server, Some(ANSWER), &self.hello, implicit, None)
                .await?;
        if let (SmtpTls::StartTls, Some(tls)) = (self.config.tls, &self.tls) {
            // Fails where the server does not offer it: nothing goes out in the clear instead.
            connection.starttls(tls.clone(), &self.hello).await?;
        }
        if let (Some((name, _)), Some(password)) = (&self.config.login, &self.password) {
            let password = String::from_utf8_lossy(password.expose()).into_owned();
            let login = Credentials::new(name.clone(), password);
            connection.auth(MECHANISMS, &login).await?;
        }
        connection.send(envelope, text).await?;
        // The mail is the server's now, however it takes our leave.
        connection.abort().await;
        Ok(())
    }
}

fn tls(config: &SmtpConfig) -> Result<TlsParameters, MailerError> {
    let mut tls = TlsParameters::builder(config.host.clone());
    if let Some(file) = &config.ca_file {
        let failed = |message: &str| MailerError::new(file, message.to_owned());
        let pem = read_bounded(file, MAX_FILE_BYTES)
            .map_err(|error| MailerError::new(file, error.to_string()))?;
        let authorities =
            Certificate::from_pem(&pem).map_err(|_| failed("no certificates in PEM"))?;
        tls = tls.add_root_certificate(authorities);
    }
    tls.build_rustls()
        .map_err(|error| MailerError::system(error.to_string()))
}

/// What the server's answer is worth to us; its text is left out, because it may repeat whom the
/// mail is for.
impl From<smtp::Error> for MailError {
    fn from(error: smtp::Error) -> Self {
        if error.is_permanent() || error.is_transient() {
            let code = error.status().map_or(0, u16::from);
            return Self::Refused(code);
        }
        if error.is_client() {
            return Self::NotOffered;
        }
        Self::Connection
    }
}

/// Both are for use under TLS, or on this machine alone.
const MECHANISMS: &[Mechanism] = &[Mechanism::Plain, Mechanism::Login];

/// Mails that may wait: some hundred kilobytes, and minutes of work for a slow server.
const QUEUE: usize = 256;

/// Small servers take a few connections of one client; large ones do not need more of ours.
const CONNECTIONS: usize = 4;

/// Waits between the tries. A server that greylists (RFC 6647) lets pass after minutes; a link
/// works for an hour.
const WAITS: [Duration; 4] = [
    Duration::from_secs(2),
    Duration::from_secs(15),
    Duration::from_mins(1),
    Duration::from_mins(5),
];

/// For one answer of the server.
const ANSWER: Duration = Duration::from_secs(10);

/// For one try, whatever the server does. The end of the process waits for two of them.
const WHOLE_TRY: Duration = Duration::from_secs(20);

/// Larger files are neither passwords nor certificates.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
