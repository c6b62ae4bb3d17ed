use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::Process;
use crate::certificate::Certificate;

/// nginx as a private service, over HTTP/1.1, HTTP/2 without TLS, and TLS.
///
/// It serves the files of [`root`](Self::root): `PUT` stores a file, `/gzip/` compresses. `/seen`
/// returns the facts of the request as JSON. `/read` does the same after it has read the body.
pub struct Nginx {
    _process: Process,
    directory: TempDir,
    first_port: u16,
}

impl Nginx {
    /// Starts one on free ports.
    ///
    /// # Errors
    /// nginx is not installed, or does not start; its log is part of the error.
    pub fn start() -> Result<Self> {
        let nginx = env::var_os("SVC_TEST_NGINX")
            .context("SVC_TEST_NGINX is not set: run `cargo xtask test`")?;
        let directory = tempfile::tempdir()?;
        for name in ["root", "root/gzip", "temporary"] {
            fs::create_dir(directory.path().join(name))?;
        }
        let names = ["localhost", "*.t.engine.localhost"];
        let certificate = Certificate::issue(directory.path(), &names)?;
        let first_port = *ports::lease_range(6).start();
        let config = configuration(directory.path(), &certificate, first_port);
        let config_file = directory.path().join("nginx.conf");
        fs::write(&config_file, config)?;
        fs::write(directory.path().join("locations"), LOCATIONS)?;
        let mut command = Command::new(nginx);
        command
            .args(["-e", "stderr", "-c"])
            .arg(&config_file)
            .arg("-p")
            .arg(directory.path());
        let process = Process::start(&mut command, &directory.path().join("log"))?;
        // Its first notice is logged when it listens.
        process.wait_for_line("notice", |line| line.contains("[notice]"))?;
        Ok(Self {
            _process: process,
            directory,
            first_port,
        })
    }

    /// Over HTTP/1.1: a target of `svc forward`.
    pub fn http1(&self) -> String {
        format!("127.0.0.1:{}", self.first_port)
    }

    /// Over HTTP/2 without TLS.
    pub fn h2c(&self) -> String {
        format!("127.0.0.1:{}", self.first_port + 1)
    }

    /// Over TLS, with HTTP/2 if ALPN selects it.
    pub fn tls(&self) -> String {
        format!("https://127.0.0.1:{}", self.first_port + 2)
    }

    /// Over TLS, with HTTP/1.1 only.
    pub fn tls_http1(&self) -> String {
        format!("https://127.0.0.1:{}", self.first_port + 3)
    }

    /// Over HTTP/1.1 and over HTTP/2, by servers that close a connection after a few requests.
    pub fn short_lived(&self) -> [String; 2] {
        [4, 5].map(|offset| format!("127.0.0.1:{}", self.first_port + offset))
    }

    /// The authority that signed its certificate, PEM.
    pub fn ca_file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// The directory of its files.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }
}

fn configuration(directory: &Path, certificate: &Certificate, port: u16) -> String {
    let directory = directory.display();
    let tls = format!(
        "ssl_certificate {}; ssl_certificate_key {};",
        certificate.chain.display(),
        certificate.key.display()
    );
    let server = |offset: u16, options: &str, more: &str| {
        format!(
            "server {{ listen 127.0.0.1:{} {options}; {more} include {directory}/locations; }}\n",
            port + offset
        )
    };
    let servers = [
        server(0, "", ""),
        server(1, "http2", ""),
        server(2, "ssl http2", &tls),
        server(3, "ssl", &tls),
        server(4, "", "keepalive_requests 5;"),
        server(5, "http2", "keepalive_requests 5;"),
    ]
    .concat();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {directory}/temporary/{name};\n"))
        .concat();
    // One process in the foreground, which ends when it is killed.
    format!(
        r"daemon off;
master_process off;
pid {directory}/pid;
error_log /dev/stdout notice;
events {{ worker_connections 4096; }}
http {{
access_log off;
default_type application/octet-stream;
root {directory}/root;
client_max_body_size 0;
keepalive_requests 100000;
upstream itself {{ server 127.0.0.1:{port}; }}
{temporary}{servers}}}
"
    )
}

/// Locations of each of its servers.
const LOCATIONS: &str = r#"
location / { dav_methods PUT; }
location /gzip/ { gzip on; gzip_min_length 0; gzip_types *; gzip_http_version 1.0; gzip_proxied any; }
location /read { proxy_pass http://itself/seen; }
location /seen {
    default_type application/json;
    return 200 '{"connection": "$connection", "protocol": "$server_protocol", "host": "$http_host", "scheme": "$scheme", "uri": "$request_uri", "forwarded_for": "$http_x_forwarded_for", "forwarded_proto": "$http_x_forwarded_proto", "forwarded_host": "$http_x_forwarded_host"}';
}
"#;
