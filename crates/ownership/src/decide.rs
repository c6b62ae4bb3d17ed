//! The decision about a claim.

use crate::hold::{EngineId, NameHold, Owner};

/// An engine that claims a name for one of its agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The engine.
    pub engine: EngineId,
    /// The identity of the agent.
    pub owner: Owner,
    /// True if the tunnel may share the name with other tunnels of the owner.
    pub shares: bool,
}

/// The result of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The engine has the name for this owner already; the store need not change.
    Keep,
    /// The engine writes its hold, and removes the holds of these engines.
    Write {
        /// Engines that had the name for the same owner, and give way.
        displaced: Vec<EngineId>,
    },
    /// The name belongs to another owner.
    Refuse(Refusal),
}

/// Reasons why a name is not assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An agent of another owner has the name now.
    Online,
    /// An agent of another owner had the name within the hold time.
    Held,
}

/// Decides about a claim, from all holds of the name.
///
/// A free name is assigned. The same owner takes over immediately: other engines give way, unless
/// all tunnels with the name share it. Another owner is refused until the last hold has ended.
pub fn decide<'h>(
    claimant: &Claimant,
    holds: impl Iterator<Item = &'h NameHold> + Clone,
) -> Decision {
    let mut others = holds.clone().filter(|hold| hold.owner != claimant.owner);
    if let Some(first) = others.next() {
        let is_online = first.is_online || others.any(|hold| hold.is_online);
        let refusal = if is_online {
            Refusal::Online
        } else {
            Refusal::Held
        };
        return Decision::Refuse(refusal);
    }
    let joins = claimant.shares
        && holds
            .clone()
            .filter(|hold| hold.is_online)
            .all(|hold| hold.is_shared);
    let displaced: Vec<EngineId> = holds
        .clone()
        .filter(|hold| hold.engine != claimant.engine && !(joins && hold.is_online))
        .map(|hold| hold.engine)
        .collect();
    let mut own = holds.filter(|hold| hold.engine == claimant.engine);
    let has_it = own.any(|hold| hold.is_online && hold.is_shared == claimant.shares);
    if has_it && displaced.is_empty() {
        Decision::Keep
    } else {
        Decision::Write { displaced }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hold::Generation;

    const HERE: EngineId = EngineId(1);
    const THERE: EngineId = EngineId(2);

    fn claimant(owner: &str, shares: bool) -> Claimant {
        Claimant {
            engine: HERE,
            owner: Owner::new(owner),
            shares,
        }
    }

    fn hold(engine: EngineId, owner: &str, is_online: bool, is_shared: bool) -> NameHold {
        NameHold {
            engine,
            owner: Owner::new(owner),
            generation: Generation(1),
            is_online,
            is_shared,
        }
    }

    fn write(displaced: &[EngineId]) -> Decision {
        Decision::Write {
            displaced: displaced.to_vec(),
        }
    }

    #[test]
    fn a_free_name_is_assigned() {
        assert_eq!(decide(&claimant("a", false), [].iter()), write(&[]));
    }

    #[test]
    fn the_same_owner_takes_over_immediately() {
        for is_online in [true, false] {
            let holds = [hold(THERE, "a", is_online, false)];
            let decision = decide(&claimant("a", false), holds.iter());
            assert_eq!(decision, write(&[THERE]));
        }
    }

    #[test]
    fn another_owner_is_refused_until_the_hold_ends() {
        for (engine, is_online, refusal) in [
            (THERE, true, Refusal::Online),
            (THERE, false, Refusal::Held),
            (HERE, true, Refusal::Online),
            (HERE, false, Refusal::Held),
        ] {
            for shared in [true, false] {
                let holds = [hold(engine, "b", is_online, shared)];
                let decision = decide(&claimant("a", shared), holds.iter());
                assert_eq!(decision, Decision::Refuse(refusal));
            }
        }
    }

    #[test]
    fn tunnels_that_share_a_name_are_online_at_several_engines() {
        let shared = [hold(THERE, "a", true, true)];
        assert_eq!(decide(&claimant("a", true), shared.iter()), write(&[]));
        assert_eq!(
            decide(&claimant("a", false), shared.iter()),
            write(&[THERE])
        );
        let exclusive = [hold(THERE, "a", true, false)];
        assert_eq!(
            decide(&claimant("a", true), exclusive.iter()),
            write(&[THERE])
        );
        let left = [hold(THERE, "a", false, true)];
        assert_eq!(decide(&claimant("a", true), left.iter()), write(&[THERE]));
    }

    #[test]
    fn a_name_that_the_engine_has_needs_no_change() {
        for shared in [true, false] {
            let own = [hold(HERE, "a", true, shared)];
            assert_eq!(decide(&claimant("a", shared), own.iter()), Decision::Keep);
            assert_eq!(decide(&claimant("a", !shared), own.iter()), write(&[]));
            let left = [hold(HERE, "a", false, shared)];
            assert_eq!(decide(&claimant("a", shared), left.iter()), write(&[]));
        }
        let both = [hold(HERE, "a", true, true), hold(THERE, "a", true, true)];
        assert_eq!(decide(&claimant("a", true), both.iter()), Decision::Keep);
        assert_eq!(decide(&claimant("a", false), both.iter()), write(&[THERE]));
    }
}
