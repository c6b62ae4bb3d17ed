//! After a change of protocols: bytes both ways, WebSocket above all.

use tokio::io::AsyncWriteExt;

use super::http1::{Next, Request, Visitor};
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
        let pumped = transport::pump(&mut visitor.io.io, &mut upstream.io).await;
        record.bytes(
            pumped.forth + ahead.len() as u64,
            pumped.back + head.len() as u64,
        );
        pumped.result
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
