//! Changes that subscribers of the inspector receive.

use serde::Serialize;

use crate::Summary;

/// Description of the inspected tunnel, for the head of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InspectorInfo {
    /// The address for visitors; absent while the tunnel is offline.
    pub forwarding: Option<String>,
    /// Target of the requests.
    pub target: String,
    /// Reason why nothing can be recorded, if so: one sentence.
    pub unseen: Option<String>,
}

/// A change of the records.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Update {
    /// An exchange started, or its summary changed. The id identifies it.
    Exchange(Summary),
    /// Exchanges were removed: the oldest because of the limits, or all of them by a user. Their
    /// ids are at most this one.
    Removed {
        /// The newest removed id.
        up_to: u64,
    },
    /// Recording was paused or resumed.
    Paused(bool),
    /// The inspected tunnel or its address changed.
    Info(InspectorInfo),
    /// The receiver was too slow and missed updates: [`Subscription::list`](crate::Subscription::list) has the current state.
    Missed,
}
