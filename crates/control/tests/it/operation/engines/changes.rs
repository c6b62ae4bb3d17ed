//! Changes that an engine receives.

use api::link::{Credential, CredentialProof, Item};
use http::Method;
use serde_json::json;
use store::members::Role;
use store::projects::NewProject;
use store::{addresses, domains, members, projects, users};
use types::id::{AddressId, DomainId, ProjectId};

use super::{
    FullSnapshot, OTHER_SECRET, PlatformServer, credential_of, kinds_and_ids, linkable_with,
    linked, names, to_json,
};
use crate::support::{PASSWORD, Person, Project, TestControl, both};

both! {
    an_engine_receives_exactly_the_data_that_it_serves,
    changes_are_sent_in_order,
    members_are_sent_with_their_credentials_and_removed,
    early_ends_are_sent,
    registered_servers_are_sent_with_their_keys,
    an_issued_credential_is_sent_with_the_root_of_its_chain,
    a_changed_plan_is_sent_with_its_limits,
}

/// Engines apply the limits of the new plan without a restart.
async fn a_changed_plan_is_sent_with_its_limits(control: TestControl) {
    let plans = json!({"plans": [{"plan": "pro", "monthly_price": 0, "limits": {"clients": 7}}]});
    let control = linkable_with(control, plans).await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let served = PlatformServer::start(&control).await;
    let mut link = served.link(None).await;
    link.everything().await;
    let path = format!("/api/projects/tunnels/{}/plan-change", project.id);
    let preview = control.get(&format!("{path}?plan=pro"), &ada.token).await;
    let preview = preview.expect(200);
    let body = json!({"plan": "pro", "changeFingerprint": preview["changeFingerprint"]});
    control.post(&path, &ada.token, &body).await.expect(200);
    let (_, items) = link.change().await;
    let item_values = to_json(&items);
    assert_eq!(
        (&item_values[0]["id"], &item_values[0]["plan"]),
        (&json!(project.id), &json!("pro"))
    );
    assert_eq!(item_values[0]["limits"]["clients"], 7);
    served.stop().await;
}

/// Engines compare the root to decide whether two tokens belong to the same owner.
async fn an_issued_credential_is_sent_with_the_root_of_its_chain(control: TestControl) {
    let (control, served, mut link, ada, _) = linked(control).await;
    let root = credential_of(&control, &ada).await;
    let mut bearer = ada.token.clone();
    for name in ["first", "second"] {
        let body = json!({"type": "pat", "name": name, "expiresAt": "2026-02-01T00:00:00Z"});
        let issued = control.post("/api/credentials", &bearer, &body).await;
        let issued = issued.expect(201);
        let (_, items) = link.change().await;
        let sent = items.iter().find_map(|item| match item {
            Item::Credential(credential) => Some(&**credential),
            _ => None,
        });
        let sent = sent.unwrap();
        assert_eq!(sent.id, issued["credential"]["id"].as_str().unwrap());
        assert_eq!(sent.root.as_deref(), Some(&*root), "{name}");
        bearer = issued["token"].as_str().unwrap().to_owned();
    }
    served.stop().await;
}

pub(crate) fn custom_domain(
    control: &TestControl,
    (of, project): (&Person, &Project),
    number: usize,
    hostname: &str,
    state: domains::State,
) -> domains::Domain {
    // The task that checks domains, and deletes those whose quarantine has ended, must not see it. On
    // PostgreSQL it uses the clock of the database, which the test does not control.
    let later = control.now() + jiff::SignedDuration::from_hours(100 * 365 * 24);
    domains::Domain {
        id: DomainId::new(u64::try_from(number).unwrap(), [1; 10]),
        project_id: project.id,
        hostname: hostname.to_owned(),
        certificate_validation: domains::CertificateValidation::TlsAlpn01,
        token: "token".to_owned(),
        state,
        created_by: of.user,
        created_at: control.now(),
        verified_at: None,
        last_checked_at: None,
        last_found_at: None,
        failing_since: None,
        suspended_at: None,
        quarantine_until: (state == domains::State::Quarantined).then_some(later),
        next_check_at: later,
        report: None,
        certificate_expires_at: None,
        ordered_expires_at: None,
        order_problem: None,
        next_order_at: None,
    }
}

