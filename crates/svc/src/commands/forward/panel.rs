//! The panel: the interactive display of `svc forward` at a terminal.
//!
//! It runs on its own thread, with all operations that may wait for the terminal. Its data arrives
//! over bounded queues that drop and count the excess, so visitors never wait for a screen.
//! [`model`] holds the displayed state, [`view`] draws it, and [`screen`] owns the terminal.

mod job;
#[cfg(unix)]
mod messages;
#[cfg(not(unix))]
#[path = "panel/unbuffered_messages.rs"]
mod messages;
mod model;
mod rates;
mod rows;
pub(crate) mod screen;
mod view;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use client::{Connection as StreamEvent, Status};
use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use daemon::{
    shutdown::Shutdown,
    signals::{Signal, Signals},
};
use futures_util::StreamExt;
use inspector::{Subscription, Update};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{MissedTickBehavior, interval, sleep_until},
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::model::{PanelInfo, Rows};
use self::{
    model::{Action, Key, KeyPress, Model, Overlay, State},
    screen::Screen,
    view::Paint,
};
use crate::failure::Failure;

/// A running panel.
pub(crate) struct Panel {
    stop: CancellationToken,
    end_receiver: oneshot::Receiver<PanelEnd>,
}

/// The data sources of the panel.
pub(crate) struct Feeds {
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) round_trip: watch::Receiver<Option<Duration>>,
    pub(crate) streams: mpsc::Receiver<StreamEvent>,
    /// Number of streams that did not fit into their queue.
    pub(crate) dropped_streams: Arc<AtomicU64>,
    /// Requests, if they are inspected.
    pub(crate) requests: Option<Subscription>,
    /// True if the command line sets a host header, so that no advice about it is needed.
    pub(crate) knows_host_header: bool,
    /// Start with the QR code of the address.
    pub(crate) show_code: bool,
}

/// Result of a panel.
#[derive(Debug)]
pub(crate) struct PanelEnd {
    /// Number of visits.
    pub(crate) total: u64,
    /// Number of visits that failed.
    pub(crate) failed: u64,
    /// Error that ended the panel early.
    pub(crate) failure: Option<io::Error>,
}

impl Panel {
    /// Takes over the terminal and updates the panel until [`end`](Self::end). Its keys trigger
    /// `shutdown`.
    pub(crate) fn start(
        about: PanelInfo,
        feeds: Feeds,
        shutdown: Shutdown,
    ) -> Result<Self, Failure> {
        let cannot = |error: io::Error| Failure::from_error("cannot show the panel", error);
        let end = CancellationToken::new();
        let (end_sender, end_receiver) = oneshot::channel();
        let stop_of_thread = end.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(cannot)?;
        let screen = Screen::enter().map_err(cannot)?;
        std::thread::Builder::new()
            .name("svc-panel".to_owned())
            .spawn(move || {
                let panel_end = runtime.block_on(async {
                    let showing = PanelThread::new(screen, about, feeds, shutdown)?;
                    Ok(showing.run(stop_of_thread).await)
                });
                let panel_end = panel_end.unwrap_or_else(|error| PanelEnd {
                    total: 0,
                    failed: 0,
                    failure: Some(error),
                });
                // If the receiver is gone, it has already restored the terminal.
                drop(end_sender.send(panel_end));
                // A read of the terminal may still be blocked in a thread.
                runtime.shutdown_background();
            })
            .map_err(cannot)?;
        Ok(Self {
            stop: end,
            end_receiver,
        })
    }

    /// Waits until the panel ends on its own. Cancel safe.
    pub(crate) async fn wait_for_end(&mut self) -> PanelEnd {
        let panel_end = (&mut self.end_receiver).await;
        panel_end.unwrap_or_else(|_panicked| PanelEnd {
            total: 0,
            failed: 0,
            failure: Some(io::Error::other("the panel failed")),
        })
    }

    /// Restores the terminal. If the terminal accepts no more output, this is only attempted.
    pub(crate) async fn end(mut self) -> Option<PanelEnd> {
        self.stop.cancel();
        let panel_end = tokio::time::timeout(RESTORE_TIMEOUT, self.wait_for_end()).await;
        screen::restore();
        panel_end.ok()
    }
}

impl Drop for Panel {
    fn drop(&mut self) {
        self.stop.cancel();
        screen::restore();
    }
}

/// The state of the panel's thread.
struct PanelThread {
    screen: Screen,
    model: Model,
    feeds: Feeds,
    shutdown: Shutdown,
    paint: Paint,
    events: EventStream,
    signals: JobEvents,
    /// True if the screen is out of date.
    changed: bool,
    drawn: Instant,
    /// True while the shell has the terminal.
    suspended: bool,
}

