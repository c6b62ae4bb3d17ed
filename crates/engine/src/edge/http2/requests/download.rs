//! Responses to HTTP/2 visitors.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use http1::{BodyReader, BodyState, Slots, parse_trailers};
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::sync::mpsc;
use tokio_util::sync::PollSender;
use transport::Scratch;
use types::id::TunnelId;

use crate::core::Worker;
use crate::edge::access_record::{AccessRecord, Outcome};
use crate::edge::headers::identity::ReservedNames;
use crate::edge::headers::trailers;
use crate::edge::http2::requests::upload::Upload;
use crate::edge::http2::slow_reader_timeout;
use crate::edge::upstream;
use crate::edge::upstream::{Http1, ServiceBody, StreamPermit, UpstreamIo};

/// A response body for an HTTP/2 visitor.
pub(in crate::edge) enum DownstreamBody {
    /// Body of a response of the edge itself.
    Full(Option<Bytes>),
    /// Body from a service with HTTP/1.1.
    Http1(Box<Http1Body>),
    /// Body from a service with HTTP/1.1, while a task still sends the request.
    Channel(mpsc::Receiver<io::Result<Frame<Bytes>>>),
    /// Body from a service with HTTP/2.
    Http2(Box<Http2Body>),
}

/// A response body that passes unchanged.
pub(in crate::edge) struct Http2Body {
    pub(super) body: ServiceBody,
    pub(super) record: AccessRecord,
    pub(super) bytes: u64,
    pub(super) permit: StreamPermit,
}

/// Capacity of the channel from the task that sends the rest of a request. It is one, so that
/// frames that the visitor cannot take are not read.
const FRAMES: usize = 1;

/// Reads the response, and sends the rest of the request meanwhile.
pub(in crate::edge) struct Http1Body {
    reader: BodyReader,
    /// `None` once the response has been read.
    upstream: Option<Http1>,
    upload: Upload,
    record: Option<AccessRecord>,
    worker: Arc<Worker>,
    tunnel: TunnelId,
    reusable: bool,
    announced: Option<Duration>,
    bytes: u64,
}

impl Http1Body {
    /// Starts after the response head. `reader` has the framing of the body, and `reusable` is true
    /// if the connection can be used again, for the time that the service has `announced`.
    pub(super) fn new(
        worker: &Arc<Worker>,
        tunnel: TunnelId,
        (reader, reusable, announced): (BodyReader, bool, Option<Duration>),
        upstream: Http1,
        upload: Upload,
        record: AccessRecord,
    ) -> Self {
        let mut body = Self {
            reader,
            upstream: Some(upstream),
            upload,
            record: Some(record),
            worker: Arc::clone(worker),
            tunnel,
            reusable,
            announced,
            bytes: 0,
        };
        if body.reader.is_done() && body.upload.is_sent() {
            body.finish();
        }
        body
    }

    /// Converts this into a body, which is polled only while the visitor reads.
    /// The upload must not wait for the visitor to read: it may send the whole request before
    /// it reads. If the upload is incomplete, a task continues it.
    pub(super) fn into_body(self) -> DownstreamBody {
        slow_reader_timeout::set_revocation_signal(
            self.record.as_ref().and_then(AccessRecord::revocation),
        );
        if self.upstream.is_none() || self.upload.is_sent() {
            return DownstreamBody::Http1(Box::new(self));
        }
        let (frames, down) = mpsc::channel(FRAMES);
        let worker = Arc::clone(&self.worker);
        worker.spawn(self.send_both(frames));
        DownstreamBody::Channel(down)
    }

