//! Real etcd servers: one member, or several that form one store.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::{TestCa, within};

/// A store. Its members end when the value is dropped.
pub struct EtcdServers {
    members: Vec<Member>,
    directory: TempDir,
    /// Clients connect with TLS and a certificate. The directory contains the files.
    has_tls: bool,
}

struct Member {
    child: Option<Child>,
    client_port: u16,
    peer_port: u16,
}

impl EtcdServers {
    /// Starts a store, and waits until it answers.
    pub async fn start(members: usize) -> Self {
        let servers = Self::launch_all(members, None);
        for place in 0..servers.members.len() {
            servers.wait_until_ready(place).await;
        }
        servers
    }

    /// Starts a store with one member that has a certificate of this authority, and requires one of
    /// its clients. Does not wait.
    pub fn start_with_tls(ca: &TestCa) -> Self {
        Self::launch_all(1, Some(ca))
    }

    fn launch_all(members: usize, ca: Option<&TestCa>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        if let Some(ca) = ca {
            fs::write(directory.path().join(CA_FILE), ca.pem()).expect("a file");
            ca.issue(&["127.0.0.1"]).write_to(directory.path());
        }
        // Members need the addresses of each other before they bind them.
        let members = (0..members).map(|_| Member {
            child: None,
            client_port: ports::lease(),
            peer_port: ports::lease(),
        });
        let mut servers = Self {
            members: members.collect(),
            directory,
            has_tls: ca.is_some(),
        };
        for place in 0..servers.members.len() {
            servers.launch(place);
        }
        servers
    }

