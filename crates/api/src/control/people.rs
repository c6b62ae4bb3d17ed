//! Users, sessions, workspaces, members, invitations, audit.

use super::{Operation, Schemas};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[];

pub(super) fn schemas(_: &mut Schemas) {}
