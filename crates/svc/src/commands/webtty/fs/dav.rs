//! WebDAV (RFC 4918), as much as is needed, over a stream of its own for each request.

use std::{io, time::Duration};

use bytes::Bytes;
use futures_util::TryStreamExt;
use http::{
    HeaderName, HeaderValue, Request, Response, StatusCode,
    header::{AUTHORIZATION, HOST, USER_AGENT},
};
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use terminal::client::{Endpoint, SessionError};
use tokio::{io::AsyncRead, time::timeout};
use tokio_util::io::ReaderStream;
use types::webtty::Transport;

use super::super::{ended, target::Reached};
use crate::{
    failure::{Code, Failure, chain},
    output::plain,
};

/// What is sent.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The files of one server.
pub(super) struct Files {
    endpoint: Endpoint,
    url: String,
    /// Where they begin; without a `/` at its end.
    root: String,
}

/// What came back.
pub(super) struct Answer {
    response: Response<Incoming>,
    path: String,
}

impl Files {
    /// Those of a server, if it has any. `path` is taken where nobody says where they are.
    pub(super) fn of(reached: Reached, path: &str) -> Result<Self, Failure> {
        let no_files = |why: &str| {
            let message = format!("{} serves no files{why}", plain(&reached.url));
            Failure::new(Code::NotAvailable, message)
                .named("webtty_no_files")
                .hint("start the server with --fs-root")
        };
        let mut root = path.to_owned();
        if let Some(server) = &reached.server {
            if !server.capabilities.iter().any(|word| word == "fs") {
                return Err(no_files(""));
            }
            if server.fs_backend != "webdav" {
                return Err(no_files(" over WebDAV"));
            }
            root.clone_from(&server.fs_path);
        }
        if let Endpoint::Private {
            transport: Transport::Plain,
            ..
        } = &reached.endpoint
        {
            return Err(no_files(" over its transport"));
        }
        if !root.starts_with('/') {
            return Err(Failure::usage("--fs-path begins with a `/`"));
        }
        Ok(Self {
            endpoint: reached.endpoint,
            url: reached.url,
            root: root.trim_end_matches('/').to_owned(),
        })
    }

    /// The path of a file as requests have it.
    pub(super) fn path(&self, path: &str) -> String {
        let path = path.trim_start_matches('/');
        format!("{}/{}", self.root, utf8_percent_encode(path, PATH))
    }

    /// One request, up to the head of its answer.
    pub(super) async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Body,
        headers: &[(&'static str, String)],
    ) -> Result<Answer, Failure> {
        let broken = |error: &dyn std::error::Error| {
            let message = format!("{}: {}", plain(&self.url), plain(&chain(error)));
            Failure::new(Code::Failed, message).named("webtty_files")
        };
        let mut request = Request::builder()
            .method(method)
            .uri(self.path(path))
            .header(USER_AGENT, concat!("svc/", env!("CARGO_PKG_VERSION")));
        match &self.endpoint {
            Endpoint::Url { url, bearer, .. } => {
                request = request.header(HOST, url.address.to_string());
                if let Some(token) = bearer {
                    let bearer = HeaderValue::try_from(format!("Bearer {}", token.expose()));
                    let bearer = bearer.map_err(|error| broken(&error))?;
                    request = request.header(AUTHORIZATION, bearer);
                }
            }
            Endpoint::Private { .. } => request = request.header(HOST, "localhost"),
        }
        for (name, value) in headers {
            request = request.header(HeaderName::from_static(name), value);
        }
        let request = request.body(body).map_err(|error| broken(&error))?;
        let opened = self.endpoint.open().await;
        let stream =
            opened.map_err(|error| ended::failed(SessionError::Connection(error), &self.url))?;
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| broken(&error))?;
        // It ends with the answer; what goes wrong is told to who reads that.
        tokio::spawn(async move { drop(connection.await) });
        // A body that is sent takes its time; an answer that nothing is sent for does not.
        let response = sender.send_request(request).await;
        Ok(Answer {
            response: response.map_err(|error| broken(&error))?,
            path: path.to_owned(),
        })
    }
}

impl Answer {
    /// The same, if it has one of these statuses; otherwise what went wrong.
    pub(super) fn expect(self, wanted: &[StatusCode]) -> Result<Self, Failure> {
        let status = self.response.status();
        if wanted.contains(&status) {
            return Ok(self);
        }
        let path = plain(&self.path);
        let (code, name, message) = match status {
            StatusCode::NOT_FOUND => (
                Code::Failed,
                "file_not_found",
                format!("there is no {path}"),
            ),
            StatusCode::UNAUTHORIZED => (
                Code::Refused,
                "unauthorized",
                "the server does not take the token".to_owned(),
            ),
            StatusCode::FORBIDDEN => (
                Code::Refused,
                "forbidden",
                format!("{path} must not be read or changed"),
            ),
            StatusCode::PAYLOAD_TOO_LARGE => (
                Code::Failed,
                "file_too_large",
                format!("{path} is larger than the server takes"),
            ),
            StatusCode::CONFLICT => (
                Code::Failed,
                "no_directory",
                format!("the directory of {path} is not there"),
            ),
            StatusCode::METHOD_NOT_ALLOWED => (
                Code::Failed,
                "file_not_allowed",
                format!("this cannot be done with {path}: it is there already, or no file"),
            ),
            status => (
                Code::Failed,
                "webtty_files",
                format!("{path}: the server answered {status}"),
            ),
        };
        Err(Failure::new(code, message).named(name))
    }

    /// The next piece of the body; `None` at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let broken = |what: String| Failure::new(Code::Failed, what).named("webtty_files");
        loop {
            let frame = timeout(SILENCE, self.response.body_mut().frame());
            let frame = frame
                .await
                .map_err(|_elapsed| broken("the server does not go on".to_owned()))?;
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
                Some(Err(error)) => {
                    return Err(broken(format!("the answer broke off: {}", chain(&error))));
                }
                None => return Ok(None),
            }
        }
    }

    /// The whole body, if it is no longer than a limit.
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
        String::from_utf8(all).map_err(|error| Failure::of("the list cannot be read", error))
    }
}

/// Nothing.
pub(super) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// What is here already.
pub(super) fn whole(bytes: Vec<u8>) -> Body {
    Full::from(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// What is read, as it is read.
pub(super) fn streamed(from: impl AsyncRead + Send + 'static) -> Body {
    let frames = ReaderStream::with_capacity(from, READ).map_ok(Frame::data);
    StreamBody::new(frames).boxed_unsync()
}

/// What stands for itself in a path (RFC 3986 section 3.3): everything but what would end it, and what
/// is no character of a URL.
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

/// One read of a file.
const READ: usize = 64 * 1024;

/// How long a body may say nothing: a disk that has to wake up answers within.
const SILENCE: Duration = Duration::from_secs(30);

/// A directory of some ten thousand files.
const MAX_LISTING: usize = 16 * 1024 * 1024;
