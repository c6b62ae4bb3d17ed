//! Claims: an engine's right to serve a name for an agent.

use std::sync::Arc;

use ownership::{
    Change, Claimant, Decision, EngineId, EntryValue, Generation, Name, NameHold, Refusal, decide,
};
use tokio::time::{Instant, timeout_at};

use crate::client::REQUEST_TIME;
use crate::clock;
use crate::error::StoreError;
use crate::membership::Membership;
use crate::proto::TxnRequest;
use crate::records::MAX_ENTRY_BYTES;
use crate::state::{OwnedName, SharedClaim, State};

/// The right of an agent to its names. When it is dropped, and no other agent of the engine has a
/// claim, the names are parked: they are held for their owner for the hold time.
pub struct Claim {
    membership: Arc<Membership>,
    names: Vec<Name>,
    shared: Arc<SharedClaim>,
}

/// The entry of a tunnel has more than [`MAX_ENTRY_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the settings of the tunnel have more than {MAX_ENTRY_BYTES} bytes")]
pub struct EntryTooLarge;

/// Reasons why a claim is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The name belongs to another owner.
    #[error("{0} is taken by another owner in the cluster")]
    Taken(Name, Refusal),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Other engines claimed the name at the same time.
    #[error("other engines of the cluster claim the name at the same time")]
    Contended,
    /// The engine leaves the cluster.
    #[error("the engine leaves the cluster")]
    Stopping,
}

impl ClaimError {
    /// True if the same claim can succeed later without a change of the agent.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Taken(..) => false,
            Self::Store(error) => error.is_retryable(),
            Self::Contended | Self::Stopping => true,
        }
    }
}

impl Claim {
    /// Calls `action` once when the owner has moved to another engine; now, if it already has.
    pub fn on_loss(&self, action: impl FnOnce() + Send + 'static) {
        self.shared.on_loss(action);
    }

    /// Writes the settings of the tunnel for the other engines, at its host name, until the claim
    /// ends. A failure of the store delays it.
    ///
    /// # Errors
    /// [`EntryTooLarge`]: nothing is written.
    pub fn publish_entry(&self, value: Vec<u8>) -> Result<(), EntryTooLarge> {
        if value.len() > MAX_ENTRY_BYTES {
            return Err(EntryTooLarge);
        }
        self.shared.set_entry(EntryValue::new(value));
        self.membership.state.lock().note_unwritten(&self.names);
        self.membership.entries.notify_one();
        Ok(())
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.membership.state.lock();
        for name in &self.names {
            let Some(owned) = state.owned.get_mut(name) else {
                continue;
            };
            let before = owned.claims.len();
            owned
                .claims
                .retain(|other| !Arc::ptr_eq(other, &self.shared));
            if owned.claims.is_empty() && before > 0 {
                state.unclaimed.insert(name.clone());
            }
        }
        // The entry is that of another tunnel from now on.
        state.note_unwritten(&self.names);
        drop(state);
        self.membership.parking.notify_one();
        self.membership.entries.notify_one();
    }
}

/// The change of the store that a claim of one name needs.
struct NamePlan {
    name: Name,
    /// The last revision that the decision is based on.
    since: u64,
    /// Engines that give way; `None` if the store need not change.
    displaced: Option<Vec<EngineId>>,
}

/// The holds of all claimed names, read at one revision.
struct CurrentHolds {
    revision: u64,
    holds: Vec<Vec<NameHold>>,
}

enum Outcome {
    Written(Generation),
    /// A hold had changed since the plan's revision.
    Changed(CurrentHolds),
}

