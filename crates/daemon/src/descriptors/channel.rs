//! Frames with descriptors over a Unix socket, between two processes of one program.
//!
//! A frame is a head, the length of the payload (32 bits, big-endian) and the number of descriptors
//! (8 bits), and then the payload. The descriptors travel with the first bytes of the frame
//! (`SCM_RIGHTS`, unix(7)). The system keeps their order, so the reader assigns them by their
//! number.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::take_ownership;

/// Maximum descriptors of a frame. The system accepts 253 in one message.
pub const MAX_DESCRIPTORS: usize = 200;

/// Maximum bytes of a payload: twice the largest read buffer of a connection, in hexadecimal
/// digits, and its description.
pub const MAX_PAYLOAD: usize = 512 * 1024;

const HEAD: usize = 5;

/// Bytes of one read.
const READ: usize = 64 * 1024;

/// One message of the peer.
#[derive(Debug)]
pub struct Frame {
    /// The message.
    pub payload: Vec<u8>,
    /// The sockets that it refers to.
    pub descriptors: Vec<OwnedFd>,
}

/// The reading half.
#[derive(Debug)]
pub struct FrameReader {
    stream: Arc<UnixStream>,
    bytes: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
}

/// The writing half.
#[derive(Debug)]
pub struct FrameWriter {
    stream: Arc<UnixStream>,
}

/// The two halves of a connection. It closes when both have been dropped.
pub fn frames(stream: UnixStream) -> (FrameReader, FrameWriter) {
    let stream = Arc::new(stream);
    let reader = FrameReader {
        stream: Arc::clone(&stream),
        bytes: Vec::new(),
        descriptors: VecDeque::new(),
    };
    (reader, FrameWriter { stream })
}

impl FrameReader {
    /// The next frame; `None` if the peer has closed the connection. Cancel safe.
    ///
    /// # Errors
    /// The connection fails, or the peer violates the format.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(Some(frame));
            }
            if self.receive().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// A frame that has arrived completely.
    fn buffered(&mut self) -> io::Result<Option<Frame>> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let [a, b, c, d, count] = *head;
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let count = usize::from(count);
        if length > MAX_PAYLOAD || count > MAX_DESCRIPTORS {
            let error = "a frame between processes is too long";
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        if self.descriptors.len() < count {
            let error = "a frame between processes lacks descriptors";
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        let frame = Frame {
            payload: payload.to_vec(),
            descriptors: self.descriptors.drain(..count).collect(),
        };
        self.bytes.drain(..HEAD + length);
        Ok(Some(frame))
    }

    /// Reads once. Returns the number of bytes.
    async fn receive(&mut self) -> io::Result<usize> {
        let mut buffer = vec![0; READ];
        let mut space = cmsg_space!([RawFd; MAX_DESCRIPTORS]);
        let descriptor = self.stream.as_raw_fd();
        let receive = || -> io::Result<(usize, Vec<OwnedFd>)> {
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let flags = receive_flags();
            let received = recvmsg::<UnixAddr>(descriptor, &mut parts, Some(&mut space), flags)?;
            let mut opened = Vec::new();
            for message in received.cmsgs()? {
                if let ControlMessageOwned::ScmRights(numbers) = message {
                    opened.extend(numbers.into_iter().map(take_ownership));
                }
            }
            Ok((received.bytes, opened))
        };
        let (count, opened) = self.stream.async_io(Interest::READABLE, receive).await?;
        self.bytes
            .extend_from_slice(buffer.get(..count).unwrap_or_default());
        self.descriptors.extend(opened);
        Ok(count)
    }
}

/// Programs that this process starts do not inherit received descriptors.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn receive_flags() -> MsgFlags {
    MsgFlags::MSG_CMSG_CLOEXEC
}

/// Without the flag, a program that is started at this moment inherits them.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn receive_flags() -> MsgFlags {
    MsgFlags::empty()
}

