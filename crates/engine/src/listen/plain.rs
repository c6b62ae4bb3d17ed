//! The plain HTTP listener. It redirects browsers to https, answers the authority of a pending
//! certificate, and refuses all other requests.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use http1::{FieldKind, Limits, Method, Progress, RequestHead, Slots, may_complete, parse_request};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep_until, timeout};
use transport::Socket;
use types::problem::Problem;
use types::query_credential;

use super::accept_loop::accept_loop;
use crate::core::{Core, Worker};
use crate::edge::{BufferedStream, EdgeResponse, ErrorFormat};

/// Time limit of a request head, and of the response after it.
const DEADLINE: Duration = Duration::from_secs(10);

/// Serves the plain listener of one worker, from when this process serves until it drains.
pub(crate) async fn serve_plain(listener: TcpListener, worker: Arc<Worker>) {
    if !super::serves(&worker).await {
        return;
    }
    accept_loop(&listener, worker.drain.cancelled(), |stream, peer| {
        let visitor = Arc::clone(&worker);
        worker.spawn(async move {
            if let Some(socket) = super::admit::admit_visitor(stream, peer, &visitor.core).await {
                // An error needs no handling, because no data can be lost.
                serve(socket, &visitor).await.ok();
            }
        });
    })
    .await;
}

/// Serves one request and closes the connection.
async fn serve(socket: Socket, worker: &Worker) -> io::Result<()> {
    let mut io = BufferedStream::new(socket);
    let Some(answer) = timeout(DEADLINE, read(&mut io, worker)).await?? else {
        return Ok(());
    };
    timeout(DEADLINE, io.io.write_all(&answer)).await??;
    io.close().await;
    Ok(())
}

/// Parses a head as strictly as the edge does, and renders the response. `None` if no request
/// arrived within some time after the engine started to drain.
async fn read(io: &mut BufferedStream<Socket>, worker: &Worker) -> io::Result<Option<Vec<u8>>> {
    let core = &worker.core;
    let limits = Limits {
        head_bytes: core.config.limits.header_bytes,
        target_bytes: core.config.limits.url_bytes,
        ..Limits::default()
    };
    let mut scanned = 0;
    let first_until = Instant::now() + core.config.timeouts.fixed.first_request;
    loop {
        let more = poll_fn(|cx| io.poll_more(cx));
        let drained = async {
            worker.drain.cancelled().await;
            sleep_until(first_until).await;
        };
        let more = tokio::select! {
            more = more => more?,
            () = drained, if scanned == 0 => false,
        };
        if !more {
            return Ok(None);
        }
        let complete = may_complete(io.unread(), scanned, &limits);
        scanned = io.unread().len();
        if !complete {
            continue;
        }
        let mut slots = Slots::new();
        let (answer, is_head) = match parse_request(io.unread(), &limits, &mut slots) {
            Ok(Progress::Partial) => continue,
            Ok(Progress::Complete { head, .. }) => {
                let answer = challenge(&head, core).unwrap_or_else(|| redirect(&head, core));
                (answer, head.method == Method::Head)
            }
            // CONNECT is refused like all other methods except GET and HEAD.
            Err(refusal) if refusal.status == 501 => (
                EdgeResponse::problem(
                    &Problem::https_required(),
                    ErrorFormat::Json,
                    &core.page_footer,
                ),
                false,
            ),
            Err(refusal) => {
                let problem = Problem::new(refusal.status, refusal.code, refusal.reason);
                (
                    EdgeResponse::problem(&problem, ErrorFormat::Json, &core.page_footer),
                    false,
                )
            }
        };
        return Ok(Some(answer.to_http1(is_head, true)));
    }
}

/// The answer to the challenge of a pending order (RFC 8555 section 8.3). `None` for all other
/// requests.
fn challenge(head: &RequestHead<'_>, core: &Core) -> Option<EdgeResponse> {
    let challenges = core.challenges.as_ref()?;
    if !matches!(head.method, Method::Get | Method::Head) {
        return None;
    }
    let mut answer = EdgeResponse::empty(200);
    answer.body = challenges.http_answer(head.target.path())?;
    let kind = HeaderValue::from_static(acme::HTTP_CONTENT_TYPE);
    Some(answer.with_header(CONTENT_TYPE, kind))
}

/// ED-1e: a token in the address was already sent unencrypted. The response contains no location,
/// so that the token is not sent a second time.
fn redirect(head: &RequestHead<'_>, core: &Core) -> EdgeResponse {
    let query = head.target.query().unwrap_or_default();
    let accepts = head
        .fields
        .iter()
        .filter(|field| field.kind == FieldKind::Accept);
    let format = ErrorFormat::from_accept(accepts.map(|field| field.value.as_bytes()));
    let refuse = |problem: Problem| EdgeResponse::problem(&problem, format, &core.page_footer);
    if query_credential::is_present(query, query_credential::COMPAT_NAMES) {
        return refuse(Problem::token_in_clear());
    }
    if !matches!(head.method, Method::Get | Method::Head) {
        return refuse(Problem::https_required());
    }
    let port = core.tls_addr.get().map_or(443, SocketAddr::port);
    let port = match port {
        443 => String::new(),
        port => format!(":{port}"),
    };
    let query = head.target.query().map(|query| format!("?{query}"));
    let location = format!(
        "https://{}{port}{}{}",
        head.authority.host().to_ascii_lowercase(),
        head.target.path(),
        query.unwrap_or_default(),
    );
    EdgeResponse::empty(308).with_header(LOCATION, location)
}
