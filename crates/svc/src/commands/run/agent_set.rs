//! The running agents and tunnels, and their update to the desired state.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::Duration,
};

use client::{Agent, Config, Refusal, Status, agent::AgentStatus, properties::Protocol};
use daemon::shutdown::Shutdown;
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{
    plan::DesiredTunnel,
    tunnel::{AgentRef, TunnelCommand, TunnelReport, run_tunnel},
};
use crate::args::properties::{AddressNotice, may_be_one_hostname, preferred_hostname};
use crate::failure::Failure;
use crate::process::agent_metrics::AgentMetrics;
use crate::token_refusal;

/// All running agents. The owner applies the desired state and receives their reports.
pub(super) struct AgentSet {
    runtimes: Vec<Handle>,
    shutdown: Shutdown,
    reports: mpsc::Sender<TunnelReport>,
    metrics: AgentMetrics,
    agents: BTreeMap<EngineName, AgentHandle>,
    tunnels: BTreeMap<String, TunnelTask>,
    /// Host names that engines assigned, by tunnel key. Includes tunnels that are currently absent.
    addresses: BTreeMap<String, AssignedAddress>,
    /// Closed agents whose streams still finish.
    leaving: JoinSet<()>,
    tasks: JoinSet<()>,
    numbers: u64,
}

/// A host name that an engine assigned to a tunnel.
struct AssignedAddress {
    /// Name of the tunnel at that time. Under another name it requests another address.
    name: Option<String>,
    hostname: String,
}

/// Name of an additional engine, or `None` for the top-level one.
pub(super) type EngineName = Option<String>;

/// The agent of one engine.
struct AgentHandle {
    config: Config,
    agent_ref: AgentRef,
    in_use: mpsc::Receiver<Infallible>,
}

/// A tunnel of one agent.
struct TunnelTask {
    command_sender: watch::Sender<TunnelCommand>,
    state: State,
    address_notice: AddressNotice,
}

/// State of a tunnel as counted for the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The engine has not answered yet.
    Pending,
    /// Visitors can reach it.
    Online,
    /// It was online and is being restored.
    Reconnecting,
    /// The engine rejected it.
    Rejected,
}

/// Result of applying a configuration, as keys of tunnels.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AppliedChanges {
    pub(super) added: Vec<String>,
    pub(super) changed: Vec<String>,
    pub(super) removed: Vec<String>,
    pub(super) unchanged: usize,
}

impl AppliedChanges {
    /// True if nothing changed.
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

impl AgentSet {
    /// An empty set. Its streams will run on `runtimes`.
    pub(super) fn new(
        runtimes: Vec<Handle>,
        shutdown: Shutdown,
        reports: mpsc::Sender<TunnelReport>,
        metrics: AgentMetrics,
    ) -> Self {
        Self {
            runtimes,
            shutdown,
            reports,
            metrics,
            agents: BTreeMap::new(),
            tunnels: BTreeMap::new(),
            addresses: BTreeMap::new(),
            leaving: JoinSet::new(),
            tasks: JoinSet::new(),
            numbers: 0,
        }
    }

