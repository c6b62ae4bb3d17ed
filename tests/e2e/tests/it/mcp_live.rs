//! Live objects of a project, listed by the tools of `svc up`: the platform calls the project's
//! engine with the caller's bearer.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use e2e::{Curl, Platform, Service};
use serde_json::{Value, json};

/// MC-3: agent and tunnel are in the lists, by id and by endpoint of the project.
#[test]
fn mc_3_tools_list_live_objects() -> Result<()> {
    let platform = Platform::up()?;
    let tools = Tools(&platform);
    let (ready, token) = (platform.ready(), tools.token());
    let by_id = json!({"project_id": ready["project_id"]});
    let nothing = tools.call(token, "svc_tunnels_list", &by_id)?;
    assert_eq!(
        nothing["structuredContent"],
        json!({"tunnels": []}),
        "{nothing}"
    );

    let target = Service::mirror()?.to_string();
    let agent = platform.forward(&target, &["--name", "live"])?;
    for project in [
        by_id.clone(),
        json!({"project_endpoint": ready["project_endpoint"]}),
    ] {
        let listed = tools.call(token, "svc_tunnels_list", &project)?;
        let tunnels = listed["structuredContent"]["tunnels"].as_array();
        let tunnels = tunnels.with_context(|| listed.to_string())?;
        assert_eq!(tunnels.len(), 1, "{listed}");
        assert_eq!(tunnels[0]["name"], "live");
        assert_eq!(tunnels[0]["hostname"], agent.hostname()?);
        let listed = tools.call(token, "svc_clients_list", &project)?;
        let clients = &listed["structuredContent"]["clients"];
        assert_eq!(clients.as_array().map(Vec::len), Some(1), "{listed}");
        assert_eq!(clients[0]["id"], tunnels[0]["client_id"]);
    }
    // The engine filters the list, and rejects unknown keys.
    let mut other = by_id.clone();
    other["filters"] = json!({"name": "another"});
    let nothing = tools.call(token, "svc_tunnels_list", &other)?;
    assert_eq!(
        nothing["structuredContent"],
        json!({"tunnels": []}),
        "{nothing}"
    );
    let mut wrong = by_id;
    wrong["filters"] = json!({"nmae": "live"});
    let refused = tools.call(token, "svc_tunnels_list", &wrong)?;
    assert_eq!(
        refused["_meta"]["svc/problem"]["argument"], "filters.nmae",
        "{refused}"
    );
    Ok(())
}

/// EN-7: a tunnel is closed with a token that may close tunnels, and its agent ends.
#[test]
fn en_7_a_tool_closes_a_tunnel() -> Result<()> {
    let platform = Platform::up()?;
    let tools = Tools(&platform);
    let by_id = json!({"project_id": platform.ready()["project_id"]});
    let target = Service::mirror()?.to_string();
    let mut agent = platform.forward(&target, &["--name", "live"])?;
    let listed = tools.call(tools.token(), "svc_tunnels_list", &by_id)?;
    let mut tunnel = by_id.clone();
    tunnel["tunnel_id"] = listed["structuredContent"]["tunnels"][0]["id"].clone();

    let reader = tools.narrowed("tunnels.resources.read-only")?;
    let refused = tools.call(&reader, "svc_tunnel_close", &tunnel)?;
    let challenge = refused["_meta"]["mcp/www_authenticate"][0].as_str();
    let challenge = challenge.with_context(|| refused.to_string())?;
    ensure!(
        challenge.contains("scope=\"tunnels.tunnels.create-delete\""),
        "{challenge}"
    );
    let closed = tools.call(tools.token(), "svc_tunnel_close", &tunnel)?;
    assert_eq!(
        closed["structuredContent"],
        json!({"done": true}),
        "{closed}"
    );
    let ended = agent.process().wait_for_exit()?;
    assert_eq!(ended, Some(1), "{}", agent.log());
    let none = tools.call(tools.token(), "svc_tunnels_list", &by_id)?;
    assert_eq!(none["structuredContent"], json!({"tunnels": []}), "{none}");
    let gone = tools.call(tools.token(), "svc_tunnel_close", &tunnel)?;
    let problem = &gone["_meta"]["svc/problem"];
    assert_eq!(problem["code"], "not_found", "{gone}");
    Ok(())
}

/// MC-6: a token without the permission gets a challenge. A token with only that permission gets
/// the list.
#[test]
fn mc_6_a_missing_permission_is_a_challenge() -> Result<()> {
    let platform = Platform::up()?;
    let tools = Tools(&platform);
    let project = json!({"project_id": platform.ready()["project_id"]});
    let lists = ["svc_clients_list", "svc_tunnels_list"];
    let other = tools.narrowed("account.projects.read-only")?;
    for tool in lists {
        let refused = tools.call(&other, tool, &project)?;
        assert_eq!(refused["isError"], true, "{refused}");
        let challenge = refused["_meta"]["mcp/www_authenticate"][0].as_str();
        let challenge = challenge.with_context(|| refused.to_string())?;
        assert!(
            challenge.contains("error=\"insufficient_scope\""),
            "{challenge}"
        );
        assert!(
            challenge.contains("scope=\"tunnels.resources.read-only\""),
            "{challenge}"
        );
    }
    let reader = tools.narrowed("tunnels.resources.read-only")?;
    for tool in lists {
        let listed = tools.call(&reader, tool, &project)?;
        assert_eq!(listed["isError"], false, "{listed}");
    }
    Ok(())
}

/// CP-5: another user's project gives the same answer as a missing one.
#[test]
fn cp_5_live_objects_of_another_users_project_are_not_found() -> Result<()> {
    let platform = Platform::up()?;
    let tools = Tools(&platform);
    let stranger = platform.stranger()?;
    let ready = platform.ready();
    for project in [
        json!({"project_id": ready["project_id"]}),
        json!({"project_endpoint": ready["project_endpoint"]}),
        json!({"project_endpoint": "00000000"}),
    ] {
        for tool in ["svc_clients_list", "svc_tunnels_list"] {
            let refused = tools.call(&stranger, tool, &project)?;
            assert_eq!(refused["isError"], true, "{refused}");
            let problem = &refused["_meta"]["svc/problem"];
            assert_eq!(problem["code"], "not_found", "{refused}");
        }
    }
    Ok(())
}

/// The tools of a platform, called by curl.
struct Tools<'a>(&'a Platform);

impl Tools<'_> {
    /// The administrator's token.
    fn token(&self) -> &str {
        self.0.ready()["token"].as_str().unwrap_or_default()
    }

    /// A token of the administrator with one permission.
    fn narrowed(&self, permission: &str) -> Result<String> {
        let wanted = json!({"permissions": [permission]});
        let minted = self.call(self.token(), "svc_token_create", &wanted)?;
        let token = minted["structuredContent"]["token"].as_str();
        Ok(token.with_context(|| minted.to_string())?.to_owned())
    }

    /// The result of a tool.
    fn call(&self, token: &str, tool: &str, arguments: &Value) -> Result<Value> {
        let message = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        });
        let ca_file = self.0.ready()["ca_file"].as_str();
        let answer = Curl::trusting(ca_file.map(PathBuf::from).context("no CA")?).get(&[
            "--header",
            &format!("authorization: Bearer {token}"),
            "--header",
            "content-type: application/json",
            "--header",
            "accept: application/json, text/event-stream",
            "--data-raw",
            &message.to_string(),
            &format!("{}/api/mcp", self.0.base_url()),
        ])?;
        ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
        Ok(answer.json()["result"].clone())
    }
}
