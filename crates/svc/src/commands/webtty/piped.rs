//! A session without a terminal: its output goes to stdout and stderr, and stdin goes to it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use terminal::client::{CommandEnd, Event, Input, Session, SessionError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, sleep_until},
};
use tty::message::{NoticeKind, Signal, Stream};

use super::{session_request::StdinMode, signals::EndSignals};
use crate::{
    failure::{Code, Failure},
    output::{self, plain},
};

/// Destination of the output.
pub(super) trait OutputSink {
    /// Handles output of the command.
    async fn show(&mut self, stream: Stream, bytes: Bytes) -> Result<(), Failure>;
}

/// This process's own stdout and stderr.
pub(super) struct StandardStreams;

impl OutputSink for StandardStreams {
    async fn show(&mut self, stream: Stream, bytes: Bytes) -> Result<(), Failure> {
        let written = match stream {
            Stream::Stderr => {
                let mut to = tokio::io::stderr();
                match to.write_all(&bytes).await {
                    Ok(()) => to.flush().await,
                    error => error,
                }
            }
            Stream::Stdout | Stream::Stdin => {
                let mut to = tokio::io::stdout();
                match to.write_all(&bytes).await {
                    // Interactive programs wait for each piece.
                    Ok(()) => to.flush().await,
                    error => error,
                }
            }
        };
        written.map_err(output::write_failure)
    }
}

/// Runs a session to its end. The first signal is sent to the command, and the second one ends the
/// session.
pub(super) async fn run(
    mut session: Session,
    input: Input,
    show: &mut impl OutputSink,
    stdin: StdinMode,
    limit: Option<Duration>,
) -> Result<Result<CommandEnd, SessionError>, Failure> {
    let until = limit.map(|limit| Instant::now() + limit);
    let failed = |error| Failure::from_error("signal handlers cannot be installed", error);
    let mut signals = EndSignals::listen().map_err(failed)?;
    let mut signalled = false;
    let mut typing = Box::pin(type_in(input.clone(), stdin));
    let mut types = true;
    let ended = loop {
        let sent = tokio::select! {
            event = session.event() => match event {
                Some(Event::Output(stream, bytes)) => {
                    // A closed stdout ends the session, as it ends a local command.
                    if let Err(failure) = show.show(stream, bytes).await {
                        break Err(failure);
                    }
                    continue;
                }
                Some(Event::Lost { reason, grace }) => {
                    output::message(&format!(
                        "connection lost ({}); reconnecting for up to {grace:.0?}",
                        plain(&reason)
                    ));
                    continue;
                }
                Some(Event::Reconnected { missed }) => {
                    output::message(&reconnected_message(missed));
                    continue;
                }
                Some(Event::Notice(notice)) => {
                    if notice.kind() == NoticeKind::Recorded {
                        output::message("this session is recorded");
                    }
                    continue;
                }
                Some(Event::Opened { .. } | Event::OutputEnd(_)) => continue,
                Some(Event::Ended(ended)) => return Ok(ended),
                None => return Ok(Err(SessionError::HungUp)),
            },
            read = &mut typing, if types => {
                types = false;
                read?;
                continue;
            }
            number = signals.next() => number,
            () = wait_until(until) => {
                break Err(Failure::new(Code::Failed, "the command took longer than --timeout")
                    .named("webtty_timeout"));
            }
        };
        if std::mem::replace(&mut signalled, true) {
            break Err(Failure::remote_exit(128_u8.saturating_add(sent)));
        }
        if let Ok(signal) = Signal::try_from(i32::from(sent)) {
            input.signal(signal).await;
        }
    };
    session.leave().await;
    ended
}

/// The message after a session has reconnected.
pub(super) fn reconnected_message(missed: u64) -> String {
    match missed {
        0 => "reconnected".to_owned(),
        missed => format!("reconnected; {missed} bytes of output are lost"),
    }
}

/// Passes on stdin until it ends.
async fn type_in(input: Input, mode: StdinMode) -> Result<(), Failure> {
    if mode == StdinMode::Forward {
        let mut stdin = tokio::io::stdin();
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(READ);
            let read = stdin.read_buf(&mut buffer).await;
            let read = read.map_err(|error| Failure::from_error("cannot read stdin", error))?;
            if read == 0 || !input.typed(buffer.split().freeze()).await {
                break;
            }
        }
    }
    input.end().await;
    Ok(())
}

async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Size of one read of a pipe, in bytes.
const READ: usize = 64 * 1024;
