//! A network between an agent and its engine that a test can count, freeze and interrupt.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use client::{Config, HostPort};
use testing::TestEngine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Forwards connections to an engine. They end when it is dropped.
pub(crate) struct Relay {
    addr: SocketAddr,
    accepted: watch::Receiver<usize>,
    states: States,
    /// Initial state of new connections.
    initial: Arc<Mutex<State>>,
    _acceptor: JoinSet<()>,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Open,
    Frozen,
    Cut,
}

type States = Arc<Mutex<HashMap<usize, watch::Sender<State>>>>;

impl Relay {
    pub(crate) async fn start(engine: &TestEngine) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let to = engine.addr();
        let (count, accepted) = watch::channel(0);
        let states = States::default();
        let known = Arc::clone(&states);
        let initial = Arc::new(Mutex::new(State::Open));
        let first = Arc::clone(&initial);
        let mut acceptor = JoinSet::new();
        acceptor.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let (sender, state) = watch::channel(*first.lock().unwrap());
                let number = *count.borrow() + 1;
                known.lock().unwrap().insert(number, sender);
                count.send_replace(number);
                connections.spawn(carry(near, to, state));
            }
        });
        Self {
            addr,
            accepted,
            states,
            initial,
            _acceptor: acceptor,
        }
    }

    /// Configuration of an agent that connects to the engine through it.
    pub(crate) fn agent_config(&self, engine: &TestEngine) -> Config {
        let mut config = engine.agent_config();
        config.engine = HostPort::new(engine.host(), self.addr.port()).unwrap();
        config
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Number of connections so far. The first one of an agent is its control channel.
    pub(crate) fn accepted(&self) -> usize {
        *self.accepted.borrow()
    }

    /// Stops all traffic on a connection, given by its number from 1. Both ends keep it open.
    pub(crate) fn freeze(&self, number: usize) {
        self.set(number, State::Frozen);
    }

    /// Stops all traffic on current and future connections. No peer gets an error.
    pub(crate) fn freeze_all(&self) {
        *self.initial.lock().unwrap() = State::Frozen;
        for state in self.states.lock().unwrap().values() {
            state.send_replace(State::Frozen);
        }
    }

    /// Resets both ends of a connection.
    pub(crate) fn cut(&self, number: usize) {
        self.set(number, State::Cut);
    }

    fn set(&self, number: usize, state: State) {
        self.states.lock().unwrap()[&number].send_replace(state);
    }
}

async fn carry(mut near: TcpStream, to: SocketAddr, state: watch::Receiver<State>) {
    let mut far = TcpStream::connect(to).await.unwrap();
    for socket in [&near, &far] {
        socket.set_nodelay(true).unwrap();
    }
    let mut cut = state.clone();
    let was_cut = {
        let ((near_read, near_write), (far_read, far_write)) = (near.split(), far.split());
        let carrying = async {
            tokio::join!(
                one_way(near_read, far_write, state.clone()),
                one_way(far_read, near_write, state.clone()),
            )
        };
        tokio::select! {
            _ = carrying => false,
            _ = cut.wait_for(|state| *state == State::Cut) => true,
        }
    };
    if was_cut {
        for socket in [&near, &far] {
            socket.set_zero_linger().ok();
        }
    }
}

async fn one_way(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, mut state: watch::Receiver<State>) {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut bytes).await.unwrap_or(0);
        if state.wait_for(|state| *state == State::Open).await.is_err() {
            return;
        }
        if read == 0 || to.write_all(&bytes[..read]).await.is_err() {
            to.shutdown().await.ok();
            return;
        }
    }
}
