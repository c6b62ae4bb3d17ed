//! One session: its state machine, its process, and its current connection. One task owns all
//! three, and waits for their events.

mod resume;
mod signals;
mod terminal_size;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes};
use futures_util::FutureExt as _;
use pty::{Output, Process};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tty::message::{Kind, Stream, TerminationReason};
use tty::seal::PublicKey;
use tty::session::{self, Command, Exit, REPLAY, Start};
use tty::size::Size;

use self::signals::host_signal;
use self::terminal_size::TerminalSize;
use super::carrier::{Carrier, CarrierError};
use super::registry::RegistryEntry;
use super::sealing::{EncryptionState, OpenedMessage};
use super::{Event, ServerState};
pub(crate) use resume::Reconnect;

pub(crate) struct Session {
    shared: Arc<ServerState>,
    id: String,
    source: Option<IpAddr>,
    machine: session::Server,
    carrier: Option<Carrier>,
    /// Result of closing the previous connection: true if its client received everything.
    closing: Option<oneshot::Receiver<bool>>,
    sealing: EncryptionState,
    /// Client to which a sealed session belongs.
    owner: Option<PublicKey>,
    /// Account to which the session belongs, if an engine has stated one.
    account: Option<String>,
    process: Option<Process>,
    /// Input that waits to be written to the process.
    input: VecDeque<Bytes>,
    input_len: usize,
    input_ends: bool,
    /// Number of input bytes that were acknowledged over this connection.
    acknowledged_input: Option<u64>,
    /// True while reading output is paused by the state machine.
    is_output_paused: bool,
    /// True if reading output was paused since the last event, by the state machine or because the
    /// client did not take sent data.
    was_output_paused: bool,
    /// The output streams that have not ended.
    outputs: Vec<Output>,
    exited: bool,
    buffer: Vec<u8>,
    size: TerminalSize,
    secret: bool,
    /// Time of the next check for hidden input, and the following interval.
    next_check: Option<(Instant, Duration)>,
    timer: Pin<Box<Sleep>>,
    draining: Pin<Box<WaitForCancellationFutureOwned>>,
    is_draining: bool,
    kill: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Clients that resume this session, once it can be resumed.
    reconnects: Option<mpsc::Receiver<Box<Reconnect>>>,
    registered: Option<RegistryEntry>,
    /// Permit that limits the number of sessions.
    permit: Option<OwnedSemaphorePermit>,
    began: Instant,
    exit: Option<Exit>,
}

/// Events of a session.
enum SessionEvent {
    Message(Kind),
    CarrierFailed(CarrierError),
    Output(Output, usize),
    OutputEnd(Output),
    Exit(pty::Exit),
    Wrote(usize),
    Return(Box<Reconnect>),
    ClientLeft(bool),
    Drain,
    Kill,
    Time,
}

/// State of the session after an event.
#[derive(PartialEq, Eq)]
enum AfterEvent {
    Continue,
    End,
}

impl Session {
    pub(crate) fn new(shared: Arc<ServerState>, carrier: Carrier, source: Option<IpAddr>) -> Self {
        let now = Instant::now();
        let id = super::session_id();
        let settings = shared.limits.settings(id.clone());
        let owned = |token: &CancellationToken| Box::pin(token.clone().cancelled_owned());
        Self {
            id,
            source,
            machine: session::Server::new(settings, now),
            carrier: Some(carrier),
            closing: None,
            sealing: EncryptionState::new(shared.seal.as_ref()),
            owner: None,
            account: None,
            process: None,
            input: VecDeque::new(),
            input_len: 0,
            input_ends: false,
            acknowledged_input: None,
            is_output_paused: false,
            was_output_paused: false,
            outputs: Vec::new(),
            exited: false,
            buffer: Vec::new(),
            size: TerminalSize::new(Size::DEFAULT),
            secret: false,
            next_check: None,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            draining: owned(&shared.drain),
            is_draining: false,
            kill: owned(&shared.kill),
            reconnects: None,
            registered: None,
            permit: None,
            began: now,
            exit: None,
            shared,
        }
    }

    /// Sets the account that an engine has stated: other accounts cannot resume the session.
    pub(crate) fn of_account(mut self, account: Option<String>) -> Self {
        self.account = account;
        self
    }

    /// Serves the session until it is over.
    pub(crate) async fn run(mut self) {
        loop {
            let event = self.next_event().await;
            if self.handle(event).await == AfterEvent::End {
                break;
            }
        }
        self.end();
        if let Some(carrier) = self.carrier.take() {
            self.shared.finish(carrier);
        }
    }

