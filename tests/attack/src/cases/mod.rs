//! The cases. A case is one kind of attack; adding one is adding a row to [`CASES`].

mod agents;
mod boundaries;
mod floods;
mod http1_requests;
mod http2_requests;
mod secrets;
mod services;
mod slow_readers;

use std::time::Duration;

use anyhow::Result;

use crate::target::Target;

/// One kind of attack.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Weight of its part of the time.
    pub(crate) share: u32,
    /// Attacks for about the given time. An error is a violation.
    pub(crate) run: fn(&mut Target, Duration, &mut fastrand::Rng) -> Result<()>,
}

/// All cases, in the order in which they run.
pub(crate) const CASES: &[Case] = &[
    Case {
        name: "http2-requests",
        share: 4,
        run: http2_requests::run,
    },
    Case {
        name: "http1-requests",
        share: 3,
        run: http1_requests::run,
    },
    Case {
        name: "path-boundaries",
        share: 1,
        run: boundaries::run,
    },
    Case {
        name: "services",
        share: 2,
        run: services::run,
    },
    Case {
        name: "agents",
        share: 2,
        run: agents::run,
    },
    Case {
        name: "floods",
        share: 3,
        run: floods::run,
    },
    Case {
        name: "slow-readers",
        share: 3,
        run: slow_readers::run,
    },
    Case {
        name: "secrets",
        share: 1,
        run: secrets::run,
    },
];
