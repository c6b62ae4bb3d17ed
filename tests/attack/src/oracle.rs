//! The private service that checks the engine: it accepts only what a correct engine sends.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Result, bail, ensure};

/// Text in every value that a case forges, in headers that only the edge may set.
pub(crate) const FORGED: &str = "forged";

/// Path of every request that a case hides in another one.
pub(crate) const SMUGGLED: &str = "/smuggled";

/// Path below which a restricted token must not reach.
pub(crate) const PRIVATE: &str = "/private";

/// An HTTP/1.1 service on loopback that reads every request strictly and records violations.
pub(crate) struct Oracle {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    served: AtomicUsize,
    violations: Mutex<Vec<String>>,
}

impl Oracle {
    /// Starts the service; it runs until the process exits.
    ///
    /// # Errors
    /// No port is free.
    pub(crate) fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                thread::spawn(move || state.serve(stream));
            }
        });
        Ok(Self { address, state })
    }

    /// `host:port` of the service.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Number of requests that were read and answered.
    pub(crate) fn served(&self) -> usize {
        self.state.served.load(Ordering::SeqCst)
    }

    /// Takes the violations noted so far.
    pub(crate) fn take_violations(&self) -> Vec<String> {
        let mut violations = self.state.violations.lock();
        std::mem::take(
            violations
                .as_mut()
                .unwrap_or_else(|poisoned| poisoned.get_mut()),
        )
    }
}

impl State {
    fn serve(&self, stream: TcpStream) {
        let Ok(mut writer) = stream.try_clone() else {
            return;
        };
        let mut reader = BufReader::new(stream);
        loop {
            match read_request(&mut reader) {
                Ok(None) => return,
                Ok(Some(request)) => {
                    for violation in request.violations() {
                        self.note(violation);
                    }
                    self.served.fetch_add(1, Ordering::SeqCst);
                    if writer.write_all(&request.response()).is_err() {
                        return;
                    }
                }
                // The engine closed the connection within a request, which is an aborted upload and
                // not a fault.
                Err(error) if error.is::<std::io::Error>() => return,
                Err(error) => {
                    self.note(format!("the service received no valid request: {error:#}"));
                    return;
                }
            }
        }
    }

    fn note(&self, violation: String) {
        let mut violations = self
            .violations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if violations.len() < MAX_VIOLATIONS {
            violations.push(violation);
        }
    }
}

/// A request as it arrived, with its body.
struct Request {
    head: Vec<u8>,
    method: String,
    target: String,
    fields: Vec<(String, Vec<u8>)>,
    upgrade: bool,
}

impl Request {
    /// All content that the edge should have removed, changed or refused.
    fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut note = |rule: &str| {
            let head = String::from_utf8_lossy(&self.head);
            found.push(format!("{rule}:\n{head}"));
        };
        if self.target.starts_with(SMUGGLED) {
            note("a hidden request reached the service");
        }
        if self.target.contains(PRIVATE) {
            note("a request outside the path boundary reached the service");
        }
        for name in [
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-forwarded-host",
            "host",
        ] {
            if self.count(name) != 1 {
                note(&format!("`{name}` is not there exactly once"));
            }
        }
        let forged = |(name, value): &(String, Vec<u8>)| {
            is_reserved(name) && String::from_utf8_lossy(value).contains(FORGED)
        };
        if self.fields.iter().any(forged) {
            note("a forged reserved header reached the service");
        }
        if contains(&self.head, b"svc.token=") {
            note("the reserved query parameter reached the service");
        }
        found
    }

    fn count(&self, name: &str) -> usize {
        self.fields
            .iter()
            .filter(|(field, _)| field == name)
            .count()
    }

    fn response(&self) -> Vec<u8> {
        if self.upgrade {
            return b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec();
        }
        let length = self
            .target
            .strip_prefix("/bytes/")
            .and_then(|rest| rest.split('?').next()?.parse::<usize>().ok())
            .unwrap_or(2)
            .min(MAX_RESPONSE);
        let mut response =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        if self.method != "HEAD" {
            response.resize(response.len() + length, b'x');
        }
        response
    }
}

fn is_reserved(name: &str) -> bool {
    name.starts_with("svc-") || name.starts_with("x-svc-") || RESERVED.contains(&name)
}

/// Reads one request. Returns `None` if the connection ends before its head does.
fn read_request(reader: &mut BufReader<TcpStream>) -> Result<Option<Request>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let length = reader.read_until(b'\n', &mut head)?;
        if length == 0 {
            return Ok(None);
        }
        ensure!(
            head.ends_with(b"\r\n"),
            "a bare line feed: {}",
            String::from_utf8_lossy(&head)
        );
        ensure!(head.len() < MAX_HEAD, "a head of {} bytes", head.len());
    }
    let mut request = parse(head)?;
    read_body(reader, &mut request)?;
    Ok(Some(request))
}

