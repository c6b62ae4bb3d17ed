//! Export of a recording to other formats, written while the recording is read.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::warn;
use tty::recording::Record;
use tty::recording::export::{self, Cast, CastOptions, Hashes, TextOptions};
use types::id::WebttySessionId;
use types::webtty::{RecordType, StreamType};

use super::layout::StoredSession;
use super::read::{ReadError, Reader};
use super::readers::{READ_TIMEOUT, ReadDeadline, ReaderPermit};
use super::{Inner, Recorder};

/// Format of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// The shown output as lines of text.
    #[default]
    Text,
    /// One JSON object with all records.
    Json,
    /// One JSON object per line: the session, then each record.
    Ndjson,
    /// asciicast, version 2.
    Asciicast,
    /// asciicast, version 3.
    AsciicastV3,
}

/// Options of an export.
#[derive(Clone, Copy, Debug)]
pub struct Export {
    /// The format.
    pub format: Format,
    /// Number of the first record.
    pub from_seq: u64,
    /// Maximum number of records, including those without their content.
    pub max_events: u64,
    /// Includes the input.
    pub stdin: bool,
    /// Includes the standard output.
    pub stdout: bool,
    /// Includes the standard error.
    pub stderr: bool,
    /// Text only: adds the time before each line.
    pub timestamps: bool,
    /// Text only: adds lines for joins, changes of control and changes of size. Other formats
    /// always include them.
    pub markers: bool,
}

impl Default for Export {
    fn default() -> Self {
        Self {
            format: Format::Text,
            from_seq: 1,
            max_events: u64::MAX,
            stdin: false,
            stdout: true,
            stderr: true,
            timestamps: false,
            markers: false,
        }
    }
}

/// Pieces that wait for the reader of an export.
const MAX_QUEUED_PIECES: usize = 4;

/// Bytes of one piece.
const PIECE_SIZE: usize = 64 * 1024;

impl Recorder {
    /// Exports a recording as a stream of pieces. The stream ends with an error if the recording
    /// deviates from its chain, so that a truncated export cannot look complete.
    ///
    /// # Errors
    /// See [`ReadError`]. Only the two ends can read an end-to-end encrypted recording, so it
    /// cannot be exported as text or asciicast.
    pub async fn export(
        &self,
        project_id: &str,
        id: &WebttySessionId,
        export: Export,
    ) -> Result<mpsc::Receiver<io::Result<Bytes>>, ReadError> {
        let inner = self.inner.as_ref().ok_or(ReadError::NotFound)?;
        let permit = inner.readers.permit(project_id)?;
        let (stored, _) = inner.open(project_id, id.as_str(), export.from_seq).await?;
        if stored.sealed && !matches!(export.format, Format::Json | Format::Ndjson) {
            return Err(ReadError::Sealed);
        }
        let (to, pieces) = mpsc::channel(MAX_QUEUED_PIECES);
        let job = Job {
            inner: Arc::clone(inner),
            project: project_id.to_owned(),
            id: id.as_str().to_owned(),
            export,
            stored,
            to,
            _permit: permit,
        };
        let handle = inner.runtime.clone();
        inner
            .tasks
            .spawn_blocking_on(move || job.run(&handle), &inner.runtime);
        Ok(pieces)
    }
}

struct Job {
    inner: Arc<Inner>,
    project: String,
    id: String,
    export: Export,
    stored: StoredSession,
    to: mpsc::Sender<io::Result<Bytes>>,
    _permit: ReaderPermit,
}

impl Job {
    fn run(self, handle: &Handle) {
        let mut out = PieceWriter {
            to: self.to.clone(),
            handle: handle.clone(),
            piece: Vec::new(),
            deadline: ReadDeadline::default(),
        };
        if let Err(error) = self.write(handle, &mut out).and_then(|()| out.flush()) {
            warn!(session = self.id, %error, "an export was aborted");
            // The reader may be gone.
            let sending = self.to.send(Err(error));
            handle
                .block_on(async { timeout(READ_TIMEOUT, sending).await })
                .ok();
        }
    }

