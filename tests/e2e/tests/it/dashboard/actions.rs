//! The main actions of pages of the dashboard.

use anyhow::{Context as _, Result};
use e2e::{Peer, Platform};
use serde_json::json;

/// WT-2: an owner shares a tunnel, issues, rotates and revokes a credential, invites a member,
/// filters and exports the audit log, finds what a terminal showed in its recording, changes
/// settings and the plan. A viewer sees the same pages without actions, and is refused if they are
/// forced.
#[test]
fn an_owner_does_the_main_action_of_each_page_and_a_viewer_none() -> Result<()> {
    let platform = Platform::up()?;
    let service = Peer::start("inspected_service.mjs")?;
    let args = ["--name", "shop", "--label", "team=web"];
    let _web = platform.forward(service.address()?, &args)?;
    let create = ["webtty", "server", "create", "build", "--enroll"];
    let created = platform.svc_json(&create)?;
    let id = created["id"].as_str().context("no id")?;
    let spawns = ["--execution-mode", "spawn"];
    let server = ["webtty", "server", "--server-id", id];
    let _server = platform.agent(&[&server[..], &spawns].concat())?;
    // The command ends without a signal, and its session with it.
    let echo = ["-I", "--", "/bin/echo", "needle-42"];
    platform.svc(&[&["webtty", "client", "build"], &echo[..]].concat())?;
    let given = json!({"workspace": platform.ready()["workspace_id"]});
    platform.node_with("dashboard_actions.mjs", given)?;
    Ok(())
}

/// OA-2: the credentials of a user list an application that they approved, and end its access.
#[test]
fn oa_2_a_connected_application_is_revoked_on_the_page_of_credentials() -> Result<()> {
    Platform::up()?.node("dashboard_application.mjs")?;
    Ok(())
}

/// CP-6: an owner makes a TURN credential, with which two peers meet through the relay. It is shown once.
/// A member whose role becomes viewer is refused.
#[test]
fn cp_6_a_turn_credential_is_made_shown_once_and_refused_without_permission() -> Result<()> {
    let platform = Platform::up()?;
    let ready = platform.ready();
    let given = json!({"workspace": ready["workspace_id"], "turn_urls": ready["turn_urls"]});
    platform.node_with("dashboard_turn.mjs", given)?;
    Ok(())
}

/// An owner makes, changes and removes the objects of a project. An operator makes a user an operator,
/// suspends and resumes a user, a workspace and a project, and takes down an address.
#[test]
fn objects_are_made_and_removed_on_their_pages_and_operators_act_on_theirs() -> Result<()> {
    let platform = Platform::up()?;
    let given = super::values_for_agents(&platform)?;
    platform.node_with("dashboard_objects.mjs", given)?;
    Ok(())
}
