//! `mail` of the configuration, as it is written, and its conversion.

use std::path::PathBuf;

use daemon::config::ConfigError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Sender;
use crate::config::{host_name, is_loopback, path};

/// Mail to people: over a mail server where `smtp` is there, else into a folder.
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
    /// Whether the link of an invitation that its inviter sees creates an account for an address
    /// without one. Where it does not, the link of the mail alone does, and the other one joins people
    /// who sign in with the address. Absent: true where mails are written into a folder, which nobody
    /// may be reading for the invited, and false with `smtp`.
    links_create_accounts: Option<bool>,
}

/// A mail server that takes our mails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct SmtpSection {
    /// Its name or address. Required.
    host: Option<String>,
    /// Its port; absent: 587 with `starttls`, 465 with `implicit`, 25 with `none`.
    port: Option<u16>,
    /// How the connection is protected: `starttls`, `implicit` (TLS from the first byte), or
    /// `none`, which is for a server on this machine alone.
    tls: SmtpTls,
    /// Name to sign in with; absent: the server takes mails without. Not without `password_file`.
    username: Option<String>,
    /// File of the password.
    password_file: Option<String>,
    /// File of further certificate authorities (PEM) that the server's certificate may come from;
    /// absent: those of the system alone.
    ca_file: Option<String>,
}

/// How the connection to a mail server is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SmtpTls {
    /// In the clear until `STARTTLS`, and nothing is said before it (RFC 3207).
    #[default]
    StartTls,
    /// From the first byte (RFC 8314 section 3.3).
    Implicit,
    /// Not at all: on loopback alone.
    None,
}

/// Where mail goes, and whom it is from.
#[derive(Clone, Debug)]
pub struct MailConfig {
    /// Whom it is from.
    pub from: Sender,
    /// Where it goes.
    pub way: MailWay,
    /// Whether the link of an invitation that its inviter sees creates accounts.
    pub links_create_accounts: bool,
}

/// Where mail goes.
#[derive(Clone, Debug)]
pub enum MailWay {
    /// Into this folder.
    Folder(PathBuf),
    /// To this server.
    Smtp(SmtpConfig),
}

/// A mail server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmtpConfig {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// How the connection is protected.
    pub tls: SmtpTls,
    /// Name and file of the password.
    pub login: Option<(String, PathBuf)>,
    /// Further certificate authorities.
    pub ca_file: Option<PathBuf>,
}

impl MailSection {
    /// The checked values; into `default_folder` mail goes where nothing else is said.
    pub(crate) fn check(self, default_folder: PathBuf) -> Result<MailConfig, ConfigError> {
        let sender = |text: String| {
            Sender::parse(&text).ok_or_else(|| {
                let message = "this is no address such as Tunnels <no-reply@svc.example.com>";
                ConfigError::new("mail.from", message)
            })
        };
        let from = self.from.map(sender).transpose()?;
        if self.smtp == SmtpSection::default() {
            let folder = self.folder.map(|folder| path("mail.folder", folder));
            return Ok(MailConfig {
                from: from.unwrap_or_default(),
                way: MailWay::Folder(folder.transpose()?.unwrap_or(default_folder)),
                links_create_accounts: self.links_create_accounts.unwrap_or(true),
            });
        }
        if self.folder.is_some() {
            let message = "mail goes into a folder or to mail.smtp, not to both";
            return Err(ConfigError::new("mail.folder", message));
        }
        let smtp = self.smtp.check()?;
        let from = from.ok_or_else(|| {
            let message = "this key is required with mail.smtp: people may want to know who writes";
            ConfigError::new("mail.from", message)
        })?;
        Ok(MailConfig {
            from,
            way: MailWay::Smtp(smtp),
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
        // Addresses are names to nobody but the certificate's check, which knows them too.
        let host = match given.parse::<std::net::IpAddr>() {
            Ok(address) => address.to_string(),
            Err(_) => host_name("mail.smtp.host", &given)?,
        };
        if self.tls == SmtpTls::None && !is_loopback(&host) {
            let message = "mails hold links that open accounts: without TLS only loopback";
            return Err(wrong("tls", message));
        }
        if self.tls == SmtpTls::None && self.ca_file.is_some() {
            return Err(wrong("ca_file", "there is no certificate without TLS"));
        }
        let login = match (self.username, self.password_file) {
            (None, None) => None,
            (Some(name), Some(file)) => Some((name, path("mail.smtp.password_file", file)?)),
            (Some(_), None) => {
                return Err(wrong("password_file", "username is nothing without it"));
            }
            (None, Some(_)) => {
                return Err(wrong("username", "password_file is nothing without it"));
            }
        };
        let port = self.port.unwrap_or(match self.tls {
            SmtpTls::StartTls => 587,
            SmtpTls::Implicit => 465,
            SmtpTls::None => 25,
        });
        if port == 0 {
            return Err(wrong("port", "0 is no port"));
        }
        let ca_file = self.ca_file.map(|file| path("mail.smtp.ca_file", file));
        Ok(SmtpConfig {
            host,
            port,
            tls: self.tls,
            login,
            ca_file: ca_file.transpose()?,
        })
    }
}
