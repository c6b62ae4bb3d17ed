//! `svc webtty sessions replay`: plays a recording with its original timing.
//!
//! The output is drawn from an emulated terminal. Escape sequences in a recording therefore do not
//! reach the real terminal.

mod tape;

use std::time::Duration;

use api::webtty::SESSION;
use clap::Parser;
use client::api::Api;
use serde_json::{Map, Value};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tty::{screen::Screen, size::Size};

use self::tape::{Tape, TapeStep};
use super::{SessionArgs, cell, get, show::Pages};
use crate::args::time;
use crate::commands::forward::panel::screen::is_available;
use crate::commands::webtty::terminal_view::{TerminalView, UiEvent};
use crate::failure::{Code, Failure};
use crate::process::signals;

/// The flags of `svc webtty sessions replay`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Keys: space pauses and resumes, . steps while paused, + and - change the speed, q leaves.

Example:
  svc webtty sessions replay wts_… --speed 2 --idle-limit 1s"
)]
pub(crate) struct ReplayArgs {
    /// Playback speed: 2 is twice as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    speed: f64,

    /// Limit of pauses in the recording
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    idle_limit: Option<Duration>,

    #[command(flatten)]
    on: SessionArgs,
}

/// Plays the recording.
pub(super) async fn replay(mut args: ReplayArgs) -> Result<(), Failure> {
    if !is_available() {
        return Err(Failure::usage("a replay needs a terminal")
            .named("no_terminal")
            .hint("`svc webtty sessions export` writes a transcript or a cast"));
    }
    let api = args.on.open().await?;
    let session = get(&api, &args.on.path(SESSION), Map::new()).await?;
    let refused = |why: &str| Err(Failure::new(Code::Failed, why).named("no_recording"));
    if cell(&session, "/recording_mode") == "private" {
        return refused("this session was not recorded");
    }
    if cell(&session, "/encryption_mode") == "e2e" {
        return refused(
            "this session is end-to-end encrypted: only its two ends can read its output",
        );
    }
    let shutdown = signals::listen(Duration::ZERO)?;
    let mut tape = Tape::new(args.idle_limit);
    let (to, pages) = mpsc::channel(1);
    let mut from = Pages::new(&args.on, 1);
    // Read before the terminal is taken over, so that a permission error is a plain line.
    match from.next(&api, usize::MAX).await? {
        Some(first) => tape.extend(&first),
        None => return refused("the recording of this session is empty"),
    }
    let reading = read(&api, from, to);
    let playing = Player::new(tape, args.speed).play(pages);
    tokio::pin!(reading, playing);
    tokio::select! {
        biased;
        () = shutdown.drain().cancelled() => Ok(()),
        played = &mut playing => played,
        read = &mut reading => match read {
            Ok(()) => tokio::select! {
                () = shutdown.drain().cancelled() => Ok(()),
                played = playing => played,
            },
            Err(failure) => Err(failure),
        },
    }
}

