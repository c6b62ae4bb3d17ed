//! Replay of the stored inputs of the fuzz targets.

use crate::replay::replay;
use crate::targets;

#[test]
fn webtty_message() {
    replay("webtty_message", targets::webtty_message);
}

#[test]
fn webtty_screen() {
    replay("webtty_screen", targets::webtty_screen);
}

#[test]
fn webtty_recording() {
    replay("webtty_recording", targets::webtty_recording);
}

#[test]
fn webtty_admission() {
    replay("webtty_admission", targets::webtty_admission);
}