    /// Updates the running tunnels to the desired ones. With `retry_rejected`, rejected ones are
    /// requested once more.
    ///
    /// The caller leaves out tunnels whose engine is not among `configs`.
    ///
    /// # Errors
    /// An agent cannot be started. In that case nothing was changed.
    pub(super) fn apply(
        &mut self,
        configs: &BTreeMap<EngineName, Config>,
        wanted: &BTreeMap<String, DesiredTunnel>,
        retry_rejected: bool,
    ) -> Result<AppliedChanges, Failure> {
        while self.tasks.try_join_next().is_some() || self.leaving.try_join_next().is_some() {}
        let replaced = self.start_agents(configs, retry_rejected)?;
        let mut applied = AppliedChanges::default();
        let gone: Vec<_> = self
            .tunnels
            .keys()
            .filter(|key| !wanted.contains_key(*key))
            .cloned()
            .collect();
        for key in gone {
            self.tunnels.remove(&key);
            applied.removed.push(key);
        }
        let required = RequiredHostnames::of(wanted);
        // Tunnels that must give up a host name come before those that require one.
        let (requiring, others): (Vec<_>, Vec<_>) = wanted
            .iter()
            .partition(|(_, wanted)| wanted.properties.hostname.is_some());
        for (key, wanted) in others.into_iter().chain(requiring) {
            match self.update_tunnel(key, wanted, &required, retry_rejected) {
                Some(Change::Added) => applied.added.push(key.clone()),
                Some(Change::Changed) => applied.changed.push(key.clone()),
                None => applied.unchanged += 1,
            }
        }
        applied.added.sort_unstable();
        applied.changed.sort_unstable();
        let used: BTreeSet<_> = configs.keys().cloned().collect();
        let unused: Vec<_> = self
            .agents
            .keys()
            .filter(|name| !used.contains(*name))
            .cloned()
            .collect();
        let unused = unused.iter().filter_map(|name| self.agents.remove(name));
        let unused: Vec<_> = unused.collect();
        for handle in replaced.into_iter().chain(unused) {
            self.leave(handle);
        }
        Ok(applied)
    }

    /// Starts the new and changed agents, and returns the agents that they replace.
    fn start_agents(
        &mut self,
        configs: &BTreeMap<EngineName, Config>,
        retry_rejected: bool,
    ) -> Result<Vec<AgentHandle>, Failure> {
        let mut started = Vec::new();
        for (name, config) in configs {
            let runs = self.agents.get(name).is_some_and(|handle| {
                let ended = handle.refusal().is_some();
                can_share_agent(&handle.config, config) && !(ended && retry_rejected)
            });
            if runs {
                continue;
            }
            let mut agent_config = config.clone();
            agent_config.runtimes.clone_from(&self.runtimes);
            let agent = Agent::start(agent_config)?;
            self.metrics.follow(&agent);
            let (in_use, uses) = mpsc::channel(1);
            self.tasks.spawn(report_refusal(
                name.clone(),
                agent.status(),
                self.reports.clone(),
            ));
            self.numbers += 1;
            let on = AgentRef {
                agent,
                number: self.numbers,
                _in_use: in_use,
            };
            let config = config.clone();
            started.push((
                name.clone(),
                AgentHandle {
                    config,
                    agent_ref: on,
                    in_use: uses,
                },
            ));
        }
        let replaced = started
            .into_iter()
            .filter_map(|(name, handle)| self.agents.insert(name, handle));
        Ok(replaced.collect())
    }

    fn update_tunnel(
        &mut self,
        key: &str,
        wanted: &DesiredTunnel,
        required: &RequiredHostnames<'_>,
        retry_rejected: bool,
    ) -> Option<Change> {
        let handle = self.agents.get(&wanted.engine)?;
        let on = handle.agent_ref.clone();
        let is_free = |hostname: &String| !required.contains(&wanted.engine, hostname);
        let preferred = preferred_hostname(&wanted.properties).filter(is_free);
        let assigned = self
            .addresses
            .get(key)
            .filter(|assigned| assigned.name == wanted.properties.name)
            .map(|assigned| assigned.hostname.clone())
            .filter(|_| engine_assigns_hostname(wanted));
        let address = assigned
            .clone()
            .filter(is_free)
            .or_else(|| preferred.clone());
        let address_notice = AddressNotice::new(preferred);
        let Some(tunnel_task) = self.tunnels.get_mut(key) else {
            let (order, orders) = watch::channel(TunnelCommand {
                agent_ref: on,
                wanted: wanted.clone(),
                address,
                attempt: 0,
            });
            let reports = self.reports.clone();
            let metrics = self.metrics.clone();
            self.tasks
                .spawn(run_tunnel(key.into(), orders, reports, metrics));
            let state = State::Pending;
            self.tunnels.insert(
                key.to_owned(),
                TunnelTask {
                    command_sender: order,
                    state,
                    address_notice,
                },
            );
            return Some(Change::Added);
        };
        let (is_new, has_required_hostname) = {
            let order = tunnel_task.command_sender.borrow();
            let is_new = order.wanted != *wanted || order.agent_ref.number != on.number;
            let hostname = assigned.as_ref().or(order.address.as_ref());
            (is_new, hostname.is_some_and(|hostname| !is_free(hostname)))
        };
        let retry = retry_rejected && tunnel_task.state == State::Rejected;
        if !is_new && !retry && !has_required_hostname {
            return None;
        }
        if has_required_hostname {
            self.addresses.remove(key);
        }
        tunnel_task.address_notice = address_notice;
        tunnel_task.command_sender.send_modify(|order| {
            order.agent_ref = on;
            order.wanted = wanted.clone();
            order.address = address;
            order.attempt += u64::from(retry || has_required_hostname);
        });
        Some(Change::Changed)
    }

