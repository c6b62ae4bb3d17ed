//! Screens of participants who join late, compared with those of another implementation: xterm.js,
//! which the pages of the platform use.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use tty::screen::Screen;
use tty::size::Size;

/// A terminal that gets the snapshot looks and behaves like one that got all of the output: directly
/// after it, and after more output. The two implementations distribute wrapped text differently when
/// the size changes, so the size stays.
#[test]
fn a_late_participant_sees_the_screen_of_xterm_js() {
    compare_all(&(size(), output(), output()), 0);
}

/// The same for the rows above the screen. Here, programs leave the alternate screen only if they
/// have entered it: xterm.js restores a cursor that was saved at other times to the row with the same
/// text, which may have scrolled.
#[test]
fn a_late_participant_scrolls_up_as_in_xterm_js() {
    let parts = (
        size(),
        main_output(),
        prop::option::of(main_output()),
        main_output(),
    );
    let case = parts.prop_map(|(size, before, alternate, after)| match alternate {
        // The participant joins while the alternate screen is active. A saved cursor is not behind
        // the last column, because emulators restore it differently.
        Some(shown) => (
            size,
            format!("{before}\r\x1b[?1049h{shown}"),
            format!("{shown}\x1b[?1049l{after}"),
        ),
        None => (size, before, after),
    });
    compare_all(&case, 1000);
}

/// Lines of more than one row stay one line, also if a wide character did not fit into the last
/// column, so that another width of the window wraps them again.
#[test]
fn lines_above_the_screen_are_wrapped_again() {
    let size = Size { rows: 3, cols: 20 };
    let mut screen = Screen::with_scrollback(size).unwrap();
    let before = "\x1b[32mgreen\x1b[m and     a long line of more than twenty columns\r\n\r\n\
                  0123456789012345678\u{754c}\u{754c} wide\r\n\x1b[44mblue, and longer than one row\
                  \x1b[m\r\nshort\r\n$ a command that wraps at the end of the screen, \
                  and starts above its first row";
    screen.feed(before.as_bytes());
    let mut terminals = Terminals::start();
    for narrower in [8, 13, 20] {
        let answer = terminals.compare(&json!({
            "size": pair(size),
            "scrollback": 1000,
            "wraps": true,
            "before": before,
            "snapshot": BASE64_STANDARD.encode(screen.snapshot()),
            "narrower": narrower,
            "after": "\r\nend",
        }));
        assert_eq!(answer, json!({"different": []}), "{narrower}");
    }
}

/// `clear` and `reset` remove the rows above the screen, and other functions add none.
#[test]
fn rows_above_a_cleared_screen_are_those_of_xterm_js() {
    let lines = (0..8).map(|n| format!("\x1b[3{n}mline {n}\x1b[m\r\n"));
    let lines = lines.collect::<Vec<_>>().concat();
    let size = Size { rows: 4, cols: 20 };
    let mut terminals = Terminals::start();
    for before in [
        format!("{lines}\x1b[H\x1b[2J\x1b[3J$ "),
        format!("{lines}\x1b[H\x1b[J$ "),
        format!("{lines}\x1bc{lines}"),
        format!("{lines}\x1b[1;3r\x1b[3;1H\nx\n\x1b[r"),
        format!("{lines}\x1b[H\x1b[2M\x1b[3S{lines}"),
    ] {
        let mut screen = Screen::with_scrollback(size).unwrap();
        screen.feed(before.as_bytes());
        let answer = terminals.compare(&json!({
            "size": pair(size),
            "scrollback": 1000,
            "before": before,
            "snapshot": BASE64_STANDARD.encode(screen.snapshot()),
            "after": lines,
        }));
        assert_eq!(answer, json!({"different": []}), "{before:?}");
    }
}

/// Rows that end with written blanks would be followed by a blank row each.
#[test]
fn a_narrower_window_shows_a_snapshot_without_blank_rows() {
    let mut screen = Screen::with_scrollback(Size { rows: 6, cols: 30 }).unwrap();
    let before = "one\r\n\x1b[38;2;255;140;0mtwo\x1b[m\r\n\x1b[4:3;58:2::9:8:7m界 three";
    screen.feed(before.as_bytes());
    let answer = Terminals::start().compare(&json!({
        "size": [30, 6],
        "before": before,
        "snapshot": BASE64_STANDARD.encode(screen.snapshot()),
        "narrower": 10,
        "after": " four",
    }));
    assert_eq!(answer, json!({"different": []}));
}

