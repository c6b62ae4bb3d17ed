//! A session that an AI client watches between its calls.

use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::remaining;
use crate::engine_client::participant::{Change, Control, ControlOptions, JoinedParticipant};
use crate::failure::{Failure, chain};

/// A task that participates in the session.
#[derive(Debug)]
pub(super) struct WatchTask {
    command_sender: mpsc::Sender<WatchCommand>,
    /// The current view and its version.
    view: watch::Receiver<WatchView>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The data for a call.
#[derive(Clone, Debug, Default)]
struct WatchView {
    /// `None` before the first screen.
    value: Option<Value>,
    is_over: bool,
}

enum WatchCommand {
    /// A call was made, so the session is still in use.
    Stay,
    RequestControl(ControlOptions, oneshot::Sender<Result<Value, Failure>>),
    /// Types a text. The answer is true if this participant had control.
    Type(String, oneshot::Sender<bool>),
}

impl WatchTask {
    /// Starts the task for a new participant.
    pub(super) fn start(session_id: String, joined: JoinedParticipant) -> Self {
        let (todo, commands) = mpsc::channel(MAX_PENDING_CALLS);
        let (show, view) = watch::channel(WatchView::default());
        let stop = CancellationToken::new();
        let task = Task {
            session_id,
            joined,
            ended: None,
            show,
            stop: stop.clone(),
        };
        Self {
            command_sender: todo,
            view,
            stop,
            task: Mutex::new(Some(tokio::spawn(task.run(commands)))),
        }
    }

    /// True if the view will not change any more.
    pub(super) fn is_over(&self) -> bool {
        self.command_sender.is_closed()
    }

    /// The screen after a change or after the wait. `None` if the session has ended before.
    pub(super) async fn screen(&self, wait: Duration) -> Option<Value> {
        let mut view = self.view.clone();
        self.command_sender.send(WatchCommand::Stay).await.ok();
        // The first screen arrives immediately, unless the stream is broken.
        let first = view.wait_for(|view| view.value.is_some() || view.is_over);
        timeout(FIRST_SCREEN_TIMEOUT, first).await.ok()?.ok()?;
        view.borrow_and_update();
        if !wait.is_zero() && !self.is_over() {
            let began = Instant::now();
            // An ended view does not change. After a change, more changes often follow immediately.
            if let Ok(Ok(())) = timeout(wait, view.changed()).await {
                settle(&mut view, remaining(began, wait)).await;
            }
        }
        view.borrow().value.clone()
    }

    /// Requests control. `None` if the session has ended.
    pub(super) async fn request_control(
        &self,
        ask: ControlOptions,
    ) -> Option<Result<Value, Failure>> {
        // A request needs the established stream.
        self.screen(Duration::ZERO).await?;
        let (answer, answered) = oneshot::channel();
        self.command_sender
            .send(WatchCommand::RequestControl(ask, answer))
            .await
            .ok()?;
        answered.await.ok()
    }

    /// Types a line, and returns the settled screen. `None` if the session has ended.
    pub(super) async fn type_line(
        &self,
        line: String,
        wait: Duration,
    ) -> Option<Result<Value, ()>> {
        let mut view = self.view.clone();
        view.borrow_and_update();
        let (answer, answered) = oneshot::channel();
        self.command_sender
            .send(WatchCommand::Type(line, answer))
            .await
            .ok()?;
        if !answered.await.ok()? {
            return Some(Err(()));
        }
        let began = Instant::now();
        if let Ok(Ok(())) = timeout(wait, view.changed()).await {
            settle(&mut view, remaining(began, wait)).await;
        }
        let value = view.borrow().value.clone();
        value.map(Ok)
    }