/// Fetches records, one page ahead of the playback.
async fn read(api: &Api, mut from: Pages, to: mpsc::Sender<Vec<Value>>) -> Result<(), Failure> {
    while let Some(page) = from.next(api, usize::MAX).await? {
        if to.send(page).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// The player of a tape.
struct Player {
    tape: Tape,
    screen: Option<Screen>,
    speed: f64,
    /// Position at `since`, the instant from which it advances (`None` while paused).
    at: Duration,
    since: Option<Instant>,
    /// True if the complete recording is loaded.
    is_whole: bool,
    /// The last message about participants.
    last_message: String,
}

impl Player {
    fn new(tape: Tape, speed: f64) -> Self {
        Self {
            tape,
            screen: Screen::new(Size::DEFAULT),
            speed,
            at: Duration::ZERO,
            since: Some(Instant::now()),
            is_whole: false,
            last_message: String::new(),
        }
    }

    async fn play(mut self, mut pages: mpsc::Receiver<Vec<Value>>) -> Result<(), Failure> {
        let mut stage = TerminalView::enter()?;
        loop {
            let due = self.due();
            tokio::select! {
                page = pages.recv(), if !self.is_whole && self.tape.len() < AHEAD => match page {
                    Some(page) => self.tape.extend(&page),
                    None => self.is_whole = true,
                },
                // The clock is updated at least this often.
                () = sleep_until(due.unwrap_or_else(|| Instant::now() + TICK)), if self.since.is_some() => {
                    self.advance();
                    stage.mark_stale();
                }
                did = stage.next() => match did? {
                    UiEvent::Keys(keys) => {
                        if keys.into_iter().any(|key| self.press(key)) {
                            return Ok(());
                        }
                        stage.mark_stale();
                    }
                    UiEvent::Resized(_) => {}
                    UiEvent::Due => {
                        if let Some(screen) = &self.screen {
                            stage.draw(screen, &self.status(), false)?;
                        }
                    }
                    UiEvent::Closed => return Ok(()),
                },
            }
        }
    }

    /// Time of the next step or the next clock update.
    fn due(&self) -> Option<Instant> {
        let since = self.since?;
        let next = self.tape.next_at()?;
        let wait = next.saturating_sub(self.at).div_f64(self.speed);
        let tick = Instant::now() + TICK;
        Some(since.checked_add(wait).map_or(tick, |due| due.min(tick)))
    }

    /// Shows all steps that are due.
    fn advance(&mut self) {
        let Some(since) = self.since else { return };
        let now = Instant::now();
        self.at = self.at.saturating_add((now - since).mul_f64(self.speed));
        self.since = Some(now);
        while let Some(what) = self.tape.take(self.at) {
            self.show(what);
        }
        if self.tape.next_at().is_none() {
            // Playback waits at the end of the loaded part.
            self.at = self.at.min(self.tape.last());
        }
        if self.is_over() {
            self.since = None;
        }
    }

    fn show(&mut self, what: TapeStep) {
        let Some(screen) = &mut self.screen else {
            return;
        };
        match what {
            TapeStep::Output(bytes) => screen.feed(&bytes),
            TapeStep::Resized(size) => screen.resize(size),
            TapeStep::Message(text) => self.last_message = text,
        }
    }

    /// Handles a key. Returns true if the user leaves.
    fn press(&mut self, key: u8) -> bool {
        match key {
            // Ctrl-C and Ctrl-D arrive as keys in raw mode.
            b'q' | 0x03 | 0x04 => return true,
            b' ' if self.since.is_some() => self.pause(),
            b' ' if !self.is_over() => self.since = Some(Instant::now()),
            b'.' => {
                self.pause();
                if let Some(next) = self.tape.next_at() {
                    self.at = next;
                    while let Some(what) = self.tape.take(self.at) {
                        self.show(what);
                    }
                }
            }
            b'+' | b'=' => self.change_speed(2.0),
            b'-' => self.change_speed(0.5),
            _ => {}
        }
        false
    }

    fn pause(&mut self) {
        self.advance();
        self.since = None;
    }

    fn change_speed(&mut self, factor: f64) {
        self.advance();
        self.speed = (self.speed * factor).clamp(SLOWEST, FASTEST);
    }

    fn is_over(&self) -> bool {
        self.is_whole && self.tape.next_at().is_none()
    }

    fn status(&self) -> String {
        let state = match (self.since, self.is_over()) {
            (_, true) => "the end",
            (Some(_), false) => "playing",
            (None, false) => "paused",
        };
        let mut status = format!(" {state} {} · {}x", clock(self.at), self.speed);
        if !self.last_message.is_empty() {
            status.push_str(" · ");
            status.push_str(&self.last_message);
        }
        status.push_str(" · space pauses · q leaves");
        status
    }
}

/// Formats a position in a recording.
fn clock(at: Duration) -> String {
    let seconds = at.as_secs();
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    match hours {
        0 => format!("{minutes:02}:{:02}", seconds % 60),
        _ => format!("{hours}:{minutes:02}:{:02}", seconds % 60),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_invalid| "expected a number")?;
    let is_possible = (SLOWEST..=FASTEST).contains(&speed);
    is_possible
        .then_some(speed)
        .ok_or_else(|| format!("expected {SLOWEST} to {FASTEST}"))
}

/// Minimum and maximum speed: slower is too long to wait for, and faster is too fast to see.
const SLOWEST: f64 = 0.1;
const FASTEST: f64 = 100.0;
/// Number of steps to load ahead: one page.
const AHEAD: usize = 200;
/// Update interval of the clock.
const TICK: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_speeds_are_read_and_written() {
        assert_eq!(clock(Duration::from_secs(65)), "01:05");
        assert_eq!(clock(Duration::from_secs(3_725)), "1:02:05");
        assert_eq!(speed("2"), Ok(2.0));
        for text in ["0", "-1", "1000", "fast", "NaN"] {
            assert!(speed(text).is_err(), "{text}");
        }
    }
}
