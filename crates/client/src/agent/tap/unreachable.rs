//! Shows a tap the requests for a service that cannot be reached. Without it, the owner of a tunnel
//! would not see the requests that fail.

use std::time::Duration;

use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::timeout,
};

use super::StreamTap;

/// Reads the start of the request from the visitor's stream for the tap, and ends the tap with this
/// error.
pub(crate) async fn show_request<S: AsyncRead + Unpin>(
    mut tap: Box<dyn StreamTap>,
    visitor: &mut S,
    error: &str,
) {
    let reading = async {
        let mut buffer = vec![0; BUFFER];
        let mut total = 0;
        while !tap.has_request() && total < MAX_BYTES {
            match visitor.read(&mut buffer).await {
                Ok(count @ 1..) => {
                    total += count;
                    tap.to_service(buffer.get(..count).unwrap_or_default());
                }
                // The visitor has gone, or sends nothing.
                Ok(0) | Err(_) => return,
            }
        }
    };
    // After the time limit the tap gets the error without the request.
    drop(timeout(WAIT, reading).await);
    tap.unreachable(error);
}

/// The engine sends the head with the opening of the stream, or after the handshake, so it usually
/// arrives at once. A busy machine delays it. A visitor that sends nothing gets its error only after
/// this wait.
const WAIT: Duration = Duration::from_secs(2);

/// The largest head that an engine forwards has a few more bytes than the largest that it accepts.
const MAX_BYTES: usize = 256 * 1024;

/// Most heads fit.
const BUFFER: usize = 8 * 1024;
