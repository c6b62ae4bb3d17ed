//! Header fields and message heads on their way between visitor and service.

pub(super) mod forwarding;
pub(super) mod identity;
pub(super) mod loop_detection;
pub(super) mod trailers;
pub(super) mod translate;
