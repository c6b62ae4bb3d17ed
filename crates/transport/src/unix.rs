//! Unix sockets, on systems that have them. On other systems these types have no values, so that
//! callers need no conditional code.

#[cfg(unix)]
pub use tokio::net::{UnixListener, UnixStream};

#[cfg(not(unix))]
pub use self::absent::{UnixListener, UnixStream};

#[cfg(not(unix))]
mod absent {
    use std::{
        io,
        path::Path,
        pin::Pin,
        task::{Context, Poll},
    };

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    /// A connection, which cannot exist on this system.
    #[derive(Debug)]
    pub enum UnixStream {}

    impl UnixStream {
        /// # Errors
        /// Always: this system has no such sockets.
        #[expect(
            clippy::unused_async,
            reason = "called as the one that there is elsewhere"
        )]
        pub async fn connect(_path: impl AsRef<Path>) -> io::Result<Self> {
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

    /// A listener, which cannot exist on this system.
    #[derive(Debug)]
    pub enum UnixListener {}

    impl UnixListener {
        /// # Errors
        /// Always: this system has no such sockets.
        pub fn bind(_path: impl AsRef<Path>) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        /// The next connection.
        ///
        /// # Errors
        /// Never called.
        #[expect(
            clippy::unused_async,
            reason = "called as the one that there is elsewhere"
        )]
        pub async fn accept(&self) -> io::Result<(UnixStream, ())> {
            match *self {}
        }
    }
}
