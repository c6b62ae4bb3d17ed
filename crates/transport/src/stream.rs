//! Byte streams.

use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream in both directions that a task can own.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}
