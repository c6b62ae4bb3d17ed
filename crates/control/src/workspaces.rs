//! Workspaces: their members and the permissions of each member.

mod crud;
pub mod invitations;
mod list_invitations;
mod members;
pub mod role;
mod view;

use std::sync::Arc;

use api::control::workspaces as api;
use axum::Router;

use crate::app::App;
use crate::http_api::route::Serve as _;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(api::LIST, crud::list)
        .serve(api::CREATE, crud::create)
        .serve(api::GET, crud::get)
        .serve(api::RENAME, crud::rename)
        .serve(api::DELETE, crud::delete)
        .serve(api::LIST_MEMBERS, members::list)
        .serve(api::CHANGE_MEMBER, members::change)
        .serve(api::REMOVE_MEMBER, members::remove)
        .serve(api::LIST_INVITATIONS, list_invitations::list)
        .serve(api::INVITE, list_invitations::invite)
        .serve(api::REVOKE_INVITATION, list_invitations::revoke)
}
