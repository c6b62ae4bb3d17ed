//! The `mail` section of the configuration, and its validation.

use std::path::PathBuf;

use daemon::config::ConfigError;
use daemon::config::values::{optional_path, path};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Sender;
use crate::config::{host_name, is_loopback};

/// Mail to users: over a mail server if `smtp` is set, else into a folder.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MailSection {
    /// Folder into which mails are written, one file each; absent: `mail` in the data directory.
    /// Not together with `smtp`.
    folder: Option<String>,
    /// Sender of mails: an address, or a name and an address in angle brackets. Required with
    /// `smtp`; absent: a no-reply address.
    #[schemars(example = &"Tunnels <no-reply@svc.example.com>")]
    from: Option<String>,
    /// The mail server; absent: mails are written into the folder.
    smtp: SmtpSection,
    /// True if the link that the inviting user sees creates an account for an address without one.
    /// Otherwise only the link in the mail creates accounts, and the other link is for users who
    /// sign in with the address. Absent: true if mails are written into a folder, because the
    /// invited person may not have access to it, and false with `smtp`.
    links_create_accounts: Option<bool>,
}

/// A mail server for outgoing mail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct SmtpSection {
    /// Its name or address. Required.
    host: Option<String>,
    /// Its port; absent: 587 with `starttls`, 465 with `implicit`, 25 with `none`.
    port: Option<u16>,
    /// Protection of the connection: `starttls`, `implicit` (TLS from the first byte), or `none`,
    /// which is only allowed for a server on this machine.
    tls: SmtpTls,
    /// User name for the server; absent: the server accepts mails without authentication. Requires
    /// `password_file`.
    username: Option<String>,
    /// File of the password.
    password_file: Option<String>,
    /// File of further certificate authorities (PEM) for the server's certificate; absent: only
    /// those of the system.
    ca_file: Option<String>,
}

/// Protection of the connection to a mail server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SmtpTls {
    /// In clear until `STARTTLS`, with nothing sent before it (RFC 3207).
    #[default]
    StartTls,
    /// TLS from the first byte (RFC 8314 section 3.3).
    Implicit,
    /// No TLS, only allowed on loopback.
    None,
}

/// Transport and sender of mail.
#[derive(Clone, Debug)]
pub struct MailConfig {
    /// The sender.
    pub from: Sender,
    /// The transport.
    pub transport: MailTransport,
    /// True if the link that the inviting user sees creates accounts.
    pub links_create_accounts: bool,
}

/// Transport of mail.
#[derive(Clone, Debug)]
pub enum MailTransport {
    /// Files in this folder.
    Folder(PathBuf),
    /// This mail server.
    Smtp(SmtpConfig),
}

/// A mail server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmtpConfig {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Protection of the connection.
    pub tls: SmtpTls,
    /// User name, and file of the password.
    pub login: Option<(String, PathBuf)>,
    /// Further certificate authorities.
    pub ca_file: Option<PathBuf>,
}

impl MailSection {
    /// Returns the checked values. Without a configured transport, mail is written to
    /// `default_folder`.
    pub(crate) fn check(self, default_folder: PathBuf) -> Result<MailConfig, ConfigError> {
        let sender = |text: String| {
            Sender::parse(&text).ok_or_else(|| {
                let message = "this is not an address such as Tunnels <no-reply@svc.example.com>";
                ConfigError::new("mail.from", message)
            })
        };
        let from = self.from.map(sender).transpose()?;
        if self.smtp == SmtpSection::default() {
            let folder = optional_path("mail.folder", self.folder)?;
            return Ok(MailConfig {
                from: from.unwrap_or_default(),
                transport: MailTransport::Folder(folder.unwrap_or(default_folder)),
                links_create_accounts: self.links_create_accounts.unwrap_or(true),
            });
        }
        if self.folder.is_some() {
            let message = "mail is either written to a folder or sent with mail.smtp, not both";
            return Err(ConfigError::new("mail.folder", message));
        }
        let smtp = self.smtp.check()?;
        let from = from.ok_or_else(|| {
            let message = "this key is required with mail.smtp: mails need a sender";
            ConfigError::new("mail.from", message)
        })?;
        Ok(MailConfig {
            from,
            transport: MailTransport::Smtp(smtp),
            links_create_accounts: self.links_create_accounts.unwrap_or(false),
        })
    }
}

impl SmtpSection {
    fn check(self) -> Result<SmtpConfig, ConfigError> {
        let wrong =
            |key: &str, message: &str| ConfigError::new(format!("mail.smtp.{key}"), message);
        let given = self
            .host
            .ok_or_else(|| wrong("host", "this key is required"))?;
        // The certificate's check accepts IP addresses as names as well.
        let host = match given.parse::<std::net::IpAddr>() {
            Ok(address) => address.to_string(),
            Err(_) => host_name("mail.smtp.host", &given)?,
        };
        if self.tls == SmtpTls::None && !is_loopback(&host) {
            let message = "mails contain links that open accounts: without TLS only loopback is \
                allowed";
            return Err(wrong("tls", message));
        }
        if self.tls == SmtpTls::None && self.ca_file.is_some() {
            return Err(wrong("ca_file", "a certificate requires TLS"));
        }
        let login = match (self.username, self.password_file) {
            (None, None) => None,
            (Some(name), Some(file)) => Some((name, path("mail.smtp.password_file", file)?)),
            (Some(_), None) => {
                return Err(wrong("password_file", "username requires password_file"));
            }
            (None, Some(_)) => {
                return Err(wrong("username", "password_file requires username"));
            }
        };
        let port = self.port.unwrap_or(match self.tls {
            SmtpTls::StartTls => 587,
            SmtpTls::Implicit => 465,
            SmtpTls::None => 25,
        });
        if port == 0 {
            return Err(wrong("port", "0 is not a valid port"));
        }
        Ok(SmtpConfig {
            host,
            port,
            tls: self.tls,
            login,
            ca_file: optional_path("mail.smtp.ca_file", self.ca_file)?,
        })
    }
}
