//! `svc up --public`: engine, platform and relay of a public server, with certificates from an
//! authority.
//!
//! The engine has the public port 443. It forwards connections for `platform.HOST` and `turn.HOST`
//! to the platform and the relay, which order their certificates through it. So it starts first,
//! and the ports of the others are known before. The platform starts when the engine has its
//! certificate, because it asks the engine over https.

mod dns;
mod files;
pub(crate) mod inspect;
mod options;
mod ports;
mod preflight;
mod progress;
mod records;

use std::path::{Path, PathBuf};

use client::HostPort;
use serde_json::Value;
use terminal::private;

pub(crate) use self::options::PublicArgs;
use self::{
    files::Layout,
    options::PublicOptions,
    ports::PublicPorts,
    progress::{IssuedNames, Progress},
};
use super::{
    Args, DRAIN, Demo, absolute, engine,
    engine::TrustSource,
    local::{Listeners, LocalPlatform, PlatformLaunch},
    lock_data_directory, print_ready,
    ready::{PlatformInfo, PublicInfo, ReadyReport},
    relay::LocalRelay,
    saved_state::SavedUpState,
    stop, write_shared_context,
};
use crate::connection::data_directory;
use crate::failure::{Code, Failure};
use crate::output::{self, Format};
use crate::process::{descriptors, environment, signals, supervisor};

/// Checks everything, starts the parts, prints the addresses, and runs until a signal.
#[expect(clippy::too_many_lines, reason = "starts the parts in their order")]
pub(super) async fn run(args: &Args, host: &str) -> Result<(), Failure> {
    descriptors::raise_limit();
    let options = args.server.check(host)?;
    let ports = PublicPorts::of(args)?;
    let data = directory(args)?;
    let _only = lock_data_directory(&data)?;
    SavedUpState::check_kind(&data, true)?;
    check_host(&data, &options.host)?;
    let shutdown = signals::listen(DRAIN)?;
    let layout = Layout::new(&data);
    let interrupted = || {
        Failure::new(Code::Failed, "stopped before everything was ready")
            .hint("start it again; it continues with the certificates that were issued")
    };
    tokio::select! {
        checked = preflight::run(&options, ports, &layout) => checked?,
        () = shutdown.drain().cancelled() => return Err(interrupted()),
    }

    let listeners = Listeners::bind_first(ports.platform).await?;
    let local = Listeners::bind_first(ports.local).await?;
    let authority = TrustSource::platform(local.link_url(), &data)?;
    let config = files::engine(&options, args, ports, listeners.port(), &layout, &authority);
    let config = engine::write_and_load(&config, &data)?;
    let running = ::engine::start(config, shutdown.clone())
        .await
        .map_err(|error| Failure::from_error("the engine cannot start", error))?;
    let port = running.tls_addr().port();
    let secret_file = data.join("relay.secret");
    engine::read_or_create_secret(&secret_file)?;
    let config = files::relay(&options, ports, &local.link_url(), &layout, &secret_file);
    let relay = LocalRelay::launch(&config, secret_file, &data, shutdown.clone()).await?;

    let mut progress = Progress::new(args.output);
    let authority_url = &options.authority.directory;
    let [of_engine, of_relay, of_platform] =
        IssuedNames::of_server(&options.host, &layout, authority_url);
    let first = [of_engine, of_relay];
    tokio::select! {
        () = progress.wait(&first) => {}
        () = shutdown.drain().cancelled() => {
            tokio::join!(running.stopped(), relay.stopped());
            return Err(interrupted());
        }
    }
    let ca_file = ca_file(&options, &layout)?;
    let config = files::platform(&files::PlatformParts {
        options: &options,
        args,
        ports: [listeners.port(), local.port()],
        engine_port: port,
        relay: &relay,
        enrolment: authority.enrolment(),
        ca_file: ca_file.as_deref(),
        layout: &layout,
    });
    let base_url = files::platform_url(&options.host, port);
    let launch = PlatformLaunch {
        config: super::local::write_and_load(&config, &data)?,
        api_url: local.link_url(),
        listeners: listeners.with_local(local),
        base_url: base_url.clone(),
        email: &options.email,
    };
    let platform = LocalPlatform::launch(launch, &data).await?;
    let of_platform = [of_platform];
    tokio::select! {
        () = progress.wait(&of_platform) => {}
        () = shutdown.drain().cancelled() => {
            stop(running, (None, Some(relay), Some(platform)), &shutdown).await;
            return Err(interrupted());
        }
    }
    let token = platform.saved_state.token.clone().unwrap_or_default();
    let project = format!("{}.{}", platform.project.endpoint, options.host);
    let address =
        HostPort::new(&project, port).map_err(|error| Failure::usage(error.to_string()))?;
    let access = engine::engine_config(&address, &token, ca_file.as_deref());
    let usable = async {
        let trusted = engine::wait_until_trusted(&access).await;
        trusted.map_err(|failure| reach_hint(failure, &project))?;
        relay.wait_for_data().await;
        Ok::<(), Failure>(())
    };
    tokio::select! {
        usable = usable => usable?,
        () = shutdown.drain().cancelled() => {
            stop(running, (None, Some(relay), Some(platform)), &shutdown).await;
            return Err(interrupted());
        }
    }
    let _context = write_shared_context(
        args,
        &address,
        &token,
        ca_file.as_deref(),
        (&data, Some(&platform)),
    )?;
    let demo = if args.demo {
        Some(Demo::start(access).await?)
    } else {
        None
    };
    let realm = &options.host;
    let ready = ReadyReport {
        platform: Some(PlatformInfo::with_relay(&platform, realm, Vec::new())),
        engine_url: files::url(&project, port),
        metrics_url: running
            .metrics_addr()
            .map(|address| format!("http://{address}")),
        public: Some(PublicInfo {
            platform_url: base_url,
            certificates: first
                .iter()
                .chain(&of_platform)
                .filter_map(IssuedNames::info)
                .collect(),
            caa_suggestions: preflight::suggestions(&options, &layout),
        }),
        ca_file,
        token,
        demo_url: demo.as_ref().map(|demo| demo.url.clone()),
        pid: std::process::id(),
    };
    print_ready(&ready, args.output, &data)?;
    supervisor::notify_ready(&shutdown)?;
    shutdown.drain().cancelled().await;
    if args.output == Format::Text {
        output::message("Stopping… press Ctrl-C again to stop immediately.");
    }
    stop(running, (demo, Some(relay), Some(platform)), &shutdown).await;
    Ok(())
}

