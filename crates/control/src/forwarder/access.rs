//! Access of a user to the live data of a project, for as long as a response lasts.

use std::sync::Arc;
use std::time::Duration;

use store::projects::Project;
use store::users::Status;
use store::{sessions, users};
use tokio::sync::watch;
use tokio::time::sleep;
use types::id::SessionId;
use types::permission::Permission;
use types::problem::Problem;

use crate::app::App;
use crate::caller::{Principal, access};
use crate::http_api::problem::HandlerResult;
use crate::people::session::is_idle;

/// The access that one request uses.
#[derive(Debug)]
pub(super) struct LiveAccess {
    pub(super) app: Arc<App>,
    pub(super) who: Principal,
    pub(super) session: SessionId,
    /// Id of the project, as in the path.
    pub(super) project: String,
    pub(super) permission: Permission,
    /// Changes since the first check.
    pub(super) changes: watch::Receiver<()>,
}

impl LiveAccess {
    /// Checks the session, the user, the role and the project. Returns the project.
    ///
    /// # Errors
    /// 401 if the session has ended, 403 if the role does not allow it any more, 404 if the user is
    /// not a member any more, 409 if the project is suspended.
    pub(super) async fn check(&self) -> HandlerResult<Project> {
        let now = self.app.now();
        let mut read = self.app.store.read().await?;
        let live = sessions::of_user(&mut read, self.who.user.id, now).await?;
        let is_live = live
            .iter()
            .any(|session| session.id == self.session && !is_idle(session, now));
        let user = users::by_id(&mut read, self.who.user.id).await?;
        let is_active = user.is_some_and(|user| user.status == Status::Active);
        if !is_live || !is_active {
            return Err(Problem::unauthenticated().into());
        }
        if !self.who.allows(self.permission) {
            return Err(Problem::insufficient_scope(self.permission).into());
        }
        let (id, permission) = (self.project.as_str(), self.permission);
        let found = access::project(&mut read, &self.who, id, permission).await?;
        access::require_usable(&found.project)?;
        Ok(found.project)
    }

    /// Waits until the access ends. Returns the reason.
    ///
    /// The engine ends its stream for the same reasons, but it may be cut off from the platform.
    pub(super) async fn ended(mut self) -> String {
        loop {
            tokio::select! {
                changed = self.changes.changed() => if changed.is_err() {
                    return "the platform stops".to_owned();
                },
                () = sleep(CHECK_INTERVAL) => {}
            }
            if let Err(refusal) = self.check().await {
                return refusal.problem().code.to_owned();
            }
            // A busy platform changes all the time. Later changes stay noted.
            sleep(PAUSE).await;
        }
    }
}

/// Interval for checks without a known change: the end of an idle session, and changes of other
/// processes whose notification was lost.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// Minimum time between two checks of one response. A change takes effect within a second.
const PAUSE: Duration = Duration::from_millis(500);