    /// Sends the request and reads the response, until the response is complete or the visitor has
    /// closed the stream.
    async fn send_both(mut self, frames: mpsc::Sender<io::Result<Frame<Bytes>>>) {
        let visitor = frames.clone();
        let mut frames = PollSender::new(frames);
        let sending = poll_fn(|cx| {
            loop {
                if let Some(upstream) = &mut self.upstream {
                    // A visitor that aborts its request still gets the response.
                    self.upload.poll(cx, &mut upstream.io).ok();
                }
                if ready!(frames.poll_reserve(cx)).is_err() {
                    return Poll::Ready(());
                }
                let Some(frame) = ready!(self.poll_frame(cx)) else {
                    return Poll::Ready(());
                };
                if frames.send_item(frame).is_err() {
                    return Poll::Ready(());
                }
            }
        });
        tokio::select! {
            () = sending => {}
            () = visitor.closed() => {}
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(upstream) = &mut self.upstream else {
            return Poll::Ready(None);
        };
        if let Some(record) = &mut self.record
            && record.poll_revoked(cx).is_ready()
        {
            record.set_bytes(self.upload.written, self.bytes);
            self.upstream = None;
            return Poll::Ready(Some(Err(io::ErrorKind::PermissionDenied.into())));
        }
        // A visitor that aborts its request still gets the response in progress.
        self.upload.poll(cx, &mut upstream.io).ok();
        let frame = ready!(poll_service(cx, &mut self.reader, upstream));
        match &frame {
            Some(Ok(frame)) => {
                self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                if let Some(record) = &mut self.record {
                    record.set_bytes(self.upload.written, self.bytes);
                }
                if self.reader.is_done() {
                    self.finish();
                }
            }
            Some(Err(error)) => {
                upstream.io.report_no_response();
                if let Some(record) = &mut self.record {
                    record.set_bytes(self.upload.written, self.bytes);
                    record.set_failure(error.to_string());
                }
                self.upstream = None;
            }
            None => self.finish(),
        }
        Poll::Ready(frame)
    }

    /// Handles the end of the response: returns the connection to the pool and completes the
    /// record.
    fn finish(&mut self) {
        let Some(mut upstream) = self.upstream.take() else {
            return;
        };
        if let Some(mut record) = self.record.take() {
            record.set_bytes(self.upload.written, self.bytes);
            record.set_outcome(Outcome::Served);
        }
        if self.upload.is_sent() {
            upstream.io.stream_mut().end_exchange();
            if self.reusable && upstream.unread().is_empty() {
                upstream::keep(&self.worker, self.tunnel, upstream, self.announced);
            }
        } else if !self.upload.is_aborted() {
            let mut upload = std::mem::replace(&mut self.upload, Upload::already_sent());
            let rest = move |cx: &mut Context<'_>, io: &mut UpstreamIo| upload.poll_out(cx, io);
            self.worker.spawn(upstream::end_early(upstream, rest));
        }
    }
}

/// Reads the next frame of a body.
fn poll_service(
    cx: &mut Context<'_>,
    reader: &mut BodyReader,
    upstream: &mut Http1,
) -> Poll<Option<io::Result<Frame<Bytes>>>> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    loop {
        if reader.is_done() {
            return Poll::Ready(None);
        }
        if !upstream.unread().is_empty() {
            let unread = upstream.unread();
            let step = reader.advance(unread).map_err(invalid)?;
            let data = unread.get(step.data).unwrap_or_default();
            let data = (!data.is_empty()).then(|| Bytes::copy_from_slice(data));
            let trailers = match &step.state {
                BodyState::Trailers(range) => Some(read_trailers(
                    unread.get(range.clone()).unwrap_or_default(),
                )?),
                BodyState::More | BodyState::Done => None,
            };
            upstream.consume(step.consumed);
            if let Some(data) = data {
                // Trailers are parsed in a separate step after the last data.
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if let Some(trailers) = trailers {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            if step.consumed > 0 {
                continue;
            }
            if !ready!(upstream.poll_more(cx))? {
                reader.finish().map_err(invalid)?;
                return Poll::Ready(None);
            }
            continue;
        }
        let mut scratch = Scratch::take(Scratch::SMALL);
        let mut buf = ReadBuf::new(&mut scratch);
        ready!(Pin::new(&mut upstream.io).poll_read(cx, &mut buf))?;
        if buf.filled().is_empty() {
            reader.finish().map_err(invalid)?;
            *reader = BodyReader::Done;
            return Poll::Ready(None);
        }
        upstream.append(buf.filled());
    }
}

fn read_trailers(section: &[u8]) -> io::Result<HeaderMap> {
    let mut slots = Slots::new();
    let fields = parse_trailers(section, &mut slots)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let mut trailers = HeaderMap::new();
    for field in fields.iter() {
        let name = HeaderName::from_bytes(&field.name).map_err(io::Error::other)?;
        let value = HeaderValue::from_bytes(&field.value).map_err(io::Error::other)?;
        trailers.append(name, value);
    }
    Ok(trailers)
}

impl Body for DownstreamBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let polled = self.get_mut().poll_next_frame(cx);
        slow_reader_timeout::record_body_poll(&polled);
        polled
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Http1(body) => body.upstream.is_none(),
            Self::Channel(_) => false,
            Self::Http2(passed) => passed.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Http1(_) | Self::Channel(_) => SizeHint::default(),
            Self::Http2(passed) => passed.body.size_hint(),
        }
    }
}

impl DownstreamBody {
    fn poll_next_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self {
            Self::Full(bytes) => Poll::Ready(
                bytes
                    .take()
                    .filter(|bytes| !bytes.is_empty())
                    .map(|bytes| Ok(Frame::data(bytes))),
            ),
            Self::Http1(body) => body.poll_frame(cx),
            Self::Channel(frames) => frames.poll_recv(cx),
            Self::Http2(passed) => {
                let Http2Body {
                    body,
                    record,
                    bytes,
                    permit,
                } = &mut **passed;
                if record.poll_revoked(cx).is_ready() {
                    record.add_sent_bytes(*bytes);
                    return Poll::Ready(Some(Err(io::ErrorKind::PermissionDenied.into())));
                }
                let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
                match &frame {
                    Some(Ok(frame)) => {
                        *bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                        // The library does not poll again after the end of the stream.
                        if frame.is_trailers() || body.is_end_stream() {
                            record.set_outcome(Outcome::Served);
                        }
                    }
                    Some(Err(error)) => {
                        record.set_failure(error.to_string());
                        if upstream::is_service_failure(error) {
                            permit.record_failure();
                        }
                    }
                    None => record.set_outcome(Outcome::Served),
                }
                record.add_sent_bytes(*bytes);
                Poll::Ready(frame.map(|frame| {
                    let none = ReservedNames::default();
                    let frame = frame.map(|frame| trailers::filter(frame, &none));
                    frame.map_err(io::Error::other)
                }))
            }
        }
    }
}
