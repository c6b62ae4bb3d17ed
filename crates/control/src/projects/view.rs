//! Conversion of a project into an API response.

use api::control::projects::{Deployment, Placement, Project, ProjectStatus};
use store::projects::{self, Status};
use types::problem::Problem;

use super::region::region_of;
use crate::app::App;
use crate::http_api::problem::HandlerResult;

/// The project with its addresses.
pub(crate) fn view(app: &App, project: &projects::Project) -> HandlerResult<Project> {
    let (plan, provider) = project
        .plan
        .parse()
        .ok()
        .zip(project.provider.parse().ok())
        .ok_or_else(|| {
            tracing::error!(project.id = %project.id, "plan or provider is not known");
            Problem::internal()
        })?;
    let (domain, engine_port) = region_of(app, project).map_or_else(
        || (String::new(), 0),
        |region| (region.domain.clone(), region.engine_port),
    );
    let turn = &app.config.turn;
    Ok(Project {
        id: project.id.to_string(),
        workspace_id: project.workspace_id.to_string(),
        name: project.name.clone(),
        endpoint: project.endpoint.clone(),
        url: format!("{}.{domain}:{engine_port}", project.endpoint),
        turn_domain: turn.domain.clone().unwrap_or_else(|| domain.clone()),
        turn_realm: turn.realm.clone().unwrap_or_else(|| domain.clone()),
        turn_port: turn.port,
        turns_port: turn.tls_port,
        domain,
        engine_port,
        status: match project.status {
            Status::Active => ProjectStatus::Active,
            Status::Unavailable => ProjectStatus::Unavailable,
            Status::Error => ProjectStatus::Error,
        },
        placement: Placement::Regional,
        routing: Placement::Regional,
        provider,
        region: project.region.clone().unwrap_or_default(),
        plan,
        deployment: if project.deployment == DEDICATED {
            Deployment::Dedicated
        } else {
            Deployment::Shared
        },
    })
}

const DEDICATED: &str = "dedicated";
