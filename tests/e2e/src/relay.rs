use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use anyhow::Result;

/// A network between two ends that can be interrupted: a TCP relay that forwards every byte, or
/// none.
///
/// During an interruption nothing is lost and nothing is refused, as on a real network: connections
/// are accepted, and all data is delivered afterwards.
pub struct Relay {
    address: SocketAddr,
    state: Arc<State>,
}

impl Relay {
    /// Starts one in front of `127.0.0.1:port`.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(port: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let relay = Self {
            address,
            state: Arc::clone(&state),
        };
        // Runs until the process exits, because tests are short.
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&state);
                thread::spawn(move || {
                    let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
                        return;
                    };
                    // A broken connection has ended.
                    relay_streams(near, far, &state).ok();
                });
            }
        });
        Ok(relay)
    }

    /// Its port on this machine.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Interrupts the network.
    pub fn interrupt(&self) {
        self.state.set(true);
    }

    /// Restores the network.
    pub fn restore(&self) {
        self.state.set(false);
    }
}

#[derive(Default)]
struct State {
    is_cut: Mutex<bool>,
    changed: Condvar,
}

impl State {
    fn set(&self, is_cut: bool) {
        *self.is_cut.lock().unwrap_or_else(PoisonError::into_inner) = is_cut;
        self.changed.notify_all();
    }

    fn wait_until_restored(&self) {
        let is_cut = self.is_cut.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(is_cut, |is_cut| *is_cut));
    }
}

fn relay_streams(near: TcpStream, far: TcpStream, state: &Arc<State>) -> Result<()> {
    for stream in [&near, &far] {
        stream.set_nodelay(true)?;
    }
    let back = (far.try_clone()?, near.try_clone()?, Arc::clone(state));
    thread::spawn(move || pass(back.0, back.1, &back.2));
    pass(near, far, state);
    Ok(())
}

fn pass(mut from: TcpStream, mut to: TcpStream, state: &State) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer);
        state.wait_until_restored();
        match read {
            Ok(0) => {
                // One direction has ended, and the other may continue.
                to.shutdown(Shutdown::Write).ok();
                return;
            }
            Ok(length) => {
                if to
                    .write_all(buffer.get(..length).unwrap_or_default())
                    .is_err()
                {
                    from.shutdown(Shutdown::Both).ok();
                    return;
                }
            }
            Err(_broken) => {
                to.shutdown(Shutdown::Both).ok();
                return;
            }
        }
    }
}
