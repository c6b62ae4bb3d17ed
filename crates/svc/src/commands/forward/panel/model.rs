//! State of the panel and the effect of its keys, without terminal and clock.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use super::rates::{Rates, Times};

/// The complete state.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) about: PanelInfo,
    pub(crate) state: State,
    /// Address for visitors, once it is known.
    pub(crate) url: Option<String>,
    pub(crate) latency: Option<Duration>,
    /// Current message to the user.
    pub(crate) notice: Option<Notice>,
    pub(crate) total: u64,
    /// Number of rows that ended with an error.
    pub(crate) failed: u64,
    /// Number of updates that were dropped.
    pub(crate) missed: u64,
    pub(crate) view: View,
    rates: Rates,
    times: Times,
    /// Start times of open requests.
    open: HashMap<Key, Instant>,
    rows: VecDeque<Row>,
}

/// Properties that never change.
#[derive(Clone, Debug)]
pub(crate) struct PanelInfo {
    pub(crate) target: String,
    pub(crate) engine: String,
    /// Address of the inspector.
    pub(crate) inspector: Option<String>,
    /// Kind of the rows.
    pub(crate) rows: Rows,
}

/// Content of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// HTTP requests.
    Requests,
    /// Byte streams.
    Streams,
}

/// State of the tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Connecting,
    Online,
    /// Connection lost, with the reason and the time of the next attempt.
    Disconnected {
        error: Arc<str>,
        until: Instant,
    },
    /// Stopping: accepted streams are still served.
    Draining,
}

/// A message to the user.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) text: String,
    /// `None` means until the next message.
    until: Option<Instant>,
}

/// A request or a stream.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: Key,
    /// Start as local time of day.
    pub(crate) clock: String,
    pub(crate) started_at: Instant,
    /// Duration. `None` while it is open.
    pub(crate) duration: Option<Duration>,
    /// Empty for a stream.
    pub(crate) method: Arc<str>,
    /// The path, or the result of the stream.
    pub(crate) path: Arc<str>,
    pub(crate) status: Option<u16>,
    pub(crate) source: String,
    /// The request or stream failed or was interrupted.
    pub(crate) failed: bool,
}

/// Identity of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Request(u64),
    Stream(Arc<str>),
}

/// State of the view.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// Number of rows above the first visible one. The newest is row 0.
    pub(crate) scroll: usize,
    /// The rows at the moment when the list was paused.
    paused: Option<Vec<Row>>,
    pub(crate) filter: String,
    /// True while the user types the filter.
    pub(crate) typing: bool,
    pub(crate) overlay: Option<Overlay>,
}

/// A window over the panel, until the next key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlay {
    Help,
    Code,
    Inspector,
}

/// A key, independent of the terminal's encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyPress {
    Letter(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
    /// Ctrl-L.
    Redraw,
}

/// An action that the model cannot do itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// One step of stopping.
    Stop,
    /// Copy this text to the user's clipboard.
    Copy(String),
    Suspend,
    /// Redraw the whole screen.
    Redraw,
}

impl Model {
    pub(crate) fn new(about: PanelInfo, now: Instant) -> Self {
        Self {
            about,
            state: State::Connecting,
            url: None,
            latency: None,
            notice: None,
            total: 0,
            failed: 0,
            missed: 0,
            view: View::default(),
            rates: Rates::new(now),
            times: Times::default(),
            open: HashMap::new(),
            rows: VecDeque::new(),
        }
    }

    /// Adds a new row or updates an existing one.
    pub(crate) fn upsert_row(&mut self, row: Row, now: Instant) {
        let known = self.rows.iter().rposition(|known| known.key == row.key);
        let was_open = self.open.contains_key(&row.key);
        let is_new = known.is_none() && !was_open;
        if is_new {
            self.total += 1;
            self.rates.count(now);
        }
        match row.duration {
            Some(took) if is_new || was_open => {
                self.open.remove(&row.key);
                self.times.add(took);
                self.failed += u64::from(row.failed);
            }
            Some(_) => {}
            None if self.open.len() < MAX_OPEN => {
                self.open.insert(row.key.clone(), row.started_at);
            }
            None => {}
        }
        match known.and_then(|index| self.rows.get_mut(index)) {
            Some(known) => *known = row,
            // The row was dropped from the list while its request was open.
            None if !is_new => {}
            None => {
                // A scrolled list keeps its visible rows.
                if self.view.scroll > 0 && self.view.paused.is_none() && self.matches_filter(&row) {
                    self.view.scroll += 1;
                }
                if self.rows.len() == MAX_ROWS {
                    self.rows.pop_front();
                }
                self.rows.push_back(row);
            }
        }
    }

    /// Start time of an open row. `None` if the start was missed.
    pub(crate) fn start_of(&self, key: &Key) -> Option<Instant> {
        self.open.get(key).copied()
    }

    /// Counts dropped updates.
    pub(crate) fn missed(&mut self, count: u64) {
        self.missed += count;
    }

    /// Closes open rows that are not in this set, because their end was missed.
    pub(crate) fn retain_open(&mut self, is_open: impl Fn(&Key) -> bool) {
        self.open.retain(|key, _| is_open(key));
    }

    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Average rate per second over one minute and over five minutes.
    pub(crate) fn rates(&self, now: Instant) -> (f64, f64) {
        let mean = |minutes| self.rates.mean(Duration::from_mins(minutes), now);
        (mean(1), mean(5))
    }

