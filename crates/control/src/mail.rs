//! Mail to users, such as reset links and invitations.
//!
//! It is sent to a mail server if one is configured. Otherwise each mail is written to a file in a
//! folder, where an operator (and a test) finds it. A mail may contain a link that opens an
//! account. So only the owner can read the files, and the log only records that a mail was sent.

mod message;
mod section;
mod sender;
mod smtp;

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

pub use self::message::Message;
pub use self::section::{MailConfig, MailSection, MailTransport, SmtpConfig, SmtpTls};
pub use self::sender::Sender;
use self::smtp::Smtp;
use crate::config::Config;
use crate::runtime::random;

/// Transport of mail.
#[derive(Clone, Debug)]
pub enum Mailer {
    /// Into this folder, one `.eml` file (RFC 5322) each.
    Folder(Arc<Path>, Sender),
    /// To a server.
    Server(Arc<Smtp>),
}

impl Mailer {
    /// Opens the configured transport. A folder is created, and a server is contacted, with the
    /// first mail.
    ///
    /// # Errors
    /// A file that the configuration names cannot be used.
    pub fn open(config: &Config) -> Result<Self, MailerError> {
        let from = config.mail.from.clone();
        Ok(match &config.mail.transport {
            MailTransport::Folder(folder) => Self::Folder(folder.as_path().into(), from),
            MailTransport::Smtp(smtp) => Self::Server(Smtp::open(smtp, from, config.host())?),
        })
    }

    /// Sends the message. With a folder, the file is complete when this returns. A server may take
    /// minutes, so handlers call this after their response.
    ///
    /// # Errors
    /// The message could not be sent and is lost.
    pub async fn send(&self, message: Message, now: Timestamp) -> Result<(), MailError> {
        let (folder, from) = match self {
            Self::Server(smtp) => return smtp.send(&message, now).await,
            Self::Folder(folder, from) => (Arc::clone(folder), from.clone()),
        };
        let write = move || write(&folder, &message, &from, now);
        let written = tokio::task::spawn_blocking(write).await;
        written
            .map_err(std::io::Error::other)
            .flatten()
            .map_err(MailError::File)
    }

    /// Retries all waiting mails a last time, because the process ends.
    pub fn retry_now(&self) {
        if let Self::Server(smtp) = self {
            smtp.retry_now();
        }
    }
}

/// A mail that could not be sent. The error contains no text of the server and no address.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// The file.
    #[error("the mail could not be written")]
    File(#[source] std::io::Error),
    /// Too many mails wait for the server.
    #[error("too many mails are waiting for the mail server")]
    QueueFull,
    /// The server's answer: a reply code of RFC 5321 section 4.2.
    #[error("the mail server refused with {0}")]
    Refused(u16),
    /// The server does not offer STARTTLS or authentication, although the configuration requires
    /// it.
    #[error("the mail server does not support the configured TLS or sign-in")]
    NotOffered,
    /// No connection, a broken one, or the wrong server.
    #[error("the connection to the mail server failed, or its certificate is not valid")]
    Connection,
    /// The server took too long.
    #[error("the mail server took too long")]
    TooSlow,
    /// The address has letters beyond ASCII, and the server does not support them (RFC 6531).
    #[error("the mail server does not support addresses beyond ASCII (SMTPUTF8)")]
    AsciiOnly,
    /// The library does not accept the address.
    #[error("an address is not valid for mail")]
    Address,
}

impl MailError {
    /// True if the mail will never be accepted.
    pub(crate) fn is_permanent(&self) -> bool {
        match self {
            Self::Refused(code) => *code >= 500,
            Self::Address | Self::AsciiOnly => true,
            Self::Connection
            | Self::TooSlow
            | Self::NotOffered
            | Self::File(_)
            | Self::QueueFull => false,
        }
    }

    /// True if a retry may succeed later: not if the server refused permanently (5yz).
    fn is_transient(&self) -> bool {
        match self {
            Self::Refused(code) => *code < 500,
            Self::Connection | Self::TooSlow | Self::NotOffered => true,
            Self::File(_) | Self::QueueFull | Self::Address | Self::AsciiOnly => false,
        }
    }
}

/// A file that mail needs and that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MailerError(String);

impl MailerError {
    fn new(file: &Path, message: impl std::fmt::Display) -> Self {
        Self(format!("{}: {message}", file.display()))
    }

