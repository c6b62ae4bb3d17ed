use std::env;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::{Process, run};

/// BIND, as the primary server of `engine.localhost` or of a whole network. Its key
/// [`KEY`](Self::KEY) may change the records of the engine's challenges. It is killed when the value
/// is dropped.
pub struct NameServer {
    _process: Process,
    directory: TempDir,
    port: u16,
}

impl NameServer {
    /// Name of the key.
    pub const KEY: &str = "svc-acme";

    /// Secret of the key. Only used by tests.
    pub const SECRET: &str = "c2VjcmV0IG9mIHRoZSBuYW1lIHNlcnZlciBpbiB0ZXN0cw==";

    /// Another key, which may change nothing.
    pub const OTHER_KEY: &str = "other";

    /// The text of another client, at the name of the challenge for `*.t.engine.localhost`.
    pub const OTHER_TEXT: &str = "of another client";

    /// Starts it and waits until it has loaded its zones.
    ///
    /// # Errors
    /// BIND is not installed, or does not start; its log is part of the error.
    pub fn start() -> Result<Self> {
        Self::launch(|place, port| {
            fs::write(place.join("zone"), zone())?;
            Ok(configuration(place, port))
        })
    }

    /// The same as the only name server of a network: it has the root, and these zones (name and
    /// records), in which [`KEY`](Self::KEY) may change everything. It resolves aliases between its
    /// zones.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn of_network(zones: &[(&str, &str)]) -> Result<Self> {
        Self::launch(|place, port| {
            let mut config = network(place, port);
            for (name, records) in [(".", "ns IN A 127.0.0.1\n")].iter().chain(zones) {
                let file = format!("zone-{}", name.trim_matches('.'));
                fs::write(place.join(&file), format!("{NETWORK_HEAD}{records}"))?;
                config.push_str(&zone_section(name, &file));
            }
            Ok(config)
        })
    }

    fn launch(write: impl FnOnce(&Path, u16) -> Result<String>) -> Result<Self> {
        let named = env::var_os("SVC_TEST_NAMED")
            .context("SVC_TEST_NAMED is not set: run `cargo xtask test`")?;
        let directory = tempfile::tempdir()?;
        let port = ports::lease();
        let place = directory.path();
        let config = place.join("named.conf");
        fs::write(&config, write(place, port)?)?;
        // It reports its start on its standard error only.
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"exec "$0" "$@" 2>&1"#])
            .arg(named)
            .args(["-g", "-n", "1", "-c"])
            .arg(&config);
        let process = Process::start(&mut command, &place.join("log"))?;
        process.wait_for_line("its start", |line| line.ends_with(" running"))?;
        Ok(Self {
            _process: process,
            directory,
            port,
        })
    }

    /// Enters records of a zone with nsupdate, the client of BIND: name, type and value, as a
    /// provider shows them.
    ///
    /// # Errors
    /// nsupdate is not installed beside dig, or the change is refused.
    pub fn enter(&self, zone: &str, records: &[String]) -> Result<()> {
        let dig = env::var_os("SVC_TEST_DIG")
            .context("SVC_TEST_DIG is not set: run `cargo xtask test`")?;
        let lines = records.iter().map(|record| {
            let (name, rest) = record.split_once(' ').context("no type")?;
            anyhow::Ok(format!("update add {name} 5 {rest}\n"))
        });
        let changes = lines.collect::<Result<String>>()?;
        let changes = format!(
            "server 127.0.0.1 {}\nzone {zone}\n{changes}send\n",
            self.port
        );
        let key = self.file("update.key", &Self::key(Self::KEY, Self::SECRET))?;
        let mut command = Command::new(Path::new(&dig).with_file_name("nsupdate"));
        run(command
            .arg("-k")
            .arg(key)
            .arg(self.file("changes", &changes)?))?;
        Ok(())
    }

    /// Its port, for UDP and TCP.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its address, for UDP and TCP.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A private file with this content, which is removed with the server.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn file(&self, name: &str, content: &str) -> Result<PathBuf> {
        let path = self.directory.path().join(name);
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(content.as_bytes())?;
        Ok(path)
    }

    /// A key in the form of BIND.
    pub fn key(name: &str, secret: &str) -> String {
        format!("key \"{name}\" {{\n\talgorithm hmac-sha256;\n\tsecret \"{secret}\";\n}};\n")
    }
}

