//! Operator functions: finding and suspending users, workspaces and projects.

mod api;
mod engines;
pub(crate) mod first_admin;
mod pages;
mod role;
mod sessions;
mod suspend;
mod takedowns;

use std::sync::Arc;

use ::api::control::operator as operations;
use ::api::control::takedowns as takedown_operations;
use axum::Router;
use axum::routing::{get, post};

pub use self::suspend::{Reason, Subject, resume, suspend};
use crate::app::App;
use crate::http_api::route::OperationRouter as _;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(operations::LIST_USERS, api::list_users)
        .serve(operations::GET_USER, api::get_user)
        .serve(operations::CHANGE_USER, role::change)
        .serve(operations::SUSPEND_USER, api::suspend_user)
        .serve(operations::RESUME_USER, api::resume_user)
        .serve(operations::LIST_USER_SESSIONS, sessions::list)
        .serve(operations::END_USER_SESSION, sessions::end)
        .serve(operations::LIST_WORKSPACES, api::list_workspaces)
        .serve(operations::GET_WORKSPACE, api::get_workspace)
        .serve(operations::SUSPEND_WORKSPACE, api::suspend_workspace)
        .serve(operations::RESUME_WORKSPACE, api::resume_workspace)
        .serve(operations::LIST_PROJECTS, api::list_projects)
        .serve(operations::GET_PROJECT, api::get_project)
        .serve(operations::SUSPEND_PROJECT, api::suspend_project)
        .serve(operations::RESUME_PROJECT, api::resume_project)
        .serve(operations::LIST_AUDIT, api::list_audit)
        .serve(operations::LIST_ENGINES, engines::list)
        .serve(takedown_operations::LIST, takedowns::list)
        .serve(takedown_operations::CREATE, takedowns::create)
        .serve(takedown_operations::DELETE, takedowns::delete)
        .serve(takedown_operations::LIST_OF_PROJECT, takedowns::of_project)
        .route("/operator", get(pages::home))
        .route("/operator/engines", get(engines::show))
        .route("/operator/{kind}", get(pages::list))
        .route("/operator/{kind}/{id}/suspend", post(pages::suspend))
        .route("/operator/{kind}/{id}/resume", post(pages::resume))
}
