//! Two tenants and the whole document: one tenant's objects do not exist for the other (CP-5). This
//! covers the answer, its side effects, and the database queries.

use api::control::{Access, Operation, operations};
use control::webhooks::on_event;
use http::Method;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use types::event::{Event, EventType};
use types::id::EventId;

use crate::http_api::walk::method;
use crate::support::{Answer, Person, Project, TestControl, both, next, recorded};

both! {
    cp_5_objects_of_another_tenant_are_never_found,
}

/// CP-5: two tenants with random actions. After each step, each operation with a name in its path
/// is called by one tenant with the names of the other.
async fn cp_5_objects_of_another_tenant_are_never_found(control: TestControl) {
    let plans = json!({"plans": [{"plan": "basic", "webhooks": true}]});
    // Each check calls every operation, and the clock of the limits stands still.
    let limits = json!({
        "credential_requests_per_minute": 100_000,
        "user_requests_per_minute": 100_000,
    });
    let sections = json!({"catalog": plans, "limits": limits});
    let control = control.configured(sections).await;
    let config = Config {
        cases: 3,
        rng_seed: RngSeed::Fixed(5),
        failure_persistence: None,
        ..Config::default()
    };
    let steps = proptest::collection::vec((any::<bool>(), 0..STEPS), 1..6);
    let live = |steps: Vec<(bool, u8)>| {
        Handle::current().block_on(lives(&control, &steps));
        Ok(())
    };
    block_in_place(|| TestRunner::new(config).run(&steps, live)).unwrap();
}

/// A user, and the names of their objects.
struct Tenant {
    person: Person,
    /// A workspace of a team.
    team: String,
    project: Project,
    credential: String,
    invitation: String,
    /// A webhook of the project.
    webhook: String,
    delivery: String,
    address: String,
    domain: String,
    server: String,
    /// A browser session of the user.
    session: String,
}

async fn lives(control: &TestControl, steps: &[(bool, u8)]) {
    let mut ada = Tenant::new(control).await;
    let mut eve = Tenant::new(control).await;
    check_isolation(control, &ada, &eve).await;
    for (is_adas, step) in steps {
        let who = if *is_adas { &mut ada } else { &mut eve };
        who.step(control, *step).await;
        check_isolation(control, &ada, &eve).await;
    }
}

/// Number of kinds of steps.
const STEPS: u8 = 7;

impl Tenant {
    async fn new(control: &TestControl) -> Self {
        let person = control.person(&format!("tenant{}", next())).await;
        let project = control.project(&person).await;
        let mut tenant = Self {
            person,
            team: String::new(),
            project,
            credential: String::new(),
            invitation: String::new(),
            webhook: String::new(),
            delivery: String::new(),
            address: String::new(),
            domain: String::new(),
            server: String::new(),
            session: String::new(),
        };
        for step in [0, 1, 2] {
            tenant.step(control, step).await;
        }
        control.session(&tenant.person).await;
        let token = &tenant.person.token;
        let list = control.get("/api/user/sessions", token).await.expect(200);
        let id = list["sessions"][0]["id"].as_str();
        id.unwrap().clone_into(&mut tenant.session);
        tenant
    }

    /// Creates or changes something.
    async fn step(&mut self, control: &TestControl, step: u8) {
        let token = &self.person.token;
        let team = format!("/api/workspaces/{}", self.team);
        let project = format!("/api/projects/tunnels/{}", self.project.id);
        let id = |made: &Value| made["id"].as_str().unwrap().to_owned();
        match step {
            0 => {
                let body = json!({"name": "Team"});
                let made = control.post("/api/workspaces", token, &body).await;
                self.team = id(&made.expect(201));
                // Invitations of the former team do not belong to this one.
                let path = format!("/api/workspaces/{}/invitations", self.team);
                let body = json!({"email": "x@example.com", "role": "viewer"});
                let sent = control.post(&path, token, &body).await;
                self.invitation = id(&sent.expect(201)["invitation"]);
            }
            1 => {
                let body = json!({"type": "pat", "name": "laptop", "permissions": []});
                let made = control.post("/api/credentials", token, &body).await;
                self.credential = id(&made.expect(201)["credential"]);
            }
            2 => self.begin_project(control).await,
            3 => {
                let body = json!({"email": format!("x{}@example.com", next()), "role": "viewer"});
                let path = format!("{team}/invitations");
                let sent = control.post(&path, token, &body).await;
                self.invitation = id(&sent.expect(201)["invitation"]);
            }
            4 => {
                let body = json!({"name": format!("Team {}", next())});
                let token = Some(token.as_str());
                let changed = control.send(Method::PATCH, &team, token, Some(&body)).await;
                changed.expect(200);
            }
            5 => {
                let body = json!({"publishedTcpEnabled": next().is_multiple_of(2)});
                let (path, token) = (format!("{project}/settings"), Some(token.as_str()));
                let changed = control.send(Method::PATCH, &path, token, Some(&body)).await;
                changed.expect(200);
            }
            _ => {
                control.delete(&project, token).await.expect(204);
                self.begin_project(control).await;
            }
        }
    }

