//! `svc forward` on a terminal.

use std::{
    collections::VecDeque,
    fs::File,
    io::{Read, Write},
    num::NonZero,
    os::fd::OwnedFd,
    process::Stdio,
    thread,
};

use nix::{
    sys::{
        signal::{Signal, kill},
        termios::{LocalFlags, tcgetattr},
    },
    unistd::{Pid, ttyname},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{Child, Command},
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};

use crate::installed::{RunningUp, alone};
use crate::local_platform::up::{shouting_service, visitor, web_service};
use crate::program::{DRAIN, Home, SOON};
use crate::terminal::{open_terminal, set_terminal_size};

/// A program on its own terminal, and the terminal's content.
pub(crate) struct TerminalSession {
    child: Child,
    keys: File,
    /// The program's end, which keeps the terminal open after the program has exited.
    end: OwnedFd,
    bytes: mpsc::Receiver<Vec<u8>>,
    parser: vt100::Parser,
    /// Screens that the program drew and that no wait has checked yet.
    drawn: VecDeque<vt100::Screen>,
    /// The screen that the last wait found.
    screen: vt100::Screen,
    /// All output bytes.
    raw: Vec<u8>,
}

impl TerminalSession {
    pub(crate) fn start(home: &Home, args: &[&str], columns: u16, rows: u16) -> Self {
        Self::start_with(home, args, columns, rows, &[("TERM", "xterm-256color")])
    }

    pub(crate) fn start_with(
        home: &Home,
        args: &[&str],
        columns: u16,
        rows: u16,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = home.command(args);
        Self::spawn(command.envs(environment.iter().copied()), columns, rows)
    }

    /// Starts any program.
    pub(crate) fn spawn(command: &mut Command, columns: u16, rows: u16) -> Self {
        let (master, slave) = open_terminal();
        set_terminal_size(&slave, columns, rows);
        let end = || Stdio::from(slave.try_clone().unwrap());
        let child = command
            // A signal that stops the job must not stop the test.
            .process_group(0)
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let mut shown = File::from(master.try_clone().unwrap());
        let (tell, bytes) = mpsc::channel(1024);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = shown.read(&mut buffer) {
                if tell.blocking_send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let parser = vt100::Parser::new(many(rows), many(columns), 0);
        Self {
            child,
            keys: File::from(master),
            end: slave,
            bytes,
            drawn: VecDeque::new(),
            screen: parser.screen().clone(),
            parser,
            raw: Vec::new(),
        }
    }

    /// The screen that the last wait found.
    pub(crate) fn screen(&self) -> &vt100::Screen {
        &self.screen
    }

    /// Stores the screen before each cursor movement. A text that is soon overwritten is therefore
    /// still found, however the kernel splits the output into reads.
    fn draw(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let next = (1..rest.len()).find(|at| moves_cursor(&rest[*at..]));
            let (piece, later) = rest.split_at(next.unwrap_or(rest.len()));
            self.parser.process(piece);
            self.drawn.push_back(self.parser.screen().clone());
            rest = later;
        }
        self.raw.extend_from_slice(bytes);
    }