/// The data directory: the given one, that of the service manager, or that of the user.
fn directory(args: &Args) -> Result<PathBuf, Failure> {
    let of_service = environment::variable("STATE_DIRECTORY")
        .and_then(|value| value.split(':').next().map(PathBuf::from))
        .filter(|path| path.is_absolute());
    let given = args.data_dir.clone().or(of_service);
    let data = data_directory(given.as_ref())
        .ok_or_else(|| Failure::usage("no home directory is set").hint("give --data-dir"))?;
    absolute(&data)
}

/// Refuses the directory of a server with another host: the addresses of its projects are below
/// that one. A start that failed before the platform does not count.
fn check_host(data: &Path, host: &str) -> Result<(), Failure> {
    let file = std::fs::read(data.join("platform.yaml")).ok();
    let file = file.and_then(|file| serde_json::from_slice::<Value>(&file).ok());
    let earlier = file
        .as_ref()
        .and_then(|file| file.pointer("/engines/0/cluster_domain"))
        .and_then(Value::as_str);
    match earlier {
        Some(earlier) if earlier != host => {
            let message = format!("{} belongs to the server {earlier}", data.display());
            let hint = format!("start it with --public {earlier}, or give another --data-dir");
            Err(Failure::usage(message).hint(hint))
        }
        _ => Ok(()),
    }
}

/// The failure of a server that does not reach itself, with its usual cause.
fn reach_hint(failure: Failure, name: &str) -> Failure {
    let is_unreachable = matches!(
        failure.name(),
        "engine_unreachable" | "engine_timeout" | "engine_not_resolved"
    );
    if !is_unreachable {
        return failure;
    }
    failure.hint(format!(
        "the server connects to its own name {name}: open its port, and behind a NAT let the NAT \
         return such connections (hairpinning), or let the server's resolver return its private \
         address for this name"
    ))
}

/// The CA certificates that clients need. The authority for tests gives none, so its intermediate
/// certificates are trusted, as far as they are known.
fn ca_file(options: &PublicOptions, layout: &Layout) -> Result<Option<PathBuf>, Failure> {
    if !options.authority.is_staging {
        return Ok(options.authority.ca_file.clone());
    }
    let path = layout.staging_ca.clone();
    let issuers = progress::issuers(&layout.certificates());
    private::write(&path, issuers.as_bytes())
        .map_err(|error| Failure::from_error(&format!("cannot write {}", path.display()), error))?;
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_keeps_its_host() {
        let directory = tempfile::tempdir().unwrap();
        let host = "engine.example.com";
        check_host(directory.path(), host).unwrap();
        let file = r#"{"engines": [{"cluster_domain": "engine.example.com"}]}"#;
        std::fs::write(directory.path().join("platform.yaml"), file).unwrap();
        check_host(directory.path(), host).unwrap();
        let failure = check_host(directory.path(), "other.example.com").unwrap_err();
        let hint = failure.next_step().unwrap();
        assert!(hint.contains("--public engine.example.com"), "{hint}");
    }

    #[test]
    fn a_server_that_does_not_reach_itself_names_the_nat() {
        let failed = |name| {
            Failure::new(Code::Failed, "no route")
                .named(name)
                .hint("old")
        };
        let failure = reach_hint(failed("engine_timeout"), "a.engine.example.com");
        let hint = failure.next_step().unwrap();
        assert!(
            hint.contains("a.engine.example.com") && hint.contains("NAT"),
            "{hint}"
        );
        let other = reach_hint(failed("unauthorized"), "a.engine.example.com");
        assert_eq!(other.next_step(), Some("old"));
    }
}
