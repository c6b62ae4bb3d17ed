//! Plans, projects, settings, usage, logs and events.

use super::{Operation, Schemas};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[];

pub(super) fn schemas(_: &mut Schemas) {}