    /// The median and the 90th percentile of the durations.
    pub(crate) fn times(&self) -> (Option<Duration>, Option<Duration>) {
        (self.times.percentile(50), self.times.percentile(90))
    }

    /// The rows of the list, newest first.
    pub(crate) fn visible_rows(&self) -> Vec<&Row> {
        let passes = |row: &&Row| self.matches_filter(row);
        match &self.view.paused {
            Some(rows) => rows.iter().rev().filter(passes).collect(),
            None => self.rows.iter().rev().filter(passes).collect(),
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.view.paused.is_some()
    }

    /// True if the display changes without an event, such as running times.
    pub(crate) fn is_animated(&self, now: Instant) -> bool {
        let (_, five) = self.rates(now);
        !self.open.is_empty()
            || five > 0.0
            || matches!(self.state, State::Disconnected { .. })
            || self
                .notice
                .as_ref()
                .is_some_and(|notice| notice.until.is_some())
    }

    /// Shows a message until the next one.
    pub(crate) fn show_notice(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.notice = Some(Notice { text, until: None });
    }

    /// Removes an expired message.
    pub(crate) fn tick(&mut self, now: Instant) {
        let is_over = |notice: &Notice| notice.until.is_some_and(|until| until <= now);
        if self.notice.as_ref().is_some_and(is_over) {
            self.notice = None;
        }
    }

    /// Applies a key.
    pub(crate) fn press(&mut self, key: KeyPress, now: Instant) -> Option<Action> {
        match key {
            KeyPress::Interrupt => return Some(Action::Stop),
            KeyPress::Suspend => return Some(Action::Suspend),
            KeyPress::Redraw => return Some(Action::Redraw),
            _ => {}
        }
        if self.view.typing {
            self.type_filter(key);
            return None;
        }
        // Any key closes an open window. A key with a meaning also takes effect.
        let above = self.view.overlay.take();
        match key {
            KeyPress::Letter('q') => return Some(Action::Stop),
            KeyPress::Letter('c') => return self.copy(now),
            KeyPress::Letter('p' | ' ') => self.pause(),
            KeyPress::Letter('/') => {
                self.view.typing = true;
                self.view.scroll = 0;
            }
            KeyPress::Letter('?' | 'h') => {
                self.view.overlay = toggled_overlay(above, Overlay::Help);
            }
            KeyPress::Letter('Q') => self.view.overlay = toggled_overlay(above, Overlay::Code),
            KeyPress::Letter('i') => self.view.overlay = toggled_overlay(above, Overlay::Inspector),
            KeyPress::Escape if above.is_none() => self.view.filter.clear(),
            KeyPress::Up | KeyPress::Letter('k') => self.scroll(-1),
            KeyPress::Down | KeyPress::Letter('j') => self.scroll(1),
            KeyPress::PageUp => self.scroll(-PAGE),
            KeyPress::PageDown => self.scroll(PAGE),
            KeyPress::Home | KeyPress::Letter('g') => self.view.scroll = 0,
            KeyPress::End | KeyPress::Letter('G') => self.scroll(isize::MAX),
            _ => {}
        }
        None
    }

    fn type_filter(&mut self, key: KeyPress) {
        match key {
            KeyPress::Letter(letter) if self.view.filter.len() < MAX_FILTER => {
                self.view.filter.push(letter);
            }
            KeyPress::Backspace => {
                self.view.filter.pop();
            }
            KeyPress::Enter => self.view.typing = false,
            KeyPress::Escape => {
                self.view.typing = false;
                self.view.filter.clear();
            }
            _ => {}
        }
    }

    fn copy(&mut self, now: Instant) -> Option<Action> {
        let url = self.url.clone()?;
        self.notice = Some(Notice {
            text: format!("copied {url}"),
            until: Some(now + NOTICE_TIME),
        });
        Some(Action::Copy(url))
    }

    fn pause(&mut self) {
        self.view.paused = match self.view.paused.take() {
            Some(_) => None,
            None => Some(self.rows.iter().cloned().collect()),
        };
    }

    fn scroll(&mut self, by: isize) {
        let last = self.visible_rows().len().saturating_sub(1);
        self.view.scroll = self.view.scroll.saturating_add_signed(by).min(last);
    }

    fn matches_filter(&self, row: &Row) -> bool {
        let wanted = self.view.filter.to_lowercase();
        let holds = |text: &str| text.to_lowercase().contains(&wanted);
        wanted.is_empty()
            || holds(&row.path)
            || holds(&row.method)
            || holds(&row.source)
            || row.status.is_some_and(|status| holds(&status.to_string()))
    }
}

/// The key that opened a window also closes it.
fn toggled_overlay(above: Option<Overlay>, wanted: Overlay) -> Option<Overlay> {
    (above != Some(wanted)).then_some(wanted)
}

/// Maximum number of rows in the list. The inspector keeps more requests.
const MAX_ROWS: usize = 500;

/// Limit of open rows that are counted. An agent carries fewer at the same time.
const MAX_OPEN: usize = 100_000;

/// Maximum length of the filter: longer than any path that users type.
const MAX_FILTER: usize = 120;

/// Lines that a page key scrolls.
const PAGE: isize = 10;

/// Display time of a confirmation.
const NOTICE_TIME: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests;
