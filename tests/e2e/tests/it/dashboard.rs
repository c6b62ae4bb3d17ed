//! The dashboard of `svc up` in Chromium, with real agents and visitors.

mod actions;
mod failures;

use std::fs;

use anyhow::Result;
use e2e::{Peer, Platform, program};
use serde_json::{Value, json};

/// The page shows a command. The script runs it, so the agent has only the values that the page
/// shows.
#[test]
fn the_dashboard_follows_agents_requests_roles_and_sessions_live() -> Result<()> {
    let platform = Platform::up()?;
    let given = values_for_agents(&platform)?;
    platform.node_with("dashboard.mjs", given)?;
    Ok(())
}

/// EN-7: a token of the share dialog opens this tunnel only. A tunnel that is closed ends its open
/// download within a second, its agent ends with the reason, and the audit log has the action.
#[test]
fn en_7_a_tunnel_is_shared_with_a_token_and_closed_with_its_visits() -> Result<()> {
    let platform = Platform::up()?;
    let given = values_for_agents(&platform)?;
    platform.node_with("dashboard_close.mjs", given)?;
    Ok(())
}

/// The values with which a script starts agents.
fn values_for_agents(platform: &Platform) -> Result<Value> {
    // Without a context of `svc up`, in which an agent would find another token.
    let directory = platform.directory().join("agents");
    fs::create_dir(&directory)?;
    let ready = platform.ready();
    Ok(json!({
        "workspace": ready["workspace_id"],
        "token": ready["token"],
        "ca_file": ready["ca_file"],
        "engine_url": ready["engine_url"],
        "program": program()?,
        "directory": directory,
    }))
}

#[test]
fn every_page_of_the_dashboard_is_accessible_and_loads_without_errors() -> Result<()> {
    let platform = Platform::up()?;
    let service = Peer::start("inspected_service.mjs")?;
    let _web = platform.forward(
        service.address()?,
        &["--name", "shop", "--label", "team=web"],
    )?;
    platform.node("dashboard_pages.mjs")?;
    Ok(())
}

#[test]
fn a_list_of_ten_thousand_tunnels_has_only_the_visible_rows() -> Result<()> {
    Platform::up()?.node("dashboard_many.mjs")?;
    Ok(())
}
