//! One HTTP/2 request to a service, and its response.

mod answer;
mod download;
mod upload;

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body as _;
use http1::{BodyLength, BodyReader, FieldValue, field_name};
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use types::problem::Problem;

use self::answer::{ResponseError, ResponseReader, UpstreamResponse};
pub(in crate::edge) use self::download::DownstreamBody;
use self::download::{Http1Body, Http2Body};
use self::upload::{Http2Upload, Upload};
use super::refusal;
use crate::agents::StreamOrigin;
use crate::core::Worker;
use crate::edge::access_record::{AccessRecord, Outcome};
use crate::edge::headers::forwarding::add_field;
use crate::edge::headers::identity::ReservedNames;
use crate::edge::headers::translate;
use crate::edge::http1::exchange::problem_of;
use crate::edge::http1::upgrade::Upgrade;
use crate::edge::http2::slow_reader_timeout;
use crate::edge::http2::stream::InterimSender;
use crate::edge::http2::upgraded_stream::UpgradedStream;
use crate::edge::http2::visitor_body::VisitorBody;
use crate::edge::raw;
use crate::edge::response_timeout::{Progress, ResponseTimeout, await_with_timeout};
use crate::edge::revocation;
use crate::edge::routing::AdmittedRequest;
use crate::edge::upstream;
use crate::edge::upstream::{
    Connection, Http1, Http2, Http2Exchange, Http2ResponseError, ServiceBody, ServiceResponse,
    StreamPermit,
};
use crate::edge::websocket::DrainEnd;
use crate::random::random_bytes;

/// Serves one request. `body` is `None` if the request has no body.
#[expect(
    clippy::too_many_lines,
    reason = "one decision with its cases in order"
)]
pub(in crate::edge) async fn run(
    worker: &Arc<Worker>,
    source: SocketAddr,
    mut forward: AdmittedRequest,
    body: Option<(VisitorBody, BodyLength)>,
    mut record: AccessRecord,
    interim: &InterimSender,
) -> Response<DownstreamBody> {
    let started = Instant::now();
    let reserved = ReservedNames::of(&forward.tunnel.policy);
    let mut upload = Upload::new(forward.head.clone(), body, reserved);
    let mut bypass_pool = false;
    // The body of a request that was sent with HTTP/2, and is sent again.
    let mut sent: Option<Http2Upload> = None;
    loop {
        let origin = stream_origin(source, &record);
        let connected = upstream::connect(worker, &forward.tunnel, origin, bypass_pool);
        let connection = match connected.await {
            Ok(connection) => connection,
            Err(error) => {
                if forward.fail_over(&worker.core, &mut record) {
                    continue;
                }
                record.set_failure(error.to_string());
                return refuse(&forward, record, &problem_of(&error));
            }
        };
        record.mark_stream_opened();
        let mut upstream = match connection {
            Connection::Http1(io) if sent.is_none() => io,
            Connection::Http2(http2) if !upload.has_started() => {
                let mut body = sent
                    .take()
                    .unwrap_or_else(|| upload.take_http2(http2.is_reused));
                let sending = send_http2(
                    worker,
                    &forward,
                    &mut body,
                    http2,
                    started,
                    &mut record,
                    interim,
                );
                let (reason, may_retry) = match sending.await {
                    Ok((response, permit)) => {
                        return respond_http2(&forward, response, permit, record);
                    }
                    Err(ResponseHeadError::Refused(problem)) => {
                        return refuse(&forward, record, &problem);
                    }
                    Err(ResponseHeadError::ConnectionFailed(reason, may_retry)) => {
                        (reason, may_retry)
                    }
                };
                if may_retry
                    && let Some(again) = body.again()
                    && (!bypass_pool || forward.fail_over(&worker.core, &mut record))
                {
                    // A request without a body may be sent with either version.
                    sent = Some(again).filter(|again| again.has_body);
                    bypass_pool = !bypass_pool;
                    continue;
                }
                forward.tunnel.health.record_failure();
                record.set_failure(reason);
                return refuse(&forward, record, &Problem::upstream_unreachable());
            }
            Connection::Http1(_) | Connection::Http2(_) => {
                record.set_failure("the service changed its HTTP version");
                return refuse(&forward, record, &Problem::upstream_unreachable());
            }
        };
        upload.keep_for_replay(upstream.io.stream_mut().begin_exchange());
        let mut reader = ResponseReader::new(forward.is_head, None, interim);
        let period = ResponseTimeout::for_tunnel(&forward.tunnel, &worker.core.config);
        let answering = await_with_timeout(started, period, |cx| {
            let answer = reader.poll(cx, &mut upload, &mut upstream);
            record.set_bytes(upload.written, 0);
            let progress = Progress {
                count: upload.written,
                waits_for_visitor: upload.waits_for_visitor(),
            };
            (answer, progress)
        });
        match answering.await {
            Some(Ok(answer)) => {
                return respond(worker, &forward, answer, upstream, upload, record);
            }
            Some(Err(ResponseError::NoResponse(reason))) => {
                let refused = upstream.io.refusal();
                let is_sure = refused.is_some() || forward.idempotent;
                let is_undelivered =
                    !is_sure && upload.is_replayable() && upstream.io.is_undelivered().await;
                if refused.is_none() && !is_undelivered {
                    upstream.io.report_no_response();
                }
                // A retry is safe: the agent reports that no service received the request, or the
                // request is idempotent.
                let may_retry = upload.is_replayable() && (is_sure || is_undelivered);
                if may_retry && upload.rewind() {
                    if !bypass_pool && refused.is_none() {
                        bypass_pool = true;
                        continue;
                    }
                    if forward.fail_over(&worker.core, &mut record) {
                        bypass_pool = false;
                        continue;
                    }
                }
                let Some(refusal) = refused else {
                    record.set_failure(reason);
                    return refuse(&forward, record, &Problem::upstream_unreachable());
                };
                let problem = upstream::problem_of_refusal(&forward.tunnel, &refusal);
                record.set_unreachable(refusal.text().to_owned());
                return refuse(&forward, record, &problem);
            }
            Some(Err(ResponseError::Broken(reason))) => {
                upstream.io.report_no_response();
                record.set_failure(reason);
                return refuse(&forward, record, &Problem::upstream_unreachable());
            }
            Some(Err(ResponseError::Invalid(reason))) => {
                record.set_failure(reason);
                let problem = upstream.io.refuse_response(reason);
                return refuse(&forward, record, &problem);
            }
            Some(Err(ResponseError::VisitorGone)) => {
                return refuse(&forward, record, &Problem::conflict());
            }
            None => {
                record.set_failure("no answer in time");
                return refuse(&forward, record, &Problem::upstream_timeout());
            }
        }
    }
}

