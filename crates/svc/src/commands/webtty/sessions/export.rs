//! `svc webtty sessions export`: writes a recording in common formats, as a stream.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use api::webtty::EXPORT;
use clap::{Args, Parser, ValueEnum};
use client::api::{Api, Call, Download};
use terminal::private;

use super::SessionArgs;
use crate::{
    failure::Failure,
    output::{self, write_failure},
};

/// The flags of `svc webtty sessions export`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc webtty sessions export wts_… > transcript.txt
  svc webtty sessions export wts_… --format asciicast --file session.cast
  svc webtty sessions export wts_… --format ndjson | jq -r .type")]
pub(crate) struct ExportArgs {
    /// Export format
    #[arg(long, value_enum, default_value_t)]
    format: Export,

    /// Write to this file instead of stdout, readable only by its owner. An existing file is
    /// replaced after the export is complete
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    #[command(flatten)]
    include: IncludeArgs,

    #[command(flatten)]
    on: SessionArgs,
}

/// Content of the export.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct IncludeArgs {
    /// Include keyboard input. Input that the command hid is never recorded
    #[arg(long = "include-stdin")]
    pub(super) stdin: bool,

    /// For text: start lines with the time
    #[arg(long = "include-timestamps")]
    pub(super) timestamps: bool,

    /// For text: add lines for joining participants, control changes and new sizes
    #[arg(long = "include-markers")]
    pub(super) markers: bool,

    /// Number of the first record
    #[arg(long, value_name = "N")]
    pub(super) from_seq: Option<u64>,

    /// Maximum number of records
    #[arg(long, value_name = "N")]
    pub(super) max_events: Option<u64>,
}

/// The formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Export {
    /// A transcript.
    #[default]
    Text,
    /// One JSON object with all records.
    Json,
    /// A line of JSON for each record.
    Ndjson,
    /// asciicast v2.
    Asciicast,
    /// asciicast v3.
    AsciicastV3,
}

impl Export {
    /// Name of the format in the API.
    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Asciicast => "asciicast",
            Self::AsciicastV3 => "asciicast-v3",
        }
    }
}

/// Writes the export.
pub(super) async fn export(mut args: ExportArgs) -> Result<(), Failure> {
    let api = args.on.open().await?;
    let download = begin(&api, &args.on, args.format, args.include).await?;
    let Some(path) = args.file else {
        let mut out = io::stdout().lock();
        return copy(download, &mut out).await.map(drop);
    };
    let mut kept = ExportFile::create(&path)?;
    let written = copy(download, &mut kept.file).await?;
    kept.persist(&path)?;
    output::message(&format!("{} has {written} bytes", path.display()));
    Ok(())
}

/// Requests a recording in a format.
pub(super) async fn begin(
    api: &Api,
    on: &SessionArgs,
    format: Export,
    with: IncludeArgs,
) -> Result<Download, Failure> {
    let mut path = format!("{}?format={}", on.path(EXPORT), format.name());
    for (name, is_given) in [
        ("include_stdin", with.stdin),
        ("include_timestamps", with.timestamps),
        ("include_markers", with.markers),
    ] {
        if is_given {
            path.extend(["&", name, "=true"]);
        }
    }
    for (name, number) in [("from_seq", with.from_seq), ("max_events", with.max_events)] {
        if let Some(number) = number {
            path.extend(["&", name, "=", &number.to_string()]);
        }
    }
    Ok(api.download(Call::get(&path)).await?)
}

async fn copy(mut download: Download, out: &mut impl Write) -> Result<u64, Failure> {
    let mut written = 0;
    while let Some(bytes) = download.next().await? {
        out.write_all(&bytes).map_err(write_failure)?;
        written += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    }
    out.flush().map_err(write_failure)?;
    Ok(written)
}

/// A temporary file beside the destination. Dropping it removes the file unless it was kept.
struct ExportFile {
    file: File,
    path: PathBuf,
    is_persisted: bool,
}

impl ExportFile {
    fn create(place: &Path) -> Result<Self, Failure> {
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let path = place.with_file_name(name);
        // The file contains a complete session of another user.
        let file = private::new_file()
            .open(&path)
            .map_err(|error| cannot(place, error))?;
        Ok(Self {
            file,
            path,
            is_persisted: false,
        })
    }

    fn persist(mut self, place: &Path) -> Result<(), Failure> {
        self.file
            .sync_all()
            .and_then(|()| fs::rename(&self.path, place))
            .map_err(|error| cannot(place, error))?;
        self.is_persisted = true;
        Ok(())
    }
}

impl Drop for ExportFile {
    fn drop(&mut self) {
        if !self.is_persisted {
            // An incomplete export is useless, and errors cannot be reported here.
            drop(fs::remove_file(&self.path));
        }
    }
}

fn cannot(path: &Path, error: io::Error) -> Failure {
    Failure::from_error(&format!("{} cannot be written", path.display()), error)
}
