//! Workspaces: their members, roles and invitations.

mod crud;
mod invitation_api;
pub mod invitations;
mod members;
pub mod role;
mod view;

use std::sync::Arc;

use api::control::workspaces as operations;
use axum::Router;

use crate::app::App;
use crate::http_api::route::OperationRouter as _;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(operations::LIST, crud::list)
        .serve(operations::CREATE, crud::create)
        .serve(operations::GET, crud::get)
        .serve(operations::RENAME, crud::rename)
        .serve(operations::DELETE, crud::delete)
        .serve(operations::LIST_MEMBERS, members::list)
        .serve(operations::CHANGE_MEMBER, members::change)
        .serve(operations::REMOVE_MEMBER, members::remove)
        .serve(operations::LIST_INVITATIONS, invitation_api::list)
        .serve(operations::INVITE, invitation_api::invite)
        .serve(operations::REVOKE_INVITATION, invitation_api::revoke)
}