/// The head of a zone whose name server is that of the root.
const NETWORK_HEAD: &str = "$TTL 5\n\
                            @ IN SOA ns. hostmaster. 1 3600 600 86400 5\n\
                            @ IN NS ns.\n";

/// The options of the only name server of a network. It never asks another one, because it has the
/// root.
fn network(place: &Path, port: u16) -> String {
    let key = NameServer::key(NameServer::KEY, NameServer::SECRET);
    format!("{key}{}controls {{}};\n", options(place, port, "yes"))
}

fn zone_section(name: &str, file: &str) -> String {
    let key = NameServer::KEY;
    format!(
        "zone \"{name}\" {{\n\
         type primary;\n\
         file \"{file}\";\n\
         update-policy {{ grant {key} zonesub ANY; }};\n\
         }};\n"
    )
}

fn options(place: &Path, port: u16, recursion: &str) -> String {
    let place = place.display();
    format!(
        "options {{\n\
         directory \"{place}\";\n\
         listen-on port {port} {{ 127.0.0.1; }};\n\
         listen-on-v6 {{ none; }};\n\
         pid-file none;\n\
         session-keyfile none;\n\
         recursion {recursion};\n\
         notify no;\n\
         dnssec-validation no;\n\
         }};\n"
    )
}

fn zone() -> String {
    format!(
        "$TTL 60\n\
         @ IN SOA ns hostmaster 1 3600 600 86400 5\n\
         @ IN NS ns\n\
         @ IN A 127.0.0.1\n\
         ns IN A 127.0.0.1\n\
         _acme-challenge.t IN TXT \"{}\"\n",
        NameServer::OTHER_TEXT
    )
}

fn configuration(place: &Path, port: u16) -> String {
    let keys = [NameServer::KEY, NameServer::OTHER_KEY]
        .map(|name| NameServer::key(name, NameServer::SECRET))
        .concat();
    let key = NameServer::KEY;
    let options = options(place, port, "no");
    format!(
        "{keys}\
         {options}\
         controls {{}};\n\
         zone \"engine.localhost\" {{\n\
         type primary;\n\
         file \"zone\";\n\
         update-policy {{\n\
         grant {key} name _acme-challenge.engine.localhost TXT;\n\
         grant {key} name _acme-challenge.t.engine.localhost TXT;\n\
         }};\n\
         }};\n"
    )
}

/// The output of dig for a name server, `host:port`. It asks once.
///
/// # Errors
/// dig is not installed, or there is no response.
pub fn dig(server: &str, arguments: &[&str]) -> Result<String> {
    let options = ["+tries=1", "+time=10"];
    query("SVC_TEST_DIG", server, &[&options[..], arguments].concat())
}

/// The output of kdig, Knot's client, for a name server, `host:port`. It asks once.
///
/// # Errors
/// kdig is not installed, or there is no response.
pub fn kdig(server: &str, arguments: &[&str]) -> Result<String> {
    let options = ["+retry=0", "+timeout=10"];
    query("SVC_TEST_KDIG", server, &[&options[..], arguments].concat())
}

fn query(variable: &str, server: &str, arguments: &[&str]) -> Result<String> {
    let program = env::var_os(variable)
        .with_context(|| format!("{variable} is not set: run `cargo xtask test`"))?;
    let (host, port) = server.rsplit_once(':').context("no port")?;
    let mut command = Command::new(program);
    command
        .args([&format!("@{host}"), "-p", port])
        .args(arguments)
        // The file of a user may have other options.
        .env("HOME", "/nonexistent");
    run(&mut command)
}
