use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// A private HTTP/1.1 service. The test reads each request and writes each answer, byte by byte and
/// at any time.
pub struct Service {
    address: SocketAddr,
    calls: mpsc::Receiver<Call>,
}

/// One request with its connection.
pub struct Call {
    /// The head as received, including the empty line.
    pub head: String,
    reader: BufReader<TcpStream>,
}

impl Service {
    /// Starts one whose requests wait for [`next`](Self::next).
    ///
    /// # Errors
    /// No port is free.
    pub fn start() -> Result<Self> {
        let (sender, calls) = mpsc::channel();
        let address = serve(move |call| drop(sender.send(call)))?;
        Ok(Self { address, calls })
    }

    /// Starts a service that responds with the head of each request. Returns its address.
    ///
    /// # Errors
    /// No port is free.
    pub fn mirror() -> Result<SocketAddr> {
        serve(reflect)
    }

    /// The same with a counter of requests. A request whose body does not end correctly is not
    /// answered, so that a client that tests the bytes after the head never sees an early answer.
    ///
    /// # Errors
    /// No port is free.
    pub fn counting_mirror() -> Result<(SocketAddr, Arc<AtomicUsize>)> {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        let address = serve(move |mut call| {
            counter.fetch_add(1, Ordering::SeqCst);
            if call.read_body().is_ok() {
                reflect(call);
            }
        })?;
        Ok((address, count))
    }

    /// The same with a channel that receives the target of each request, such as `/path?query`.
    ///
    /// # Errors
    /// No port is free.
    pub fn reporting_mirror() -> Result<(SocketAddr, mpsc::Receiver<String>)> {
        let (sender, targets) = mpsc::channel();
        let address = serve(move |mut call| {
            let target = call.head.split(' ').nth(1).unwrap_or_default();
            // A test that has ended counts nothing.
            sender.send(target.to_owned()).ok();
            if call.read_body().is_ok() {
                reflect(call);
            }
        })?;
        Ok((address, targets))
    }

    /// Starts a service that responds to every request with `text()`. Returns its address.
    ///
    /// # Errors
    /// No port is free.
    pub fn answering(text: impl Fn() -> String + Clone + Send + 'static) -> Result<SocketAddr> {
        serve(move |call| respond(call, &text()))
    }

    /// The address on which it listens.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// The next request.
    ///
    /// # Errors
    /// There is none in time.
    pub fn next(&self) -> Result<Call> {
        self.calls.recv_timeout(WAIT_LIMIT).context("no request")
    }

    /// True if a request is waiting for [`next`](Self::next).
    pub fn has_call(&self) -> bool {
        self.calls.try_recv().is_ok()
    }
}

impl Call {
    /// The next `length` bytes of the body.
    ///
    /// # Errors
    /// The connection ends early.
    pub fn read(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads the body to its end and drops it (RFC 9112, sections 6 and 7).
    ///
    /// # Errors
    /// It does not end correctly, or not in time.
    pub fn read_body(&mut self) -> Result<()> {
        if self.header("transfer-encoding") == Some("chunked") {
            while self.read_chunk()? {}
            return Ok(());
        }
        let length = self.header("content-length").unwrap_or("0").parse()?;
        self.read(length).map(drop)
    }

    /// Reads a chunk. Returns false after the last chunk and its trailers.
    fn read_chunk(&mut self) -> Result<bool> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim_end(), 16)?;
        if size > 0 {
            self.read(size + "\r\n".len())?;
            return Ok(true);
        }
        while line != "\r\n" {
            line.clear();
            ensure!(
                self.reader.read_line(&mut line)? > 0,
                "it ends in a trailer"
            );
        }
        Ok(false)
    }

    /// The value of a header of the request, whose name is in lower case.
    fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = fields.find(|(field, _)| field.eq_ignore_ascii_case(name))?;
        Some(value.trim())
    }

    /// Waits until the peer has closed the connection. Returns false if it does not in time.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => true,
            // A reset counts as an end.
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Writes until the peer accepts no more for a second, at most `length` bytes. Returns the
    /// number of accepted bytes.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn write_until_blocked(&mut self, length: usize) -> Result<usize> {
        let stream = self.reader.get_mut();
        stream.set_write_timeout(Some(Duration::from_secs(1)))?;
        let block = vec![b'x'; 64 * 1024];
        let mut taken = 0;
        while taken < length {
            match stream.write(&block) {
                Ok(written) => taken += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(taken)
    }

    /// Writes a part of the answer.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        Ok(self.reader.get_mut().write_all(bytes.as_ref())?)
    }
}

/// Answers with the head of the request.
fn reflect(call: Call) {
    let head = call.head.clone();
    respond(call, &head);
}

fn respond(mut call: Call, text: &str) {
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len(),
    );
    // A client that does not wait for the answer does not get it.
    call.write(&answer).ok();
}

fn serve(handler: impl Fn(Call) + Clone + Send + 'static) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    // Runs until the process exits, because tests are short.
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let take = handler.clone();
            thread::spawn(move || {
                if let Some(call) = read_head(stream) {
                    take(call);
                }
            });
        }
    });
    Ok(address)
}

fn read_head(stream: TcpStream) -> Option<Call> {
    stream.set_nodelay(true).ok()?;
    stream.set_read_timeout(Some(WAIT_LIMIT)).ok()?;
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        // A kept connection that was closed without another request.
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(Call { head, reader })
}

/// Longer than any step of these tests takes.
const WAIT_LIMIT: Duration = Duration::from_mins(1);
