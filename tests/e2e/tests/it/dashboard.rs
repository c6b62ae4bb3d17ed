//! The dashboard of `svc up` in Chromium, with real agents and visitors.

mod actions;
mod failures;

use std::fs;

use anyhow::Result;
use e2e::{Peer, Platform, program};
use serde_json::json;

/// The page shows a command. The script runs it, so the agent knows only what the page shows.
#[test]
fn the_dashboard_follows_agents_requests_roles_and_sessions_live() -> Result<()> {
    let platform = Platform::up()?;
    // Without a context of `svc up`, in which an agent would find another token.
    let directory = platform.directory().join("agents");
    fs::create_dir(&directory)?;
    let ready = platform.ready();
    let given = json!({
        "workspace": ready["workspace_id"],
        "token": ready["token"],
        "ca_file": ready["ca_file"],
        "engine_url": ready["engine_url"],
        "program": program()?,
        "directory": directory,
    });
    platform.node_with("dashboard.mjs", given)?;
    Ok(())
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