fn parse(head: Vec<u8>) -> Result<Request> {
    let text = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head
        .strip_suffix(b"\r\n\r\n")
        .unwrap_or_default()
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first = String::from_utf8(lines.next().unwrap_or_default().to_vec())?;
    let parts: Vec<&str> = first.split(' ').collect();
    let [method, target, "HTTP/1.1"] = *parts else {
        bail!("no request line: {text}");
    };
    ensure!(
        !method.is_empty() && method.bytes().all(is_token),
        "no method: {text}"
    );
    ensure!(
        target
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'#'),
        "no target: {text}"
    );
    ensure!(
        target.starts_with('/') || target == "*",
        "no origin-form: {text}"
    );
    let (method, target) = (method.to_owned(), target.to_owned());
    let mut fields = Vec::new();
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            bail!("no field: {text}");
        };
        let (name, value) = line.split_at(colon);
        let name = String::from_utf8(name.to_vec())?;
        ensure!(
            !name.is_empty() && name.bytes().all(is_token),
            "no field name: {text}"
        );
        let value = value.get(1..).unwrap_or_default();
        ensure!(
            value
                .iter()
                .all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f)),
            "no field value: {text}"
        );
        fields.push((name.to_ascii_lowercase(), value.trim_ascii().to_vec()));
    }
    let upgrade = fields.iter().any(|(name, _)| name == "upgrade");
    Ok(Request {
        head,
        method,
        target,
        fields,
        upgrade,
    })
}

fn read_body(reader: &mut BufReader<TcpStream>, request: &mut Request) -> Result<()> {
    let values = |wanted: &str| -> Vec<Vec<u8>> {
        let named = request.fields.iter().filter(|(name, _)| name == wanted);
        named.map(|(_, value)| value.clone()).collect()
    };
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    match (&*lengths, &*codings) {
        ([], []) => Ok(()),
        ([length], []) => {
            let length: u64 = std::str::from_utf8(length)?.parse()?;
            std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
            Ok(())
        }
        ([], [coding]) if coding.as_slice() == b"chunked" => read_chunks(reader, request),
        _ => bail!(
            "ambiguous length: {}",
            String::from_utf8_lossy(&request.head)
        ),
    }
}

/// Reads chunks and trailers. An end of the connection within them is an aborted upload and not a
/// fault.
fn read_chunks(reader: &mut BufReader<TcpStream>, request: &mut Request) -> Result<()> {
    loop {
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let size = line.strip_suffix(b"\r\n").unwrap_or_default();
        ensure!(
            !size.is_empty() && size.len() <= 16 && size.iter().all(u8::is_ascii_hexdigit),
            "no chunk size: {}",
            String::from_utf8_lossy(&line)
        );
        let size = u64::from_str_radix(std::str::from_utf8(size)?, 16)?;
        if size == 0 {
            break;
        }
        let copied = std::io::copy(&mut reader.take(size), &mut std::io::sink())?;
        if copied < size {
            return Ok(());
        }
        let mut end = [0; 2];
        if reader.read_exact(&mut end).is_err() {
            return Ok(());
        }
        ensure!(&end == b"\r\n", "a chunk does not end with CRLF");
    }
    loop {
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line)? == 0 || line == b"\r\n" {
            return Ok(());
        }
        ensure!(line.ends_with(b"\r\n"), "a trailer with a bare line feed");
        let text = String::from_utf8_lossy(&line).into_owned();
        let Some((name, value)) = text.trim_end().split_once(':') else {
            bail!("no trailer: {text}");
        };
        ensure!(name.bytes().all(is_token), "no trailer name: {text}");
        let value = value.trim().as_bytes().to_vec();
        request.fields.push((name.to_ascii_lowercase(), value));
    }
}

/// A character of a token (RFC 9110 section 5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Names that the edge sets, or that frameworks trust, in addition to those that begin with `svc-`.
pub(crate) const RESERVED: [&str; 12] = [
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "forwarded",
    "x-real-ip",
    "x-original-url",
    "x-rewrite-url",
    "x-client-cert",
    "true-client-ip",
    "cf-connecting-ip",
];

/// The edge limits a request head to less than this.
const MAX_HEAD: usize = 256 * 1024;

/// The largest body that a case requests.
const MAX_RESPONSE: usize = 1024 * 1024;

/// One violation is enough to fail; a few more help to see the kind.
const MAX_VIOLATIONS: usize = 20;