    fn system(message: String) -> Self {
        Self(message)
    }
}

/// A file name that no other mail has.
fn unique(now: Timestamp) -> std::io::Result<String> {
    let id = random::bytes::<8>().map_err(|_| std::io::Error::other("no randomness"))?;
    Ok(format!(
        "{}-{:016x}",
        now.as_millisecond(),
        u64::from_be_bytes(id)
    ))
}

fn write(folder: &Path, message: &Message, from: &Sender, now: Timestamp) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let name = unique(now)?;
    // Written under another name first, so that a program that watches for `.eml` never sees an
    // incomplete file.
    let unfinished = folder.join(format!(".{name}.part"));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(message.to_rfc_5322(from, now, &name).as_bytes())?;
    file.sync_all()?;
    std::fs::rename(unfinished, folder.join(format!("{name}.eml")))?;
    remove_oldest(folder, MAX_FILES)
}

/// Removes the oldest mails beyond `most`, and incomplete files of aborted writes. Files of other
/// programs are not touched.
fn remove_oldest(folder: &Path, most: usize) -> std::io::Result<()> {
    let mut mails = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let kind = path.extension().and_then(|kind| kind.to_str());
        let name = path.file_name().and_then(|name| name.to_str());
        let time = name
            .filter(|_| matches!(kind, Some("eml" | "part")))
            .and_then(|name| name.trim_start_matches('.').split('-').next())
            .and_then(|time| time.parse::<i64>().ok());
        if let Some(time) = time {
            mails.push((time, path));
        }
    }
    let excess = mails.len().saturating_sub(most);
    if excess == 0 {
        return Ok(());
    }
    mails.sort();
    for (_, path) in mails.into_iter().take(excess) {
        match std::fs::remove_file(path) {
            // Another process removes the same files.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// Maximum number of mails in the folder: more than an operator forwards by hand, and some
/// megabytes. The links in the oldest ones have expired.
const MAX_FILES: usize = 1_000;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::people::email::Email;

    #[tokio::test]
    async fn a_mail_is_one_complete_file_that_only_its_owner_can_read() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("outbox");
        let to = Email::parse("ada@example.com").unwrap();
        let message = Message::new(to, "Hello", "A line.\n");
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let mailer = Mailer::Folder(folder.as_path().into(), Sender::default());
        mailer.send(message.clone(), now).await.unwrap();
        mailer.send(message, now).await.unwrap();
        let mut files: Vec<_> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        assert_eq!(files.len(), 2, "{files:?}");
        for file in &files {
            assert_eq!(file.extension().unwrap(), "eml");
            let mode = std::fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let text = std::fs::read_to_string(file).unwrap();
            assert!(text.ends_with("\r\n\r\nA line.\r\n"), "{text}");
        }
        let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn the_folder_keeps_the_newest_mails_and_foreign_files() {
        let home = tempfile::tempdir().unwrap();
        let names = [
            "9-a.eml",
            "10-b.eml",
            ".8-c.part",
            "11-d.eml",
            "notes.txt",
            "x-y.eml",
        ];
        for name in names {
            std::fs::write(home.path().join(name), "").unwrap();
        }
        remove_oldest(home.path(), 2).unwrap();
        let mut left: Vec<_> = std::fs::read_dir(home.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["10-b.eml", "11-d.eml", "notes.txt", "x-y.eml"]);
    }

    /// Each new mail removes the oldest one.
    #[tokio::test]
    async fn the_number_of_mails_in_the_folder_is_limited() {
        let home = tempfile::tempdir().unwrap();
        for number in 0..1_000 {
            std::fs::write(home.path().join(format!("{number}-a.eml")), "").unwrap();
        }
        let to = Email::parse("ada@example.com").unwrap();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let mailer = Mailer::Folder(home.path().into(), Sender::default());
        mailer
            .send(Message::new(to, "Hello", ""), now)
            .await
            .unwrap();
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1_000);
        assert!(!home.path().join("0-a.eml").exists());
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_written_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let to = Email::parse("ada@example.com").unwrap();
        let folder = file.path().join("outbox");
        let sent = Mailer::Folder(folder.into(), Sender::default())
            .send(Message::new(to, "Hello", ""), Timestamp::UNIX_EPOCH)
            .await;
        assert!(sent.is_err());
    }
}