/// The visitor at an address, for the stream of a request.
fn stream_origin(source: SocketAddr, record: &AccessRecord) -> StreamOrigin {
    StreamOrigin {
        source,
        reference: record.reference(),
        is_terminated: true,
    }
}

fn refuse(
    forward: &AdmittedRequest,
    mut record: AccessRecord,
    problem: &Problem,
) -> Response<DownstreamBody> {
    refusal(
        record.problem_answer(problem, forward.error_format),
        forward.is_head,
    )
}

/// Reason why there is no response head from an HTTP/2 service.
enum ResponseHeadError {
    /// The stream or its connection failed, with the error. True if the request may be sent again.
    ConnectionFailed(String, bool),
    Refused(Problem),
}

/// Forwards a request between HTTP/2 peers. Heads are converted once, and bodies pass unchanged.
async fn send_http2(
    worker: &Worker,
    forward: &AdmittedRequest,
    upload: &mut Http2Upload,
    http2: Http2,
    started: Instant,
    record: &mut AccessRecord,
    interim: &InterimSender,
) -> Result<(Response<ServiceBody>, StreamPermit), ResponseHeadError> {
    let Http2 { send, permit, .. } = http2;
    let tls = forward.tunnel.view.properties.upstream_tls == Some(true);
    let body = upload.body.sender();
    let Some(request) = translate::request(&forward.head, tls, forward.accepts_trailers, body)
    else {
        return Err(ResponseHeadError::Refused(Problem::upstream_unreachable()));
    };
    let before = permit.written();
    let mut exchange = Http2Exchange::new(send, &worker.runtime, request);
    let period = ResponseTimeout::for_tunnel(&forward.tunnel, &worker.core.config);
    record.set_upload_counter(upload.counter.clone());
    let answering = await_with_timeout(started, period, |cx| {
        record.add_sent_bytes(0);
        upload.body.poll_expiry(cx);
        let answer = poll_http2(cx, &mut exchange, interim, &mut upload.expects_continue);
        (answer, upload.counter.progress())
    });
    match answering.await {
        Some(Ok(response)) => {
            upload.body.release();
            permit.mark_answered();
            Ok((response, permit))
        }
        Some(Err(_)) if upload.counter.is_broken() => {
            Err(ResponseHeadError::Refused(Problem::conflict()))
        }
        Some(Err(error @ Http2ResponseError::Invalid(_))) => {
            error.record(&permit);
            let reason = error.to_string();
            record.set_failure(reason.clone());
            let problem = Problem::upstream_invalid_response().with_detail(reason);
            Err(ResponseHeadError::Refused(problem))
        }
        Some(Err(error)) => {
            let is_repeatable = upload.body.is_repeatable();
            let asks_agent = !forward.idempotent && is_repeatable;
            let is_unprocessed = exchange.is_unprocessed(&error)
                || (asks_agent && error.is_undelivered(&permit, before).await);
            let may_retry = is_repeatable && (is_unprocessed || forward.idempotent);
            if !may_retry || !is_unprocessed {
                error.record(&permit);
            }
            Err(ResponseHeadError::ConnectionFailed(
                error.to_string(),
                may_retry,
            ))
        }
        None => {
            permit.record_failure();
            upstream::discard_http2(worker, &forward.tunnel, &permit);
            record.set_failure("no answer in time");
            Err(ResponseHeadError::Refused(Problem::upstream_timeout()))
        }
    }
}