    /// Waits until the terminal shows a wanted screen. The panel may continue drawing in the
    /// meantime.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&vt100::Screen) -> bool) {
        let late = Instant::now() + SOON;
        while !wanted(&self.screen) {
            if let Some(next) = self.drawn.pop_front() {
                self.screen = next;
                continue;
            }
            let more = timeout_at(late, self.bytes.recv()).await;
            let Ok(Some(bytes)) = more else {
                panic!(
                    "the terminal did not show it in time; it shows:\n{}\n{}",
                    self.text(),
                    self.process_state()
                );
            };
            self.draw(&bytes);
        }
        // The newest matching screen, which includes the rest of the same drawing.
        while let Some(next) = self.drawn.pop_front_if(|next| wanted(next)) {
            self.screen = next;
        }
    }

    pub(crate) async fn until_text(&mut self, text: &str) {
        self.until(|screen| screen.contents().contains(text)).await;
    }

    pub(crate) fn text(&self) -> String {
        self.screen.contents()
    }

    /// Resizes the terminal, like a window.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        self.set_size(columns, rows);
        // The terminal is not a controlling terminal, so its driver sends no signal.
        self.signal(Signal::SIGWINCH);
    }

    /// Resizes the terminal while the program is not in its foreground: without a signal.
    pub(crate) fn set_size(&mut self, columns: u16, rows: u16) {
        set_terminal_size(&self.end, columns, rows);
        self.parser.screen_mut().set_size(many(rows), many(columns));
    }

    /// Prints on the terminal, like another program there.
    pub(crate) fn print(&self, text: &str) {
        let mut end = File::from(self.end.try_clone().unwrap());
        end.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn process(&self) -> Pid {
        Pid::from_raw(self.child.id().unwrap().try_into().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.process(), signal).unwrap();
    }

    /// The state and the signals of the process, and the size of its terminal, for the report of a
    /// failure.
    fn process_state(&self) -> String {
        let path = format!("/proc/{}/status", self.child.id().unwrap_or_default());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let is_wanted =
            |line: &&str| ["Sta", "Sig", "Shd"].contains(&line.get(..3).unwrap_or_default());
        let lines: Vec<&str> = status.lines().filter(is_wanted).collect();
        let size = std::process::Command::new("stty")
            .arg("size")
            .stdin(Stdio::from(self.end.try_clone().unwrap()))
            .output()
            .unwrap();
        let size = String::from_utf8_lossy(&size.stdout);
        format!(
            "process:\n{}\nsize of its terminal: {size}",
            lines.join("\n")
        )
    }

    /// Waits until the kernel reports this state of the process.
    pub(crate) async fn is_in_state(&self, state: char) {
        let path = format!("/proc/{}/stat", self.process());
        let all = async {
            loop {
                let stat = std::fs::read_to_string(&path).unwrap();
                let (_, rest) = stat.rsplit_once(") ").unwrap();
                if rest.starts_with(state) {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        timeout(SOON, all).await.unwrap();
    }

    /// Waits for the end, after which the terminal must be in its former state.
    pub(crate) async fn ended(mut self) -> (Option<i32>, String) {
        let status = timeout(SOON, self.child.wait()).await.unwrap().unwrap();
        self.assert_restored();
        // No process has the other end open any more, so the output ends as well.
        drop(self.end);
        while let Some(bytes) = timeout(SOON, self.bytes.recv()).await.unwrap() {
            self.parser.process(&bytes);
        }
        let screen = self.parser.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
        (status.code(), screen.contents())
    }

    /// Checks that line mode and echo of the terminal are restored.
    pub(crate) fn assert_restored(&self) {
        let flags = tcgetattr(&self.end).unwrap().local_flags;
        assert!(flags.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG));
    }
}

/// True if the bytes start with a sequence that moves the cursor to a position: `CSI … H`, or
/// `ESC 7`, which saves it first.
fn moves_cursor(bytes: &[u8]) -> bool {
    match bytes {
        [b'\x1b', b'7', ..] => true,
        [b'\x1b', b'[', rest @ ..] => {
            let last = rest
                .iter()
                .find(|byte| !byte.is_ascii_digit() && **byte != b';');
            last == Some(&b'H')
        }
        _ => false,
    }
}

/// An engine, and a home with its context.
async fn engine() -> (Home, RunningUp) {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    (home, up)
}

const URL: &str = "https://web.t.engine.localhost:";

/// The address that the panel shows.
fn url(text: &str) -> String {
    let (_, rest) = text.split_once(URL).unwrap();
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    format!("{URL}{port}")
}

#[tokio::test]
async fn the_panel_shows_the_address_and_the_requests_of_visitors() {
    let (home, up) = engine().await;
    let (_service, port) = web_service(0).await;
    let mut terminal = TerminalSession::start(
        &home,
        &["forward", &port.to_string(), "--hostname", "web"],
        100,
        30,
    );
    terminal.until_text("● online").await;
    terminal.until_text(URL).await;
    // At the latest the second heartbeat has been answered.
    terminal.until_text(" ms").await;
    assert!(terminal.screen().alternate_screen() && terminal.screen().hide_cursor());

    let (client, address) = visitor(&up.ready, &url(&terminal.text()));
    let answer = client
        .get(address.join("/orders?a=b").unwrap())
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    terminal
        .until(|screen| {
            let text = screen.contents();
            text.lines().any(|line| {
                line.contains("GET") && line.contains("/orders?a=b") && line.contains("200")
            })
        })
        .await;
    terminal.until_text("1 total, 0 open").await;

    terminal.press("c");
    terminal.until_text("copied https://web").await;
    assert!(
        contains(&terminal.raw, b"\x1b]52;c;aHR0cHM6Ly93ZWIu"),
        "OSC 52"
    );
    terminal.press("?");
    terminal.until_text("copy the address").await;
    terminal.press("Q");
    terminal.until_text("█▀▀▀▀▀█").await;
    terminal.press("\x1b");
    terminal
        .until(|screen| !screen.contents().contains('█'))
        .await;

    terminal.press("q");
    let (code, left) = terminal.ended().await;
    assert_eq!(code, Some(0), "{left}");
    assert!(
        left.contains("1 visit") && left.contains("closed"),
        "{left}"
    );
    up.stop().await;
}

#[tokio::test]
async fn a_tcp_tunnel_shows_its_streams_and_drains_before_it_stops() {
    let (home, up) = engine().await;
    let port = shouting_service().await.to_string();
    let mut terminal = TerminalSession::start(&home, &["forward", &port, "--tcp"], 80, 20);
    terminal.until_text("engine.localhost:").await;
    terminal.until_text("online").await;
    // A later screen, which contains the whole drawing of the address.
    terminal.until_text(" ms").await;
    let public = terminal.text();
    let public = public
        .lines()
        .find(|line| line.starts_with("engine.localhost:"))
        .unwrap();
    let port: u16 = public.trim().rsplit_once(':').unwrap().1.parse().unwrap();
    let mut visitor = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    visitor.write_all(b"hello").await.unwrap();
    terminal.until_text("1 total, 1 open").await;
    terminal.until_text("127.0.0.1").await;

    // Pressed once, open streams continue.
    terminal.press("\x03");
    terminal.until_text("draining, 1 open").await;
    visitor.shutdown().await.unwrap();
    let mut answer = String::new();
    timeout(SOON, visitor.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(answer, "HELLO");
    assert_eq!(terminal.ended().await.0, Some(0));

    // Pressed twice, they do not.
    let port = shouting_service().await.to_string();
    let mut terminal = TerminalSession::start(
        &home,
        &["forward", &port, "--bytestream", "--name", "s"],
        80,
        20,
    );
    terminal.until_text("svc://s").await;
    let _dial = home
        .command(&["dial", "svc://s"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    terminal.until_text("1 total, 1 open").await;
    terminal.press("q");
    terminal.until_text("draining, 1 open").await;
    terminal.press("q");
    let started_at = Instant::now();
    assert_eq!(terminal.ended().await.0, Some(0));
    assert!(started_at.elapsed() < DRAIN, "{:?}", started_at.elapsed());
    up.stop().await;
}

#[tokio::test]
async fn the_terminal_is_restored_after_every_kind_of_exit() {
    let (home, up) = engine().await;
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut terminal = TerminalSession::start(&home, &["forward", "3000"], 60, 16);
        terminal.until_text("online").await;
        terminal.signal(signal);
        let (code, left) = terminal.ended().await;
        assert_eq!(code, Some(0), "{signal}: {left}");
        assert!(left.contains("closed"), "{signal}: {left}");
    }
    // An error is printed where it can be read, below the removed panel.
    let terminal = TerminalSession::start(&home, &["forward", "3000", "--challenge-mode"], 100, 20);
    let (code, left) = terminal.ended().await;
    assert_eq!(code, Some(5), "{left}");
    assert!(left.starts_with("error[feature_unavailable]: "), "{left}");
    assert!(left.contains("hint: "), "{left}");
    up.stop().await;
}

#[tokio::test]
async fn the_shell_gets_the_terminal_and_returns_it() {
    let (home, up) = engine().await;
    let mut terminal =
        TerminalSession::start(&home, &["forward", "3000", "--hostname", "web"], 60, 16);
    terminal.until_text(URL).await;
    for from_outside in [false, true] {
        if from_outside {
            terminal.signal(Signal::SIGTSTP);
        } else {
            terminal.press("\x1a");
        }
        terminal
            .until(|screen| !screen.alternate_screen() && !screen.hide_cursor())
            .await;
        terminal.is_in_state('T').await;
        terminal.assert_restored();
        terminal.signal(Signal::SIGCONT);
        terminal
            .until(|screen| screen.alternate_screen() && screen.contents().contains(URL))
            .await;
    }
    terminal.press("q");
    assert_eq!(terminal.ended().await.0, Some(0));
    up.stop().await;
}

#[tokio::test]
async fn the_panel_follows_the_size_of_its_terminal() {
    let (home, up) = engine().await;
    let mut seen =
        TerminalSession::start(&home, &["forward", "3000", "--hostname", "web"], 100, 30);
    seen.until_text("Q code").await;
    let terminal = ttyname(&seen.end).unwrap();
    let resized = std::process::Command::new("stty")
        .arg("-F")
        .arg(terminal)
        .args(["cols", "40", "rows", "10"])
        .status()
        .unwrap();
    assert!(resized.success());
    seen.parser.screen_mut().set_size(many(10), many(40));
    seen.signal(Signal::SIGWINCH);
    seen.until(|screen| {
        let text = screen.contents();
        text.lines().count() == 10 && text.contains("online") && text.contains("q stop  ? keys")
    })
    .await;
    seen.press("q");
    assert_eq!(seen.ended().await.0, Some(0));
    up.stop().await;
}

#[tokio::test]
async fn plain_lines_are_printed_without_a_panel() {
    let (home, up) = engine().await;
    let forward = ["forward", "3000", "--hostname", "web"];
    let plain = |more: &[&'static str]| [&forward, more].concat();
    for (args, term) in [
        (plain(&["--no-panel"]), "xterm"),
        (plain(&["-o", "json"]), "xterm"),
        (plain(&[]), "dumb"),
    ] {
        let mut terminal = TerminalSession::start_with(&home, &args, 100, 30, &[("TERM", term)]);
        terminal.until_text(URL).await;
        assert!(!terminal.screen().alternate_screen());
        terminal.signal(Signal::SIGTERM);
        assert_eq!(terminal.ended().await.0, Some(0));
        assert!(up.ready.is_object());
    }
    up.stop().await;
}

fn many(cells: u16) -> NonZero<u16> {
    NonZero::new(cells).unwrap()
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|part| part == wanted)
}
