//! A minimal WebDAV client (RFC 4918), with one stream for each request.

use std::{io, time::Duration};

use bytes::Bytes;
use futures_util::TryStreamExt;
use http::{
    HeaderName, HeaderValue, Method, Request, Response, StatusCode,
    header::{AUTHORIZATION, HOST, USER_AGENT},
};
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use terminal::client::{Endpoint, SessionError};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::io::{InspectWriter, ReaderStream};
use types::webtty::Transport;

use super::super::{command_end, target::ResolvedServer};
use crate::{
    failure::{Code, Failure, chain},
    output::plain,
};

/// Body of a request.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The files of one server.
pub(super) struct Files {
    endpoint: Endpoint,
    url: String,
    /// Base path of the files, without a final `/`.
    root: String,
}

/// A response.
pub(super) struct DavResponse {
    response: Response<Incoming>,
    path: String,
}

impl Files {
    /// The files of a server, if it offers any. `path` is the default if the server does not state
    /// one.
    pub(super) fn from_server(server: ResolvedServer, path: &str) -> Result<Self, Failure> {
        let no_files = |why: &str| {
            let message = format!("{} does not serve files{why}", plain(&server.url));
            Failure::new(Code::NotAvailable, message)
                .named("webtty_no_files")
                .hint("start the server with --fs-root")
        };
        let mut root = path.to_owned();
        if let Some(record) = &server.server {
            if !record.capabilities.iter().any(|word| word == "fs") {
                return Err(no_files(""));
            }
            if record.fs_backend != "webdav" {
                return Err(no_files(" over WebDAV"));
            }
            root.clone_from(&record.fs_path);
        }
        if let Endpoint::Private {
            transport: Transport::Plain,
            ..
        } = &server.endpoint
        {
            return Err(no_files(" over its transport"));
        }
        if !root.starts_with('/') {
            return Err(Failure::usage("--fs-path must start with a `/`"));
        }
        Ok(Self {
            endpoint: server.endpoint,
            url: server.url,
            root: root.trim_end_matches('/').to_owned(),
        })
    }

    /// The request path of a file.
    pub(super) fn path(&self, path: &str) -> String {
        let path = path.trim_start_matches('/');
        format!("{}/{}", self.root, utf8_percent_encode(path, PATH))
    }

    /// Sends one request, and returns at the response head.
    pub(super) async fn send_request(
        &self,
        method: &str,
        path: &str,
        body: Body,
        headers: &[(&'static str, String)],
    ) -> Result<DavResponse, Failure> {
        let failure = |error: &dyn std::error::Error| self.failure(&chain(error));
        let mut request = Request::builder()
            .method(method)
            .uri(self.path(path))
            .header(USER_AGENT, concat!("svc/", env!("CARGO_PKG_VERSION")));
        match &self.endpoint {
            Endpoint::Url { url, bearer, .. } => {
                request = request.header(HOST, url.address.to_string());
                if let Some(token) = bearer {
                    let bearer = HeaderValue::try_from(format!("Bearer {}", token.expose()));
                    let bearer = bearer.map_err(|error| failure(&error))?;
                    request = request.header(AUTHORIZATION, bearer);
                }
            }
            Endpoint::Private { .. } => request = request.header(HOST, "localhost"),
        }
        for (name, value) in headers {
            request = request.header(HeaderName::from_static(name), value);
        }
        let request = request.body(body).map_err(|error| failure(&error))?;
        let opened = self.endpoint.open().await;
        let stream = opened
            .map_err(|error| command_end::failed(SessionError::Connection(error), &self.url))?;
        Ok(DavResponse {
            response: self.exchange(stream, request).await?,
            path: path.to_owned(),
        })
    }

    /// Sends a request on its own stream, and waits for the response head.
    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Failure> {
        let failure = |error| self.failure(&chain(&error));
        // An upload takes time, as does the removal of a directory with its contents.
        let is_long = !request.body().is_end_stream() || request.method() == Method::DELETE;
        let bound = if is_long { LONG_SILENCE } else { SILENCE };
        let (progress, mut sent) = watch::channel(());
        let stream = InspectWriter::new(stream, move |_bytes: &[u8]| {
            progress.send_replace(());
        });
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(failure)?;
        // The task ends with the response. Errors reach the reader of the response.
        tokio::spawn(async move { drop(connection.await) });
        let answer = sender.send_request(request);
        tokio::pin!(answer);
        loop {
            tokio::select! {
                biased;
                response = &mut answer => return response.map_err(failure),
                // Progress of the upload resets the timeout.
                Ok(()) = sent.changed() => {}
                () = sleep(bound) => return Err(self.failure("the server does not answer")),
            }
        }
    }

    fn failure(&self, why: &str) -> Failure {
        let message = format!("{}: {}", plain(&self.url), plain(why));
        Failure::new(Code::Failed, message).named("webtty_files")
    }
}

impl DavResponse {
    /// The response if it has one of these statuses, or else the failure.
    pub(super) fn require_status(self, wanted: &[StatusCode]) -> Result<Self, Failure> {
        let status = self.response.status();
        if wanted.contains(&status) {
            return Ok(self);
        }
        let path = plain(&self.path);
        let (code, name, message) = match status {
            StatusCode::NOT_FOUND => (
                Code::Failed,
                "file_not_found",
                format!("{path} does not exist"),
            ),
            StatusCode::UNAUTHORIZED => (
                Code::Refused,
                "unauthorized",
                "the server does not accept the token".to_owned(),
            ),
            StatusCode::FORBIDDEN => (
                Code::Refused,
                "forbidden",
                format!("access to {path} is not allowed"),
            ),
            StatusCode::PAYLOAD_TOO_LARGE => (
                Code::Failed,
                "file_too_large",
                format!("{path} is larger than the server accepts"),
            ),
            StatusCode::CONFLICT => (
                Code::Failed,
                "no_directory",
                format!("the directory of {path} does not exist"),
            ),
            StatusCode::METHOD_NOT_ALLOWED => (
                Code::Failed,
                "file_not_allowed",
                format!(
                    "the operation is not allowed for {path}: it exists already, or is not a \
                         file"
                ),
            ),
            status => (
                Code::Failed,
                "webtty_files",
                format!("{path}: the server answered {status}"),
            ),
        };
        Err(Failure::new(code, message).named(name))
    }

    /// The next piece of the body. `None` at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let failure = |what: String| Failure::new(Code::Failed, what).named("webtty_files");
        loop {
            let frame = timeout(SILENCE, self.response.body_mut().frame());
            let frame = frame
                .await
                .map_err(|_elapsed| failure("the server stopped sending".to_owned()))?;
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(error)) => {
                    return Err(failure(format!(
                        "the response ended early: {}",
                        chain(&error)
                    )));
                }
                None => return Ok(None),
            }
        }
    }

    /// The complete body, if it is within the limit.
    pub(super) async fn text(mut self) -> Result<String, Failure> {
        let mut all = Vec::new();
        while let Some(bytes) = self.next().await? {
            if all.len() + bytes.len() > MAX_LISTING {
                return Err(Failure::new(
                    Code::Failed,
                    "the list is too long to be read",
                ));
            }
            all.extend_from_slice(&bytes);
        }
        String::from_utf8(all)
            .map_err(|error| Failure::from_error("the list cannot be read", error))
    }
}

