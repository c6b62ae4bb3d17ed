//! The commands of `docs/public-server.md`, which lead from a bare server to the first URL.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use e2e::{Authority, Curl, NameServer, Process, Service, eventually, program};
use serde_json::Value;
use tempfile::TempDir;

use super::public::{HOST, field, manage, missing_records, ready, server, start_server};
use super::public_domain::DOMAIN;

/// A file of the repository.
fn read(path: &str) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).with_context(|| path.to_owned())
}

/// The blocks of code of the page in this language, with the host and the address of the tests.
fn blocks(language: &str) -> Result<Vec<String>> {
    let page = read("docs/public-server.md")?
        .replace("engine.example.com", HOST)
        .replace("203.0.113.7", "127.0.0.1");
    let fence = format!("```{language}\n");
    let blocks = page.split(&fence).skip(1);
    let blocks = blocks.map(|rest| rest.split_once("```").map(|(block, _)| block.to_owned()));
    blocks.collect::<Option<_>>().context("an open block")
}

/// The commands of a block that start with `svc`, without `sudo` and comments.
fn commands(block: &str) -> Vec<Vec<&str>> {
    let lines = block.lines().map(|line| {
        let line = line.split(" #").next().unwrap_or_default();
        let words = line.split_whitespace();
        words.filter(|word| *word != "sudo").collect::<Vec<_>>()
    });
    lines
        .filter(|words| words.first() == Some(&"svc"))
        .map(|words| words.into_iter().skip(1).collect())
        .collect()
}

/// The command of a block that has only one.
fn command(block: &str) -> Result<Vec<&str>> {
    commands(block).pop().context("no command")
}

#[test]
fn the_records_of_the_page_are_those_that_the_command_prints() -> Result<()> {
    let dns = NameServer::of_network(&[(HOST, "")])?;
    let authority = Authority::start(&[])?;
    let directory = tempfile::tempdir()?;
    let texts = blocks("text")?;
    let records = texts.first().context("no records")?;
    let records: Vec<String> = records
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let shell = blocks("sh")?;
    let arguments = command(shell.first().context("no command")?)?;
    let mut up = server(&arguments, &authority, &dns.address(), &directory)?;
    up.args(["--agree-terms", "--output", "json"])
        .args(["--dns-port", &ports::lease().to_string(), "--data-dir"])
        .arg(directory.path().join("data"));
    assert_eq!(missing_records(&mut up)?, records);
    Ok(())
}

/// A user on another computer, who runs the commands of the page there.
struct User {
    home: TempDir,
    ca_file: String,
}

impl User {
    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(program()?);
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.home.path())
            .stdin(Stdio::null());
        Ok(command)
    }

    /// Signs in with a token instead of a browser.
    fn sign_in(&self, arguments: &[&str], token: &str) -> Result<()> {
        let mut command = self.command(arguments)?;
        let mut running = command
            .args(["--token-stdin", "--ca-file", &self.ca_file])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let mut input = running.stdin.take().context("no input")?;
        input.write_all(token.as_bytes())?;
        drop(input);
        let status = running.wait()?;
        ensure!(status.success(), "{arguments:?}: {status}");
        Ok(())
    }
}

