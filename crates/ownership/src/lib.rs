//! Ownership of names in a cluster of engines, without IO and without a clock.
//!
//! A store that all engines use has the **holds**: one record for each name and engine. [`decide`]
//! turns a claim and the holds of its name into a decision, [`View`] is an engine's copy of all
//! holds, and [`Tenure`] tells until when an engine may rely on its copy.
//!
//! The rules are those of one engine: a free name is assigned, the same owner takes over
//! immediately, and another owner is refused. A hold lasts until the lease that it is attached to
//! ends, which is at least the **hold time** after its engine last had contact with the store. An
//! engine stops serving earlier, by its own clock and with a margin, so two engines never serve
//! one name for different owners.

mod decide;
mod entry;
mod hold;
mod name;
mod tenure;
mod view;

pub use decide::{Claimant, Decision, Refusal, decide};
pub use entry::{Entry, EntryValue};
pub use hold::{EngineId, Generation, NameHold, Owner};
pub use name::Name;
pub use tenure::Tenure;
pub use view::{Change, Engine, NameCounts, Server, View};
