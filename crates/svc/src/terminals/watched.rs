//! One session that an AI client watches, between its calls.

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

use super::left;
use crate::{
    failure::{Failure, chain},
    joined::{Ask, Change, Control, JoinedParticipant},
};

/// A task that takes part.
#[derive(Debug)]
pub(super) struct WatchTask {
    todo: mpsc::Sender<Do>,
    /// What is to be shown, and how often it changed.
    shown: watch::Receiver<WatchView>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What a call sees.
#[derive(Clone, Debug, Default)]
struct WatchView {
    /// Nothing before the stream has brought the screen.
    value: Option<Value>,
    is_over: bool,
}

enum Do {
    /// A call was made: whoever watches is still wanted.
    Stay,
    Ask(Ask, oneshot::Sender<Result<Value, Failure>>),
    /// Types; whether control was there.
    Type(String, oneshot::Sender<bool>),
}

impl WatchTask {
    /// Begins with somebody who has just joined.
    pub(super) fn start(session_id: String, joined: JoinedParticipant) -> Self {
        let (todo, asked) = mpsc::channel(WAITING);
        let (show, shown) = watch::channel(WatchView::default());
        let stop = CancellationToken::new();
        let task = Task {
            session_id,
            joined,
            ended: None,
            show,
            stop: stop.clone(),
        };
        Self {
            todo,
            shown,
            stop,
            task: Mutex::new(Some(tokio::spawn(task.run(asked)))),
        }
    }

    /// Whether nothing will change any more.
    pub(super) fn is_over(&self) -> bool {
        self.todo.is_closed()
    }

    /// The screen, after a change or after the wait. `None`: it was over before.
    pub(super) async fn screen(&self, wait: Duration) -> Option<Value> {
        let mut shown = self.shown.clone();
        self.todo.send(Do::Stay).await.ok();
        // The first screen comes at once, or the stream is no good.
        let first = shown.wait_for(|shown| shown.value.is_some() || shown.is_over);
        timeout(FIRST, first).await.ok()?.ok()?;
        shown.borrow_and_update();
        if !wait.is_zero() && !self.is_over() {
            let began = Instant::now();
            // What is over does not change; what changes goes on for a moment.
            if let Ok(Ok(())) = timeout(wait, shown.changed()).await {
                settle(&mut shown, left(began, wait)).await;
            }
        }
        shown.borrow().value.clone()
    }

    /// Asks for control. `None`: it is over.
    pub(super) async fn ask(&self, ask: Ask) -> Option<Result<Value, Failure>> {
        // Before the stream is there, nobody may ask.
        self.screen(Duration::ZERO).await?;
        let (answer, answered) = oneshot::channel();
        self.todo.send(Do::Ask(ask, answer)).await.ok()?;
        answered.await.ok()
    }

    /// Types a line, and gives the screen when it has settled. `None`: it is over.
    pub(super) async fn type_line(
        &self,
        line: String,
        wait: Duration,
    ) -> Option<Result<Value, ()>> {
        let mut shown = self.shown.clone();
        shown.borrow_and_update();
        let (answer, answered) = oneshot::channel();
        self.todo.send(Do::Type(line, answer)).await.ok()?;
        if !answered.await.ok()? {
            return Some(Err(()));
        }
        let began = Instant::now();
        if let Ok(Ok(())) = timeout(wait, shown.changed()).await {
            settle(&mut shown, left(began, wait)).await;
        }
        let value = shown.borrow().value.clone();
        value.map(Ok)
    }

    /// Leaves the session.
    pub(super) async fn leave(&self) {
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task {
            // A task that broke has left, too.
            drop(task.await);
        }
    }
}

impl Drop for WatchTask {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Waits until nothing changes for a moment, at most so long.
async fn settle(shown: &mut watch::Receiver<WatchView>, wait: Duration) {
    let settling = async { while let Ok(Ok(())) = timeout(QUIET, shown.changed()).await {} };
    // What never settles is shown as it is.
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
    async fn run(mut self, mut asked: mpsc::Receiver<Do>) {
        let mut wanted_until = tokio::time::Instant::now() + IDLE;
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
                        Some(Change::Screen | Change::People(_)) => {}
                        None => break,
                    }
                    let is_over = self.ended.is_some();
                    let value = Some(self.value());
                    self.show.send_replace(WatchView { value, is_over });
                    if is_over {
                        break;
                    }
                }
                todo = asked.recv() => {
                    wanted_until = tokio::time::Instant::now() + IDLE;
                    match todo {
                        Some(todo) => self.act(todo).await,
                        None => break,
                    }
                }
                () = sleep_until(wanted_until) => break,
                () = self.stop.cancelled() => break,
            }
        }
        asked.close();
        self.show.send_modify(|shown| shown.is_over = true);
        self.joined.leave().await;
    }

    async fn act(&mut self, todo: Do) {
        match todo {
            Do::Stay => {}
            Do::Ask(ask, answer) => {
                let asked = self.joined.asking().ask(&ask).await;
                if let Ok(request) = &asked {
                    self.joined.has_asked(request);
                }
                let value = self.value();
                self.show.send_modify(|shown| shown.value = Some(value));
                let asked = asked.map_err(Failure::from);
                let asked = asked.map(|request| serde_json::to_value(request).unwrap_or_default());
                // Whoever asked may have given up.
                answer.send(asked).ok();
            }
            Do::Type(line, answer) => {
                let may = self.joined.holds_control();
                let typed = may && {
                    let line = Bytes::from(format!("{line}\r"));
                    self.joined.input().typed(line).await
                };
                answer.send(typed).ok();
            }
        }
    }

    /// What a model sees.
    fn value(&self) -> Value {
        let screen = self.joined.screen();
        let (state, request_id) = match self.joined.control() {
            Control::None => ("none", None),
            Control::Asked(id) => ("asked", Some(id)),
            Control::Held(id) => ("held", Some(id)),
            Control::Answered { request_id, how } => (*how, Some(request_id)),
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

/// The rows, without the empty ones at the end. What is no text is none: others wrote it.
fn rows(screen: &tty::screen::Screen) -> Vec<String> {
    let mut rows = screen.rows();
    while rows.last().is_some_and(String::is_empty) {
        rows.pop();
    }
    rows.iter().map(|row| crate::output::plain(row)).collect()
}

/// Calls of one caller at the same time.
const WAITING: usize = 8;
/// Whoever is not asked for so long has forgotten the session.
const IDLE: Duration = Duration::from_mins(10);
/// To the first screen: the stream is opened and the screen sent.
const FIRST: Duration = Duration::from_secs(10);
/// Nothing changes for so long: the command waits.
const QUIET: Duration = Duration::from_millis(300);
