//! `svc webtty sessions join`: watch a session, request control, and answer requests.
//!
//! The screen is drawn from an emulated terminal. A command therefore cannot send escape sequences
//! to the terminals of its viewers. The last row shows the participant with control. Keys that
//! start with `~` are for this command: always for a viewer, and at the start of a line for the
//! participant with control, as in `ssh`.

mod keys;

use std::{future::pending, pin::Pin, time::Duration};

use api::webtty::ControlRequest;
use bytes::Bytes;
use clap::Parser;
use client::api::ApiError;
use terminal::client::{CommandEnd, SessionError};
use tty::size::Size;

use self::keys::{Key, Keys};
use super::SessionArgs;
use crate::args::time;
use crate::commands::webtty::terminal_view::{TerminalView, UiEvent, window_size};
use crate::engine_client::participant::{Change, Control, ControlOptions, JoinedParticipant};
use crate::failure::{Code, Failure, chain};
use crate::output;
use crate::process::signals;

/// The flags of `svc webtty sessions join`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Keys: ~. leaves, ~r requests control, ~y and ~n answer a request, ~~ sends a tilde.
If you have control, type them at the start of a line.

Examples:
  svc webtty sessions join wts_…
  svc webtty sessions join wts_… --request-control --reason \"to restart the service\" --for 10m"
)]
pub(crate) struct JoinArgs {
    /// Request control immediately
    #[arg(long)]
    request_control: bool,

    /// Reason, shown to the approver
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// Number of lines to request: 1 is one command. Default without --for: until control is
    /// revoked
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    lines: Option<u32>,

    /// Duration to request
    #[arg(long = "for", value_name = "DURATION", value_parser = time::duration)]
    for_time: Option<Duration>,

    #[command(flatten)]
    on: SessionArgs,
}

/// Takes part until the session ends, the user leaves, or a signal arrives.
pub(super) async fn join(mut args: JoinArgs) -> Result<(), Failure> {
    let config = args.on.connection.resolve()?;
    args.on.open().await?;
    let shutdown = signals::listen(Duration::ZERO)?;
    let joined = JoinedParticipant::join(&config, &args.on.session, None).await?;
    let stage = TerminalView::enter()?;
    let ask = ControlOptions {
        reason: args.reason,
        lines: args.lines,
        seconds: args.for_time.map(|time| time.as_secs().max(1)),
    };
    let mut view = View {
        joined,
        keys: Keys::default(),
        ask,
        asking: None,
        asks_at_once: args.request_control,
        last_message: String::new(),
        size: None,
    };
    let over = tokio::select! {
        over = view.show(stage) => over?,
        () = shutdown.drain().cancelled() => JoinEnd::Left,
    };
    let was_kicked = view.joined.was_kicked();
    view.joined.leave().await;
    match over {
        _ if was_kicked => {
            Err(Failure::new(Code::Refused, "you were asked to leave").named("kicked"))
        }
        JoinEnd::Left => Ok(()),
        JoinEnd::Ended(ended) => {
            output::message(&format!("the session ended with {}", ended.code));
            Ok(())
        }
        JoinEnd::Failed(error) => {
            Err(Failure::new(Code::Failed, output::plain(&chain(&error))).named("session_lost"))
        }
    }
}

/// The reason for leaving.
enum JoinEnd {
    /// The user pressed the key to leave.
    Left,
    Ended(CommandEnd),
    Failed(SessionError),
}

/// A request in flight, and its result.
type PendingRequest = Pin<Box<dyn Future<Output = Result<ControlRequest, ApiError>> + Send>>;

/// A session at a terminal.
struct View {
    joined: JoinedParticipant,
    keys: Keys,
    ask: ControlOptions,
    /// The request in flight to the engine.
    asking: Option<PendingRequest>,
    asks_at_once: bool,
    /// The last message.
    last_message: String,
    /// The last size that was sent to the session.
    size: Option<Size>,
}

