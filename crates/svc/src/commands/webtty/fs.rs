//! `svc webtty fs`: file access on a terminal server.

mod dav;
mod listing;
mod part;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use http::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use self::{
    dav::{Body, Files},
    part::Part,
};
use super::{
    signals::EndSignals,
    target::{SessionMode, TargetArgs},
};
use crate::{failure::Failure, output, output::Format};

/// The subcommands of `svc webtty fs`.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  svc webtty fs ls build /var/log
  svc webtty fs upload build ./site.tar /srv/site.tar
  svc webtty fs read build /etc/hostname")]
pub(crate) enum Command {
    /// List a directory
    Ls(LsArgs),
    /// Write a file to stdout
    Read(PathArgs),
    /// Write stdin to a file
    Write(PathArgs),
    /// Copy a local file to the server
    Upload(UploadArgs),
    /// Copy a file from the server
    Download(DownloadArgs),
    /// Make a directory
    Mkdir(PathArgs),
    /// Remove a file, or a directory with its contents
    Rm(RmArgs),
}

/// The flags of all subcommands.
#[derive(Args, Debug)]
struct RemoteTarget {
    /// The server: its name or id (`svc://NAME` works as well), or a ws:// or wss:// address
    #[arg(value_name = "SERVER")]
    target: String,

    /// Path of the server's files, if the target is an address
    #[arg(long, value_name = "PATH", default_value = "/fs")]
    fs_path: String,

    #[command(flatten)]
    reach: TargetArgs,
}

/// The flags of `ls`.
#[derive(Debug, Parser)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    there: RemoteTarget,

    /// The directory
    #[arg(value_name = "PATH", default_value = "/")]
    path: String,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// The flags of subcommands with one path.
#[derive(Debug, Parser)]
pub(crate) struct PathArgs {
    #[command(flatten)]
    there: RemoteTarget,

    /// The remote file or directory
    #[arg(value_name = "PATH")]
    path: String,
}

/// The flags of `rm`.
#[derive(Debug, Parser)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    there: RemoteTarget,

    /// The remote file or directory
    #[arg(value_name = "PATH")]
    path: String,

    /// Also remove a directory with its contents
    #[arg(long, short)]
    recursive: bool,
}

/// The flags of `upload`.
#[derive(Debug, Parser)]
pub(crate) struct UploadArgs {
    #[command(flatten)]
    there: RemoteTarget,

    /// The local file
    #[arg(value_name = "LOCAL")]
    local: PathBuf,

    /// The remote file
    #[arg(value_name = "REMOTE")]
    remote: String,
}

/// The flags of `download`.
#[derive(Debug, Parser)]
pub(crate) struct DownloadArgs {
    #[command(flatten)]
    there: RemoteTarget,

    /// The remote file
    #[arg(value_name = "REMOTE")]
    remote: String,

    /// The local file. Default: the same name in the current directory
    #[arg(value_name = "LOCAL")]
    local: Option<PathBuf>,

    /// Overwrite an existing local file
    #[arg(long)]
    force: bool,
}

/// Runs a subcommand.
pub(super) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Ls(args) => {
            let files = args.there.files().await?;
            let entries = listing::list(&files, &args.path).await?;
            match args.output {
                Format::Json => output::json(&entries),
                Format::Text => {
                    let rows: Vec<_> = entries.iter().map(listing::Entry::row).collect();
                    output::table(&["NAME", "SIZE", "MODIFIED"], &rows)
                }
            }
        }
        Command::Read(args) => {
            let files = args.there.files().await?;
            read(&files, &args.path, &mut tokio::io::stdout())
                .await
                .map(drop)
        }
        Command::Write(args) => {
            let bytes = stdin().await?;
            let files = args.there.files().await?;
            let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            put(&files, &args.path, dav::full_body(bytes), length).await
        }
        Command::Upload(args) => upload(&args).await,
        Command::Download(args) => download(&args).await,
        Command::Mkdir(args) => {
            let files = args.there.files().await?;
            let answer = files
                .send_request("MKCOL", &args.path, dav::empty(), &[])
                .await?;
            answer.require_status(&[StatusCode::CREATED]).map(drop)
        }
        Command::Rm(args) => remove(&args).await,
    }
}

