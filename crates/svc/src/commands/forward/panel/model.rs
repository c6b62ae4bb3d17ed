//! What the panel knows, and what its keys do: without a terminal and without a clock.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use super::rates::{Rates, Times};

/// Everything that is shown.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) about: About,
    pub(crate) state: State,
    /// What a visitor uses, once it is known.
    pub(crate) url: Option<String>,
    pub(crate) latency: Option<Duration>,
    /// What the person should know, until something else is.
    pub(crate) notice: Option<Notice>,
    pub(crate) total: u64,
    /// News that came faster than they could be taken.
    pub(crate) missed: u64,
    pub(crate) view: View,
    rates: Rates,
    times: Times,
    /// When those began that are not over.
    open: HashMap<Key, Instant>,
    rows: VecDeque<Row>,
}

/// What does not change.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) target: String,
    pub(crate) engine: String,
    /// Where requests can be looked into.
    pub(crate) inspector: Option<String>,
    /// What a row is.
    pub(crate) rows: Rows,
}

/// What the list shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Requests.
    Requests,
    /// Streams of bytes.
    Streams,
}

/// Where the tunnel stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Connecting,
    Online,
    /// Lost, with the reason and the moment of the next attempt.
    Disconnected {
        error: Arc<str>,
        until: Instant,
    },
    /// Asked to end; what was accepted goes on.
    Draining,
}

/// A line for the person.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) text: String,
    /// `None`: until the next.
    until: Option<Instant>,
}

/// A request or a stream.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: Key,
    /// When it began, as the person's clock says it.
    pub(crate) clock: String,
    pub(crate) began: Instant,
    /// Nothing while it goes on.
    pub(crate) took: Option<Duration>,
    /// Empty for a stream.
    pub(crate) method: Arc<str>,
    /// The path, or what became of the stream.
    pub(crate) path: Arc<str>,
    pub(crate) status: Option<u16>,
    pub(crate) source: String,
    /// It broke off, or could not be served.
    pub(crate) failed: bool,
}

/// Which one a row is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Request(u64),
    Stream(Arc<str>),
}

/// What of it is looked at.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// Rows above the first that is shown; the newest is row 0.
    pub(crate) scroll: usize,
    /// The rows when the list was stopped.
    paused: Option<Vec<Row>>,
    pub(crate) filter: String,
    /// The filter is being typed.
    pub(crate) typing: bool,
    pub(crate) overlay: Option<Overlay>,
}

/// What lies over the panel until the next key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlay {
    Help,
    Code,
    Inspector,
}

/// A key, apart from how a terminal says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Press {
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

/// What a key asks of others than the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// One step of stopping.
    Stop,
    /// This text on the person's clipboard.
    Copy(String),
    Suspend,
    /// Everything anew.
    Redraw,
}

impl Model {
    pub(crate) fn new(about: About, now: Instant) -> Self {
        Self {
            about,
            state: State::Connecting,
            url: None,
            latency: None,
            notice: None,
            total: 0,
            missed: 0,
            view: View::default(),
            rates: Rates::new(now),
            times: Times::default(),
            open: HashMap::new(),
            rows: VecDeque::new(),
        }
    }

    /// Takes a row that began, or changed.
    pub(crate) fn row(&mut self, row: Row, now: Instant) {
        let known = self.rows.iter().rposition(|known| known.key == row.key);
        let was_open = self.open.contains_key(&row.key);
        let is_new = known.is_none() && !was_open;
        if is_new {
            self.total += 1;
            self.rates.count(now);
        }
        match row.took {
            Some(took) if is_new || was_open => {
                self.open.remove(&row.key);
                self.times.add(took);
            }
            Some(_) => {}
            None if self.open.len() < MAX_OPEN => {
                self.open.insert(row.key.clone(), row.began);
            }
            None => {}
        }
        match known.and_then(|index| self.rows.get_mut(index)) {
            Some(known) => *known = row,
            // It left the list while it went on.
            None if !is_new => {}
            None => {
                // Whoever reads further down keeps what they read.
                if self.view.scroll > 0 && self.view.paused.is_none() && self.passes(&row) {
                    self.view.scroll += 1;
                }
                if self.rows.len() == MAX_ROWS {
                    self.rows.pop_front();
                }
                self.rows.push_back(row);
            }
        }
    }

    /// When one that is open began; `None` where that was missed.
    pub(crate) fn began(&self, key: &Key) -> Option<Instant> {
        self.open.get(key).copied()
    }

    /// News were lost.
    pub(crate) fn missed(&mut self, count: u64) {
        self.missed += count;
    }

    /// Whatever is open and not among these is over; its end was missed.
    pub(crate) fn only_open(&mut self, is_open: impl Fn(&Key) -> bool) {
        self.open.retain(|key, _| is_open(key));
    }

    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Means of one second over a minute and over five.
    pub(crate) fn means(&self, now: Instant) -> (f64, f64) {
        let mean = |minutes| self.rates.mean(Duration::from_mins(minutes), now);
        (mean(1), mean(5))
    }

