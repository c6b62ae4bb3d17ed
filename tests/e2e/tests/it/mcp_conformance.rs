//! The conformance suite of the Model Context Protocol, as published, with the endpoint of `svc up`
//! (MC-1, MC-2).
//!
//! The suite counts its checks. The number is part of each case, because a scenario without any
//! check passes as well.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::{Platform, node, packages};

/// The scenarios that need no tools, prompts or resources of the suite's own servers, with the
/// number of passed checks. Both revisions are covered: with `initialize`, and without sessions.
const SCENARIOS: [(&str, u32); 9] = [
    ("server-initialize", 2),
    ("ping", 2),
    ("tools-list", 3),
    // Both are declared, and empty.
    ("prompts-list", 2),
    ("resources-list", 2),
    ("caching", 7),
    // MC-1: Host and Origin are checked.
    ("dns-rebinding-protection", 2),
    ("http-header-validation", 14),
    // Two recommendations about resources, of which there are none, are warnings.
    ("sep-2164-resource-not-found", 2),
];

#[test]
fn mc_1_the_endpoint_conforms() -> Result<()> {
    let platform = Platform::up()?;
    for (scenario, checks) in SCENARIOS {
        let (output, tally) = check(&platform, scenario)?;
        assert_eq!(
            tally,
            Tally {
                passed: checks,
                of: checks,
                failed: 0
            },
            "{scenario}: {output}"
        );
    }
    Ok(())
}

/// MC-1: the revision without sessions. Checks that need tools of the suite's own servers are
/// reported as not testable. No other check fails.
#[test]
fn mc_1_the_endpoint_conforms_without_sessions() -> Result<()> {
    let platform = Platform::up()?;
    let (output, tally) = check(&platform, "server-stateless")?;
    assert_eq!(failures(&output), UNTESTABLE, "{output}");
    let not_testable = output.matches("Error: Not testable: ").count();
    assert_eq!(not_testable, UNTESTABLE.len(), "{output}");
    assert_eq!((tally.passed, tally.of), (21, 25), "{output}");
    Ok(())
}

/// The checks of `server-stateless` that need `test_missing_capability`,
/// `test_streaming_elicitation` or `test_logging_tool`.
const UNTESTABLE: [&str; 4] = [
    "sep-2575-server-rejects-undeclared-capability",
    "sep-2575-missing-capability-http-400",
    "sep-2575-http-server-no-independent-requests-on-stream",
    "sep-2575-server-no-log-without-loglevel",
];

/// OA-1, OA-2: the suite's client for authorization servers, with a user in Chromium: metadata, and
/// a code that is redeemed with PKCE.
#[test]
fn oa_2_the_authorization_server_conforms() -> Result<()> {
    let platform = Platform::up()?;
    let results = platform.node("authorization_conformance.mjs")?;
    let said = results["said"].as_str().unwrap_or_default();
    for scenario in [
        "authorization-server-metadata-endpoint",
        "authorization-code-grant",
    ] {
        let line = format!("{scenario}: 1 passed, 0 failed");
        assert!(said.contains(&line), "{said}");
    }
    assert!(said.contains("Total: 2 passed, 0 failed"), "{said}");
    Ok(())
}

/// The line `Passed: 2/2, 0 failed, 0 warnings`.
#[derive(Debug, PartialEq)]
struct Tally {
    passed: u32,
    of: u32,
    failed: u32,
}

fn check(platform: &Platform, scenario: &str) -> Result<(String, Tally)> {
    let output = Command::new(node()?)
        .arg(packages()?.join("@modelcontextprotocol/conformance/dist/index.js"))
        .args(["server", "--scenario", scenario, "--url"])
        .arg(format!("{}/api/mcp", platform.base_url()))
        .output()?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    let tally = tally(&text).with_context(|| format!("{scenario} says no number: {text}"))?;
    ensure!(
        output.status.success() == (tally.failed == 0),
        "{scenario} ends otherwise than it counts: {text}"
    );
    Ok((text, tally))
}

/// The failed checks. The suite writes `time [check] FAILURE …`, in colours.
fn failures(output: &str) -> Vec<&str> {
    let lines = output.lines().filter(|line| line.contains("FAILURE"));
    lines
        .filter_map(|line| {
            let (_, rest) = line.split_once(" [")?;
            Some(rest.split_once(']')?.0.trim())
        })
        .collect()
}

fn tally(output: &str) -> Option<Tally> {
    let line = output
        .lines()
        .find_map(|line| line.strip_prefix("Passed: "))?;
    let (counts, rest) = line.split_once(", ")?;
    let (passed, of) = counts.split_once('/')?;
    let (failed, _) = rest.split_once(" failed")?;
    Some(Tally {
        passed: passed.parse().ok()?,
        of: of.parse().ok()?,
        failed: failed.parse().ok()?,
    })
}