    /// Starts another project, with one of each of its objects.
    async fn begin_project(&mut self, control: &TestControl) {
        self.project = control.project(&self.person).await;
        let token = &self.person.token;
        let project = format!("/api/projects/tunnels/{}", self.project.id);
        let id = |made: &Value| made["id"].as_str().unwrap().to_owned();
        let webhook = json!({
            "name": "Chat", "events": ["tunnel.created"], "config": {"url": "https://chat.example/in"},
        });
        let webhooks = format!("{project}/webhooks");
        self.webhook = id(&control.post(&webhooks, token, &webhook).await.expect(201));
        let mut event = Event::new(
            EventId::new(next(), [7; 10]),
            EventType::TunnelCreated,
            control.now(),
            json!({}),
        );
        event.project_id = Some(self.project.id.to_string());
        let mut tx = control.app.store.begin().await.unwrap();
        on_event(&mut tx, &event, control.now()).await.unwrap();
        tx.commit().await.unwrap();
        let list = format!("{webhooks}/{}/deliveries", self.webhook);
        let list = control.get(&list, token).await.expect(200);
        self.delivery = id(&list["deliveries"][0]);
        let addresses = format!("{project}/addresses");
        self.address = id(&control
            .post(&addresses, token, &json!({}))
            .await
            .expect(201));
        let domains = format!("{project}/domains");
        let body = json!({"hostname": "app.example.com"});
        self.domain = id(&control.post(&domains, token, &body).await.expect(201));
        let servers = format!("{project}/webtty/servers");
        let body = json!({"name": "build"});
        let made = control.post(&servers, token, &body).await.expect(201);
        self.server = id(&made["server"]);
    }

    /// Everything that this tenant can read.
    async fn view(&self, control: &TestControl) -> Vec<(String, Answer)> {
        let team = format!("/api/workspaces/{}", self.team);
        let project = format!("/api/projects/tunnels/{}", self.project.id);
        let mut view = Vec::new();
        for path in [
            "/api/projects/tunnels".to_owned(),
            "/api/workspaces".to_owned(),
            "/api/credentials".to_owned(),
            "/api/user/sessions".to_owned(),
            format!("{team}/members"),
            format!("{team}/invitations"),
            format!("{team}/audit"),
            format!("/api/workspaces/{}/audit", self.person.workspace),
            format!("{project}/settings"),
            format!("{project}/addresses"),
            format!("{project}/domains"),
            format!("{project}/domains/{}", self.domain),
            format!("{project}/webtty/servers"),
            format!("{project}/webtty/servers/{}", self.server),
            format!("{project}/webhooks"),
            format!("{project}/webhooks/{}", self.webhook),
            format!(
                "{project}/webhooks/{}/deliveries/{}",
                self.webhook, self.delivery
            ),
        ] {
            let answer = control.get(&path, &self.person.token).await;
            answer.expect(200);
            view.push((path, answer));
        }
        view
    }

    /// The value for a path parameter.
    fn name_of(&self, part: &str) -> &str {
        match part {
            "{workspace_id}" => &self.team,
            "{project_id}" => self.project.id.as_str(),
            "{project_endpoint}" => &self.project.endpoint,
            "{credential_id}" => &self.credential,
            "{invitation_id}" => &self.invitation,
            "{user_id}" => self.person.user.as_str(),
            "{webhook_id}" => &self.webhook,
            "{delivery_id}" => &self.delivery,
            "{address_id}" => &self.address,
            "{domain_id}" => &self.domain,
            "{server_id}" => &self.server,
            "{session_id}" => &self.session,
            "{hostname}" => "web-0000000a.t.engine.example",
            _ => panic!("tenancy.rs has no value for {part}: add one"),
        }
    }
}

