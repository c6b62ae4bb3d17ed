//! `svc webtty sessions export`: a recording as other programs read it, written as it comes.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use api::webtty::EXPORT;
use clap::{Args, Parser, ValueEnum};
use client::api::{Api, Call, Download};

use super::SessionArgs;
use crate::{
    failure::Failure,
    output::{self, closed},
    private,
};

/// The flags of `svc webtty sessions export`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc webtty sessions export wts_… > transcript.txt
  svc webtty sessions export wts_… --format asciicast --file session.cast
  svc webtty sessions export wts_… --format ndjson | jq -r .type")]
pub(crate) struct ExportArgs {
    /// What is written
    #[arg(long, value_enum, default_value_t)]
    format: Export,

    /// Write here instead of stdout, for its owner alone; what is there is replaced when all has come
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    #[command(flatten)]
    include: Include,

    #[command(flatten)]
    on: SessionArgs,
}

/// What is in it.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct Include {
    /// What was typed, too. Input that the command hid is not recorded
    #[arg(long = "include-stdin")]
    pub(super) stdin: bool,

    /// Of text: lines begin with the time
    #[arg(long = "include-timestamps")]
    pub(super) timestamps: bool,

    /// Of text: lines that say who came, who got control, and when the size changed
    #[arg(long = "include-markers")]
    pub(super) markers: bool,

    /// The number of the first record
    #[arg(long, value_name = "N")]
    pub(super) from_seq: Option<u64>,

    /// At most so many records
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
    /// As the API calls it.
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

/// Writes it.
pub(super) async fn export(args: ExportArgs) -> Result<(), Failure> {
    let api = args.on.api()?;
    let download = begin(&api, &args.on, args.format, args.include).await?;
    let Some(path) = args.file else {
        let mut out = io::stdout().lock();
        return copy(download, &mut out).await.map(drop);
    };
    let mut kept = ExportFile::create(&path)?;
    let written = copy(download, &mut kept.file).await?;
    kept.keep(&path)?;
    output::message(&format!("{} has {written} bytes", path.display()));
    Ok(())
}

/// Asks for a recording in a format.
pub(super) async fn begin(
    api: &Api,
    on: &SessionArgs,
    format: Export,
    with: Include,
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
        out.write_all(&bytes).map_err(closed)?;
        written += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    }
    out.flush().map_err(closed)?;
    Ok(written)
}

/// A file that is being written beside its place, and goes when it is not kept.
struct ExportFile {
    file: File,
    path: PathBuf,
    stays: bool,
}

impl ExportFile {
    fn create(place: &Path) -> Result<Self, Failure> {
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let path = place.with_file_name(name);
        // Somebody's whole session is in it.
        let file = private::new_file()
            .open(&path)
            .map_err(|error| cannot(place, error))?;
        Ok(Self {
            file,
            path,
            stays: false,
        })
    }

    fn keep(mut self, place: &Path) -> Result<(), Failure> {
        self.file
            .sync_all()
            .and_then(|()| fs::rename(&self.path, place))
            .map_err(|error| cannot(place, error))?;
        self.stays = true;
        Ok(())
    }
}

impl Drop for ExportFile {
    fn drop(&mut self) {
        if !self.stays {
            // Nobody asked for half of it, and nobody can be told.
            drop(fs::remove_file(&self.path));
        }
    }
}

fn cannot(path: &Path, error: io::Error) -> Failure {
    Failure::of(&format!("{} cannot be written", path.display()), error)
}
