//! Running a platform: jobs, engines, faults, and the operator.

pub(crate) mod engines;
mod faults;
pub(crate) mod jobs;
mod operator;
mod operator_pages;
mod served;
mod takedowns;