    /// Leaves the session.
    pub(super) async fn leave(&self) {
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task {
            // A failed task has left as well.
            drop(task.await);
        }
    }
}

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Waits until the screen does not change for a moment, up to the limit.
async fn settle(view: &mut watch::Receiver<WatchView>, wait: Duration) {
    let settling = async { while let Ok(Ok(())) = timeout(SETTLE_TIME, view.changed()).await {} };
    // A screen that keeps changing is returned as it is.
    timeout(wait, settling).await.ok();
}

struct Task {
    session_id: String,
    joined: JoinedParticipant,
    ended: Option<Value>,
    show: watch::Sender<WatchView>,
    stop: CancellationToken,
}

impl Task {
    async fn run(mut self, mut commands: mpsc::Receiver<WatchCommand>) {
        let mut wanted_until = tokio::time::Instant::now() + IDLE_TIMEOUT;
        loop {
            tokio::select! {
                change = self.joined.next() => {
                    match change {
                        Some(Change::Ended(Ok(ended))) => {
                            self.ended = Some(json!({"exit_code": ended.code, "reason": null}));
                        }
                        Some(Change::Ended(Err(error))) => {
                            let reason = if self.joined.was_kicked() {
                                "you were asked to leave".to_owned()
                            } else {
                                chain(&error)
                            };
                            self.ended = Some(json!({"exit_code": null, "reason": reason}));
                        }
                        Some(Change::Screen | Change::Participants(_)) => {}
                        None => break,
                    }
                    let is_over = self.ended.is_some();
                    let value = Some(self.value());
                    self.show.send_replace(WatchView { value, is_over });
                    if is_over {
                        break;
                    }
                }
                todo = commands.recv() => {
                    wanted_until = tokio::time::Instant::now() + IDLE_TIMEOUT;
                    match todo {
                        Some(todo) => self.act(todo).await,
                        None => break,
                    }
                }
                () = sleep_until(wanted_until) => break,
                () = self.stop.cancelled() => break,
            }
        }
        commands.close();
        self.show.send_modify(|view| view.is_over = true);
        self.joined.leave().await;
    }

    async fn act(&mut self, todo: WatchCommand) {
        match todo {
            WatchCommand::Stay => {}
            WatchCommand::RequestControl(ask, answer) => {
                let result = self.joined.requester().request_control(&ask).await;
                if let Ok(request) = &result {
                    self.joined.set_requested(request);
                }
                let value = self.value();
                self.show.send_modify(|view| view.value = Some(value));
                let result = result.map_err(Failure::from);
                let result =
                    result.map(|request| serde_json::to_value(request).unwrap_or_default());
                // The caller may have timed out.
                answer.send(result).ok();
            }
            WatchCommand::Type(line, answer) => {
                let may_type = self.joined.holds_control();
                let typed = may_type && {
                    let line = Bytes::from(format!("{line}\r"));
                    self.joined.input().typed(line).await
                };
                answer.send(typed).ok();
            }
        }
    }

    /// The view for a model.
    fn value(&self) -> Value {
        let screen = self.joined.screen();
        let (state, request_id) = match self.joined.control() {
            Control::None => ("none", None),
            Control::Requested(id) => ("asked", Some(id)),
            Control::Granted(id) => ("held", Some(id)),
            Control::Answered {
                request_id,
                outcome,
            } => (*outcome, Some(request_id)),
        };
        let controller = self
            .joined
            .controller()
            .filter(|_| !self.joined.holds_control());
        let cursor = screen.and_then(tty::screen::Screen::cursor);
        json!({
            "session_id": self.session_id,
            "participant_id": self.joined.participant_id(),
            "rows": screen.map(rows).unwrap_or_default(),
            "columns": screen.map_or(0, |screen| screen.size().cols),
            "cursor": cursor.map(|(row, column)| json!({"row": row, "column": column})),
            "control": {"state": state, "request_id": request_id, "controller": controller},
            "ended": self.ended,
        })
    }
}

/// The rows without empty ones at the end. Control characters of foreign text are removed.
fn rows(screen: &tty::screen::Screen) -> Vec<String> {
    let mut rows = screen.rows();
    while rows.last().is_some_and(String::is_empty) {
        rows.pop();
    }
    rows.iter().map(|row| crate::output::plain(row)).collect()
}

/// Limit of simultaneous calls of one caller.
const MAX_PENDING_CALLS: usize = 8;
/// Time without calls after which the session is left.
const IDLE_TIMEOUT: Duration = Duration::from_mins(10);
/// Time limit of the first screen: opening the stream and receiving the screen.
const FIRST_SCREEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without changes after which the command is considered to wait for input.
const SETTLE_TIME: Duration = Duration::from_millis(300);
