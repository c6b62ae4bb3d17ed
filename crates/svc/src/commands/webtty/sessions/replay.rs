//! `svc webtty sessions replay`: a recording as it was seen, with its times.
//!
//! What was recorded is drawn, not passed on: a recording that would talk to the terminal, or
//! change it, does so to an emulated one.

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
use crate::{
    commands::{
        forward::panel::screen::is_there,
        webtty::stage::{TerminalView, UiEvent},
    },
    failure::{Code, Failure},
    signals, time,
};

/// The flags of `svc webtty sessions replay`.
#[derive(Debug, Parser)]
#[command(
    after_help = "Keys: space pauses and goes on, . is the next step of a pause, + and - change the speed, q leaves.

Example:
  svc webtty sessions replay wts_… --speed 2 --idle-limit 1s"
)]
pub(crate) struct ReplayArgs {
    /// How fast it plays: 2 is twice as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    speed: f64,

    /// The longest time in which nothing happens
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    idle_limit: Option<Duration>,

    #[command(flatten)]
    on: SessionArgs,
}

/// Plays it.
pub(super) async fn replay(args: ReplayArgs) -> Result<(), Failure> {
    if !is_there() {
        return Err(Failure::usage("a replay needs a terminal")
            .named("no_terminal")
            .hint("`svc webtty sessions export` writes a transcript or a cast"));
    }
    let api = args.on.api()?;
    let session = get(&api, &args.on.path(SESSION), Map::new()).await?;
    let refused = |why: &str| Err(Failure::new(Code::Failed, why).named("no_recording"));
    if cell(&session, "/recording_mode") == "private" {
        return refused("this session was not recorded");
    }
    if cell(&session, "/encryption_mode") == "e2e" {
        return refused(
            "this session is end-to-end encrypted: what was shown only its two ends know",
        );
    }
    let shutdown = signals::listen(Duration::ZERO)?;
    let mut tape = Tape::new(args.idle_limit);
    let (to, pages) = mpsc::channel(1);
    let mut from = Pages::new(&args.on, 1);
    // Before the terminal is taken: who may not read it is told so on a line.
    match from.next(&api, usize::MAX).await? {
        Some(first) => tape.extend(&first),
        None => return refused("nothing is recorded of this session"),
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

/// Fetches what comes next, a page ahead of what is shown.
async fn read(api: &Api, mut from: Pages, to: mpsc::Sender<Vec<Value>>) -> Result<(), Failure> {
    while let Some(page) = from.next(api, usize::MAX).await? {
        if to.send(page).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// What plays a tape.
struct Player {
    tape: Tape,
    screen: Option<Screen>,
    speed: f64,
    /// Where the tape is, and since when it moves from there; `None` while it is paused.
    at: Duration,
    since: Option<Instant>,
    /// All of the recording has come.
    is_whole: bool,
    /// What was said last about who takes part.
    said: String,
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
            said: String::new(),
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
                // At least the time goes on.
                () = sleep_until(due.unwrap_or_else(|| Instant::now() + TICK)), if self.since.is_some() => {
                    self.advance();
                    stage.touch();
                }
                did = stage.next() => match did? {
                    UiEvent::Keys(keys) => {
                        if keys.into_iter().any(|key| self.press(key)) {
                            return Ok(());
                        }
                        stage.touch();
                    }
                    UiEvent::Resized(_) => {}
                    UiEvent::Due => {
                        if let Some(screen) = &self.screen {
                            stage.draw(screen, &self.status(), false)?;
                        }
                    }
                    UiEvent::Gone => return Ok(()),
                },
            }
        }
    }

    /// When the next step is to be shown, or the time to be drawn anew.
    fn due(&self) -> Option<Instant> {
        let since = self.since?;
        let next = self.tape.next_at()?;
        let wait = next.saturating_sub(self.at).div_f64(self.speed);
        let tick = Instant::now() + TICK;
        Some(since.checked_add(wait).map_or(tick, |due| due.min(tick)))
    }

    /// Shows all that is due now.
    fn advance(&mut self) {
        let Some(since) = self.since else { return };
        let now = Instant::now();
        self.at = self.at.saturating_add((now - since).mul_f64(self.speed));
        self.since = Some(now);
        while let Some(what) = self.tape.take(self.at) {
            self.show(what);
        }
        if self.tape.next_at().is_none() {
            // What has not come yet is waited for at the place where it is missed.
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
            TapeStep::Shown(bytes) => screen.feed(&bytes),
            TapeStep::Resized(size) => screen.resize(size),
            TapeStep::Said(text) => self.said = text,
        }
    }

    /// A key was pressed; `true`: to leave.
    fn press(&mut self, key: u8) -> bool {
        match key {
            // Ctrl-C and Ctrl-D come as keys.
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
            b'+' | b'=' => self.hasten(2.0),
            b'-' => self.hasten(0.5),
            _ => {}
        }
        false
    }

    fn pause(&mut self) {
        self.advance();
        self.since = None;
    }

    fn hasten(&mut self, factor: f64) {
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
        if !self.said.is_empty() {
            status.push_str(" · ");
            status.push_str(&self.said);
        }
        status.push_str(" · space pauses · q leaves");
        status
    }
}

/// A time of a recording.
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

/// Below, nobody waits for it; above, nobody sees it.
const SLOWEST: f64 = 0.1;
const FASTEST: f64 = 100.0;
/// Steps that are there before they are shown: a page.
const AHEAD: usize = 200;
/// How often the time is drawn.
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