/// Sends a request, forwards the interim responses, and waits for the final one. Few services with
/// HTTP/2 send a 100, so the edge itself sends it if the visitor expects one.
fn poll_http2(
    cx: &mut Context<'_>,
    exchange: &mut Http2Exchange,
    interim: &InterimSender,
    expects_continue: &mut bool,
) -> Poll<Result<Response<ServiceBody>, Http2ResponseError>> {
    if *expects_continue {
        ready!(exchange.poll_ready(cx))?;
        *expects_continue = false;
        interim.send_continue(cx);
    }
    loop {
        match ready!(exchange.poll(cx))? {
            ServiceResponse::Interim(response) if response.status() == StatusCode::CONTINUE => {}
            ServiceResponse::Interim(mut response) => {
                translate::strip_response_fields(response.headers_mut());
                interim.send(cx, response);
            }
            ServiceResponse::Final(response) => return Poll::Ready(Ok(response)),
        }
    }
}

/// Forwards the response of a service that uses HTTP/2.
fn respond_http2(
    forward: &AdmittedRequest,
    response: Response<ServiceBody>,
    permit: StreamPermit,
    mut record: AccessRecord,
) -> Response<DownstreamBody> {
    forward.tunnel.health.record_success();
    record.mark_first_byte();
    record.set_status(response.status().as_u16());
    if response.body().is_end_stream() {
        record.set_outcome(Outcome::Served);
    }
    let (mut parts, body) = response.into_parts();
    translate::strip_response_fields(&mut parts.headers);
    add_timing(forward.server_timing, &record, &mut parts.headers);
    slow_reader_timeout::set_revocation_signal(record.revocation());
    Response::from_parts(
        parts,
        DownstreamBody::Http2(Box::new(Http2Body {
            body,
            record,
            bytes: 0,
            permit,
        })),
    )
}

