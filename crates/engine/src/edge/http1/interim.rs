//! Interim responses (RFC 9110, 15.2) to an HTTP/1.1 visitor.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

/// Interim responses that the visitor has not received completely. They are kept when the exchange with
/// the service ends, because only the rest of a response can follow a part of it.
#[derive(Debug, Default)]
pub(in crate::edge) struct InterimBytes {
    bytes: Vec<u8>,
    sent: usize,
}

impl InterimBytes {
    /// The bytes, to which the next response is appended.
    pub(super) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Writes what the visitor can take. An error means that it has disconnected.
    pub(super) fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        visitor: &mut W,
    ) -> Result<(), ()> {
        let mut visitor = Pin::new(visitor);
        while self.sent < self.bytes.len() {
            let rest = self.bytes.get(self.sent..).unwrap_or_default();
            match visitor.as_mut().poll_write(cx, rest) {
                Poll::Ready(Ok(sent)) if sent > 0 => self.sent += sent,
                Poll::Ready(_) => return Err(()),
                Poll::Pending => return Ok(()),
            }
        }
        if self.bytes.is_empty() {
            return Ok(());
        }
        match visitor.poll_flush(cx) {
            Poll::Ready(Ok(())) => {
                self.bytes.clear();
                self.sent = 0;
                Ok(())
            }
            Poll::Ready(Err(_)) => Err(()),
            Poll::Pending => Ok(()),
        }
    }

    /// Takes the bytes that precede the final response of the service.
    pub(super) fn take_unsent(&mut self) -> Vec<u8> {
        let sent = std::mem::take(&mut self.sent);
        std::mem::take(&mut self.bytes).split_off(sent)
    }

    /// Takes the bytes that must precede a response of the edge: the rest, if the visitor has a part.
    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        if self.sent == 0 {
            self.bytes.clear();
        }
        self.take_unsent()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::AsyncReadExt as _;

    use super::*;

    const HINTS: &[u8] = b"HTTP/1.1 103 Early Hints\r\n\r\n";

    #[tokio::test]
    async fn a_response_of_the_edge_follows_the_rest_of_a_partly_written_one() {
        let (mut near, mut far) = tokio::io::duplex(10);
        let mut interim = InterimBytes::default();
        interim.bytes_mut().extend_from_slice(HINTS);
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(interim.poll_write(&mut cx, &mut near), Ok(()));
        let mut received = vec![0; 10];
        far.read_exact(&mut received).await.unwrap();
        received.extend(interim.take_rest());
        assert_eq!(received, HINTS);
        assert!(interim.take_rest().is_empty());
    }

    #[tokio::test]
    async fn only_the_final_response_follows_unsent_and_complete_ones() {
        let mut unsent = InterimBytes::default();
        unsent.bytes_mut().extend_from_slice(HINTS);
        assert!(unsent.take_rest().is_empty());

        let (mut near, _far) = tokio::io::duplex(HINTS.len());
        let mut complete = InterimBytes::default();
        complete.bytes_mut().extend_from_slice(HINTS);
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(complete.poll_write(&mut cx, &mut near), Ok(()));
        assert!(complete.take_rest().is_empty());
    }

    #[test]
    fn the_response_of_the_service_follows_all_of_them() {
        let mut interim = InterimBytes::default();
        interim.bytes_mut().extend_from_slice(HINTS);
        assert_eq!(interim.take_unsent(), HINTS);
    }
}