impl RemoteTarget {
    async fn files(&self) -> Result<Files, Failure> {
        let server = self
            .reach
            .find(&self.target, SessionMode::NonInteractive)
            .await?;
        Files::from_server(server, &self.fs_path)
    }
}

async fn upload(args: &UploadArgs) -> Result<(), Failure> {
    let failed =
        |error| Failure::from_error(&format!("cannot read {}", args.local.display()), error);
    let file = tokio::fs::File::open(&args.local).await.map_err(failed)?;
    let metadata = file.metadata().await.map_err(failed)?;
    if !metadata.is_file() {
        let message = format!("{} is not a file", args.local.display());
        return Err(Failure::usage(message));
    }
    let files = args.there.files().await?;
    put(&files, &args.remote, dav::streamed(file), metadata.len()).await
}

/// Reads all of stdin, because a server requires the length of a file in advance.
async fn stdin() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let mut stdin = tokio::io::stdin().take(MAX_STDIN + 1);
    stdin
        .read_to_end(&mut bytes)
        .await
        .map_err(|error| Failure::from_error("cannot read stdin", error))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_STDIN) {
        return Err(Failure::usage("stdin is longer than 64 MiB")
            .hint("write it to a file, and upload the file"));
    }
    Ok(bytes)
}

async fn put(files: &Files, path: &str, body: Body, length: u64) -> Result<(), Failure> {
    let length = [("content-length", length.to_string())];
    let answer = files
        .send_request(Method::PUT.as_str(), path, body, &length)
        .await?;
    let done = [StatusCode::CREATED, StatusCode::NO_CONTENT, StatusCode::OK];
    answer.require_status(&done).map(drop)
}

/// Downloads a file. An interrupted download leaves no file that looks complete.
async fn download(args: &DownloadArgs) -> Result<(), Failure> {
    let local = match &args.local {
        Some(local) => local.clone(),
        None => PathBuf::from(file_name(&args.remote)?),
    };
    if !args.force && part::path_exists(&local) {
        return Err(part::already_exists(&local));
    }
    let files = args.there.files().await?;
    let failed = |error| Failure::from_error("signal handlers cannot be installed", error);
    let mut signals = EndSignals::listen().map_err(failed)?;
    let mut part = Part::begin(&local).await?;
    tokio::select! {
        read = read(&files, &args.remote, &mut part.file) => read?,
        number = signals.next() => return Err(Failure::remote_exit(128_u8.saturating_add(number))),
    };
    part.persist(args.force).await
}

async fn read(
    files: &Files,
    path: &str,
    to: &mut (impl AsyncWrite + Unpin),
) -> Result<u64, Failure> {
    let answer = files
        .send_request(Method::GET.as_str(), path, dav::empty(), &[])
        .await?;
    let mut answer = answer.require_status(&[StatusCode::OK])?;
    let mut length = 0_u64;
    while let Some(bytes) = answer.next().await? {
        length = length.saturating_add(u64::try_from(bytes.len()).unwrap_or_default());
        to.write_all(&bytes).await.map_err(output::write_failure)?;
    }
    to.flush().await.map_err(output::write_failure)?;
    Ok(length)
}

async fn remove(args: &RmArgs) -> Result<(), Failure> {
    let files = args.there.files().await?;
    if !args.recursive && listing::is_directory(&files, &args.path).await? {
        return Err(Failure::usage("it is a directory")
            .named("is_directory")
            .hint("use --recursive to remove it with its contents"));
    }
    let answer = files
        .send_request(Method::DELETE.as_str(), &args.path, dav::empty(), &[])
        .await?;
    let done = [StatusCode::NO_CONTENT, StatusCode::OK];
    answer.require_status(&done).map(drop)
}

/// The last segment of a remote path, as a local file name.
fn file_name(remote: &str) -> Result<&str, Failure> {
    let name = remote.trim_end_matches('/').rsplit('/').next();
    name.filter(|name| !matches!(*name, "" | "." | ".."))
        .ok_or_else(|| Failure::usage("this is a directory; give the path of a file"))
}

/// Limit of data from stdin in bytes: the default upload limit of a server.
const MAX_STDIN: u64 = 64 * 1024 * 1024;
