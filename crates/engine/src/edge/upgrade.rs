//! After a change of protocols: bytes both ways, WebSocket above all.

use tokio::io::AsyncWriteExt;

use super::http1::{Next, Request, Visitor};
use super::raw;
use super::record::Outcome;
use super::upstream::Http1;

/// Joins the visitor with the service that accepted the upgrade with `head`. What either side sent
/// ahead goes first.
pub(super) async fn run(
    visitor: &mut Visitor,
    mut request: Request,
    mut upstream: Http1,
    mut head: Vec<u8>,
) -> Next {
    // From here on the two ends alone know whether one that pauses is well.
    visitor.io.io.get_ref().0.limit_stall(None);
    let record = &mut request.record;
    record.first_byte();
    head.extend_from_slice(upstream.unread());
    let ahead = visitor.io.unread().to_vec();
    visitor.io.consume(ahead.len());
    let joined = async {
        visitor.io.io.write_all(&head).await?;
        visitor.io.io.flush().await?;
        if !ahead.is_empty() {
            upstream.io.write_all(&ahead).await?;
            upstream.io.flush().await?;
        }
        let sent = (ahead.len(), head.len());
        raw::pump_upgraded(&mut visitor.io.io, &mut upstream.io, record, sent).await
    };
    match joined.await {
        Ok(()) => {
            request.record.ended(Outcome::Served);
            Next::Close
        }
        Err(error) => {
            request.record.failed(error.to_string());
            Next::Abort
        }
    }
}