    /// Closes an agent that has no tunnels any more. Its accepted streams may finish.
    fn leave(&mut self, handle: AgentHandle) {
        let shutdown = self.shutdown.clone();
        let AgentHandle {
            agent_ref: on,
            mut in_use,
            ..
        } = handle;
        let agent = on.agent.clone();
        drop(on);
        self.leaving.spawn(async move {
            let _none: Option<Infallible> = in_use.recv().await;
            tokio::select! {
                _drained = agent.close(REPLACED_AGENT_DRAIN) => {}
                () = shutdown.drain().cancelled() => close(&agent, &shutdown).await,
            }
        });
    }

    /// Stores the status of a tunnel. Returns true if the tunnel is still wanted.
    pub(super) fn store_status(&mut self, key: &str, status: &Status) -> bool {
        let Some(tunnel_task) = self.tunnels.get_mut(key) else {
            return false;
        };
        match status {
            Status::Connecting => {}
            Status::Online(online) => {
                tunnel_task.state = State::Online;
                let drawn = &online.properties.hostname;
                let requested = tunnel_task.command_sender.borrow().wanted.clone();
                if let Some(hostname) = drawn
                    .as_ref()
                    .filter(|_| engine_assigns_hostname(&requested))
                {
                    if self.addresses.len() >= MAX_ADDRESSES {
                        let tunnels = &self.tunnels;
                        self.addresses.retain(|key, _| tunnels.contains_key(key));
                    }
                    let assigned = AssignedAddress {
                        name: requested.properties.name.clone(),
                        hostname: hostname.clone(),
                    };
                    self.addresses.insert(key.to_owned(), assigned);
                }
            }
            Status::Disconnected { .. } if tunnel_task.state == State::Pending => {}
            Status::Disconnected { .. } => tunnel_task.state = State::Reconnecting,
            Status::Closed(_) => tunnel_task.state = State::Rejected,
        }
        true
    }

    /// The notice for a tunnel that did not get the address of its name.
    pub(super) fn address_notice(&mut self, key: &str, status: &Status) -> Option<String> {
        self.tunnels.get_mut(key)?.address_notice.text(status)
    }

    /// Port of a tunnel's engine.
    pub(super) fn engine_port(&self, key: &str) -> u16 {
        let tunnel_task = self.tunnels.get(key);
        let handle = tunnel_task
            .and_then(|task| self.agents.get(&task.command_sender.borrow().wanted.engine));
        handle.map_or(443, |handle| handle.config.engine.port())
    }

    /// Number of tunnels in a state.
    pub(super) fn count(&self, state: State) -> usize {
        let states = self.tunnels.values().map(|tunnel_task| tunnel_task.state);
        states.filter(|found| *found == state).count()
    }

    /// The refusal if all agents were refused. `None` while one runs, or if there are none.
    pub(super) fn refused(&self) -> Option<Refusal> {
        let mut refusals = self.agents.values().map(AgentHandle::refusal);
        let first = refusals.next()??;
        refusals.all(|refusal| refusal.is_some()).then_some(first)
    }

