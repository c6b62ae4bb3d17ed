//! A client over real sockets.

use std::net::SocketAddr;
use std::time::Duration;

use credentials::Secret;
use credentials::turn::{api_password, api_username};
use stun_types::attribute::{AttributeWrite, ErrorCode, Nonce, Realm, Username};
use stun_types::message::{
    Message, MessageClass, MessageType, MessageWrite as _, MessageWriteExt as _, MessageWriteVec,
    Method,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;
use turn::core::frame::{Frame, frame};
use turn::core::{Integrity, Key, KeyAlgorithm};

pub(crate) const REALM: &str = "engine.example.com";
pub(crate) const SECRET: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
/// Time limit for immediate events on a busy machine.
const WAIT_LIMIT: Duration = Duration::from_mins(1);

/// Transport between a client and its relay.
enum Line {
    Udp(UdpSocket),
    Tcp(TcpStream, Vec<u8>),
}

/// A client with a credential of the platform.
pub(crate) struct Client {
    line: Line,
    username: String,
    password: String,
    nonce: String,
    transaction: u128,
}

impl Client {
    pub(crate) async fn udp(relay: SocketAddr, user: &str) -> Self {
        let any = if relay.is_ipv4() {
            "127.0.0.1:0"
        } else {
            "[::1]:0"
        };
        let socket = UdpSocket::bind(any).await.unwrap();
        socket.connect(relay).await.unwrap();
        Self::new(Line::Udp(socket), user)
    }

    pub(crate) async fn tcp(relay: SocketAddr, user: &str) -> Self {
        let stream = TcpStream::connect(relay).await.unwrap();
        Self::new(Line::Tcp(stream, Vec::new()), user)
    }

    /// A client whose credential expires after these seconds.
    pub(crate) async fn expiring(relay: SocketAddr, user: &str, seconds: i64) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(relay).await.unwrap();
        Self::valid_for(seconds, Line::Udp(socket), user)
    }

    fn new(line: Line, user: &str) -> Self {
        Self::valid_for(600, line, user)
    }

    fn valid_for(seconds: i64, line: Line, user: &str) -> Self {
        let end = jiff::Timestamp::now().as_second() + seconds;
        let username = api_username(end, "e7e8a732", user);
        let password = api_password(&Secret::new(*SECRET), REALM, &username).unwrap();
        Self {
            line,
            username,
            password,
            nonce: "none".to_owned(),
            transaction: 0,
        }
    }

    pub(crate) fn transaction(&self) -> u128 {
        self.transaction + 1
    }

    /// Sends a request. Returns the code of its answer, 0 for success, and the answer. A stale
    /// nonce is handled here.
    pub(crate) async fn ask(
        &mut self,
        method: Method,
        with: &[&dyn AttributeWrite],
    ) -> (u16, Vec<u8>) {
        self.transaction += 1;
        loop {
            let kind = MessageType::from_class_method(MessageClass::Request, method);
            let mut out = Message::builder(kind, self.transaction.into(), MessageWriteVec::new());
            for attribute in with {
                out.add_attribute(*attribute).unwrap();
            }
            out.add_attribute(&Username::new(&self.username).unwrap())
                .unwrap();
            out.add_attribute(&Realm::new(REALM).unwrap()).unwrap();
            out.add_attribute(&Nonce::new(&self.nonce).unwrap())
                .unwrap();
            let key = Key::new(KeyAlgorithm::Md5, &self.username, REALM, &self.password);
            key.sign(Integrity::Sha1, &mut out);
            self.send(&out.finish()).await;
            let answer = self.receive().await;
            let read = Message::from_bytes(&answer).unwrap();
            if read.has_class(MessageClass::Success) {
                assert_eq!(key.verify(&read), Some(Integrity::Sha1));
                return (0, answer);
            }
            let code = read.attribute::<ErrorCode>().unwrap().code();
            if code != 438 {
                return (code, answer);
            }
            let nonce: Nonce = read.attribute().unwrap();
            nonce.nonce().clone_into(&mut self.nonce);
        }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        match &mut self.line {
            Line::Udp(socket) => assert_eq!(socket.send(bytes).await.unwrap(), bytes.len()),
            Line::Tcp(stream, _) => {
                // In pieces, as a network may deliver them.
                for piece in bytes.chunks(7) {
                    stream.write_all(piece).await.unwrap();
                    stream.flush().await.unwrap();
                }
            }
        }
    }

    /// Another socket with the same credential.
    pub(crate) async fn again(&self, relay: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(relay).await.unwrap();
        Self {
            line: Line::Udp(socket),
            username: self.username.clone(),
            password: self.password.clone(),
            nonce: "none".to_owned(),
            transaction: 0,
        }
    }

    /// A second connection, with the same credential.
    pub(crate) async fn second(&self, relay: SocketAddr) -> Self {
        Self {
            line: Line::Tcp(TcpStream::connect(relay).await.unwrap(), Vec::new()),
            username: self.username.clone(),
            password: self.password.clone(),
            nonce: "none".to_owned(),
            transaction: 0,
        }
    }

    /// The connection itself, once it carries no more messages, and the bytes that were already
    /// received.
    pub(crate) fn into_stream(self) -> (TcpStream, Vec<u8>) {
        match self.line {
            Line::Tcp(stream, rest) => (stream, rest),
            Line::Udp(_) => panic!("no connection"),
        }
    }

    /// The next message, without its padding.
    pub(crate) async fn receive(&mut self) -> Vec<u8> {
        timeout(WAIT_LIMIT, self.next())
            .await
            .expect("nothing comes")
            .expect("it is closed")
    }

    /// Waits until the relay closes the connection.
    pub(crate) async fn closed(&mut self) {
        let end = timeout(WAIT_LIMIT, self.next())
            .await
            .expect("it stays open");
        assert_eq!(end, None);
    }

    async fn next(&mut self) -> Option<Vec<u8>> {
        match &mut self.line {
            Line::Udp(socket) => {
                let mut buffer = vec![0; 70_000];
                let length = socket.recv(&mut buffer).await.unwrap();
                buffer.truncate(length);
                Some(buffer)
            }
            Line::Tcp(stream, rest) => loop {
                match frame(rest) {
                    Frame::Complete { bytes, padding } => {
                        let mut message: Vec<u8> = rest.drain(..bytes + padding).collect();
                        message.truncate(bytes);
                        return Some(message);
                    }
                    Frame::Partial if stream.read_buf(rest).await.ok()? == 0 => return None,
                    Frame::Partial => {}
                    Frame::Invalid => panic!("no frame"),
                }
            },
        }
    }
}
