//! Sockets in the file system, where the system has them. Elsewhere they are types that nobody has
//! a value of, so that callers are written once.

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

    /// A connection that cannot be made.
    #[derive(Debug)]
    pub enum UnixStream {}

    impl UnixStream {
        /// # Errors
        /// Always: there are no such sockets here.
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

    /// A listener that cannot be made.
    #[derive(Debug)]
    pub enum UnixListener {}

    impl UnixListener {
        /// # Errors
        /// Always: there are no such sockets here.
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
