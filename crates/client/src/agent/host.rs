//! Requests that name the service itself as their host.
//!
//! Development servers refuse names that they do not know. [`HostRewriter`] stands around a visitor's
//! stream: what is read from it has the `Host` of the service, and an `Origin` that was the public
//! one becomes the service's too, because that is what such servers compare a WebSocket with. In
//! answers, addresses of the service become those of the visitor: a redirect to where it believes
//! to be would lead visitors nowhere. All else passes as it came, byte for byte.
//!
//! The stream carries HTTP/1.1 as the engine writes it: requests one behind the other, bodies of a
//! known length or in chunks, and upgrades. Answers tell whether an upgrade was accepted; from there
//! on nothing is looked at any more.

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
    /// What was read and not looked at yet.
    raw: Vec<u8>,
    /// What is ready for the service, and how much of it went out.
    ready: Vec<u8>,
    taken: usize,
    /// What is ready for the visitor, and how much of it went out.
    answer: Vec<u8>,
    given: usize,
    /// The visitor has said everything.
    ended: bool,
    /// The reader, while it waits for the answer to an upgrade.
    waiting: Option<Waker>,
}

impl<'s, S: transport::Stream> HostRewriter<'s, S> {
    /// Requests of `visitor` get `host` as their `Host`.
    pub(super) fn new(visitor: &'s mut S, host: &str) -> Self {
        Self {
            visitor,
            requests: Requests::new(host),
            answers: Answers::new(host),
            raw: Vec::new(),
            ready: Vec::new(),
            taken: 0,
            answer: Vec::new(),
            given: 0,
            ended: false,
            waiting: None,
        }
    }

    /// Takes what was read as far as it goes.
    fn advance(&mut self) -> io::Result<()> {
        let used = self
            .requests
            .advance(&self.raw, &mut self.ready, &mut self.answers)
            .map_err(|refusal| io::Error::new(io::ErrorKind::InvalidData, refusal))?;
        self.raw.drain(..used);
        Ok(())
    }

    /// Reads more of the visitor; false at the end.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let seen = self.raw.len();
        self.raw.resize(seen + READ, 0);
        let mut room = ReadBuf::new(self.raw.get_mut(seen..).unwrap_or_default());
        let polled = Pin::new(&mut *self.visitor).poll_read(cx, &mut room);
        let filled = room.filled().len();
        self.raw.truncate(seen + filled);
        ready!(polled)?;
        Poll::Ready(Ok(filled > 0))
    }

    /// Writes what is ready for the visitor.
    fn poll_give(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self
            .answer
            .get(self.given..)
            .filter(|rest| !rest.is_empty())
        {
            let given = ready!(Pin::new(&mut *self.visitor).poll_write(cx, rest))?;
            if given == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.given += given;
        }
        // A chunk of a download is large, and a connection may wait for long behind one.
        self.answer = Vec::new();
        self.given = 0;
        Poll::Ready(Ok(()))
    }

    /// Lets the reader go on, where it does not have to wait for an answer any more.
    fn wake(&mut self) {
        if !self.answers.is_upgrade_open()
            && let Some(reader) = self.waiting.take()
        {
            reader.wake();
        }
    }

    /// Makes something ready for the service; false when there will be nothing any more.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.ready.clear();
        self.taken = 0;
        loop {
            self.advance()?;
            if !self.ready.is_empty() {
                return Poll::Ready(Ok(true));
            }
            let waits = self.answers.is_upgrade_open();
            if waits {
                self.waiting = Some(cx.waker().clone());
                // A little is read ahead, so that a visitor who gives up is noticed.
                if self.ended || self.raw.len() >= READ {
                    return Poll::Pending;
                }
            }
            if self.ended {
                // A message that breaks off does so at the service as well.
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
        if this.taken >= this.ready.len() {
            if this.answers.is_upgraded() && this.raw.is_empty() && !this.ended {
                return Pin::new(&mut *this.visitor).poll_read(cx, buf);
            }
            if !ready!(this.poll_ready(cx))? {
                return Poll::Ready(Ok(()));
            }
        }
        let rest = this.ready.get(this.taken..).unwrap_or_default();
        let part = rest.get(..buf.remaining()).unwrap_or(rest);
        buf.put_slice(part);
        this.taken += part.len();
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
        // What does not go out now does so with the next write, or when it is flushed.
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
        // The service has said its last word: whoever waits for its answer waits in vain.
        this.answers.end(&mut this.answer);
        this.wake();
        ready!(this.poll_give(cx))?;
        Pin::new(&mut *this.visitor).poll_shutdown(cx)
    }
}

/// One TLS record of the visitor's connection.
const READ: usize = 16 * 1024;