impl FrameWriter {
    /// Sends a frame. Not cancel safe: a dropped send may leave half a frame.
    ///
    /// # Errors
    /// The connection fails, or the frame is longer than the limits.
    pub async fn send(&mut self, payload: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let too_long = || io::Error::from(io::ErrorKind::InvalidInput);
        if payload.len() > MAX_PAYLOAD || descriptors.len() > MAX_DESCRIPTORS {
            return Err(too_long());
        }
        let length = u32::try_from(payload.len()).map_err(|_| too_long())?;
        let count = u8::try_from(descriptors.len()).map_err(|_| too_long())?;
        let mut frame = Vec::with_capacity(HEAD + payload.len());
        frame.extend_from_slice(&length.to_be_bytes());
        frame.push(count);
        frame.extend_from_slice(payload);
        let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let mut sent = 0;
        while sent < frame.len() {
            let rest = frame.get(sent..).unwrap_or_default();
            // They travel with the first bytes.
            let attached = if sent == 0 { numbers.as_slice() } else { &[] };
            let stream = &self.stream;
            let send = || send_once(stream.as_raw_fd(), rest, attached);
            sent += stream.async_io(Interest::WRITABLE, send).await?;
        }
        Ok(())
    }
}

/// One system call. Returns the number of bytes that it sent.
pub(crate) fn send_once(socket: RawFd, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<usize> {
    let parts = [IoSlice::new(bytes)];
    let rights = [ControlMessage::ScmRights(descriptors)];
    let messages = if descriptors.is_empty() {
        &[][..]
    } else {
        &rights[..]
    };
    let sent = sendmsg::<UnixAddr>(socket, &parts, messages, MsgFlags::empty(), None)?;
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;

    use super::*;

    #[tokio::test]
    async fn frames_arrive_whole_and_with_their_descriptors() {
        let (near, far) = UnixStream::pair().unwrap();
        let (_, mut writer) = frames(near);
        let (mut reader, _far) = frames(far);
        let large = vec![b'x'; MAX_PAYLOAD];
        let sending = async {
            let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            writer.send(b"first", &[theirs.as_fd()]).await.unwrap();
            drop(theirs);
            writer.send(&large, &[]).await.unwrap();
            let (_, other) = std::os::unix::net::UnixStream::pair().unwrap();
            let both = [other.as_fd(), other.as_fd()];
            writer.send(b"", &both).await.unwrap();
            std::io::Write::write_all(&mut ours, b"hello").unwrap();
            drop(writer);
        };
        let reading = async {
            let first = reader.next().await.unwrap().unwrap();
            assert_eq!(first.payload, b"first");
            let second = reader.next().await.unwrap().unwrap();
            assert_eq!(second.payload, large);
            assert!(second.descriptors.is_empty());
            let third = reader.next().await.unwrap().unwrap();
            assert_eq!((third.payload.len(), third.descriptors.len()), (0, 2));
            first
        };
        let ((), first) = tokio::join!(sending, reading);
        let [socket] = <[OwnedFd; 1]>::try_from(first.descriptors).unwrap();
        let mut text = String::new();
        let mut socket = std::os::unix::net::UnixStream::from(socket);
        socket.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        assert!(reader.next().await.unwrap().is_none(), "the end");
    }

    #[tokio::test]
    async fn frames_have_limits() {
        let (near, far) = UnixStream::pair().unwrap();
        let (_, mut writer) = frames(near);
        let long = vec![0; MAX_PAYLOAD + 1];
        let error = writer.send(&long, &[]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let many = [far.as_fd(); MAX_DESCRIPTORS + 1];
        let error = writer.send(b"", &many).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        // A payload that is too long, too many descriptors, and one that was not sent.
        for (length, count) in [(u32::MAX, 0), (0, 201), (0, 1)] {
            let (near, far) = UnixStream::pair().unwrap();
            let (mut reader, _writer) = frames(far);
            let mut head = length.to_be_bytes().to_vec();
            head.push(count);
            send_once(near.as_raw_fd(), &head, &[]).unwrap();
            let error = reader.next().await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{length} {count}");
        }
    }
}