    /// The address of a member, for clients.
    pub fn endpoint(&self, place: usize) -> String {
        let scheme = if self.has_tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.members[place].client_port)
    }

    /// The addresses of all members.
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.members.len())
            .map(|place| self.endpoint(place))
            .collect()
    }

    /// Kills a member.
    pub fn kill(&mut self, place: usize) {
        self.members[place].kill();
    }

    /// Starts a killed member again, with its data.
    pub fn restart(&mut self, place: usize) {
        self.launch(place);
    }

    /// Kills a member, and starts it again when its data is copied.
    pub fn back_up(&mut self, place: usize) {
        self.kill(place);
        copy_directory(&self.data(place), &self.backup(place));
        self.restart(place);
    }

    /// Kills a member, and starts it with the data of its copy.
    pub fn restore(&mut self, place: usize) {
        self.kill(place);
        let data = self.data(place);
        fs::remove_dir_all(&data).expect("the data is removed");
        fs::rename(self.backup(place), data).expect("the copy takes its place");
        self.restart(place);
    }

    fn data(&self, place: usize) -> PathBuf {
        self.directory.path().join(format!("m{place}"))
    }

    fn backup(&self, place: usize) -> PathBuf {
        self.directory.path().join(format!("m{place}-copy"))
    }

    /// Waits until a member answers, which needs a quorum.
    pub async fn wait_until_ready(&self, place: usize) {
        let ready = async {
            while self.read_revision(place).await.is_none() {
                tokio::task::yield_now().await;
            }
        };
        let port = self.members[place].client_port;
        within(&format!("answer of etcd on port {port}"), ready).await;
    }

    /// Stops the process of a member without ending its connections.
    pub fn pause(&self, place: usize) {
        self.members[place].signal(Signal::SIGSTOP);
    }

    /// Continues a paused member.
    pub fn resume(&self, place: usize) {
        self.members[place].signal(Signal::SIGCONT);
    }

    /// Removes all history before the current revision.
    pub async fn compact(&self, place: usize) {
        let compacted = async {
            while !self.try_compact(place).await {
                tokio::task::yield_now().await;
            }
        };
        within("compaction", compacted).await;
    }

    /// Returns false if the member has no leader.
    async fn try_compact(&self, place: usize) -> bool {
        let Some(revision) = self.read_revision(place).await else {
            return false;
        };
        let request = json!({"revision": revision.to_string()}).to_string();
        let answer = self.post(place, "/v3/kv/compaction", &request).await;
        let answer = answer.unwrap_or_default();
        answer.starts_with(OK) || answer.contains("has been compacted")
    }

    /// Ends the lease that a key is attached to, as if its time were over.
    pub async fn end_lease_of(&self, place: usize, key: &str) {
        let request = json!({"key": STANDARD.encode(key)}).to_string();
        let found = self.post(place, "/v3/kv/range", &request).await;
        let found = found.expect("an answer");
        let lease = number(&found, "lease").unwrap_or_else(|| panic!("no lease: {found}"));
        let request = json!({"ID": lease.to_string()}).to_string();
        let answer = self.post(place, "/v3/lease/revoke", &request).await;
        let answer = answer.expect("an answer");
        assert!(answer.starts_with(OK), "{answer}");
    }

    /// Requires a user, who may read and write the keys that start with `prefix`, which ends with
    /// `/`.
    pub async fn require_user(&self, user: &str, password: &str, prefix: &str) {
        let end = format!("{}0", prefix.trim_end_matches('/'));
        let (key, range_end) = (STANDARD.encode(prefix), STANDARD.encode(end));
        let permission = json!({"permType": "READWRITE", "key": key, "range_end": range_end});
        for (path, request) in [
            ("user/add", json!({"name": "root", "password": password})),
            ("role/add", json!({"name": "root"})),
            ("user/grant", json!({"user": "root", "role": "root"})),
            ("user/add", json!({"name": user, "password": password})),
            ("role/add", json!({"name": "engines"})),
            ("role/grant", json!({"name": "engines", "perm": permission})),
            ("user/grant", json!({"user": user, "role": "engines"})),
            ("enable", json!({})),
        ] {
            let path = format!("/v3/auth/{path}");
            let answer = self.post(0, &path, &request.to_string()).await;
            let answer = answer.expect("an answer");
            assert!(answer.starts_with(OK), "{path}: {answer}");
        }
    }

    /// Writes a key, as other users of the store do.
    pub async fn put(&self, place: usize, key: &str) {
        let request = json!({"key": STANDARD.encode(key), "value": ""}).to_string();
        let answer = self.post(place, "/v3/kv/put", &request).await;
        let answer = answer.expect("an answer");
        assert!(answer.starts_with(OK), "{answer}");
    }

    /// Raises the alarm of a store without space.
    pub async fn raise_no_space(&self, place: usize) {
        let request = r#"{"action":"ACTIVATE","alarm":"NOSPACE"}"#;
        let answer = self.post(place, "/v3/maintenance/alarm", request).await;
        let answer = answer.expect("an answer");
        assert!(answer.starts_with(OK), "{answer}");
    }

    /// The newest revision; `None` if the member does not answer, or has no quorum.
    async fn read_revision(&self, place: usize) -> Option<u64> {
        let answer = self
            .post(place, "/v3/kv/range", r#"{"key":"AA=="}"#)
            .await?;
        number(&answer, "revision")
    }

    /// A request to the JSON gateway of a member.
    async fn post(&self, place: usize, path: &str, body: &str) -> Option<String> {
        let port = self.members[place].client_port;
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    fn launch(&mut self, place: usize) {
        let program = std::env::var_os("SVC_TEST_ETCD");
        let program = program.expect("SVC_TEST_ETCD is not set: run `cargo xtask test`");
        let cluster: Vec<String> = self
            .members
            .iter()
            .enumerate()
            .map(|(place, member)| format!("m{place}=http://127.0.0.1:{}", member.peer_port))
            .collect();
        let (client, data) = (self.endpoint(place), self.data(place));
        let member = &mut self.members[place];
        let peer = format!("http://127.0.0.1:{}", member.peer_port);
        let log = self.directory.path().join(format!("m{place}.log"));
        let log = File::options().create(true).append(true).open(log);
        let mut command = Command::new(program);
        command
            .args(["--name", &format!("m{place}"), "--data-dir"])
            .arg(data)
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &cluster.join(",")])
            .args(["--initial-cluster-state", "new"])
            // A killed process loses nothing that it has written. A disk that other tests keep busy
            // would delay each change.
            .arg("--unsafe-no-fsync")
            // etcd 3.4 requires it on ARM.
            .env("ETCD_UNSUPPORTED_ARCH", "arm64")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a log"));
        if self.has_tls {
            let file = |name: &str| self.directory.path().join(name);
            command
                .arg("--cert-file")
                .arg(file("cert.pem"))
                .arg("--key-file")
                .arg(file("key.pem"))
                .arg("--trusted-ca-file")
                .arg(file(CA_FILE))
                .arg("--client-cert-auth");
        }
        member.child = Some(command.spawn().expect("etcd starts"));
    }
}

impl Drop for EtcdServers {
    #[expect(clippy::print_stderr, reason = "the logs explain a failed test")]
    fn drop(&mut self) {
        for member in &mut self.members {
            member.kill();
        }
        if std::thread::panicking() {
            for place in 0..self.members.len() {
                let log = self.directory.path().join(format!("m{place}.log"));
                let log = fs::read_to_string(log).unwrap_or_default();
                let lines: Vec<_> = log.lines().collect();
                let last = lines.len().saturating_sub(LOG_LINES);
                eprintln!("etcd m{place}:\n{}", lines[last..].join("\n"));
            }
        }
    }
}

impl Member {
    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("a running member");
        let pid = i32::try_from(child.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("the process exists");
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // A member that has ended on its own fails the test in another way.
            child.kill().ok();
            child.wait().ok();
        }
    }
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a directory");
    // Only the user of etcd may read its data.
    let permissions = fs::metadata(from).expect("a directory").permissions();
    fs::set_permissions(to, permissions).expect("permissions");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_directory(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// The first number of a JSON answer with this key. Numbers are texts.
fn number(answer: &str, key: &str) -> Option<u64> {
    let (_, value) = answer.split_once(&format!(r#""{key}":""#))?;
    let (value, _) = value.split_once('"')?;
    value.parse().ok()
}

/// The beginning of the answer to an accepted request.
const OK: &str = "HTTP/1.1 200";

const CA_FILE: &str = "ca.pem";

/// Lines of a member's log that a failed test prints.
const LOG_LINES: usize = 20;
