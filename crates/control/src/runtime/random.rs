//! Random bytes, for secrets and for ids.

use aws_lc_rs::rand;
use types::problem::Problem;

use crate::http_api::problem::HandlerResult;

/// Fills an array from the system's generator. A failing generator is a defect of the machine, and
/// its output is not used.
pub fn bytes<const N: usize>() -> HandlerResult<[u8; N]> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| Problem::internal())?;
    Ok(bytes)
}