/// A project in the region of the other cluster.
async fn far_project(control: &TestControl, of: &Person) -> Project {
    let near = control.project(of).await;
    let id = ProjectId::new(crate::support::next() + (1 << 41), [9; 10]);
    let endpoint = format!("f{}", &near.endpoint[1..]);
    let mut tx = control.app.store.begin().await.unwrap();
    projects::delete(&mut tx, near.id, control.now())
        .await
        .unwrap();
    let new = NewProject {
        id,
        workspace_id: of.workspace,
        endpoint: endpoint.clone(),
        name: "far".to_owned(),
        plan: "pro".to_owned(),
        provider: "other".to_owned(),
        region: Some("far".to_owned()),
        routing: "regional".to_owned(),
        deployment: "shared".to_owned(),
        created_by: of.user,
        now: control.now(),
    };
    projects::insert(&mut tx, &new).await.unwrap();
    tx.commit().await.unwrap();
    Project { id, endpoint }
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn an_engine_receives_exactly_the_data_that_it_serves(control: TestControl) {
    let limits = json!({"plans": [{"plan": "basic", "limits": {"clients": 3}}]});
    let control = linkable_with(control, limits).await;
    let (ada, eve, bob) = (
        control.person("ada").await,
        control.person("eve").await,
        control.person("bob").await,
    );
    let project = control.project(&ada).await;
    let far = far_project(&control, &eve).await;
    control.join(&bob, ada.workspace, Role::Viewer).await;
    let settings = json!({"publishedTcpEnabled": false});
    let path = format!("/api/projects/tunnels/{}/settings", project.id);
    control
        .send(Method::PATCH, &path, Some(&ada.token), Some(&settings))
        .await
        .expect(200);
    let (ada_pat, bob_pat, eve_pat) = (
        credential_of(&control, &ada).await,
        credential_of(&control, &bob).await,
        credential_of(&control, &eve).await,
    );
    let mut tx = control.app.store.begin().await.unwrap();
    let address = addresses::Address {
        id: AddressId::new(1, [1; 10]),
        project_id: project.id,
        cluster_domain: "engine.example".to_owned(),
        port: 4000,
        created_at: control.now(),
    };
    addresses::insert(&mut tx, &address).await.unwrap();
    for (number, (name, state)) in [
        ("a.example.com", domains::State::Verified),
        ("b.example.com", domains::State::Warned),
        ("c.example.com", domains::State::Pending),
        ("d.example.com", domains::State::Suspended),
        ("e.example.com", domains::State::Quarantined),
    ]
    .into_iter()
    .enumerate()
    {
        let domain = custom_domain(&control, (&ada, &project), number, name, state);
        domains::insert(&mut tx, &domain).await.unwrap();
    }
    // Grants for clients, and one for a client that was removed from the configuration (OA-8).
    let of_client = async |client: &str, tx: &mut store::Tx| {
        let issued = control::credentials::issue_pat(&control.app, ada.user, client, None);
        let mut credential = issued.unwrap().credential;
        credential.oauth_client = Some(client.to_owned());
        store::credentials::insert(tx, &credential).await.unwrap();
        credential.id.to_string()
    };
    let approved = of_client("svc-cli", &mut tx).await;
    of_client("gone", &mut tx).await;
    // A credential without access to this cluster.
    let elsewhere = control::credentials::issue_pat(&control.app, bob.user, "x", None).unwrap();
    let mut elsewhere = elsewhere.credential;
    elsewhere.workspace_id = Some(bob.workspace);
    store::credentials::insert(&mut tx, &elsewhere)
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let served = PlatformServer::start(&control).await;
    let FullSnapshot {
        platform, items, ..
    } = served.link(None).await.everything().await;
    assert_eq!(platform.base_url, "https://svc.example");
    assert_eq!(platform.cluster_domain, "engine.example");
    let jwks = control.get("/.well-known/jwks.json", "").await.json();
    assert!(items.contains(&Item::Keys(api::link::Keys { jwks })));
    let wanted = names([
        ("project", project.id.as_str()),
        ("person", ada.user.as_str()),
        ("person", bob.user.as_str()),
        ("credential", &ada_pat),
        ("credential", &bob_pat),
        ("credential", &approved),
    ]);
    assert_eq!(kinds_and_ids(&items), wanted);
    let Some(Item::Project(sent)) = items.iter().find(|item| matches!(item, Item::Project(_)))
    else {
        panic!("no project");
    };
    assert_eq!((&sent.endpoint, sent.suspended), (&project.endpoint, false));
    assert_eq!((sent.limits.clients, sent.limits.tunnels), (Some(3), None));
    assert!(!sent.settings.published_tcp_enabled);
    assert_eq!(sent.addresses[0].port, 4000);
    let hostnames = sent.domains.iter().map(|domain| domain.hostname.as_str());
    let hostnames: Vec<_> = hostnames.collect();
    assert_eq!(hostnames, ["a.example.com", "b.example.com"]);
    assert_eq!(sent.held, ["d.example.com", "e.example.com"]);
    assert_eq!(
        (sent.plan.as_str(), sent.region.as_deref()),
        ("basic", Some("local"))
    );
    let person = |of: &Person| {
        let found = to_json(&items)
            .into_iter()
            .find(|item| item["id"] == of.user.as_str());
        found.unwrap()["memberships"].clone()
    };
    let permissions = json!(["tunnels.resources.read-only", "webtty.sessions.read-only"]);
    // No item of Bob's own workspace, which has nothing on this cluster.
    assert_eq!(
        person(&bob),
        json!([{
            "workspace_id": ada.workspace, "role": "viewer", "permissions": permissions,
        }])
    );
    assert!(person(&ada)[0]["permissions"].as_array().unwrap().len() > 4);
    let digest = ::credentials::digest(&ada.token);
    let halves = digest.as_chunks::<16>().0;
    let [one, two] = [halves[0], halves[1]].map(u128::from_be_bytes);
    let hex = format!("{one:032x}{two:032x}");
    let pat = items.iter().find_map(|item| match item {
        Item::Credential(credential) if credential.id == ada_pat => Some(credential),
        _ => None,
    });
    let Credential {
        user_id,
        proof,
        permissions,
        expires_at,
        ..
    } = &**pat.unwrap();
    assert_eq!(
        (user_id.as_str(), permissions, expires_at),
        (ada.user.as_str(), &None, &None)
    );
    let CredentialProof::Pat {
        sha256,
        token_endpoint,
    } = proof
    else {
        panic!("{proof:?}");
    };
    assert_eq!((sha256, token_endpoint.as_ref().unwrap().len()), (&hex, 8));
    assert!(!serde_json::to_string(&items).unwrap().contains(&ada.token));

    let there = served.link_of(OTHER_SECRET, None).await.everything().await;
    let wanted = names([
        ("project", far.id.as_str()),
        ("person", eve.user.as_str()),
        ("credential", &eve_pat),
    ]);
    assert_eq!(kinds_and_ids(&there.items), wanted);
    served.stop().await;
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn changes_are_sent_in_order(control: TestControl) {
    let (control, served, mut link, ada, project) = linked(control).await;
    let own = credential_of(&control, &ada).await;
    let path = format!("/api/projects/tunnels/{}", project.id);
    // Changes of fields that engines do not store are not sent.
    let name = json!({"name": "renamed"});
    control
        .send(Method::PATCH, &path, Some(&ada.token), Some(&name))
        .await
        .expect(200);
    let settings = json!({"trustedIps": ["192.0.2.0/24"]});
    let at = format!("{path}/settings");
    control
        .send(Method::PATCH, &at, Some(&ada.token), Some(&settings))
        .await
        .expect(200);
    let (_, items) = link.change().await;
    let item_values = to_json(&items);
    assert_eq!(item_values.len(), 1, "{item_values:?}");
    assert_eq!(
        item_values[0]["settings"]["trustedIps"],
        settings["trustedIps"]
    );

    let suspend = async |suspended: bool| {
        let now = control.now();
        let mut tx = control.app.store.begin().await.unwrap();
        let (from, to) = (
            store::workspaces::Status::Active,
            store::workspaces::Status::Suspended,
        );
        let (from, to) = if suspended { (from, to) } else { (to, from) };
        let id = ada.workspace;
        assert!(
            store::workspaces::change_status(&mut tx, id, from, to, now)
                .await
                .unwrap()
        );
        tx.commit().await.unwrap();
    };
    for suspended in [true, false] {
        suspend(suspended).await;
        let (_, items) = link.change().await;
        let item_values = to_json(&items);
        assert_eq!(
            (&item_values[0]["id"], &item_values[0]["suspended"]),
            (&json!(project.id), &json!(suspended))
        );
    }
    let issued = json!({"type": "pat", "name": "x", "permissions": ["tunnels.resources.read-only"],
        "expiresAt": "2026-02-01T00:00:00Z"});
    let issued = control
        .post("/api/credentials", &ada.token, &issued)
        .await
        .expect(201);
    let id = issued["credential"]["id"].as_str().unwrap();
    let (_, items) = link.change().await;
    let item_values = to_json(&items);
    assert_eq!(
        item_values[0]["permissions"],
        json!(["tunnels.resources.read-only"])
    );
    assert_eq!(
        (&item_values[0]["id"], &item_values[0]["expires_at"]),
        (&json!(id), &json!(1_769_904_000))
    );
    // After a rotation the old one expires soon, and the new one exists.
    let rotate = format!("/api/credentials/{id}/rotate");
    let rotated = control
        .post(&rotate, &ada.token, &json!({"overlapSeconds": 3600}))
        .await
        .json();
    let new = rotated["credential"]["id"].as_str().unwrap();
    let (_, items) = link.change().await;
    assert_eq!(
        kinds_and_ids(&items),
        names([("credential", id), ("credential", new)])
    );
    control
        .delete(&format!("/api/credentials/{new}"), &ada.token)
        .await
        .expect(204);
    let (_, items) = link.change().await;
    assert_eq!(kinds_and_ids(&items), names([("credential_gone", new)]));
    control.delete(&path, &ada.token).await.expect(204);
    let (_, items) = link.change().await;
    // When the last project of the workspace is removed, its members have no access to the cluster
    // any more.
    let wanted = names([
        ("project_gone", project.id.as_str()),
        ("person_gone", ada.user.as_str()),
        ("credential_gone", &own),
        ("credential_gone", id),
    ]);
    assert_eq!(kinds_and_ids(&items), wanted);
    control
        .app
        .keys
        .rotate(&control.app.store, control.app.now())
        .await
        .unwrap();
    let (_, items) = link.change().await;
    let jwks = control.get("/.well-known/jwks.json", "").await.json();
    assert_eq!(jwks["keys"].as_array().unwrap().len(), 2);
    assert_eq!(items, [Item::Keys(api::link::Keys { jwks })]);
    served.stop().await;
}

async fn members_are_sent_with_their_credentials_and_removed(control: TestControl) {
    let (control, served, mut link, ada, project) = linked(control).await;
    // A user without membership is not sent.
    let bob = control.person("bob").await;
    let (_, items) = link.change().await;
    let pat = credential_of(&control, &bob).await;
    assert!(
        kinds_and_ids(&items)
            .iter()
            .all(|(kind, _)| kind.ends_with("_gone")),
        "{items:?}"
    );
    control.join(&bob, ada.workspace, Role::Member).await;
    let (_, items) = link.change().await;
    let whole = names([("person", bob.user.as_str()), ("credential", &pat)]);
    assert_eq!(kinds_and_ids(&items), whole);
    let now = control.now();
    let mut tx = control.app.store.begin().await.unwrap();
    members::set_role(&mut tx, ada.workspace, bob.user, Role::Admin, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let (_, items) = link.change().await;
    let item_values = to_json(&items);
    let person = item_values
        .iter()
        .find(|item| item["item"] == "person")
        .unwrap();
    let permissions = person["memberships"][0]["permissions"].to_string();
    assert!(permissions.contains("webtty.logs.read-only"));
    // A second project in a known workspace sends no user again.
    let second = control.project(&ada).await;
    let (_, items) = link.change().await;
    assert_eq!(
        kinds_and_ids(&items),
        names([("project", second.id.as_str())])
    );
    let mut tx = control.app.store.begin().await.unwrap();
    members::delete(&mut tx, ada.workspace, bob.user, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let (_, items) = link.change().await;
    let gone = names([
        ("person_gone", bob.user.as_str()),
        ("credential_gone", &pat),
    ]);
    assert_eq!(kinds_and_ids(&items), gone);
    // Bob gets a project by transfer, and is sent again.
    let mut tx = control.app.store.begin().await.unwrap();
    let (from, to) = (ada.workspace, bob.workspace);
    assert!(
        projects::transfer(&mut tx, project.id, from, to, now)
            .await
            .unwrap()
    );
    tx.commit().await.unwrap();
    let (_, items) = link.change().await;
    let mut wanted = whole.clone();
    wanted.extend(names([("project", project.id.as_str())]));
    wanted.sort();
    assert_eq!(kinds_and_ids(&items), wanted);
    assert_eq!(to_json(&items)[2]["workspace_id"], bob.workspace.as_str());
    for (from, to, wanted) in [
        (users::Status::Active, users::Status::Suspended, &gone),
        (users::Status::Suspended, users::Status::Active, &whole),
    ] {
        let mut tx = control.app.store.begin().await.unwrap();
        assert!(
            users::change_status(&mut tx, bob.user, from, to, now)
                .await
                .unwrap()
        );
        tx.commit().await.unwrap();
        let (_, items) = link.change().await;
        assert_eq!(&kinds_and_ids(&items), wanted);
    }
    served.stop().await;
}

async fn early_ends_are_sent(control: TestControl) {
    let (control, served, mut link, ada, _) = linked(control).await;
    let mut browser = control.signed_in("ada").await;
    let session = control.signed_in("ada").await;
    drop(session);
    let now = control.now().as_second();
    browser.submit("/logout", &[]).await;
    let (_, items) = link.change().await;
    let [Item::Ended(ended)] = &items[..] else {
        panic!("{items:?}");
    };
    assert!(ended.id.starts_with("ses_"), "{ended:?}");
    // A tunnel session that started with it could have lasted this long.
    assert_eq!(ended.until, now + 12 * 3600);
    // Later links receive it as well, until it can have no effect any more.
    let everything = served.link(None).await.everything().await;
    assert!(everything.items.contains(&items[0]));

    let later = control.now() + jiff::SignedDuration::from_millis(1_500);
    control.clock.set(later);
    let mut browser = control.signed_in("ada").await;
    let new = [("current", PASSWORD), ("new", "another battery staple")];
    browser.submit("/account/password", &new).await;
    let (_, items) = link.change().await;
    let person = items.iter().find_map(|item| match item {
        Item::Person(person) => Some(person),
        _ => None,
    });
    let person = person.unwrap();
    assert_eq!(
        (person.id.as_str(), person.sessions_after),
        (ada.user.as_str(), now + 2)
    );
    // The earlier browser session has ended as well.
    assert!(items.iter().any(|item| matches!(item, Item::Ended(_))));

    let mut tx = control.app.store.begin().await.unwrap();
    let until = control.now() + jiff::SignedDuration::from_secs(60);
    store::revoked_tokens::revoke(&mut tx, "tok_x", until, control.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let (_, items) = link.change().await;
    let [Item::Ended(ended)] = &items[..] else {
        panic!("{items:?}");
    };
    assert_eq!((ended.id.as_str(), ended.until), ("tok_x", now + 62));
    control.clock.advance(12 * 3_600);
    let everything = served.link(None).await.everything().await;
    let ended = |item: &&Item| matches!(item, Item::Ended(_));
    assert_eq!(everything.items.iter().filter(ended).count(), 0);
    served.stop().await;
}

/// CP-12: an engine receives a registered server, each of its changes and its removal. It receives
/// none of another cluster.
async fn registered_servers_are_sent_with_their_keys(control: TestControl) {
    let (control, served, mut link, ada, project) = linked(control).await;
    let at = format!("/api/projects/tunnels/{}/webtty/servers", project.id);
    let made = control
        .post(&at, &ada.token, &json!({"name": "build"}))
        .await;
    let made = made.expect(201);
    let id = made["server"]["id"].as_str().unwrap();
    let only_item = |items: Vec<Item>| {
        let mut item_values = to_json(&items);
        assert_eq!(item_values.len(), 1, "{item_values:?}");
        item_values.remove(0)
    };
    let pending = json!({"item": "webtty_server", "id": id, "project_id": project.id,
        "name": "build", "status": "pending_enrollment", "recording_policy": "recorded",
        "encryption_policy": "disabled", "access_policy": "project_members"});
    assert_eq!(only_item(link.change().await.1), pending);
    let keys = tty::identity::EndpointIdentity::generate()
        .unwrap()
        .public();
    let body = json!({
        "serverPublicKey": keys.encryption_text(),
        "serverSigningKeyId": keys.signing.id(),
        "serverSigningPublicKey": keys.signing.to_text(),
        "serverKeyAlgorithm": "webtty-x25519-hpke-v1",
    });
    let enroll = format!("{at}/{id}/enroll");
    control.post(&enroll, &ada.token, &body).await.expect(200);
    let mut active = pending;
    active["status"] = json!("active");
    active["keys"] =
        json!({"encryption": keys.encryption_text(), "signing": keys.signing.to_text()});
    assert_eq!(only_item(link.change().await.1), active);
    let path = format!("{at}/{id}");
    let body = json!({"status": "suspended", "accessPolicy": "restricted"});
    let token = Some(ada.token.as_str());
    let changed = control.send(Method::PATCH, &path, token, Some(&body)).await;
    changed.expect(200);
    active["status"] = json!("suspended");
    active["access_policy"] = json!("restricted");
    assert_eq!(only_item(link.change().await.1), active);

    // A new link receives the same, and another cluster receives nothing.
    let here = served.link(None).await.everything().await;
    assert!(to_json(&here.items).contains(&active));
    let there = served.link_of(OTHER_SECRET, None).await.everything().await;
    assert!(!to_json(&there.items).iter().any(|item| item["id"] == id));

    control.delete(&path, &ada.token).await.expect(204);
    let (_, items) = link.change().await;
    assert_eq!(kinds_and_ids(&items), names([("webtty_server_gone", id)]));
    served.stop().await;
}