#[test]
fn the_commands_of_the_page_lead_to_the_first_url() -> Result<()> {
    let dns_port = ports::lease();
    let authority = Authority::start(&[])?;
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    let shell = blocks("sh")?;
    let [up, first_url, service, domain] = shell.as_slice() else {
        anyhow::bail!("the page has other blocks: {shell:?}");
    };
    // The test of a custom domain runs these.
    let of_domain = ["domain", "add", DOMAIN];
    let of_tunnel = ["forward", "3000", "--hostname", DOMAIN];
    assert_eq!(commands(domain), [of_domain.to_vec(), of_tunnel.to_vec()]);
    let dns_port = dns_port.to_string();

    // 2. Start. The user agrees on a terminal, and enters the records while the command waits.
    let mut command = server(&command(up)?, &authority, authority.resolver(), &directory)?;
    command
        .args(["--dns-port", &dns_port, "--output", "json"])
        .args(["--agree-terms", "--wait", "--data-dir"])
        .arg(&data);
    let mut running = start_server(&mut command, &directory)?;
    let log = directory.path().join("up.log");
    eventually("the missing records", || {
        Ok(fs::read_to_string(&log)?.contains("Waiting for these DNS records"))
    })?;
    manage(
        &authority,
        "PUT",
        &format!("delegation/127.0.0.1:{dns_port}"),
    )?;
    let ready = ready(&running)?;

    // 3. The first URL.
    let agent = first_url_of(first_url, &authority, &ready)?;
    drop(agent);
    running.terminate()?;
    assert_eq!(running.wait_for_exit()?, Some(0), "{}", running.log());

    // 4. As a service, here in the same directory.
    let variables = environment(service)?;
    let unit = read("deploy/systemd/svc-up.service")?;
    let words = command_of_unit(&unit, &variables)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = server(&words, &authority, authority.resolver(), &directory)?;
    command
        .args(["--dns-port", &dns_port])
        .env("STATE_DIRECTORY", &data)
        .env("SVC_CONFIG", directory.path().join("config"));
    let again = start_server(&mut command, &directory)?;
    let again = self::ready(&again)?;
    assert_eq!(again["certificates"], ready["certificates"]);
    // The command that shows the first sign-in.
    assert!(service.contains("/var/lib/svc/up/up.json"), "{service}");
    let saved: Value = serde_json::from_str(&fs::read_to_string(data.join("up.json"))?)?;
    assert_eq!(saved["admin_password"], ready["admin_password"]);
    Ok(())
}

/// Runs the three commands of the user, and visits the URL of the last one. Returns the agent.
fn first_url_of(block: &str, authority: &Authority, ready: &Value) -> Result<Process> {
    let platform = field(ready, "platform_url")?;
    let block = block.replace(&format!("https://platform.{HOST}"), platform);
    let target = Service::answering(|| "the first URL".to_owned())?.to_string();
    let block = block.replace("3000", &target);
    let steps = commands(&block);
    let [login, project, forward] = steps.as_slice() else {
        anyhow::bail!("other commands: {block}");
    };
    let user = User {
        home: tempfile::tempdir()?,
        ca_file: authority.root().display().to_string(),
    };
    user.sign_in(login, field(ready, "token")?)?;
    e2e::run(&mut user.command(project)?)?;
    let mut forward = user.command(forward)?;
    forward.args(["--output", "json", "--ca-file", &user.ca_file]);
    let agent = Process::start(&mut forward, &user.home.path().join("log"))?;
    let online = agent.json("the tunnel", |line| line["status"] == "online")?;
    let url = field(&online, "forwarding")?;
    // web-<endpoint>.t.<host>
    let engine = field(ready, "engine_url")?;
    let endpoint = engine.trim_start_matches("https://").split('.').next();
    let name = format!("https://web-{}.t.{HOST}", endpoint.context("no endpoint")?);
    ensure!(url.starts_with(&name), "{url} is not at {name}");
    let answer = Curl::trusting(authority.root()).get(&[url])?;
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (200, "the first URL")
    );
    Ok(agent)
}

/// The variables that a block of the page writes to the file of the unit.
fn environment(block: &str) -> Result<BTreeMap<&str, &str>> {
    let (_, rest) = block.split_once("<<'END'\n").context("no file")?;
    let (file, _) = rest.split_once("END\n").context("no end")?;
    let pairs = file.lines().map(|line| line.split_once('='));
    pairs
        .collect::<Option<_>>()
        .context("a line without a value")
}

/// The arguments of the unit's program: `${NAME}` is one word, and `$NAME` is divided into words
/// (systemd.service(5)).
fn command_of_unit(unit: &str, variables: &BTreeMap<&str, &str>) -> Result<Vec<String>> {
    let start = "ExecStart=/usr/bin/svc ";
    let line = unit.lines().find_map(|line| line.strip_prefix(start));
    let value = |name: &str| variables.get(name).copied().context("not in the file");
    let mut words = Vec::new();
    for word in line.context("no command")?.split_whitespace() {
        let braced = word
            .strip_prefix("${")
            .and_then(|rest| rest.strip_suffix('}'));
        match (braced, word.strip_prefix('$')) {
            (Some(name), _) => words.push(value(name)?.to_owned()),
            (None, Some(name)) => {
                words.extend(value(name)?.split_whitespace().map(str::to_owned));
            }
            (None, None) => words.push(word.to_owned()),
        }
    }
    Ok(words)
}
