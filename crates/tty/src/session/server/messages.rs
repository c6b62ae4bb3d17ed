//! Messages of the client, and the phases in which they are valid.

use std::time::Instant;

use super::{Command, Phase, Server, Start};
use crate::message::{Data, Heartbeat, Kind, OpenCommand, ParameterKind, Payload, Signal, Stream};
use crate::session::REPLAY;
use crate::size::Size;

impl Server {
    pub(super) fn handle(&mut self, kind: Kind, now: Instant) -> Result<(), String> {
        match (kind, self.phase) {
            (Kind::Open(open), Phase::Opening { .. }) => self.open(*open),
            (Kind::Heartbeat(heartbeat), phase) => {
                if matches!(phase, Phase::Opening { .. }) && heartbeat != Heartbeat::default() {
                    return Err("a signal before the open".to_owned());
                }
                self.on_heartbeat(&heartbeat)
            }
            (Kind::Data(data), Phase::Running) => self.on_data(data, now),
            (Kind::Parameter(parameter), Phase::Running) => {
                if !self.has_tty {
                    return Err("a size without a terminal".to_owned());
                }
                if let Some(ParameterKind::TerminalSize(size)) = parameter.parameter {
                    self.commands.extend(size.size().map(Command::Resize));
                }
                Ok(())
            }
            (Kind::Error(_), _) => {
                self.client = None;
                self.commands.push_back(Command::Disconnect);
                match self.phase {
                    Phase::Opening { .. } | Phase::Closed { .. } | Phase::Leaving { .. } => {
                        self.release();
                    }
                    // A client that sends an error before it leaves does not resume.
                    _ => {
                        self.token = None;
                        self.leave(now);
                    }
                }
                Ok(())
            }
            // The client may not have received the end of the command yet.
            (
                Kind::Data(_) | Kind::Parameter(_),
                Phase::Draining { .. } | Phase::Closed { .. } | Phase::Leaving { .. },
            ) => Ok(()),
            (Kind::Attach(_), _) => Err("this server does not support joining sessions".to_owned()),
            (kind, _) => Err(format!("an unexpected {}", kind.name())),
        }
    }

    fn open(&mut self, open: OpenCommand) -> Result<(), String> {
        if open.session_key_grant.is_some() {
            return Err("this server does not support this encryption".to_owned());
        }
        if open
            .session
            .as_ref()
            .is_some_and(|session| session.resume.is_some())
        {
            return Err("the session to resume does not exist".to_owned());
        }
        let config = open.config.unwrap_or_default();
        self.has_tty = config.options.is_some_and(|options| options.allocate_tty);
        let session = open.session.unwrap_or_default();
        self.features = session.features;
        let size = session.size.and_then(|size| size.size());
        let terminal = self.has_tty.then(|| size.unwrap_or(Size::DEFAULT));
        self.phase = Phase::Starting;
        self.commands
            .push_back(Command::Start(Box::new(Start { config, terminal })));
        Ok(())
    }

    fn on_heartbeat(&mut self, heartbeat: &Heartbeat) -> Result<(), String> {
        if let Some(client) = &mut self.client {
            client.has_heartbeat = true;
        }
        if let Some(received) = heartbeat.received.filter(|_| self.token.is_some()) {
            self.output
                .acknowledge(received)
                .map_err(|error| error.to_string())?;
            self.bound_output();
        }
        if let Some(signal) = heartbeat.signal {
            let signal = Signal::try_from(signal)
                .ok()
                .filter(|signal| *signal != Signal::Unspecified)
                .ok_or("an unknown signal")?;
            if self.phase == Phase::Running {
                self.commands.push_back(Command::Signal(signal));
            }
        }
        Ok(())
    }

    fn on_data(&mut self, data: Data, now: Instant) -> Result<(), String> {
        if data.r#type() != Stream::Stdin {
            return Err("data that is not input".to_owned());
        }
        match data.payload {
            // An empty write returns 0, which looks as if the command had stopped reading.
            Some(Payload::Data(bytes)) if bytes.is_empty() => Ok(()),
            Some(Payload::Data(bytes)) if self.stdin_open => {
                self.touch(now);
                self.input_received += u64::try_from(bytes.len()).unwrap_or_default();
                self.commands.push_back(Command::Input(bytes));
                self.report_input();
                Ok(())
            }
            Some(Payload::Data(_)) => Err("input after its end".to_owned()),
            // In a terminal the end of input is a key. The published server ignores this message as
            // well.
            Some(Payload::Eos(_)) if self.has_tty => Ok(()),
            Some(Payload::Eos(_)) => {
                if std::mem::replace(&mut self.stdin_open, false) {
                    self.commands.push_back(Command::EndInput);
                }
                Ok(())
            }
            Some(Payload::EncryptedData(_)) | None => {
                Err("sealed data in a session that is not sealed".to_owned())
            }
        }
    }

    /// Number of input bytes to acknowledge. It is less than the received bytes if the command does
    /// not take its input. The command may wait until the client acknowledges its output, and this
    /// acknowledgement is sent after the client's input. The limit ensures that all input before it
    /// can be read.
    fn reportable(&self) -> u64 {
        let ahead = u64::try_from(REPLAY).unwrap_or(u64::MAX);
        self.input_received
            .min(self.input_taken.saturating_add(ahead))
    }

    /// Acknowledges input before the client has to stop reading its own.
    pub(super) fn report_input(&mut self) {
        let quarter = u64::try_from(REPLAY / 4).unwrap_or(u64::MAX);
        let more = self.reportable().saturating_sub(self.input_reported);
        if self.token.is_some() && more >= quarter {
            self.send_heartbeat();
        }
    }

    pub(super) fn send_heartbeat(&mut self) {
        self.input_reported = self.reportable().max(self.input_reported);
        let received = self.token.is_some().then_some(self.input_reported);
        self.commands
            .push_back(Command::Send(Kind::Heartbeat(Heartbeat {
                received,
                ..Heartbeat::default()
            })));
    }
}