impl View {
    async fn show(&mut self, mut stage: TerminalView) -> Result<JoinEnd, Failure> {
        loop {
            let asking = async {
                match &mut self.asking {
                    Some(asking) => asking.await,
                    None => pending().await,
                }
            };
            tokio::select! {
                change = self.joined.next() => match change {
                    Some(Change::Ended(Ok(ended))) => return Ok(JoinEnd::Ended(ended)),
                    Some(Change::Ended(Err(error))) => return Ok(JoinEnd::Failed(error)),
                    Some(Change::Participants(last_message)) => {
                        self.last_message = last_message;
                        self.resize().await;
                    }
                    Some(Change::Screen) => {
                        // The stream is established, so control can be requested.
                        if std::mem::take(&mut self.asks_at_once) {
                            self.ask();
                        }
                    }
                    None => return Ok(JoinEnd::Left),
                },
                asked = asking => {
                    self.asking = None;
                    match asked {
                        Ok(request) => {
                            self.joined.set_requested(&request);
                            self.last_message.clear();
                        }
                        Err(error) => Failure::from(error)
                            .message()
                            .clone_into(&mut self.last_message),
                    }
                }
                did = stage.next() => match did? {
                    UiEvent::Keys(keys) => if self.press(&keys).await {
                        return Ok(JoinEnd::Left);
                    },
                    UiEvent::Resized(_) => self.resize().await,
                    UiEvent::Due => {
                        if let Some(screen) = self.joined.screen() {
                            stage.draw(screen, &self.status(), self.joined.holds_control())?;
                        }
                        continue;
                    }
                    UiEvent::Closed => return Ok(JoinEnd::Left),
                },
            }
            stage.mark_stale();
        }
    }

    /// Handles keys. Returns true if the user leaves.
    async fn press(&mut self, pressed: &[u8]) -> bool {
        let typing = self.joined.holds_control();
        for key in self.keys.read(pressed, typing) {
            match key {
                Key::Typed(bytes) if typing => {
                    self.joined.input().typed(Bytes::from(bytes)).await;
                }
                Key::Typed(_) => HINT.clone_into(&mut self.last_message),
                Key::Leave => return true,
                Key::RequestControl => self.ask(),
                Key::Answer(grant) => self.joined.answer(grant).await,
                Key::Help => HELP.clone_into(&mut self.last_message),
            }
        }
        false
    }

    fn ask(&mut self) {
        if self.joined.holds_control() || self.asking.is_some() {
            return;
        }
        let (asking, ask) = (self.joined.requester(), self.ask.clone());
        self.asking = Some(Box::pin(async move { asking.request_control(&ask).await }));
    }

    /// The terminal size follows the window of the participant with control.
    async fn resize(&mut self) {
        let window = window_size();
        let wanted = Size {
            rows: window.rows.saturating_sub(1).max(1),
            cols: window.cols,
        };
        if !self.joined.holds_control() {
            self.size = None;
        } else if self.size.replace(wanted) != Some(wanted) {
            self.joined.input().resize(wanted).await;
        }
    }

    fn status(&self) -> String {
        let control = match (self.joined.control(), self.joined.controller()) {
            (Control::Granted(_), _) => "you have control".to_owned(),
            (Control::Requested(_), Some(who)) => {
                format!("read-only · control requested from {who}")
            }
            (Control::Requested(_), None) => "read-only · control requested".to_owned(),
            (_, Some(who)) => format!("read-only · {who} has control"),
            (_, None) => "read-only · no participant has control".to_owned(),
        };
        let mut parts = vec![control];
        if let Some(asked) = self.joined.first_request() {
            let reason = match asked.reason.as_str() {
                "" => "without a reason",
                reason => reason,
            };
            parts.push(format!(
                "{} requests control: {reason} · ~y grants · ~n refuses",
                asked.user
            ));
        }
        if !self.last_message.is_empty() {
            parts.push(self.last_message.clone());
        }
        if self.joined.is_recorded() {
            parts.push("recorded".to_owned());
        }
        if !self.joined.holds_control() {
            parts.push("~r requests control".to_owned());
        }
        parts.push("~. leaves".to_owned());
        format!(" {}", parts.join(" · "))
    }
}

const HINT: &str = "read-only: typing has no effect";
const HELP: &str = "~. leaves, ~r requests control, ~y grants, ~n refuses, ~~ is a tilde";