    /// Waits for the next event, and meanwhile sends and writes queued data.
    async fn next_event(&mut self) -> SessionEvent {
        let mut deadline = self.machine.deadline();
        let looks = [self.next_check.map(|(at, _)| at), self.size.deadline()];
        for at in looks.into_iter().flatten() {
            deadline = Some(deadline.map_or(at, |deadline| deadline.min(at)));
        }
        if let Some(deadline) = deadline {
            self.timer.as_mut().reset(deadline.into());
        }
        poll_fn(|cx| self.poll(cx, deadline.is_some())).await
    }

    fn poll(&mut self, cx: &mut Context<'_>, timed: bool) -> Poll<SessionEvent> {
        if self.kill.as_mut().poll(cx).is_ready() {
            return Poll::Ready(SessionEvent::Kill);
        }
        if !self.is_draining && self.draining.as_mut().poll(cx).is_ready() {
            return Poll::Ready(SessionEvent::Drain);
        }
        // The timer is polled first, because the following sources may always be ready.
        if timed && self.timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(SessionEvent::Time);
        }
        let mut is_idle = true;
        if let Some(carrier) = &mut self.carrier {
            match carrier.poll_flush(cx) {
                Poll::Ready(Err(broken)) => {
                    return Poll::Ready(SessionEvent::CarrierFailed(broken));
                }
                Poll::Ready(Ok(())) => {}
                Poll::Pending => is_idle = false,
            }
        }
        if let Poll::Ready(taken) = self.poll_input(cx) {
            return Poll::Ready(SessionEvent::Wrote(taken));
        }
        if let Some(Poll::Ready(Some(back))) = self
            .reconnects
            .as_mut()
            .map(|returns| returns.poll_recv(cx))
        {
            return Poll::Ready(SessionEvent::Return(back));
        }
        if let Some(Poll::Ready(left)) = self.closing.as_mut().map(|leaving| leaving.poll_unpin(cx))
        {
            self.closing = None;
            return Poll::Ready(SessionEvent::ClientLeft(left.unwrap_or_default()));
        }
        // If the command does not read, the client's messages are not read either.
        if self.reads_messages()
            && let Some(carrier) = &mut self.carrier
            && let Poll::Ready(read) = carrier.poll_message(cx)
        {
            return Poll::Ready(match read {
                Ok(kind) => SessionEvent::Message(kind),
                Err(broken) => SessionEvent::CarrierFailed(broken),
            });
        }
        if let Some(process) = &mut self.process {
            if !self.exited
                && let Poll::Ready(exit) = process.poll_exit(cx)
            {
                let exit = exit.unwrap_or(pty::Exit::Code(UNKNOWN_EXIT));
                return Poll::Ready(SessionEvent::Exit(exit));
            }
            // If the client does not read, the command's output is not read either.
            if !is_idle || self.is_output_paused {
                self.was_output_paused = true;
            } else {
                for output in self.outputs.iter().copied() {
                    if self.buffer.is_empty() {
                        self.buffer = vec![0; READ_BUFFER];
                    }
                    match process.poll_read(cx, output, &mut self.buffer) {
                        Poll::Ready(Ok(read @ 1..)) => {
                            return Poll::Ready(SessionEvent::Output(output, read));
                        }
                        Poll::Ready(_) => return Poll::Ready(SessionEvent::OutputEnd(output)),
                        Poll::Pending => {}
                    }
                }
                // The buffer is freed while there is nothing to read.
                self.buffer = Vec::new();
            }
        }
        Poll::Pending
    }

    /// True if messages are read. While output is paused, more input may be queued, because the
    /// acknowledgement that ends the pause follows all input that the client sent before it.
    fn reads_messages(&self) -> bool {
        let beside = if self.is_output_paused { 2 * REPLAY } else { 0 };
        self.input_len < MAX_INPUT + beside
    }

    /// Writes to the command; ready with the number of written bytes, or when the end of input is
    /// reached.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        let Some(process) = &mut self.process else {
            return Poll::Pending;
        };
        if self.input.is_empty() && !self.input_ends {
            return Poll::Pending;
        }
        let before = self.input_len;
        let mut is_blocked = false;
        while let Some(first) = self.input.front_mut() {
            match process.poll_write(cx, first) {
                Poll::Pending => {
                    is_blocked = true;
                    break;
                }
                Poll::Ready(Ok(wrote @ 1..)) => {
                    first.advance(wrote);
                    self.input_len -= wrote;
                    if first.is_empty() {
                        self.input.pop_front();
                    }
                }
                // The command does not read any more: input is dropped, as in a pipe of a shell.
                Poll::Ready(_) => {
                    self.input.clear();
                    self.input_len = 0;
                }
            }
        }
        if self.input_len < before {
            return Poll::Ready(before - self.input_len);
        }
        if is_blocked {
            return Poll::Pending;
        }
        if std::mem::take(&mut self.input_ends) {
            process.end_input();
        }
        Poll::Ready(0)
    }

    async fn handle(&mut self, event: SessionEvent) -> AfterEvent {
        let now = Instant::now();
        if std::mem::take(&mut self.was_output_paused) {
            self.machine.on_output_paused(now);
        }
        match event {
            SessionEvent::Message(kind) => match self.sealing.open(kind) {
                OpenedMessage::ForSession(kind) => match self.hand_over_resume(kind) {
                    Some(kind) => self.machine.on_message(kind, now),
                    // The connection now belongs to another session.
                    None => return AfterEvent::End,
                },
                OpenedMessage::Answer(kind) => self.send(&kind, now),
                OpenedMessage::Refuse(kind) => {
                    self.send(&kind, now);
                    self.hang_up(now);
                }
            },
            SessionEvent::CarrierFailed(CarrierError::Invalid(why)) => {
                self.machine.on_bad_message(&why, now);
            }
            SessionEvent::CarrierFailed(CarrierError::Lost) => {
                self.carrier = None;
                self.machine.on_lost(now);
            }
            SessionEvent::Output(output, len) => {
                let bytes = self.buffer.get(..len).unwrap_or_default();
                let bytes = Bytes::copy_from_slice(bytes);
                self.machine.on_output(stream(output), bytes, now);
                // The next read starts with the other output, so that neither has to wait for the
                // other's end.
                self.outputs.rotate_left(1);
                self.schedule_checks(now);
            }
            SessionEvent::OutputEnd(output) => {
                self.outputs.retain(|open| *open != output);
                self.machine.on_output_end(stream(output), now);
            }
            SessionEvent::Exit(exit) => {
                self.exited = true;
                let exit = match exit {
                    pty::Exit::Code(code) => Exit::Code(code),
                    pty::Exit::Signal(number, name) => Exit::Signal(number, name),
                };
                self.exit = Some(exit);
                // Another session may start while the client of this one receives its end.
                self.permit = None;
                self.machine.on_exit(exit, now);
            }
            SessionEvent::Wrote(taken) => {
                self.machine.on_input_taken(taken);
                self.schedule_checks(now);
            }
            SessionEvent::Return(back) => self.resume(*back, now),
            SessionEvent::ClientLeft(true) => self.machine.on_end_received(),
            SessionEvent::ClientLeft(false) => {}
            SessionEvent::Drain => {
                self.is_draining = true;
                let reason = TerminationReason::Drain;
                self.machine
                    .terminate(reason, "the server is shutting down", now);
            }
            // Dropping the process kills it.
            SessionEvent::Kill => return AfterEvent::End,
            SessionEvent::Time => self.on_time(now),
        }
        self.run_commands().await
    }

    fn on_time(&mut self, now: Instant) {
        if !self.reads_messages() {
            self.machine.on_read_paused(now);
        }
        if let Some(size) = self.size.restore(now) {
            self.resize(size);
        }
        if let Some((at, wait)) = self.next_check
            && at <= now
        {
            self.next_check = (wait < LAST_CHECK).then(|| (now + wait * 4, wait * 4));
            self.check_hidden_input();
        }
        self.machine.on_time(now);
    }

    /// Runs the commands of the state machine.
    async fn run_commands(&mut self) -> AfterEvent {
        while let Some(command) = self.machine.command() {
            let now = Instant::now();
            match command {
                Command::Start(start) => self.start(*start).await,
                Command::Send(kind) => self.send(&kind, now),
                Command::Input(bytes) => {
                    self.input_len += bytes.len();
                    self.input.push_back(bytes);
                }
                Command::EndInput => self.input_ends = true,
                Command::Resize(size) => {
                    if let Some(size) = self.size.request(size) {
                        self.resize(size);
                    }
                }
                Command::Signal(signal) => {
                    if let (Some(process), Some(signal)) = (&self.process, host_signal(signal)) {
                        process.signal(signal);
                    }
                }
                Command::HoldOutput => self.is_output_paused = true,
                Command::ReadOutput => self.is_output_paused = false,
                Command::Redraw => {
                    let other = self.size.redraw(now);
                    self.resize(other);
                }
                Command::Disconnect => self.hang_up(now),
                Command::Release => return AfterEvent::End,
            }
        }
        if self.machine.is_closed() {
            self.end();
        }
        AfterEvent::Continue
    }

    async fn start(&mut self, start: Start) {
        let Ok(permit) = Arc::clone(&self.shared.sessions).try_acquire_owned() else {
            let why = "the server has reached its session limit";
            self.machine.on_start_failed(why, Instant::now());
            return;
        };
        if let Some(size) = start.terminal {
            self.size = TerminalSize::new(size);
        }
        // Account lookups may use a directory in the network, and a fork takes time.
        let shared = Arc::clone(&self.shared);
        let started = tokio::task::spawn_blocking(move || {
            let spec = shared.policy.spec(&start).map_err(|why| why.to_string())?;
            let account = spec.account.clone();
            let process = spec.start().map_err(|why| why.to_string())?;
            Ok((process, account))
        });
        let started = started
            .await
            .unwrap_or_else(|_| Err("it failed".to_owned()));
        let now = Instant::now();
        let (process, account) = match started {
            Ok(started) => started,
            Err(why) => {
                tracing::info!(session = self.id, why, "a command was not started");
                self.machine.on_start_failed(&why, now);
                return;
            }
        };
        let Some(token) = self.register() else {
            self.machine.on_start_failed("no randomness", now);
            return;
        };
        self.outputs = if process.has_terminal() {
            vec![Output::Main]
        } else {
            vec![Output::Main, Output::Errors]
        };
        (self.shared.observer)(Event::Opened {
            session_id: &self.id,
            source: self.source,
            account: account.as_ref().map(pty::Account::name),
            has_terminal: process.has_terminal(),
        });
        self.owner = self.sealing.client();
        self.process = Some(process);
        self.permit = Some(permit);
        self.machine.on_started(token, now);
    }

    fn send(&mut self, kind: &Kind, now: Instant) {
        let Some(carrier) = &mut self.carrier else {
            return;
        };
        if let Kind::Heartbeat(beat) = kind {
            // One queued heartbeat is sufficient, so a peer that does not read gets no more of
            // them. Exceptions are a change of hidden input, and an acknowledgement of more input,
            // for which the client waits before it sends more.
            let is_news = beat.secret_input.is_some() || beat.received > self.acknowledged_input;
            if !is_news && !carrier.is_idle() {
                return;
            }
            self.acknowledged_input = beat.received.max(self.acknowledged_input);
        }
        let sent = match self.sealing.seal(kind.clone()) {
            Ok(kinds) => kinds.iter().try_for_each(|kind| carrier.send(kind)),
            Err(error) => {
                tracing::warn!(session = self.id, %error, "a message was not sealed");
                Err(CarrierError::Lost)
            }
        };
        if sent.is_err() {
            self.carrier = None;
            self.machine.on_lost(now);
        }
    }

    /// Closes the connection in the background, and detaches it from the session.
    fn hang_up(&mut self, now: Instant) {
        if let Some(carrier) = self.carrier.take() {
            self.closing = Some(self.shared.finish(carrier));
        }
        self.machine.on_lost(now);
    }

    fn resize(&self, size: Size) {
        let size = pty::Size {
            rows: size.rows,
            cols: size.cols,
        };
        if let Some(process) = &self.process
            && let Err(error) = process.resize(size)
        {
            tracing::debug!(session = self.id, %error, "a terminal was not resized");
        }
    }

    /// Schedules checks for hidden input, now and several times soon. Programs write a prompt and
    /// then hide input, or in the reverse order.
    fn schedule_checks(&mut self, now: Instant) {
        if self.process.as_ref().is_some_and(Process::has_terminal) {
            self.next_check = Some((now + FIRST_CHECK, FIRST_CHECK));
            self.check_hidden_input();
        }
    }

    fn check_hidden_input(&mut self) {
        let secret = self.process.as_ref().is_some_and(Process::hides_input);
        if std::mem::replace(&mut self.secret, secret) != secret {
            self.machine.on_secret_input(secret);
        }
    }

    /// Records that the command is over, even if its client has not received this yet.
    fn end(&mut self) {
        let Some(process) = self.process.take() else {
            return;
        };
        if self.machine.stop_reason().is_some() {
            // The command was stopped, so the processes that it left behind are killed as well.
            process.signal_all(pty::Signal::SIGKILL);
        }
        let (exit_code, reason) = match self.exit {
            Some(Exit::Code(code)) => (Some(code), Some(TerminationReason::Exited)),
            Some(Exit::Signal(number, _)) => {
                (Some(128 + number), Some(TerminationReason::Signalled))
            }
            None => (None, None),
        };
        (self.shared.observer)(Event::Closed {
            session_id: &self.id,
            exit_code,
            reason: self.machine.stop_reason().or(reason),
            duration: self.began.elapsed(),
        });
    }
}

fn stream(output: Output) -> Stream {
    match output {
        Output::Main => Stream::Stdout,
        Output::Errors => Stream::Stderr,
    }
}

/// Size of a read from a command: large enough that the overhead of a message is small.
const READ_BUFFER: usize = 64 * 1024;

/// Maximum of queued input for a command that does not read, in addition to one message: several
/// times the capacity of a pipe and a terminal.
const MAX_INPUT: usize = 256 * 1024;

/// Intervals of checks for hidden input, after output or input: the first one, which is then
/// multiplied by four each time, and the last one.
const FIRST_CHECK: Duration = Duration::from_millis(2);
const LAST_CHECK: Duration = Duration::from_millis(500);

/// The exit code if the system provides none.
const UNKNOWN_EXIT: i32 = 255;
