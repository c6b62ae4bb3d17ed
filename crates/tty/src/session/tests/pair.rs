//! Client and server together, over connections that break.

use proptest::prelude::*;

use super::*;

proptest! {
    /// Both state machines run over a connection that breaks at any message in either direction.
    /// Input arrives once and in order, and so does output.
    #[test]
    fn nothing_is_lost_or_doubled_over_broken_connections(
        steps in prop::collection::vec((0..4_u8, prop::collection::vec(any::<u8>(), 1..50)), 1..60),
        breaks in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        tty in any::<bool>(),
    ) {
        let now = Instant::now();
        let mut pair = Pair::new(tty, now);
        let breaks: Vec<usize> = breaks.iter().map(|at| at.index(steps.len())).collect();
        for (at, (what, bytes)) in steps.into_iter().enumerate() {
            match what {
                0 | 1 => {
                    pair.typed.extend(&bytes);
                    pair.client.on_input(bytes.into());
                }
                _ => {
                    pair.written.extend(&bytes);
                    pair.server.on_output(Stream::Stdout, bytes.into(), now);
                }
            }
            // A broken connection loses the messages in flight, in both directions.
            pair.exchange(now, breaks.contains(&at).then_some(usize::from(what)));
        }
        pair.exchange(now, None);
        prop_assert_eq!(pair.arrived, pair.typed);
        prop_assert_eq!(pair.shown, pair.written);
    }
}

struct Pair {
    client: Client,
    server: Server,
    tokens: u8,
    typed: Vec<u8>,
    arrived: Vec<u8>,
    written: Vec<u8>,
    shown: Vec<u8>,
}

impl Pair {
    fn new(tty: bool, now: Instant) -> Self {
        let mut pair = Self {
            client: Client::open(config(tty), tty.then_some(Size::DEFAULT), now),
            server: Server::new(settings(), now),
            tokens: 0,
            typed: Vec::new(),
            arrived: Vec::new(),
            written: Vec::new(),
            shown: Vec::new(),
        };
        pair.exchange(now, None);
        pair
    }

    /// Delivers messages until both sides are silent. With `broken`, only this many messages of
    /// each side arrive, and then the connection is replaced.
    fn exchange(&mut self, now: Instant, broken: Option<usize>) {
        let mut left = [broken.unwrap_or(usize::MAX); 2];
        loop {
            let mut quiet = true;
            while let Some(command) = self.client.command() {
                quiet = false;
                match command {
                    ClientCommand::Send(kind) if left[0] > 0 => {
                        left[0] -= 1;
                        self.deliver(kind, now);
                    }
                    ClientCommand::Output(_, bytes) => self.shown.extend(&bytes),
                    ClientCommand::LostOutput(_) | ClientCommand::Failed(_) => {
                        panic!("{command:?}")
                    }
                    _ => {}
                }
            }
            while let Some(command) = self.server.command() {
                quiet = false;
                match command {
                    Command::Start(_) => {
                        self.tokens += 1;
                        self.server.on_started([self.tokens; TOKEN_LEN], now);
                    }
                    Command::Send(kind) if left[1] > 0 => {
                        left[1] -= 1;
                        self.client.on_message(kind, now);
                    }
                    Command::Input(bytes) => {
                        self.server.on_input_taken(bytes.len());
                        self.arrived.extend(&bytes);
                    }
                    _ => {}
                }
            }
            if quiet {
                break;
            }
        }
        if broken.is_some() {
            assert!(self.client.on_lost());
            self.server.on_lost(now);
            self.client.reopen(now);
            // The next connection may break as well.
            self.exchange(now, broken.and_then(|left| left.checked_sub(1)));
        }
    }

    fn deliver(&mut self, kind: Kind, now: Instant) {
        let session = match &kind {
            Kind::Open(open) => open.session.clone(),
            _ => None,
        };
        match session.filter(|session| session.resume.is_some()) {
            Some(session) => {
                assert!(self.server.accepts(session.resume.as_ref().unwrap()));
                self.tokens += 1;
                self.server
                    .on_resume(&session, [self.tokens; TOKEN_LEN], now);
            }
            None => self.server.on_message(kind, now),
        }
    }
}