    /// The times within which a half, and nine of ten, ended.
    pub(crate) fn times(&self) -> (Option<Duration>, Option<Duration>) {
        (self.times.percentile(50), self.times.percentile(90))
    }

    /// The rows that the list shows, the newest first.
    pub(crate) fn shown(&self) -> Vec<&Row> {
        let passes = |row: &&Row| self.passes(row);
        match &self.view.paused {
            Some(rows) => rows.iter().rev().filter(passes).collect(),
            None => self.rows.iter().rev().filter(passes).collect(),
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.view.paused.is_some()
    }

    /// Whether what is shown changes without any news: times that run.
    pub(crate) fn runs(&self, now: Instant) -> bool {
        let (_, five) = self.means(now);
        !self.open.is_empty()
            || five > 0.0
            || matches!(self.state, State::Disconnected { .. })
            || self
                .notice
                .as_ref()
                .is_some_and(|notice| notice.until.is_some())
    }

    /// Says something until the next time.
    pub(crate) fn say(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.notice = Some(Notice { text, until: None });
    }

    /// Forgets what was to be said for a while.
    pub(crate) fn tick(&mut self, now: Instant) {
        let is_over = |notice: &Notice| notice.until.is_some_and(|until| until <= now);
        if self.notice.as_ref().is_some_and(is_over) {
            self.notice = None;
        }
    }

    /// Does what a key says.
    pub(crate) fn press(&mut self, key: Press, now: Instant) -> Option<Ask> {
        match key {
            Press::Interrupt => return Some(Ask::Stop),
            Press::Suspend => return Some(Ask::Suspend),
            Press::Redraw => return Some(Ask::Redraw),
            _ => {}
        }
        if self.view.typing {
            self.type_filter(key);
            return None;
        }
        // The next key closes what lies above; those that mean something do it as well.
        let above = self.view.overlay.take();
        match key {
            Press::Letter('q') => return Some(Ask::Stop),
            Press::Letter('c') => return self.copy(now),
            Press::Letter('p' | ' ') => self.pause(),
            Press::Letter('/') => {
                self.view.typing = true;
                self.view.scroll = 0;
            }
            Press::Letter('?' | 'h') => self.view.overlay = other(above, Overlay::Help),
            Press::Letter('Q') => self.view.overlay = other(above, Overlay::Code),
            Press::Letter('i') => self.view.overlay = other(above, Overlay::Inspector),
            Press::Escape if above.is_none() => self.view.filter.clear(),
            Press::Up | Press::Letter('k') => self.scroll(-1),
            Press::Down | Press::Letter('j') => self.scroll(1),
            Press::PageUp => self.scroll(-PAGE),
            Press::PageDown => self.scroll(PAGE),
            Press::Home | Press::Letter('g') => self.view.scroll = 0,
            Press::End | Press::Letter('G') => self.scroll(isize::MAX),
            _ => {}
        }
        None
    }

    fn type_filter(&mut self, key: Press) {
        match key {
            Press::Letter(letter) if self.view.filter.len() < MAX_FILTER => {
                self.view.filter.push(letter);
            }
            Press::Backspace => {
                self.view.filter.pop();
            }
            Press::Enter => self.view.typing = false,
            Press::Escape => {
                self.view.typing = false;
                self.view.filter.clear();
            }
            _ => {}
        }
    }

    fn copy(&mut self, now: Instant) -> Option<Ask> {
        let url = self.url.clone()?;
        self.notice = Some(Notice {
            text: format!("copied {url}"),
            until: Some(now + SHORTLY),
        });
        Some(Ask::Copy(url))
    }

    fn pause(&mut self) {
        self.view.paused = match self.view.paused.take() {
            Some(_) => None,
            None => Some(self.rows.iter().cloned().collect()),
        };
    }

    fn scroll(&mut self, by: isize) {
        let last = self.shown().len().saturating_sub(1);
        self.view.scroll = self.view.scroll.saturating_add_signed(by).min(last);
    }

    fn passes(&self, row: &Row) -> bool {
        let wanted = self.view.filter.to_lowercase();
        let holds = |text: &str| text.to_lowercase().contains(&wanted);
        wanted.is_empty()
            || holds(&row.path)
            || holds(&row.method)
            || holds(&row.source)
            || row.status.is_some_and(|status| holds(&status.to_string()))
    }
}

/// The key that opened something closes it.
fn other(above: Option<Overlay>, wanted: Overlay) -> Option<Overlay> {
    (above != Some(wanted)).then_some(wanted)
}

/// Rows that are kept: what a person scrolls through. The inspector keeps more.
const MAX_ROWS: usize = 500;

/// Open ones that are counted; an agent carries no more at once.
const MAX_OPEN: usize = 100_000;

/// Longer than any path that somebody types.
const MAX_FILTER: usize = 120;

/// Lines of a page.
const PAGE: isize = 10;

/// How long it is said that something was done.
const SHORTLY: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests;
