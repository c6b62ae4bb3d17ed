//! Tunnels that containers request with their labels.
//!
//! An event only marks a container for inspection. The desired tunnels follow from the current list
//! and state that the Docker engine reports. Events may therefore be lost, repeated or late.

mod api;
mod labels;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clap::Args;
use client::backoff::{Backoff, random};
use tokio::{sync::watch, time::sleep};
use tokio_util::task::AbortOnDropHandle;

use self::{
    api::{Api, ApiError},
    labels::LabelParser,
};
use super::plan::DesiredTunnel;
use crate::{
    failure::{Failure, chain},
    output,
};

/// The flags for containers.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Containers")]
pub(super) struct DockerFlags {
    /// Also publish the containers with the label `svc.enable=true`, as their other labels describe
    #[arg(
        long,
        value_name = "SOCKET",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "unix:///var/run/docker.sock"
    )]
    docker: Option<String>,

    /// Connect to the ports that containers publish on this machine, instead of their own addresses
    #[arg(long, requires = "docker")]
    docker_host_ports: bool,
}

/// The tunnels that containers request. Dropping it stops the updates.
pub(super) struct Docker {
    wanted: watch::Receiver<BTreeMap<String, DesiredTunnel>>,
    _following: AbortOnDropHandle<()>,
}

impl DockerFlags {
    /// True if containers are watched.
    pub(super) fn is_enabled(&self) -> bool {
        self.docker.is_some()
    }

    /// Starts to watch containers, if enabled.
    pub(super) fn start(&self) -> Result<Option<Docker>, Failure> {
        let Some(socket) = &self.docker else {
            return Ok(None);
        };
        let path = socket.strip_prefix("unix://").unwrap_or(socket);
        if !path.starts_with('/') {
            return Err(Failure::usage(format!(
                "--docker: `{socket}` is not the path of a socket"
            ))
            .hint("use unix:///var/run/docker.sock; other addresses are not supported"));
        }
        let (published, wanted) = watch::channel(BTreeMap::new());
        let follower = Follower {
            api: Api::new(path.into()),
            reader: LabelParser::new(self.docker_host_ports),
            containers: BTreeMap::new(),
            published,
        };
        Ok(Some(Docker {
            wanted,
            _following: AbortOnDropHandle::new(tokio::spawn(follower.follow())),
        }))
    }
}

impl Docker {
    /// The currently desired tunnels.
    pub(super) fn desired_tunnels(&mut self) -> BTreeMap<String, DesiredTunnel> {
        self.wanted.borrow_and_update().clone()
    }
}

/// Returns when the desired tunnels change. Never returns if containers are not watched.
pub(super) async fn changed(docker: Option<&mut Docker>) {
    if let Some(docker) = docker
        && docker.wanted.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// The task that follows the Docker engine.
struct Follower {
    api: Api,
    reader: LabelParser,
    /// The relevant containers, by id.
    containers: BTreeMap<String, ContainerTunnel>,
    published: watch::Sender<BTreeMap<String, DesiredTunnel>>,
}

/// The parsed labels of a container.
#[derive(Clone, Debug, Default, PartialEq)]
struct ContainerTunnel {
    /// Tunnels by key.
    tunnels: BTreeMap<String, DesiredTunnel>,
    /// Errors in the labels of rejected tunnels.
    errors: Vec<String>,
}

impl Follower {
    async fn follow(mut self) {
        let mut backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(15));
        let mut trouble = None;
        loop {
            let error = self.session(&mut backoff, &mut trouble).await;
            let text = chain(&error);
            if trouble.as_ref() != Some(&text) {
                output::message(&format!(
                    "cannot list containers: {}; trying again, tunnels stay open",
                    output::plain(&text)
                ));
                trouble = Some(text);
            }
            sleep(backoff.next_wait(random())).await;
        }
    }

    /// Follows events until the connection fails or a response is malformed.
    async fn session(&mut self, backoff: &mut Backoff, trouble: &mut Option<String>) -> ApiError {
        let result = async {
            // Subscribes first, so that events during the listing are handled after it.
            let mut events = self.api.events().await?;
            let listed = self.api.enabled_containers().await?;
            let ids: BTreeSet<_> = listed.into_iter().collect();
            self.containers.retain(|id, _| ids.contains(id));
            for id in ids {
                self.refresh(&id).await?;
            }
            self.publish();
            backoff.reset();
            *trouble = None;
            loop {
                let event = events.next().await?;
                let known = event
                    .container()
                    .filter(|id| event.is_labelled() || self.containers.contains_key(*id));
                if let Some(id) = known {
                    self.refresh(id).await?;
                    self.publish();
                }
            }
        };
        let ended: Result<std::convert::Infallible, ApiError> = result.await;
        match ended {
            Err(error) => error,
            Ok(never) => match never {},
        }
    }

    /// Updates one container.
    async fn refresh(&mut self, id: &str) -> Result<(), ApiError> {
        let found = match self.api.container(id).await? {
            Some(container) if container.state.running => self.reader.parse(&container),
            _ => None,
        };
        match found {
            None => {
                self.containers.remove(id);
            }
            Some(found) => {
                let known = self.containers.get(id).map(|known| &known.errors);
                if known != Some(&found.errors) {
                    for error in &found.errors {
                        output::message(&format!("error: {}", output::plain(error)));
                    }
                }
                if self.containers.len() < MAX_CONTAINERS || self.containers.contains_key(id) {
                    self.containers.insert(id.to_owned(), found);
                } else {
                    output::message(&format!("error: more than {MAX_CONTAINERS} containers"));
                }
            }
        }
        Ok(())
    }

    fn publish(&self) {
        let all = self.containers.values();
        let wanted: BTreeMap<_, _> = all.flat_map(|found| found.tunnels.clone()).collect();
        self.published.send_if_modified(|published| {
            let new = *published != wanted;
            if new {
                *published = wanted;
            }
            new
        });
    }
}

/// Limit of the published containers: far more than run on one machine.
const MAX_CONTAINERS: usize = 4096;
