//! Mail to people: reset links, invitations.
//!
//! Without further configuration mail is written to a folder, one file each, where an operator
//! (and a test) finds it. A mail holds a link that opens an account: files are for their owner's
//! eyes alone, and nothing of a mail is logged but that it was sent.

mod message;

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

pub use self::message::Message;
use crate::random;

/// Where mail goes.
#[derive(Clone, Debug)]
pub enum Mailer {
    /// Into this folder, one `.eml` file (RFC 5322) each.
    Folder(Arc<Path>),
}

impl Mailer {
    /// Mail into `folder`, which is made when the first mail is sent.
    pub fn folder(folder: impl Into<PathBuf>) -> Self {
        Self::Folder(folder.into().into())
    }

    /// Hands the message over. When this returns, a reader finds it whole.
    ///
    /// # Errors
    /// The message could not be handed over; nobody gets it.
    pub async fn send(&self, message: Message, now: Timestamp) -> Result<(), MailError> {
        let Self::Folder(folder) = self;
        let folder = Arc::clone(folder);
        let written = tokio::task::spawn_blocking(move || write(&folder, &message, now)).await;
        written
            .map_err(std::io::Error::other)
            .flatten()
            .map_err(MailError)
    }
}

/// A mail that did not get out.
#[derive(Debug, thiserror::Error)]
#[error("the mail could not be written")]
pub struct MailError(#[source] std::io::Error);

fn write(folder: &Path, message: &Message, now: Timestamp) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let id = random::bytes::<8>().map_err(|_| std::io::Error::other("no randomness"))?;
    let name = format!("{}-{:016x}", now.as_millisecond(), u64::from_be_bytes(id));
    // Written under another name first: whoever watches for `.eml` never sees half of one.
    let unfinished = folder.join(format!(".{name}.part"));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(message.to_rfc_5322(now, &name).as_bytes())?;
    file.sync_all()?;
    std::fs::rename(unfinished, folder.join(format!("{name}.eml")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::people::email::Email;

    #[tokio::test]
    async fn a_mail_is_one_whole_file_for_its_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("outbox");
        let to = Email::parse("ada@example.com").unwrap();
        let message = Message::new(to, "Hello", "A line.\n");
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let mailer = Mailer::folder(&folder);
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

    #[tokio::test]
    async fn a_folder_that_cannot_be_written_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let to = Email::parse("ada@example.com").unwrap();
        let sent = Mailer::folder(file.path().join("outbox"))
            .send(Message::new(to, "Hello", ""), Timestamp::UNIX_EPOCH)
            .await;
        assert!(sent.is_err());
    }
}