/// A well-formed name of a missing object.
fn absent(part: &str) -> &'static str {
    match part {
        "{workspace_id}" => "wks_01h455vb4pex5vsknk084sn02q",
        "{project_id}" => "prj_01h455vb4pex5vsknk084sn02q",
        "{project_endpoint}" => "ffffffff",
        "{credential_id}" => "crd_01h455vb4pex5vsknk084sn02q",
        "{invitation_id}" => "inv_01h455vb4pex5vsknk084sn02q",
        "{user_id}" => "usr_01h455vb4pex5vsknk084sn02q",
        "{webhook_id}" => "whk_01h455vb4pex5vsknk084sn02q",
        "{delivery_id}" => "dlv_01h455vb4pex5vsknk084sn02q",
        "{address_id}" => "adr_01h455vb4pex5vsknk084sn02q",
        "{domain_id}" => "dom_01h455vb4pex5vsknk084sn02q",
        "{server_id}" => "wsv_01h455vb4pex5vsknk084sn02q",
        "{session_id}" => "ses_01h455vb4pex5vsknk084sn02q",
        "{hostname}" => "web-ffffffff.t.engine.example",
        _ => panic!("tenancy.rs has no value for {part}: add one"),
    }
}

/// A request of `eve` with names of `ada` gets the same answer as with names of missing objects,
/// and changes nothing that `ada` sees.
async fn check_isolation(control: &TestControl, ada: &Tenant, eve: &Tenant) {
    // A use is recorded once a minute, which is not part of the comparison.
    control.get("/api/whoami", &eve.person.token).await;
    let before = ada.view(control).await;
    // Public objects have no owner.
    let named = operations()
        .filter(|operation| operation.path.contains('{') && operation.access != Access::Public);
    for operation in named {
        let body = operation.body.map(|body| (body.example)());
        let foreign = path(operation, |_, part| ada.name_of(part).to_owned());
        let missing = path(operation, |_, part| absent(part).to_owned());
        same(
            control,
            eve,
            operation,
            (&foreign, &body),
            (&missing, &body),
        )
        .await;
        // The same for a path that starts with an own object.
        if operation.path.matches('{').count() > 1 {
            let through = |inner: &dyn Fn(&str) -> String| {
                path(operation, |at, part| match at {
                    0 => eve.name_of(part).to_owned(),
                    _ => inner(part),
                })
            };
            let foreign = through(&|part| ada.name_of(part).to_owned());
            let missing = through(&|part| absent(part).to_owned());
            same(
                control,
                eve,
                operation,
                (&foreign, &body),
                (&missing, &body),
            )
            .await;
        }
    }
    // Names in a body and in a query.
    let transfer = operation("transfer_tunnels_project");
    let own = path(transfer, |_, part| eve.name_of(part).to_owned());
    let to = |workspace: &str| Some(json!({"workspaceId": workspace}));
    let nowhere = to(absent("{workspace_id}"));
    same(
        control,
        eve,
        transfer,
        (&own, &to(&ada.team)),
        (&own, &nowhere),
    )
    .await;
    let list = operation("list_tunnels_projects");
    let of = |workspace: &str| format!("{}?workspaceId={workspace}", list.path);
    let nowhere = of(absent("{workspace_id}"));
    same(
        control,
        eve,
        list,
        (&of(&ada.team), &None),
        (&nowhere, &None),
    )
    .await;
    assert_eq!(ada.view(control).await, before);
}

fn operation(id: &str) -> &'static Operation {
    operations().find(|operation| operation.id == id).unwrap()
}

/// The path with its parameters filled in. `fill` gets the number of earlier parameters, and the
/// parameter.
fn path(operation: &Operation, fill: impl Fn(usize, &str) -> String) -> String {
    let mut at = 0;
    let parts: Vec<_> = operation
        .path
        .split('/')
        .map(|part| {
            if !part.starts_with('{') {
                return part.to_owned();
            }
            at += 1;
            fill(at - 1, part)
        })
        .collect();
    parts.join("/")
}

type CaseRequest<'a> = (&'a str, &'a Option<Value>);

/// Both requests get the same answer, from the same statements.
async fn same(
    control: &TestControl,
    who: &Tenant,
    operation: &Operation,
    foreign: CaseRequest<'_>,
    missing: CaseRequest<'_>,
) {
    let token = Some(who.person.token.as_str());
    let ask = async |(path, body): CaseRequest<'_>| {
        let asked = control.send(method(operation), path, token, body.as_ref());
        recorded(asked).await
    };
    let (theirs, theirs_ran) = ask(foreign).await;
    let (none, none_ran) = ask(missing).await;
    assert_eq!(theirs, none, "{}: {foreign:?}", operation.id);
    assert!(
        !none_ran.is_empty(),
        "{}: nothing was recorded",
        operation.id
    );
    assert_eq!(theirs_ran, none_ran, "{}: {foreign:?}", operation.id);
    let is_list = operation.id == "list_tunnels_projects";
    assert_eq!(
        theirs.status,
        if is_list { 200 } else { 404 },
        "{}",
        operation.id
    );
}
