//! Lookup of credentials that the caller may change. Every operation that replaces or revokes one
//! uses this rule.

use api::control::whoami::CallerKind;
use store::Tx;
use store::credentials::{self as stored, Credential};
use types::id::CredentialId;
use types::problem::Problem;

use crate::caller::Principal;
use crate::credentials::delegation;
use crate::http_api::problem::{HandlerResult, Refusal};

/// The credential with this id, revoked or not, if the caller may change it: its own, or one with
/// no more permissions than the caller has (CP-11).
///
/// # Errors
/// 404 if the caller's user has no credential with this id; 403 if it has more permissions than the
/// caller.
pub(super) async fn find(tx: &mut Tx, who: &Principal, id: &str) -> HandlerResult<Credential> {
    let not_found = || Refusal::from(Problem::not_found());
    let id: CredentialId = id.parse().map_err(|_| not_found())?;
    let credential = stored::of_user_by_id(tx, who.user.id, id).await?;
    let credential = credential.ok_or_else(not_found)?;
    let is_own = who.kind != CallerKind::Auth && who.source.credential() == Some(id);
    if !is_own {
        delegation::require_covers(who, &credential)?;
    }
    Ok(credential)
}
