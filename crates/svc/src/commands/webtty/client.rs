//! `svc webtty client`: an interactive terminal on a server.

mod escape;
mod interactive;
mod raw;
mod status;

use std::io::{self, IsTerminal};

use clap::Parser;
use terminal::client::{Request, Session};
use tty::size::Size;

use super::{
    command_end, piped,
    session_request::{CommandEnvironment, EncryptionArgs, StdinMode, StreamMode},
    target::{SessionMode, TargetArgs},
};
use crate::failure::Failure;

/// The flags of `svc webtty client`.
#[derive(Debug, Parser)]
#[command(
    after_help = "At the start of a line, `~.` disconnects and `~?` lists all escapes.

Examples:
  svc webtty client build
  svc webtty client build -- htop
  svc webtty client wss://box.example -u deploy
  svc webtty client build --e2e"
)]
pub(crate) struct Args {
    /// The server: its name or id (`svc://NAME` works as well), or a ws:// or wss:// address
    #[arg(value_name = "SERVER", default_value = DEFAULT_SERVER_URL)]
    target: String,

    /// The command with its arguments. Default: the login shell
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,

    /// Pass on keyboard input (the default)
    #[arg(long, short, overrides_with = "no_interactive")]
    interactive: bool,

    /// Pass on no input
    #[arg(long, short = 'I', overrides_with = "interactive")]
    no_interactive: bool,

    /// Give the command a terminal, even if there is none here
    #[arg(long, short, overrides_with = "no_tty")]
    tty: bool,

    /// Give the command pipes, even on a terminal
    #[arg(long, short = 'T', overrides_with = "tty")]
    no_tty: bool,

    #[command(flatten)]
    surroundings: CommandEnvironment,

    #[command(flatten)]
    sealing: EncryptionArgs,

    #[command(flatten)]
    reach: TargetArgs,
}

/// Runs the session, and exits with the command's exit code.
pub(super) async fn run(args: Args) -> Result<(), Failure> {
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let streams = if args.tty || (is_terminal && !args.no_tty) {
        StreamMode::Terminal
    } else {
        StreamMode::Pipes
    };
    let stdin = if args.no_interactive {
        StdinMode::Closed
    } else {
        StdinMode::Forward
    };
    let mode = match streams {
        StreamMode::Terminal => SessionMode::Interactive,
        StreamMode::Pipes => SessionMode::NonInteractive,
    };
    let reached = args.reach.find(&args.target, mode).await?;
    let seal = args.sealing.seal(&reached)?;
    let config = args.surroundings.config(&args.command, stdin, streams)?;
    let size = (streams == StreamMode::Terminal).then(|| raw::size().unwrap_or(Size::DEFAULT));
    let request = Request {
        size,
        seal,
        ..Request::new(config)
    };
    let is_raw = is_terminal && (stdin, streams) == (StdinMode::Forward, StreamMode::Terminal);
    let (session, input) = Session::start(reached.endpoint, request);
    let ended = if is_raw {
        Box::pin(interactive::run(session, input, size)).await?
    } else {
        Box::pin(piped::run(
            session,
            input,
            &mut piped::StandardStreams,
            stdin,
            None,
        ))
        .await?
    };
    let ended = ended.map_err(|error| command_end::failed(error, &reached.url))?;
    if is_raw {
        status::line(&command_end::describe(&ended));
    }
    command_end::exit_as_command(&ended)
}

/// Default address of a server.
const DEFAULT_SERVER_URL: &str = "ws://127.0.0.1:8080";