/// Job control events: from the terminal line and from the shell.
struct JobEvents {
    stop: Signals,
    continued: Signals,
    hang_up: Signals,
}

/// An event that may change the display.
enum PanelEvent {
    End,
    Draining,
    Frame,
    Tick,
    Terminal(Option<io::Result<Event>>),
    Suspend,
    Resume,
    HangUp,
    Status,
    RoundTrip,
    Stream(StreamEvent),
    Request(Option<Update>),
}

impl PanelThread {
    fn new(screen: Screen, about: PanelInfo, feeds: Feeds, shutdown: Shutdown) -> io::Result<Self> {
        let now = Instant::now();
        let mut model = Model::new(about, now);
        if feeds.show_code {
            model.view.overlay = Some(Overlay::Code);
        }
        let colours = screen::has_colours();
        Ok(Self {
            screen,
            model,
            feeds,
            shutdown,
            paint: Paint { colours },
            events: EventStream::new(),
            signals: JobEvents {
                stop: Signals::new(Signal::Suspend)?,
                continued: Signals::new(Signal::Continue)?,
                hang_up: Signals::new(Signal::HangUp)?,
            },
            changed: true,
            drawn: now,
            suspended: false,
        })
    }

    async fn run(mut self, end: CancellationToken) -> PanelEnd {
        let result = self.show(&end).await;
        PanelEnd {
            total: self.model.total,
            failed: self.model.failed,
            failure: result.err(),
        }
    }