    fn write(&self, handle: &Handle, out: &mut PieceWriter) -> io::Result<()> {
        let Self { inner, export, .. } = self;
        let opened = handle.block_on(inner.open(&self.project, &self.id, export.from_seq));
        let (_, reader) = opened.map_err(io::Error::other)?;
        let mut fault = None;
        let records = Records {
            handle,
            reader,
            part: Vec::new().into_iter(),
            export: *export,
            left: export.max_events,
            fault: &mut fault,
        };
        let session = &self.stored.session;
        let now = inner.clock.now();
        let pipes = self.has_pipes(handle)?;
        let options = CastOptions {
            input: export.stdin,
            pipes,
        };
        let hashes = if export.stdin {
            Hashes::All
        } else {
            Hashes::Salted
        };
        match export.format {
            Format::Text => {
                let options = TextOptions {
                    input: export.stdin,
                    markers: export.markers,
                    timestamps: export.timestamps,
                    pipes,
                };
                export::text(records, options, out)?;
            }
            Format::Json => export::json(session, now, hashes, records, out)?,
            Format::Ndjson => export::ndjson(session, now, hashes, records, out)?,
            Format::Asciicast => {
                export::cast(Cast::V2, Some(&self.id), options, records, out)?;
            }
            Format::AsciicastV3 => {
                export::cast(Cast::V3, Some(&self.id), options, records, out)?;
            }
        }
        match fault {
            Some(fault) => Err(io::Error::other(fault)),
            None => Ok(()),
        }
    }

    /// True if the command had pipes. Only the first record has this, wherever the export starts.
    fn has_pipes(&self, handle: &Handle) -> io::Result<bool> {
        let opened = handle.block_on(self.inner.open(&self.project, &self.id, 1));
        let (_, mut reader) = opened.map_err(io::Error::other)?;
        // The export itself reports errors of this segment.
        let part = handle.block_on(reader.next()).unwrap_or_default();
        Ok(part.is_some_and(|part| part.first().is_some_and(export::has_pipes)))
    }
}

/// Records of an export, up to the first error.
struct Records<'r> {
    handle: &'r Handle,
    reader: Reader<'r>,
    part: std::vec::IntoIter<Record>,
    export: Export,
    left: u64,
    fault: &'r mut Option<ReadError>,
}

impl Iterator for Records<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        while self.left > 0 {
            if let Some(record) = self.part.next() {
                if let Some(record) = exported(record, &self.export) {
                    self.left -= 1;
                    return Some(record);
                }
                continue;
            }
            match self.handle.block_on(self.reader.next()) {
                Ok(Some(part)) => self.part = part.into_iter(),
                Ok(None) => return None,
                Err(fault) => {
                    *self.fault = Some(fault);
                    return None;
                }
            }
        }
        None
    }
}

/// Filters a record for the export. Formats with records keep a record whose stream is excluded,
/// without its content, so that the chain can be verified.
fn exported(record: Record, export: &Export) -> Option<Record> {
    if record.seq < export.from_seq {
        return None;
    }
    let is_wanted = match (record.record_type, record.stream_type) {
        (RecordType::Data, Some(StreamType::Stdin)) => export.stdin,
        (RecordType::Data, Some(StreamType::Stdout)) => export.stdout,
        (RecordType::Data, Some(StreamType::Stderr)) => export.stderr,
        _ => true,
    };
    match export.format {
        _ if is_wanted => Some(record),
        Format::Json | Format::Ndjson => record.withhold_content(),
        Format::Text | Format::Asciicast | Format::AsciicastV3 => None,
    }
}

/// Writes pieces to the reader, at its pace.
struct PieceWriter {
    to: mpsc::Sender<io::Result<Bytes>>,
    handle: Handle,
    piece: Vec<u8>,
    deadline: ReadDeadline,
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_SIZE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.piece));
        let (bytes, started) = (piece.len(), Instant::now());
        let left = self.deadline.remaining();
        let sent = self
            .handle
            .block_on(async { timeout(left, self.to.send(Ok(piece))).await });
        self.deadline.taken(bytes, started.elapsed());
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}
