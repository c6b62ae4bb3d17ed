//! Connects the user's terminal to a session.

use std::{cell::RefCell, collections::VecDeque};

use bytes::{Bytes, BytesMut};
use terminal::client::{CommandEnd, Event, Input, Session, SessionError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tty::{
    managed::MAX_PENDING,
    message::{Notice, NoticeKind},
    size::Size,
};

use super::super::{
    piped::reconnected_message,
    signals::{EndSignals, ResizeEvents},
};
use super::{
    escape::{Escape, EscapeInput},
    raw::{self, RawMode},
    status,
};
use crate::{
    failure::Failure,
    output::{self, plain},
};

/// Runs a session until it ends or the user disconnects. `size` is the requested size.
pub(super) async fn run(
    mut session: Session,
    input: Input,
    size: Option<Size>,
) -> Result<Result<CommandEnd, SessionError>, Failure> {
    let mut signals = EndSignals::listen().map_err(no_handlers)?;
    let resized = ResizeEvents::listen().map_err(no_handlers)?;
    let raw = RefCell::new(RawMode::enter()?);
    let pending_requests = RefCell::new(VecDeque::new());
    let left = {
        let output = show(&mut session, &raw, &pending_requests);
        let typed = type_in(&input, &pending_requests);
        let sized = follow_size(&input, resized, size);
        tokio::pin!(output, typed, sized);
        tokio::select! {
            ended = &mut output => return ended,
            typed = &mut typed => typed.map(|()| None),
            () = &mut sized => Ok(None),
            number = signals.next() => Ok(Some(number)),
        }
    };
    // The terminal is restored before any slow operation.
    drop(raw);
    session.leave().await;
    if let Some(number) = left? {
        return Err(Failure::remote_exit(128_u8.saturating_add(number)));
    }
    status::line("hung up");
    Err(Failure::remote_exit(DISCONNECTED_STATUS))
}

/// Shows the output until the session ends.
async fn show(
    session: &mut Session,
    raw: &RefCell<RawMode>,
    pending_requests: &RefCell<VecDeque<String>>,
) -> Result<Result<CommandEnd, SessionError>, Failure> {
    let mut stdout = tokio::io::stdout();
    loop {
        match session.event().await {
            Some(Event::Output(_, bytes)) => {
                raw.borrow_mut().record_output(&bytes);
                let written = async {
                    stdout.write_all(&bytes).await?;
                    stdout.flush().await
                };
                written.await.map_err(output::write_failure)?;
            }
            Some(Event::Notice(notice)) => {
                update_requests(&mut pending_requests.borrow_mut(), &notice);
                if let Some(words) = status::describe(&notice) {
                    status::line(&words);
                }
            }
            Some(Event::Lost { reason, grace }) => status::line(&format!(
                "connection lost ({}); reconnecting for up to {grace:.0?}, ~. disconnects",
                plain(&reason)
            )),
            Some(Event::Reconnected { missed }) => status::line(&reconnected_message(missed)),
            Some(Event::Opened { .. } | Event::OutputEnd(_)) => {}
            Some(Event::Ended(ended)) => return Ok(ended),
            None => return Ok(Err(SessionError::HungUp)),
        }
    }
}

/// Keeps the ids of the requests that the user can answer, the oldest first.
fn update_requests(pending_requests: &mut VecDeque<String>, notice: &Notice) {
    if notice.kind() != NoticeKind::Requested {
        pending_requests.retain(|request| *request != notice.request_id);
    } else if pending_requests.len() < MAX_PENDING {
        pending_requests.push_back(notice.request_id.clone());
    }
}

/// Passes on the input until the user disconnects. Input that exceeds the session's capacity waits
/// here, so that the escape to disconnect still works.
async fn type_in(
    input: &Input,
    pending_requests: &RefCell<VecDeque<String>>,
) -> Result<(), Failure> {
    let mut stdin = tokio::io::stdin();
    let mut buffer = BytesMut::new();
    let mut escape = Escape::new();
    let mut waiting: VecDeque<Bytes> = VecDeque::new();
    loop {
        buffer.reserve(READ);
        tokio::select! {
            sent = input.typed(waiting.front().cloned().unwrap_or_default()),
                if !waiting.is_empty() =>
            {
                waiting.pop_front();
                if !sent {
                    // The session has ended and reports that itself.
                    return std::future::pending().await;
                }
            }
            read = stdin.read_buf(&mut buffer), if waiting.len() < MAX_PENDING_READS => {
                let read = read.map_err(|error| Failure::from_error("the terminal cannot be read", error))?;
                if read == 0 {
                    // The terminal was closed.
                    return Ok(());
                }
                let is_asked = !pending_requests.borrow().is_empty();
                for said in escape.read(&buffer.split(), is_asked) {
                    match said {
                        EscapeInput::Keys(keys) => waiting.push_back(keys.into()),
                        EscapeInput::Leave => return Ok(()),
                        EscapeInput::Help => status::line(status::HELP),
                        EscapeInput::Answer(grant) => {
                            let id = pending_requests.borrow_mut().pop_front();
                            if let Some(id) = id {
                                input.decide(&id, grant).await;
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Passes on each new size of the terminal. `known` is the size that the server has. The terminal
/// may have changed before this program listened for changes.
async fn follow_size(input: &Input, mut resized: ResizeEvents, mut known: Option<Size>) {
    loop {
        let size = raw::size();
        if size != known
            && let Some(size) = size
        {
            input.resize(size).await;
        }
        known = size;
        resized.next().await;
    }
}

fn no_handlers(error: std::io::Error) -> Failure {
    Failure::from_error("signal handlers cannot be installed", error)
}

/// Size of one read of the terminal, in bytes.
const READ: usize = 4 * 1024;

/// Reads that wait while the session accepts no input. Enough for a paste.
const MAX_PENDING_READS: usize = 256;

/// The exit code after the user disconnects, as for `ssh`.
const DISCONNECTED_STATUS: u8 = 255;

#[cfg(test)]
mod tests {
    use super::*;

    fn update(pending_requests: &mut VecDeque<String>, kind: NoticeKind, id: usize) {
        let notice = Notice {
            kind: kind.into(),
            request_id: id.to_string(),
            ..Notice::default()
        };
        update_requests(pending_requests, &notice);
    }

    /// An answer must not go to a request that has ended, and a server cannot fill the memory.
    #[test]
    fn only_pending_requests_are_kept() {
        let mut pending_requests = VecDeque::new();
        for id in 0..2 * MAX_PENDING {
            update(&mut pending_requests, NoticeKind::Requested, id);
        }
        assert_eq!(pending_requests.len(), MAX_PENDING);
        let ends = [
            NoticeKind::Revoked,
            NoticeKind::Expired,
            NoticeKind::Refused,
            NoticeKind::Unspecified,
        ];
        for (id, kind) in ends.into_iter().enumerate() {
            update(&mut pending_requests, kind, id);
        }
        assert_eq!(pending_requests.front().unwrap(), "4");
        update(&mut pending_requests, NoticeKind::Requested, 99);
        assert_eq!(pending_requests.back().unwrap(), "99");
    }
}
