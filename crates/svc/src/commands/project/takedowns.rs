//! `svc project takedowns`: host names that an operator has taken down.

use api::control::takedowns::{LIST_OF_PROJECT, Takedown, TakedownList};

use super::ProjectArg;
use crate::{failure::Failure, output, output::Format};

/// Lists the names with the reasons of the operator.
pub(super) async fn run(project_arg: ProjectArg) -> Result<(), Failure> {
    let session = project_arg.flags.open()?;
    let project = session.project(project_arg.project.as_deref()).await?;
    let call = session.platform.call(LIST_OF_PROJECT, &[&project.id]);
    let list: TakedownList = call.answer().await?;
    if project_arg.output == Format::Json {
        return output::json(&list);
    }
    let rows: Vec<_> = list.takedowns.iter().map(row).collect();
    output::table(&["HOSTNAME", "SINCE", "REASON"], &rows)
}

fn row(takedown: &Takedown) -> Vec<String> {
    vec![
        takedown.hostname.clone(),
        takedown.created_at.clone(),
        takedown.reason.clone(),
    ]
}