/// Serves an extended CONNECT (RFC 8441): an upgrade on the service's connection, and a stream
/// on the visitor's.
#[expect(
    clippy::too_many_lines,
    reason = "one decision with its cases in order"
)]
pub(in crate::edge) async fn upgrade(
    worker: &Arc<Worker>,
    source: SocketAddr,
    mut forward: AdmittedRequest,
    upgraded: oneshot::Receiver<UpgradedStream>,
    mut record: AccessRecord,
    interim: &InterimSender,
) -> Response<DownstreamBody> {
    let Some(upgrade) = &mut forward.upgrade else {
        return refuse(&forward, record, &Problem::not_implemented());
    };
    let is_websocket = upgrade.is_websocket();
    if is_websocket {
        add_websocket_key(&mut forward.head, upgrade);
    }
    let started = Instant::now();
    let origin = stream_origin(source, &record);
    let mut upstream = match upstream::connect_http1(worker, &forward.tunnel, origin).await {
        Ok(upstream) => upstream,
        Err(error) => {
            record.set_failure(error.to_string());
            return refuse(&forward, record, &problem_of(&error));
        }
    };
    record.mark_stream_opened();
    let period = ResponseTimeout::for_tunnel(&forward.tunnel, &worker.core.config).period;
    let deadline = started + period;
    let asking = async {
        upstream.io.write_all(&forward.head).await?;
        upstream.io.flush().await
    };
    if !matches!(timeout_at(deadline, asking).await, Ok(Ok(()))) {
        let Some(refusal) = upstream.io.refusal() else {
            record.set_failure("the service does not take the request");
            return refuse(&forward, record, &Problem::upstream_unreachable());
        };
        let problem = upstream::problem_of_refusal(&forward.tunnel, &refusal);
        record.set_unreachable(refusal.text().to_owned());
        return refuse(&forward, record, &problem);
    }
    let mut reader = ResponseReader::new(false, forward.upgrade.clone(), interim);
    let answering = std::future::poll_fn(|cx| reader.poll_head(cx, &mut upstream));
    let mut answer = match timeout_at(deadline, answering).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(no_answer)) => {
            if let Some(refusal) = upstream.io.refusal() {
                let problem = upstream::problem_of_refusal(&forward.tunnel, &refusal);
                record.set_unreachable(refusal.text().to_owned());
                return refuse(&forward, record, &problem);
            }
            record.set_failure(match no_answer {
                ResponseError::Invalid(reason) => reason,
                ResponseError::NoResponse(_)
                | ResponseError::Broken(_)
                | ResponseError::VisitorGone => "the service did not answer the upgrade",
            });
            return refuse(&forward, record, &Problem::upstream_unreachable());
        }
        Err(_) => {
            record.set_failure("no answer in time");
            return refuse(&forward, record, &Problem::upstream_timeout());
        }
    };
    if !answer.upgraded && answer.response.status().is_success() {
        // A 2xx would tell the visitor that the protocol has changed (RFC 8441, 4).
        record.set_failure("the service did not change protocols");
        return refuse(&forward, record, &Problem::upstream_unreachable());
    }
    if !answer.upgraded {
        // The service refused the upgrade. The visitor gets its response like any other.
        let upload = Upload::already_sent();
        // Other requests of the tunnel may use another HTTP version with this service.
        answer.reusable = false;
        return respond(worker, &forward, answer, upstream, upload, record);
    }
    record.mark_first_byte();
    record.set_status(200);
    let closing = (worker.closing.clone(), forward.tunnel.agent.closing());
    let limit = worker.core.config.timeouts.fixed.websocket_close;
    worker.spawn(async move {
        let Ok(mut visitor) = upgraded.await else {
            return;
        };
        let early = upstream.unread().to_vec();
        let greeting = async {
            visitor.write_all(&early).await?;
            visitor.flush().await
        };
        let signal = record.revocation();
        let greeted = tokio::select! {
            biased;
            greeted = greeting => greeted,
            // The record contains the reason.
            () = revocation::revoked(signal.as_deref()) => return,
        };
        if greeted.is_err() {
            return;
        }
        let sent = (0, early.len());
        let service = &mut upstream.io;
        let end = is_websocket.then(|| DrainEnd::new(closing, limit, &[], &early));
        let source = source.ip().into();
        let pumping = raw::pump_upgraded(source, &mut visitor, service, &mut record, sent, end);
        let pumped = tokio::select! {
            biased;
            pumped = pumping => pumped,
            // The record contains the reason.
            () = revocation::revoked(signal.as_deref()) => return,
        };
        match pumped {
            Ok(()) => record.set_outcome(Outcome::Served),
            Err(error) => {
                record.set_failure(error.to_string());
                // The service's stream does not wait for the visitor.
                drop(upstream);
                visitor.flush_before_reset().await;
            }
        }
    });
    let mut response = answer.response.map(|()| DownstreamBody::Full(None));
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().remove("sec-websocket-accept");
    response
}

/// An upgrade in HTTP/1.1 needs a key, which extended CONNECT does not have (RFC 8441, 5.1).
fn add_websocket_key(head: &mut Vec<u8>, upgrade: &mut Upgrade) {
    let key = base64::engine::general_purpose::STANDARD.encode(random_bytes::<16>());
    if let Some(key) = FieldValue::parse(key.as_bytes()) {
        add_field(head, field_name!("sec-websocket-key"), key);
        upgrade.set_key(key);
    }
}

/// Returns the response, whose body is read as fast as the visitor reads.
fn respond(
    worker: &Arc<Worker>,
    forward: &AdmittedRequest,
    answer: UpstreamResponse,
    upstream: Http1,
    mut upload: Upload,
    mut record: AccessRecord,
) -> Response<DownstreamBody> {
    upload.end_replay();
    if answer.upgraded {
        record.set_failure("the service changed protocols unasked");
        return refuse(forward, record, &Problem::upstream_unreachable());
    }
    forward.tunnel.health.record_success();
    record.mark_first_byte();
    record.set_status(answer.response.status().as_u16());
    let mut response = answer.response;
    add_timing(forward.server_timing, &record, response.headers_mut());
    let body = Http1Body::new(
        worker,
        forward.tunnel.view.id,
        (
            BodyReader::from(answer.body),
            answer.reusable,
            answer.announced,
        ),
        upstream,
        upload,
        record,
    );
    response.map(|()| body.into_body())
}

fn add_timing(wanted: bool, record: &AccessRecord, headers: &mut HeaderMap) {
    if wanted && let Ok(timing) = record.server_timing().parse() {
        headers.append("server-timing", timing);
    }
}
