//! Unix sockets of services, where the system has them.

#[cfg(unix)]
pub(super) use tokio::net::UnixStream;

#[cfg(not(unix))]
pub(super) use self::absent::UnixStream;

#[cfg(not(unix))]
mod absent {
    use std::{
        io,
        path::Path,
        pin::Pin,
        task::{Context, Poll},
    };

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    /// A connection that cannot be made.
    #[derive(Debug)]
    pub(crate) enum UnixStream {}

    impl UnixStream {
        /// There are no such sockets here.
        #[expect(
            clippy::unused_async,
            reason = "called as the one that there is elsewhere"
        )]
        pub(crate) async fn connect(_path: impl AsRef<Path>) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    impl AsyncRead for UnixStream {
        fn poll_read(
            self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
            _buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            match *self {}
        }
    }

    impl AsyncWrite for UnixStream {
        fn poll_write(
            self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
            _buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            match *self {}
        }

        fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }

        fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }
    }
}