impl Membership {
    /// Claims names for an agent, all or none.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        names: Vec<Name>,
        claimant: Claimant,
    ) -> Result<Claim, ClaimError> {
        let deadline = Instant::now() + REQUEST_TIME;
        if self.state.lock().is_stopping {
            return Err(ClaimError::Stopping);
        }
        if !self.serves() {
            // The engine joins the cluster, for which it may need the locks.
            self.wait_for_contact(deadline).await?;
        }
        let _locks = self.locks.lock(&names).await;
        let mut current = None;
        for _ in 0..TRIES {
            let plans = self.plan(&names, &claimant, current.take())?;
            let is_kept = plans.iter().all(|plan| plan.displaced.is_none());
            if is_kept && self.serves() {
                return self.register(names, &claimant, &plans, None);
            }
            self.wait_for_contact(deadline).await?;
            match self.commit(&plans, &claimant).await? {
                Outcome::Written(generation) => {
                    return self.register(names, &claimant, &plans, Some(generation));
                }
                Outcome::Changed(holds) => current = Some(holds),
            }
        }
        Err(ClaimError::Contended)
    }

    /// Claims a name again, whose hold ended with the lease. The owner may be at another engine
    /// since then, which keeps the name: the older generation gives way.
    pub(crate) async fn reclaim(&self, name: Name) -> Result<(), StoreError> {
        let names = vec![name.clone()];
        let _locks = self.locks.lock(&names).await;
        let mut current = None;
        for _ in 0..TRIES {
            let claimant = {
                let mut state = self.state.lock();
                let owned = state.owned.get(&name);
                let owned = owned.filter(|owned| owned.generation.is_none());
                match owned {
                    None => return Ok(()),
                    Some(owned) if owned.claims.is_empty() => {
                        state.disown(&name);
                        return Ok(());
                    }
                    Some(owned) => owned.claimant.clone(),
                }
            };
            let Ok(plans) = self.plan(&names, &claimant, current.take()) else {
                break;
            };
            let takes_over = {
                let state = self.state.lock();
                plans.iter().any(|plan| plan.displaces_online(&state))
            };
            if takes_over {
                break;
            }
            match self.commit(&plans, &claimant).await? {
                Outcome::Written(generation) => {
                    let mut state = self.state.lock();
                    record(&mut state, &claimant, &plans, generation);
                    if let Some(owned) = state.owned.get_mut(&name) {
                        owned.generation = Some(generation);
                    }
                    state.forget_entry(&name);
                    self.entries.notify_one();
                    return Ok(());
                }
                Outcome::Changed(holds) => current = Some(holds),
            }
        }
        let lost = self.state.lock().disown(&name);
        for loss in lost {
            loss.occur();
        }
        Ok(())
    }

    /// Decides about each name, from the view or from the current holds.
    fn plan(
        &self,
        names: &[Name],
        claimant: &Claimant,
        current: Option<CurrentHolds>,
    ) -> Result<Vec<NamePlan>, ClaimError> {
        let mut state = self.state.lock();
        if state.is_stopping {
            return Err(ClaimError::Stopping);
        }
        // The view may have later holds of this engine, without those that others wrote before.
        let mut since = state.view.revision();
        if let Some(current) = current {
            since = since.max(current.revision);
            update_view(&mut state, names, current);
        }
        let plans = names.iter().map(|name| {
            let holds = state.view.holds(name);
            let displaced = match decide(claimant, holds.iter()) {
                Decision::Keep => None,
                Decision::Write { displaced } => Some(displaced),
                Decision::Refuse(refusal) => return Err(ClaimError::Taken(name.clone(), refusal)),
            };
            Ok(NamePlan {
                name: name.clone(),
                since,
                displaced,
            })
        });
        plans.collect()
    }

    /// Waits until the lease was renewed recently enough for a claim.
    async fn wait_for_contact(&self, deadline: Instant) -> Result<(), ClaimError> {
        let mut contacts = self.contacts.subscribe();
        loop {
            if self.state.lock().tenure.may_claim(clock::now()) {
                return Ok(());
            }
            self.beat_now.notify_one();
            let contact = timeout_at(deadline, contacts.changed()).await;
            // The sender lives as long as the membership.
            if contact.is_err() {
                let failure = self.state.lock().failure.clone();
                return Err(failure.unwrap_or(StoreError::Slow).into());
            }
        }
    }

    /// Writes the holds of all plans in one transaction, unless another engine was faster.
    async fn commit(&self, plans: &[NamePlan], claimant: &Claimant) -> Result<Outcome, StoreError> {
        let lease = self.state.lock().lease;
        let lease = lease.ok_or(StoreError::LeaseEnded)?;
        let keys = &self.keys;
        let mut request = TxnRequest::default();
        for plan in plans {
            let name = &plan.name;
            request.compare.push(keys.is_unchanged(name, plan.since));
            request
                .success
                .push(keys.put_hold(name, claimant, true, lease));
            for engine in plan.displaced.iter().flatten() {
                request.success.push(keys.remove_hold(name, *engine));
                request.success.push(keys.remove_entry(name, *engine));
            }
            request.failure.push(keys.read_holds(name));
        }
        let answer = self.client.transaction(request).await;
        if answer == Err(StoreError::LeaseEnded) {
            // The renewal of the lease fails as well, and leads to a new one.
            self.beat_now.notify_one();
        }
        let answer = answer?;
        let revision = answer.header.unwrap_or_default().revision;
        let revision = u64::try_from(revision).unwrap_or_default();
        if answer.succeeded {
            return Ok(Outcome::Written(Generation(revision)));
        }
        let ranges = answer.responses.into_iter();
        let holds = ranges.map(|answer| {
            let kvs = answer.range.unwrap_or_default().kvs;
            let changes = kvs.iter().filter_map(|kv| keys.record(kv));
            let holds = changes.filter_map(|change| match change.change {
                Change::Hold(_, hold) => Some(hold),
                _ => None,
            });
            holds.collect::<Vec<NameHold>>()
        });
        Ok(Outcome::Changed(CurrentHolds {
            revision,
            holds: holds.collect(),
        }))
    }

    /// Adds a claim to its names. `generation` is that of the written holds; without one, the
    /// engine has the names already.
    fn register(
        self: &Arc<Self>,
        names: Vec<Name>,
        claimant: &Claimant,
        plans: &[NamePlan],
        generation: Option<Generation>,
    ) -> Result<Claim, ClaimError> {
        let mut state = self.state.lock();
        if let Some(generation) = generation {
            record(&mut state, claimant, plans, generation);
        }
        let mut generations = Vec::with_capacity(names.len());
        for name in &names {
            let own = state.own_hold(name).filter(|own| own.is_online);
            // Another engine has taken the name over already.
            let Some(own) = own else {
                return Err(ClaimError::Contended);
            };
            generations.push(own.generation);
        }
        let shared = Arc::<SharedClaim>::default();
        for (name, generation) in names.iter().zip(generations) {
            state.unclaimed.remove(name);
            let owned = state.owned.entry(name.clone());
            let owned = owned.or_insert_with(|| OwnedName {
                claimant: claimant.clone(),
                generation: None,
                claims: Vec::new(),
                written: None,
            });
            owned.claimant = claimant.clone();
            owned.generation = Some(generation);
            owned.claims.push(Arc::clone(&shared));
        }
        drop(state);
        Ok(Claim {
            membership: Arc::clone(self),
            names,
            shared,
        })
    }
}

