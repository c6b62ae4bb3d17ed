//! Mail over a server (RFC 5321), in the background: one connection for each mail, and a few
//! attempts.
//!
//! A mail may open accounts. So it is never sent before TLS is established if TLS is required. The
//! log contains neither the mail, nor its recipient, nor the server's text about it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use credentials::Secret;
use daemon::files::read_bounded;
use jiff::Timestamp;
use lettre::Address;
use lettre::address::Envelope;
use lettre::transport::smtp;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::extension::{ClientId, Extension};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::section::{SmtpConfig, SmtpTls};
use super::{MailError, MailerError, Message, Sender, unique};

/// A mail server, and the mails in flight.
pub struct Smtp {
    config: SmtpConfig,
    from: Sender,
    hello: ClientId,
    tls: Option<TlsParameters>,
    password: Option<Secret>,
    /// Free slots for further mails.
    queue_slots: Semaphore,
    /// Limits the number of open connections.
    connections: Semaphore,
    /// Cancelled when the process ends. Waiting mails are then tried a last time.
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
    /// Creates the transport, without contacting the server. `host` is the platform's, for `EHLO`.
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
        // RFC 5321 section 4.1.3: an IP address is written in brackets.
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
            queue_slots: Semaphore::new(QUEUE),
            connections: Semaphore::new(CONNECTIONS),
            hurry: CancellationToken::new(),
        }))
    }

    /// Sends the mail, and retries if that can help.
    pub(super) async fn send(&self, message: &Message, now: Timestamp) -> Result<(), MailError> {
        let _room = self
            .queue_slots
            .try_acquire()
            .map_err(|_| MailError::QueueFull)?;
        let id = unique(now).map_err(MailError::File)?;
        // Each attempt has the same text and id, so that the server can recognise duplicates.
        let text = message.to_rfc_5322(&self.from, now, &id);
        // The library adds the end of the last line.
        let text = text.strip_suffix("\r\n").unwrap_or(&text);
        let envelope = self.envelope(message)?;
        let mut waits = RETRY_DELAYS.into_iter();
        loop {
            let hurried = self.hurry.is_cancelled();
            let error = match self.attempt(&envelope, text.as_bytes()).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let Some(wait) = waits.next().filter(|_| error.is_transient() && !hurried) else {
                return Err(error);
            };
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a mail will be retried later"
            );
            tokio::select! {
                () = sleep(wait) => {}
                () = self.hurry.cancelled() => {}
            }
        }
    }

    /// Ends the waits between attempts. Each mail has one attempt left.
    pub(super) fn retry_now(&self) {
        self.hurry.cancel();
    }

    fn envelope(&self, message: &Message) -> Result<Envelope, MailError> {
        let address = |text: &str| text.parse().map_err(|_| MailError::Address);
        let from = address(self.from.address())?;
        let to = address(message.to().as_str())?;
        Envelope::new(Some(from), vec![to]).map_err(|_| MailError::Address)
    }

    async fn attempt(&self, envelope: &Envelope, text: &[u8]) -> Result<(), MailError> {
        // The semaphore is never closed. If it were, no connection could be made.
        let Ok(_connection) = self.connections.acquire().await else {
            return Err(MailError::QueueFull);
        };
        match timeout(ATTEMPT_TIMEOUT, self.deliver(envelope, text)).await {
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
        let mut connection = AsyncSmtpConnection::connect_tokio1(
            server,
            Some(RESPONSE_TIMEOUT),
            &self.hello,
            implicit,
            None,
        )
        .await?;
        if let (SmtpTls::StartTls, Some(tls)) = (self.config.tls, &self.tls) {
            // Fails if the server does not offer it. The mail is never sent in clear instead.
            connection.starttls(tls.clone(), &self.hello).await?;
        }
        if let (Some((name, _)), Some(password)) = (&self.config.login, &self.password) {
            let password = String::from_utf8_lossy(password.expose()).into_owned();
            let login = Credentials::new(name.clone(), password);
            connection.auth(MECHANISMS, &login).await?;
        }
        let needs_utf8 = |address: &Address| !AsRef::<str>::as_ref(address).is_ascii();
        let mut addresses = envelope.from().into_iter().chain(envelope.to());
        let offered = connection.server_info();
        if addresses.any(needs_utf8) && !offered.supports_feature(Extension::SmtpUtfEight) {
            // The library reports this as it does a missing STARTTLS.
            return Err(MailError::AsciiOnly);
        }
        connection.send(envelope, text).await?;
        // The server has accepted the mail, whatever it replies to the end of the connection.
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

/// Classifies the server's response. Its text is left out, because it may contain the recipient.
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

/// These mechanisms send the password, so they are only used with TLS, or on this machine.
const MECHANISMS: &[Mechanism] = &[Mechanism::Plain, Mechanism::Login];

/// Number of mails that may wait: some hundred kilobytes, and minutes of work for a slow server.
const QUEUE: usize = 256;

/// Small servers accept a few connections per client, and large ones need no more.
const CONNECTIONS: usize = 4;

/// Waits between the attempts. A server that greylists (RFC 6647) accepts after minutes. A link is
/// valid for an hour.
const RETRY_DELAYS: [Duration; 4] = [
    Duration::from_secs(2),
    Duration::from_secs(15),
    Duration::from_mins(1),
    Duration::from_mins(5),
];

/// Time limit for one response of the server.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for one attempt. The end of the process waits for two of them.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(20);

/// Larger files are neither passwords nor certificates.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