    async fn show(&mut self, end: &CancellationToken) -> io::Result<()> {
        self.status();
        self.load_requests();
        self.draw()?;
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_draining = self.model.state == State::Draining;
            let frame = (self.drawn + FRAME).into();
            let feeds = &mut self.feeds;
            // Keys take precedence over display updates.
            let event = tokio::select! {
                biased;
                () = end.cancelled() => PanelEvent::End,
                () = self.shutdown.drain().cancelled(), if !is_draining => PanelEvent::Draining,
                () = self.signals.hang_up.recv() => PanelEvent::HangUp,
                () = self.signals.stop.recv() => PanelEvent::Suspend,
                () = self.signals.continued.recv() => PanelEvent::Resume,
                () = sleep_until(frame), if self.changed && !self.suspended => PanelEvent::Frame,
                event = self.events.next(), if !self.suspended => PanelEvent::Terminal(event),
                _ = seconds.tick() => PanelEvent::Tick,
                Ok(()) = feeds.status.changed() => PanelEvent::Status,
                Ok(()) = feeds.round_trip.changed() => PanelEvent::RoundTrip,
                Some(stream) = feeds.streams.recv() => PanelEvent::Stream(stream),
                update = next(&mut feeds.requests) => PanelEvent::Request(update),
            };
            match event {
                PanelEvent::End => return Ok(()),
                event => self.handle_event(event)?,
            }
        }
    }

    fn handle_event(&mut self, event: PanelEvent) -> io::Result<()> {
        let now = Instant::now();
        let seen = self.changed;
        self.changed = true;
        match event {
            PanelEvent::End => {}
            PanelEvent::Draining => self.model.state = State::Draining,
            PanelEvent::Frame => return self.draw(),
            PanelEvent::Tick => {
                self.model.tick(now);
                if self.model.about.rows == Rows::Streams {
                    self.model.missed = self.feeds.dropped_streams.load(Ordering::Relaxed);
                }
                let message = screen::message();
                self.changed = seen || message.is_some() || self.model.is_animated(now);
                if let Some(notice) = message {
                    self.model.show_notice(notice);
                }
            }
            PanelEvent::Terminal(Some(event)) => return self.handle_terminal_event(&event?, now),
            PanelEvent::Terminal(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
            PanelEvent::Suspend => return self.suspend(),
            PanelEvent::Resume => return self.resume(),
            PanelEvent::HangUp => self.shutdown.request(),
            PanelEvent::Status => self.status(),
            PanelEvent::RoundTrip => {
                self.model.latency = *self.feeds.round_trip.borrow_and_update();
            }
            PanelEvent::Stream(stream) => rows::stream(&mut self.model, &stream, now),
            PanelEvent::Request(Some(update)) => self.apply_update(update, now),
            PanelEvent::Request(None) => self.feeds.requests = None,
        }
        Ok(())
    }

    fn status(&mut self) {
        let status = self.feeds.status.borrow_and_update().clone();
        if let Status::Online(online) = &status {
            self.model.url = Some(online.forwarding.clone());
        }
        if self.model.state == State::Draining {
            return;
        }
        self.model.state = match status {
            Status::Connecting => State::Connecting,
            Status::Online(_) => State::Online,
            Status::Disconnected {
                error, retry_in, ..
            } => State::Disconnected {
                error,
                until: Instant::now() + retry_in,
            },
            // The caller of the panel reports it.
            Status::Closed(_) => return,
        };
    }

    /// Loads the requests that existed when the subscription started.
    fn load_requests(&mut self) {
        let Some(subscription) = &mut self.feeds.requests else {
            return;
        };
        let now = Instant::now();
        let list = subscription.list();
        let open = |key: &Key| {
            let is_open = |summary: &inspector::Summary| summary.duration.is_none();
            list.iter()
                .any(|summary| is_open(summary) && Key::Request(summary.id) == *key)
        };
        self.model.retain_open(open);
        for summary in &list {
            rows::request(&mut self.model, summary, now);
        }
    }

    fn apply_update(&mut self, update: Update, now: Instant) {
        match update {
            Update::Exchange(summary) => {
                rows::request(&mut self.model, &summary, now);
                if let Some(hint) = summary.hint.filter(|_| !self.feeds.knows_host_header) {
                    self.feeds.knows_host_header = true;
                    self.model.show_notice(hint.text());
                }
            }
            Update::Missed => {
                self.model.missed(1);
                self.load_requests();
            }
            _ => {}
        }
    }

    fn handle_terminal_event(&mut self, event: &Event, now: Instant) -> io::Result<()> {
        let Event::Key(key) = event else {
            // A new size, or the focus.
            return Ok(());
        };
        let Some(press) = press(*key) else {
            return Ok(());
        };
        match self.model.press(press, now) {
            None => {}
            Some(Action::Stop) => self.shutdown.request(),
            Some(Action::Copy(text)) => self.screen.copy(&text)?,
            Some(Action::Redraw) => self.screen.redraw()?,
            Some(Action::Suspend) => return self.suspend(),
        }
        Ok(())
    }

    fn suspend(&mut self) -> io::Result<()> {
        if self.suspended {
            return Ok(());
        }
        self.suspended = true;
        Screen::suspend()
    }

    fn resume(&mut self) -> io::Result<()> {
        self.changed = true;
        if !std::mem::take(&mut self.suspended) {
            // Another process stopped and continued the panel, so the screen content is unknown.
            return self.screen.redraw();
        }
        self.screen.resume()
    }

    fn draw(&mut self) -> io::Result<()> {
        self.changed = false;
        self.drawn = Instant::now();
        let (model, now, paint) = (&self.model, self.drawn, self.paint);
        let drawn = self
            .screen
            .draw(|frame| view::draw(frame, model, now, paint))?;
        if drawn {
            Ok(())
        } else {
            Err(io::Error::other("the terminal was given back"))
        }
    }
}

/// The next update. Never returns without an inspector.
async fn next(requests: &mut Option<Subscription>) -> Option<Update> {
    match requests {
        Some(subscription) => subscription.next().await,
        None => std::future::pending().await,
    }
}

/// Translates a key event.
fn press(key: KeyEvent) -> Option<KeyPress> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let press = match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => KeyPress::Interrupt,
        KeyCode::Char('z') if key.modifiers.contains(KeyModifiers::CONTROL) => KeyPress::Suspend,
        KeyCode::Char('l') if key.modifiers.contains(KeyModifiers::CONTROL) => KeyPress::Redraw,
        KeyCode::Char(_) if key.modifiers.contains(KeyModifiers::CONTROL) => return None,
        KeyCode::Char(letter) => KeyPress::Letter(letter),
        KeyCode::Enter => KeyPress::Enter,
        KeyCode::Esc => KeyPress::Escape,
        KeyCode::Backspace => KeyPress::Backspace,
        KeyCode::Up => KeyPress::Up,
        KeyCode::Down => KeyPress::Down,
        KeyCode::PageUp => KeyPress::PageUp,
        KeyCode::PageDown => KeyPress::PageDown,
        KeyCode::Home => KeyPress::Home,
        KeyCode::End => KeyPress::End,
        _ => return None,
    };
    Some(press)
}

/// Ten frames per second at most, faster than a user can read.
const FRAME: Duration = Duration::from_millis(100);

/// Time limit for the last output. A terminal that was stopped with ctrl-s accepts none.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(1);
