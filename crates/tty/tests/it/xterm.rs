//! Screens of participants who join late, compared with those of another implementation: xterm.js,
//! which the pages of the platform use.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tty::screen::Screen;
use tty::size::Size;

/// A terminal that gets the snapshot looks and behaves like one that got all of the output: directly
/// after it, and after more output. The two implementations distribute wrapped text differently when
/// the size changes, so the size stays.
#[test]
fn a_late_participant_sees_the_screen_of_xterm_js() {
    let terminals = RefCell::new(Terminals::start());
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(256)
    });
    let case = (size(), output(), output());
    let checked = runner.run(&case, |(size, before, after)| {
        let mut screen = Screen::new(size).unwrap();
        screen.feed(before.as_bytes());
        let answer = terminals.borrow_mut().compare(&json!({
            "size": pair(size),
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

/// Rows that end with written blanks would be followed by a blank row each.
#[test]
fn a_narrower_window_shows_a_snapshot_without_blank_rows() {
    let mut screen = Screen::new(Size { rows: 6, cols: 30 }).unwrap();
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

/// Output of programs. It has no functions whose result depends on the emulator, such as a relative
/// movement of the cursor behind the last column, or a wide character in that column. xterm.js
/// reports colours of underlines also after their end, so the example below has the only one.
fn output() -> impl Strategy<Value = String> {
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
    let part = prop_oneof![
        4 => "[a-z]{1,9}( [a-z]{1,9}){0,3}",
        1 => "[é─│]{1,6}",
        3 => attributes,
        2 => Just("\r\n".to_owned()),
        1 => (1..9_u16, 1..30_u16).prop_map(|(row, col)| format!("\x1b[{row};{col}H")),
        1 => ("[012]", "[KJ]").prop_map(|(part, what)| format!("\x1b[{part}{what}")),
        1 => prop::sample::select(vec![
            "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25l", "\x1b[?25h", "\x1b[?1h",
            "\x1b[?2004h", "\x1b[?1002h", "\x1b[?1006h", "\x1b[?1004h", "\x1b=", "\x1b>",
            "\x1b]0;title\x07", "\x1b[3 q",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}