/// Compares the terminals for many cases: a size, and the outputs before and after the participant
/// joins. `scrollback` is the number of rows that a terminal keeps above its screen.
fn compare_all(case: &impl Strategy<Value = (Size, String, String)>, scrollback: u16) {
    let terminals = RefCell::new(Terminals::start());
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(256)
    };
    // The same cases in every run: a new difference of the two implementations must not fail an
    // unrelated change.
    let cases = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, cases);
    let checked = runner.run(case, |(size, before, after)| {
        let mut screen = Screen::with_scrollback(size).unwrap();
        screen.feed(before.as_bytes());
        let answer = terminals.borrow_mut().compare(&json!({
            "size": pair(size),
            "scrollback": scrollback,
            "before": before,
            "snapshot": BASE64_STANDARD.encode(screen.snapshot()),
            "after": after,
        }));
        prop_assert_eq!(answer, json!({"different": []}), "{:?}", screen.snapshot());
        Ok(())
    });
    if let Err(error) = checked {
        panic!("{error}");
    }
}

/// A script that draws outputs with xterm.js: one request and one answer per line.
struct Terminals {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Terminals {
    fn start() -> Self {
        let variable = |name: &str| {
            std::env::var_os(name)
                .unwrap_or_else(|| panic!("{name} is not set: run cargo xtask test"))
        };
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/node/late_screens.mjs"
        );
        let mut process = Command::new(variable("SVC_TEST_NODE"))
            .arg(script)
            .env("SVC_TEST_NODE_PACKAGES", variable("SVC_TEST_NODE_PACKAGES"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = process.stdin.take().unwrap();
        let from = BufReader::new(process.stdout.take().unwrap());
        Self { process, to, from }
    }

    fn compare(&mut self, case: &Value) -> Value {
        writeln!(self.to, "{case}").unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("the script ended at {case}"))
    }
}

impl Drop for Terminals {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _status = self.process.wait();
    }
}

fn pair(size: Size) -> Value {
    json!([size.cols, size.rows])
}

fn size() -> impl Strategy<Value = Size> {
    (3..9_u16, 12..30_u16).prop_map(|(rows, cols)| Size { rows, cols })
}

/// Output of programs on both screens.
fn output() -> impl Strategy<Value = String> {
    let others = prop::sample::select(vec!["\x1b[?1049h", "\x1b[?1049l", "\x1b[1J"]);
    let part = prop_oneof![30 => part(), 1 => others.prop_map(str::to_owned)];
    prop::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

/// Output of programs on one screen, which often scrolls. It erases no rows above the cursor: in the
/// last cell of a screen that keeps rows above it, this is an exception in xterm.js 6.0.
fn main_output() -> impl Strategy<Value = String> {
    let part = prop_oneof![2 => part(), 1 => Just("\r\n".to_owned())];
    prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

/// A part of an output. It has no functions whose result depends on the emulator, such as a relative
/// movement of the cursor behind the last column, or a wide character in that column. xterm.js
/// reports colours of underlines also after their end, so an example above has the only one.
fn part() -> impl Strategy<Value = String> {
    let attribute = prop_oneof![
        prop::sample::select(vec![
            "", "0", "1", "2", "3", "4", "5", "7", "8", "9", "21", "22", "23", "24", "27", "28",
            "29", "39", "49", "53", "55", "4:0", "4:2", "4:3", "4:4", "4:5", "31", "42", "97",
            "103",
        ])
        .prop_map(str::to_owned),
        any::<u8>().prop_map(|index| format!("38;5;{index}")),
        any::<u8>().prop_map(|index| format!("48:5:{index}")),
        any::<[u8; 3]>().prop_map(|[r, g, b]| format!("38;2;{r};{g};{b}")),
        any::<[u8; 3]>().prop_map(|[r, g, b]| format!("48:2::{r}:{g}:{b}")),
    ];
    let attributes =
        prop::collection::vec(attribute, 1..4).prop_map(|all| format!("\x1b[{}m", all.join(";")));
    prop_oneof![
        4 => "[a-z]{1,9}( [a-z]{1,9}){0,3}",
        1 => "[é─│]{1,6}",
        3 => attributes,
        2 => Just("\r\n".to_owned()),
        1 => (1..9_u16, 1..30_u16).prop_map(|(row, col)| format!("\x1b[{row};{col}H")),
        1 => prop::sample::select(vec!["\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b[J", "\x1b[2J"])
            .prop_map(str::to_owned),
        1 => prop::sample::select(vec![
            "\x1b[?25l", "\x1b[?25h", "\x1b[?1h", "\x1b[?2004h", "\x1b[?1002h", "\x1b[?1006h",
            "\x1b[?1004h", "\x1b=", "\x1b>", "\x1b]0;title\x07", "\x1b[3 q",
        ])
        .prop_map(str::to_owned),
    ]
}