    /// The failure that explains why a tunnel is disconnected, if its agent has one.
    pub(super) fn disconnection(&self, key: &str, status: &Status) -> Option<Failure> {
        let Status::Disconnected { error, .. } = status else {
            return None;
        };
        let task = self.tunnels.get(key)?;
        let command = task.command_sender.borrow();
        let (failure, _lasting) = Failure::of_disconnection(&command.agent_ref.agent, error)?;
        Some(failure)
    }

    /// The failure for a refusal of all agents, with the likely reason of the first one.
    pub(super) async fn explain(&self, refusal: &Refusal) -> Failure {
        let failure = Failure::from(refusal);
        match self.agents.values().next() {
            Some(handle) => token_refusal::explain(failure, &handle.config).await,
            None => failure,
        }
    }

    /// Closes all agents. Accepted streams may finish until the deadline.
    pub(super) fn stop(&mut self) -> JoinSet<()> {
        let mut closing = std::mem::take(&mut self.leaving);
        for handle in self.agents.values() {
            let (agent, shutdown) = (handle.agent_ref.agent.clone(), self.shutdown.clone());
            closing.spawn(async move { close(&agent, &shutdown).await });
        }
        closing
    }
}

/// Closes an agent in the two steps of a shutdown.
async fn close(agent: &Agent, shutdown: &Shutdown) {
    tokio::select! {
        _drained = agent.close(shutdown.deadline()) => {}
        () = shutdown.hard().cancelled() => drop(agent.close(Duration::ZERO).await),
    }
}

/// Reports when the engine refuses the agent. Its tunnels cannot report it, because it may have
/// none.
async fn report_refusal(
    engine: EngineName,
    mut status: watch::Receiver<AgentStatus>,
    reports: mpsc::Sender<TunnelReport>,
) {
    let ended = status
        .wait_for(|status| matches!(status, AgentStatus::Ended(_)))
        .await
        .map(|status| status.clone());
    let Ok(AgentStatus::Ended(Some(refusal))) = ended else {
        return;
    };
    // Sending fails only when the process ends.
    drop(
        reports
            .send(TunnelReport::Refused { engine, refusal })
            .await,
    );
}

enum Change {
    Added,
    Changed,
}

/// Host names that tunnels require, with their engines. If another tunnel of the agent has one of
/// them, because of its name or from an earlier time, the engine refuses the tunnel that requires
/// it.
struct RequiredHostnames<'w>(Vec<(&'w EngineName, &'w str)>);

impl<'w> RequiredHostnames<'w> {
    fn of(wanted: &'w BTreeMap<String, DesiredTunnel>) -> Self {
        let of_tunnel = |wanted: &'w DesiredTunnel| {
            Some((&wanted.engine, wanted.properties.hostname.as_deref()?))
        };
        Self(wanted.values().filter_map(of_tunnel).collect())
    }

    fn contains(&self, engine: &EngineName, hostname: &str) -> bool {
        let mut all = self.0.iter();
        all.any(|(of, required)| *of == engine && may_be_one_hostname(required, hostname))
    }
}

impl AgentHandle {
    /// The refusal that ended the agent.
    fn refusal(&self) -> Option<Refusal> {
        match &*self.agent_ref.agent.status().borrow() {
            AgentStatus::Ended(refusal) => refusal.clone(),
            _ => None,
        }
    }
}

/// True if both configurations can use the same agent.
fn can_share_agent(one: &Config, other: &Config) -> bool {
    one.engine == other.engine
        && one.tokens == other.tokens
        && one.trust == other.trust
        && one.proxies == other.proxies
        && one.labels == other.labels
        && one.heartbeat == other.heartbeat
}

/// True if the engine assigns the host name, which visitors then use.
fn engine_assigns_hostname(wanted: &DesiredTunnel) -> bool {
    let requested = &wanted.properties;
    requested.hostname.is_none()
        && requested.publish != Some(false)
        && requested.protocol != Some(Protocol::Tcp)
}

/// Time for the remaining streams of a replaced agent. Nothing waits for them, and few streams last
/// longer than an hour.
const REPLACED_AGENT_DRAIN: Duration = Duration::from_hours(1);

/// Limit of the stored host names: more than one agent can have tunnels.
const MAX_ADDRESSES: usize = 4096;