impl NamePlan {
    /// True if the plan removes the hold of an engine whose agents are online.
    fn displaces_online(&self, state: &State) -> bool {
        let mut displaced = self.displaced.iter().flatten();
        displaced.any(|engine| {
            let holds = state.view.holds(&self.name);
            holds
                .iter()
                .any(|hold| hold.engine == *engine && hold.is_online)
        })
    }
}

/// Brings the view up to date with holds that a transaction has read.
fn update_view(state: &mut State, names: &[Name], current: CurrentHolds) {
    let CurrentHolds { revision, holds } = current;
    for (name, holds) in names.iter().zip(holds) {
        let known = state.view.holds(name).iter().map(|hold| hold.engine);
        let is_gone = |engine: &EngineId| holds.iter().all(|hold| hold.engine != *engine);
        let gone: Vec<EngineId> = known.filter(is_gone).collect();
        for engine in gone {
            let end = Change::HoldEnd(name.clone(), engine);
            state.change_view(end, revision);
        }
        for hold in holds {
            state.change_view(Change::Hold(name.clone(), hold), revision);
        }
    }
}

/// Applies written holds to the view, unless the stream of changes has brought later changes.
fn record(state: &mut State, claimant: &Claimant, plans: &[NamePlan], generation: Generation) {
    if state.view.revision() >= generation.0 {
        return;
    }
    for plan in plans {
        let hold = NameHold {
            engine: claimant.engine,
            owner: claimant.owner.clone(),
            generation,
            is_online: true,
            is_shared: claimant.shares,
        };
        let written = Change::Hold(plan.name.clone(), hold);
        state.change_view(written, generation.0);
        for engine in plan.displaced.iter().flatten() {
            let end = Change::HoldEnd(plan.name.clone(), *engine);
            state.change_view(end, generation.0);
        }
    }
}

/// Attempts of a claim. Each failure means that another claim of the name has succeeded.
const TRIES: usize = 8;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ownership::{Engine, Owner};

    use super::*;
    use crate::settings::Settings;

    /// Another engine may have written a hold after the view's revision, and before this engine
    /// parked its own.
    #[test]
    fn a_plan_relies_on_the_revision_at_which_all_holds_were_read() {
        let settings = Settings {
            endpoints: Vec::new(),
            tls: None,
            login: None,
            prefix: "/svc/".to_owned(),
            engine: Engine {
                name: "engine".into(),
                address: "engine:1".into(),
                zone: "zone".into(),
            },
            hold: Duration::from_mins(10),
        };
        let engine = EngineId(1);
        let membership = Membership::new(engine, &settings);
        let names = [Name::of_host("a")];
        let claimant = Claimant {
            engine,
            owner: Owner::new("x"),
            shares: false,
        };
        let parked = NameHold {
            engine,
            owner: Owner::new("x"),
            generation: Generation(10),
            is_online: false,
            is_shared: false,
        };
        {
            let mut state = membership.state.lock();
            state.view.advance(8);
            let written = Change::Hold(names[0].clone(), parked.clone());
            state.view.apply(written, 10);
        }
        let plans = membership.plan(&names, &claimant, None).unwrap();
        assert_eq!(plans[0].since, 8);
        let current = CurrentHolds {
            revision: 12,
            holds: vec![vec![parked]],
        };
        let plans = membership.plan(&names, &claimant, Some(current)).unwrap();
        assert_eq!(plans[0].since, 12);
    }
}
