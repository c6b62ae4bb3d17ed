//! `PATCH /api/operator/users/{user_id}`: an operator makes other users operators, and operators
//! users.

use std::net::IpAddr;
use std::sync::Arc;

use ::api::control::operator::{InstallationRole, OperatorUser, OperatorUserChange};
use axum::Json;
use axum::extract::State;
use serde_json::json;
use store::users::{self, Role, Status};
use types::id::UserId;
use types::problem::Problem;

use super::api;
use super::suspend::{conflict, require_operator};
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::caller::Operator;
use crate::http_api::extract::{Body, ClientIp, Segment};
use crate::http_api::problem::HandlerResult;

pub(super) async fn change(
    operator: Operator,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    ClientIp(ip): ClientIp,
    Body(body): Body<OperatorUserChange>,
) -> HandlerResult<Json<OperatorUser>> {
    let user: UserId = id.parse().map_err(|_| Problem::not_found())?;
    let role = match body.role {
        InstallationRole::User => Role::User,
        InstallationRole::Admin => Role::Admin,
    };
    set_role(&app, &operator, ip, user, role).await?;
    api::get_user(operator, State(app), Segment(id)).await
}

/// Sets the role. The role is read at every request, so it takes effect immediately in every process.
async fn set_role(
    app: &App,
    operator: &Operator,
    ip: IpAddr,
    id: UserId,
    role: Role,
) -> HandlerResult<()> {
    let now = app.now();
    let actor = operator.principal.user.id;
    // The caller stays an operator, so at least one always remains.
    if id == actor {
        return Err(conflict("You cannot change your own role."));
    }
    let mut tx = app.store.begin().await?;
    require_operator(&mut tx, actor).await?;
    let user = users::by_id(&mut tx, id).await?;
    let user = user.ok_or_else(Problem::not_found)?;
    if role == Role::Admin && user.status != Status::Active {
        return Err(conflict("A suspended user cannot become an operator."));
    }
    if user.role == role {
        return Ok(());
    }
    users::set_role(&mut tx, id, role, now).await?;
    let actor = Actor::caller(&operator.principal).with_ip(ip);
    let (action, target) = (Action::RoleChanged, AuditTarget::User(id));
    let details = json!({"role": role.as_str()});
    audit::record_with(&mut tx, &actor, None, action, target, details, now).await?;
    tx.commit().await?;
    Ok(())
}