/// An empty body.
pub(super) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body from memory.
pub(super) fn full_body(bytes: Vec<u8>) -> Body {
    Full::from(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body that is streamed from a reader.
pub(super) fn streamed(from: impl AsyncRead + Send + 'static) -> Body {
    let frames = ReaderStream::with_capacity(from, READ).map_ok(Frame::data);
    StreamBody::new(frames).boxed_unsync()
}

/// Escapes in a path (RFC 3986 section 3.3): characters that would end the path, and characters
/// that are invalid in a URL.
const PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Size of one read of a file, in bytes.
const READ: usize = 64 * 1024;

/// Time limit for the next bytes. It is long enough for a disk to spin up.
const SILENCE: Duration = Duration::from_secs(30);

/// The limit for long operations. It covers the removal of some hundred thousand files, and the
/// last megabytes of an upload that a system buffers for a slow line.
const LONG_SILENCE: Duration = Duration::from_mins(10);

/// Limit of a listing: enough for a directory of some ten thousand files.
const MAX_LISTING: usize = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use client::Trust;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        time::Instant,
    };

    use super::*;

    /// Sends a request to the server at the other end. Returns the result, and the elapsed time.
    async fn timed_request(
        method: &str,
        body: Body,
        near: DuplexStream,
    ) -> (Result<u16, Failure>, Duration) {
        let files = Files {
            endpoint: Endpoint::url("ws://a", None, Trust::Platform).unwrap(),
            url: "ws://a/".to_owned(),
            root: "/fs".to_owned(),
        };
        let request = Request::builder().method(method).uri("/fs/a");
        let began = Instant::now();
        let answer = files.exchange(near, request.body(body).unwrap()).await;
        (
            answer.map(|answer| answer.status().as_u16()),
            began.elapsed(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_times_out() {
        for (method, body, bound) in [
            ("GET", empty(), SILENCE),
            ("PROPFIND", empty(), SILENCE),
            ("DELETE", empty(), LONG_SILENCE),
            ("PUT", full_body(vec![0; 1024 * 1024]), LONG_SILENCE),
        ] {
            let (near, _far) = duplex(READ);
            let (answer, after) = timed_request(method, body, near).await;
            let failure = answer.unwrap_err();
            assert_eq!(failure.name(), "webtty_files", "{method}");
            assert_eq!(failure.message(), "ws://a/: the server does not answer");
            assert!((bound..bound * 2).contains(&after), "{method}: {after:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_with_progress_does_not_time_out() {
        let (near, mut far) = duplex(READ);
        let body = vec![0; 8 * READ];
        let length = body.len();
        let server = async {
            let mut read = vec![0; READ];
            let mut left = length;
            while left > 0 {
                sleep(LONG_SILENCE * 2 / 3).await;
                left = left.saturating_sub(far.read(&mut read).await.unwrap());
            }
            sleep(LONG_SILENCE * 2 / 3).await;
            let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
            far.write_all(answer).await.unwrap();
        };
        let ((answer, after), ()) =
            tokio::join!(timed_request("PUT", full_body(body), near), server);
        assert_eq!(answer.unwrap(), 201);
        assert!(after > LONG_SILENCE * 3, "{after:?}");
    }
}
