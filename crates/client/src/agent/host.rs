//! Rewriting of requests so that they name the service itself as their host.
//!
//! Development servers refuse unknown host names. [`HostRewriter`] wraps a visitor's stream:
//! requests read from it have the `Host` of the service. An `Origin` that equals the public one is
//! replaced by the service's too, because such servers compare it for WebSockets, and so is the
//! origin in a `Destination`, which WebDAV servers compare (RFC 4918 section 10.3). In responses,
//! addresses of the service are replaced by the public ones, because visitors could not follow a
//! redirect to the service's own address. Everything else passes unchanged, byte for byte.
//!
//! The stream contains HTTP/1.1 as the engine writes it: consecutive requests, bodies with a known
//! length or in chunks, and upgrades. The response shows that an upgrade was accepted; after it,
//! bytes pass without inspection.

mod answers;
mod origin;
mod requests;
#[cfg(test)]
mod tests;

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::{answers::Answers, requests::Requests};

/// A visitor's stream whose requests name another host.
pub(super) struct HostRewriter<'s, S> {
    visitor: &'s mut S,
    requests: Requests,
    answers: Answers,
    /// Bytes that were read but not parsed yet.
    raw: Vec<u8>,
    /// Bytes for the service, and the number already written.
    ready: Vec<u8>,
    ready_written: usize,
    /// Bytes for the visitor, and the number already written.
    answer: Vec<u8>,
    answer_written: usize,
    /// The visitor's direction has ended.
    ended: bool,
    /// Waker of the reader while it waits for the response to an upgrade.
    reader_waker: Option<Waker>,
}

impl<'s, S: transport::Stream> HostRewriter<'s, S> {
    /// Sets `host` as the `Host` of the requests of `visitor`. `is_tls` is true if direct clients
    /// use TLS with the service.
    pub(super) fn new(visitor: &'s mut S, host: &str, is_tls: bool) -> Self {
        Self {
            visitor,
            requests: Requests::new(host, is_tls),
            answers: Answers::new(host, is_tls),
            raw: Vec::new(),
            ready: Vec::new(),
            ready_written: 0,
            answer: Vec::new(),
            answer_written: 0,
            ended: false,
            reader_waker: None,
        }
    }

    /// Parses the read bytes as far as possible.
    fn advance(&mut self) -> io::Result<()> {
        let used = self
            .requests
            .advance(&self.raw, &mut self.ready, &mut self.answers)
            .map_err(|refusal| io::Error::new(io::ErrorKind::InvalidData, refusal))?;
        self.raw.drain(..used);
        Ok(())
    }

    /// Reads more from the visitor; false at the end.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let filled_before = self.raw.len();
        self.raw.resize(filled_before + READ, 0);
        let mut buffer = ReadBuf::new(self.raw.get_mut(filled_before..).unwrap_or_default());
        let polled = Pin::new(&mut *self.visitor).poll_read(cx, &mut buffer);
        let filled = buffer.filled().len();
        self.raw.truncate(filled_before + filled);
        ready!(polled)?;
        Poll::Ready(Ok(filled > 0))
    }

    /// Writes the pending bytes for the visitor.
    fn poll_give(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self
            .answer
            .get(self.answer_written..)
            .filter(|rest| !rest.is_empty())
        {
            let written = ready!(Pin::new(&mut *self.visitor).poll_write(cx, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.answer_written += written;
        }
        // Frees the buffer: a chunk of a download is large, and the connection may be idle later.
        self.answer = Vec::new();
        self.answer_written = 0;
        Poll::Ready(Ok(()))
    }

    /// Wakes the reader if it no longer has to wait for a response.
    fn wake(&mut self) {
        if !self.answers.is_upgrade_open()
            && let Some(reader) = self.reader_waker.take()
        {
            reader.wake();
        }
    }

    /// Prepares bytes for the service; false if none will follow.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.ready.clear();
        self.ready_written = 0;
        loop {
            self.advance()?;
            if !self.ready.is_empty() {
                return Poll::Ready(Ok(true));
            }
            let waits = self.answers.is_upgrade_open();
            if waits {
                self.reader_waker = Some(cx.waker().clone());
                // A little is read ahead to notice a visitor that disconnects.
                if self.ended || self.raw.len() >= READ {
                    return Poll::Pending;
                }
            }
            if self.ended {
                // A truncated message is passed on truncated.
                self.ready.append(&mut self.raw);
                return Poll::Ready(Ok(!self.ready.is_empty()));
            }
            self.ended = !ready!(self.poll_fill(cx))?;
        }
    }
}

impl<S: transport::Stream> AsyncRead for HostRewriter<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.ready_written >= this.ready.len() {
            if this.answers.is_upgraded() && this.raw.is_empty() && !this.ended {
                return Pin::new(&mut *this.visitor).poll_read(cx, buf);
            }
            if !ready!(this.poll_ready(cx))? {
                return Poll::Ready(Ok(()));
            }
        }
        let rest = this.ready.get(this.ready_written..).unwrap_or_default();
        let part = rest.get(..buf.remaining()).unwrap_or(rest);
        buf.put_slice(part);
        this.ready_written += part.len();
        Poll::Ready(Ok(()))
    }
}

impl<S: transport::Stream> AsyncWrite for HostRewriter<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_give(cx))?;
        if this.answers.is_over() {
            return Pin::new(&mut *this.visitor).poll_write(cx, buf);
        }
        this.answers.advance(buf, &mut this.answer);
        this.wake();
        // Bytes that are not written now follow with the next write or flush.
        if let Poll::Ready(given) = this.poll_give(cx) {
            given?;
        }
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_give(cx))?;
        Pin::new(&mut *self.visitor).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // The service has closed its direction, so a pending response will never arrive.
        this.answers.end(&mut this.answer);
        this.wake();
        ready!(this.poll_give(cx))?;
        Pin::new(&mut *this.visitor).poll_shutdown(cx)
    }
}

/// The size of one TLS record of the visitor's connection.
const READ: usize = 16 * 1024;
