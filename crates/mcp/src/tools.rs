//! The table of tools.

pub(crate) mod call;
mod effect;
mod hints;
pub(crate) mod live;
pub(crate) mod schema;
pub(crate) mod terminals;

use api::control::{
    Access, Operation, addresses, domains, plan_change, plans, projects, records, settings, tokens,
    turn, webhooks, webtty_servers, whoami, workspaces,
};
use serde_json::{Value, json};
use types::permission::Permission;

pub use self::effect::Effect;
pub(crate) use self::hints::{add_schemes, annotations, schemes};
use self::live::{LiveList, LiveObject};
use self::terminals::TerminalTool;

/// One tool.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// Name, with the prefix `svc_`.
    pub name: &'static str,
    /// Display name.
    pub title: &'static str,
    /// Purpose and usage, for models.
    pub description: &'static str,
    /// Effect of a call.
    pub(crate) effect: Effect,
    /// Implementation of the tool.
    pub(crate) call: Call,
}

/// Implementation of a tool.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    /// Overview of the server.
    Discovery,
    /// A document, or one operation of it.
    OpenApi,
    /// An operation whose body fields are arguments.
    Operation(&'static Operation),
    /// An operation whose body is the argument of this name.
    WithBody(&'static Operation, &'static str),
    /// One of two operations: the one whose path parameters are among the arguments.
    ByPathParameters(&'static Operation, &'static Operation),
    /// A creation, once the user has confirmed its cost (CP-4g).
    CreateProject,
    /// A change of the plan, once the user has confirmed its cost.
    ChangePlan,
    /// A list of the Engine API of the project's engine.
    Live(&'static LiveList),
    /// An operation of the Engine API on one live object.
    LiveObject(&'static LiveObject),
    /// A terminal tool.
    Terminal(&'static TerminalTool),
}

/// Every tool, in display order.
pub const TOOLS: &[Tool] = &[
    Tool {
        name: "svc_discovery",
        title: "Discover the platform",
        description: "What this platform offers, which tools exist, what each needs, and which \
                      permissions to ask the user for. Needs no sign-in. Call it first.",
        effect: Effect::Reads,
        call: Call::Discovery,
    },
    Tool {
        name: "svc_openapi",
        title: "Read the API documents",
        description: "The OpenAPI document of the control plane or of the engine: a list of its \
                      operations, or one operation with its schemas. Needs no sign-in.",
        effect: Effect::Reads,
        call: Call::OpenApi,
    },
    Tool {
        name: "svc_whoami",
        title: "Who am I",
        description: "The owner of this credential, with its permissions, boundaries and expiry.",
        effect: Effect::Reads,
        call: Call::Operation(whoami::WHOAMI),
    },
    Tool {
        name: "svc_workspace_list",
        title: "List workspaces",
        description: "The workspaces that the user is a member of. Projects live in workspaces.",
        effect: Effect::Reads,
        call: Call::Operation(workspaces::LIST),
    },
    Tool {
        name: "svc_workspace_members_list",
        title: "List the members of a workspace",
        description: "The members of a workspace, with their roles.",
        effect: Effect::Reads,
        call: Call::Operation(workspaces::LIST_MEMBERS),
    },
    Tool {
        name: "svc_project_list",
        title: "List projects",
        description: "The tunnel projects that the user may see, page by page; search with q.",
        effect: Effect::Reads,
        call: Call::Operation(projects::LIST),
    },
    Tool {
        name: "svc_project_get",
        title: "Get a project",
        description: "One project, by its id or by its endpoint (eight hexadecimal characters).",
        effect: Effect::Reads,
        call: Call::ByPathParameters(projects::GET, projects::RESOLVE),
    },
    Tool {
        name: "svc_project_creation_options",
        title: "Preview a project creation",
        description: "Plans, providers and regions of a workspace, with what each plan costs \
                      (billingImpact), the action that creating it requires (billingAction) and \
                      the fingerprint that a creation has to send. Show the billing impact to the \
                      user.",
        effect: Effect::Reads,
        call: Call::Operation(plans::PLAN_CONFIGURATION),
    },
    Tool {
        name: "svc_project_create",
        title: "Create a project",
        description: "Creates a project as it was previewed by svc_project_creation_options. Set \
                      confirmed to true only after the user has seen the billing impact that \
                      belongs to this fingerprint and agreed to it. When the preview is stale, \
                      preview again and ask again. If a payment is needed, the answer has a url \
                      for the user to open. Without an idempotency_key, the same arguments create \
                      one project only.",
        effect: Effect::AddsOnce,
        call: Call::CreateProject,
    },
    Tool {
        name: "svc_project_update",
        title: "Rename a project",
        description: "Gives a project another name.",
        effect: Effect::Changes,
        call: Call::Operation(projects::UPDATE),
    },
    Tool {
        name: "svc_project_transfer",
        title: "Transfer a project",
        description: "Moves a project to another workspace; the permission is needed in both.",
        effect: Effect::Destroys,
        call: Call::Operation(projects::TRANSFER),
    },
    Tool {
        name: "svc_project_delete",
        title: "Delete a project",
        description: "Deletes a project with its settings and records. Ask the user first.",
        effect: Effect::Destroys,
        call: Call::Operation(projects::DELETE),
    },
    Tool {
        name: "svc_project_plan_get",
        title: "Get the plan of a project",
        description: "The plan that a project is on, with its price and limits.",
        effect: Effect::Reads,
        call: Call::Operation(records::PLAN),
    },
    Tool {
        name: "svc_project_plan_preview",
        title: "Preview a change of plan",
        description: "Cost (billingImpact), limits and fingerprint of another plan of a project. Show \
                      the billing impact and the limits to the user.",
        effect: Effect::Reads,
        call: Call::Operation(plan_change::PREVIEW),
    },
    Tool {
        name: "svc_project_plan_change",
        title: "Change the plan of a project",
        description: "Changes the plan as svc_project_plan_preview showed it. Set confirmed to true \
                      only after the user has seen the billing impact of this fingerprint and agreed \
                      to it. When the preview is stale, preview again and ask again.",
        effect: Effect::Changes,
        call: Call::ChangePlan,
    },
    Tool {
        name: "svc_project_usage",
        title: "Get the usage of a project",
        description: "Streams and bytes of a project over a period, in total and by the hour.",
        effect: Effect::Reads,
        call: Call::Operation(records::USAGE),
    },
    Tool {
        name: "svc_project_turn_usage",
        title: "Get the TURN usage of a project",
        description: "TURN relay traffic of a project over a period.",
        effect: Effect::Reads,
        call: Call::Operation(records::TURN_USAGE),
    },
    Tool {
        name: "svc_project_traffic",
        title: "Get the traffic of a project over time",
        description: "Visits, errors, bytes and durations of a project or of its tunnels, by the \
                      minute or by the hour.",
        effect: Effect::Reads,
        call: Call::Operation(records::TRAFFIC),
    },
    Tool {
        name: "svc_project_logs",
        title: "Read the request logs of a project",
        description: "Requests and connections to published tunnels, page by page.",
        effect: Effect::Reads,
        call: Call::Operation(records::LOGS),
    },
    Tool {
        name: "svc_project_events_list",
        title: "Read the events of a project",
        description: "Events of a project: clients that connected or disconnected, tunnels that \
                      were created or deleted.",
        effect: Effect::Reads,
        call: Call::Operation(records::EVENTS),
    },
    live::CLIENTS_LIST,
    live::TUNNELS_LIST,
    live::TUNNEL_CLOSE,
    terminals::LIST,
    terminals::EXEC,
    terminals::SESSIONS_LIST,
    terminals::SESSION_GET,
    terminals::SESSION_PARTICIPANTS,
    terminals::SESSION_EVENTS,
    terminals::SESSION_EXPORT,
    terminals::SESSION_SCREEN,
    terminals::SESSION_TYPE,
    terminals::CONTROL_REQUESTS_LIST,
    terminals::CONTROL_REQUEST_CREATE,
    terminals::CONTROL_REQUEST_RESOLVE,
    Tool {
        name: "svc_project_settings_get",
        title: "Get the policy of a project",
        description: "The project-wide policy: public access, TCP, trusted addresses, countries, \
                      minimum TLS version.",
        effect: Effect::Reads,
        call: Call::Operation(settings::GET),
    },
    Tool {
        name: "svc_project_settings_patch",
        title: "Change the policy of a project",
        description: "Changes parts of the project-wide policy; null resets a part. A wider \
                      policy exposes services: ask the user first.",
        effect: Effect::Changes,
        call: Call::WithBody(settings::PATCH, "settings"),
    },
    Tool {
        name: "svc_project_settings_reset",
        title: "Reset the policy of a project",
        description: "Resets the project-wide policy to its defaults. Ask the user first.",
        effect: Effect::Destroys,
        call: Call::Operation(settings::DELETE),
    },
    Tool {
        name: "svc_project_webhooks_list",
        title: "List the webhooks of a project",
        description: "Endpoints that are notified when clients connect or disconnect and tunnels \
                      are created or deleted, page by page.",
        effect: Effect::Reads,
        call: Call::Operation(webhooks::LIST),
    },
    Tool {
        name: "svc_project_webhook_get",
        title: "Get a webhook",
        description: "One webhook of a project, with its status and the time since when it has \
                      been failing.",
        effect: Effect::Reads,
        call: Call::Operation(webhooks::GET),
    },
    Tool {
        name: "svc_project_webhook_create",
        title: "Add a webhook",
        description: "Sends events of a project to an https address from now on. The receiver sees \
                      what the project publishes: ask the user first. The answer contains the \
                      signing_secret, only once: give it to the receiver, do not show it.",
        effect: Effect::Adds,
        call: Call::Operation(webhooks::CREATE),
    },
    Tool {
        name: "svc_project_webhook_update",
        title: "Change a webhook",
        description: "Changes the name, address or events of a webhook, enables or disables it. \
                      Disabling cancels what was not delivered yet. Ask the user first.",
        effect: Effect::Destroys,
        call: Call::Operation(webhooks::UPDATE),
    },
    Tool {
        name: "svc_project_webhook_delete",
        title: "Remove a webhook",
        description: "Removes a webhook with its secret; what was not delivered yet is canceled. \
                      Ask the user first.",
        effect: Effect::Destroys,
        call: Call::Operation(webhooks::DELETE),
    },
    Tool {
        name: "svc_project_webhook_secret_rotate",
        title: "Replace the secret of a webhook",
        description: "Creates a new signing secret; the old one also signs for a day, or for \
                      overlap_seconds, so that the receiver can be changed meanwhile. Ask the user \
                      first. The secret is shown once: do not show it, use it.",
        effect: Effect::Destroys,
        call: Call::Operation(webhooks::ROTATE),
    },
    Tool {
        name: "svc_project_webhook_deliveries_list",
        title: "List the deliveries to a webhook",
        description: "Deliveries to a webhook with their status, newest first, page by page.",
        effect: Effect::Reads,
        call: Call::Operation(webhooks::LIST_DELIVERIES),
    },
    Tool {
        name: "svc_project_webhook_delivery_get",
        title: "Get a delivery to a webhook",
        description: "One delivery with each attempt: time, response and error.",
        effect: Effect::Reads,
        call: Call::Operation(webhooks::GET_DELIVERY),
    },
    Tool {
        name: "svc_project_webhook_delivery_retry",
        title: "Try a delivery again",
        description: "Sends a failed or canceled delivery again.",
        effect: Effect::Adds,
        call: Call::Operation(webhooks::RETRY_DELIVERY),
    },
    Tool {
        name: "svc_project_tcp_addresses_list",
        title: "List the reserved TCP addresses of a project",
        description: "Ports reserved for the TCP tunnels of a project.",
        effect: Effect::Reads,
        call: Call::Operation(addresses::LIST),
    },
    Tool {
        name: "svc_project_tcp_address_reserve",
        title: "Reserve a TCP address",
        description: "Reserves a port for a project; the platform picks it. Plans limit how many. \
                      Ask the user first.",
        effect: Effect::Adds,
        call: Call::Operation(addresses::RESERVE),
    },
    Tool {
        name: "svc_project_tcp_address_release",
        title: "Release a TCP address",
        description: "Releases a reserved port; other projects can get it after a while. Ask the \
                      user first: clients of this port can no longer connect.",
        effect: Effect::Destroys,
        call: Call::Operation(addresses::RELEASE),
    },
    Tool {
        name: "svc_project_domains_list",
        title: "List the custom domains of a project",
        description: "The custom domains of a project, with their status, their DNS records and \
                      the latest check of each record.",
        effect: Effect::Reads,
        call: Call::Operation(domains::LIST),
    },
    Tool {
        name: "svc_project_domain_get",
        title: "Get a custom domain",
        description: "One custom domain with its status, its DNS records and the latest check.",
        effect: Effect::Reads,
        call: Call::Operation(domains::GET),
    },
    Tool {
        name: "svc_project_domain_create",
        title: "Add a custom domain",
        description: "Adds a host name of the user to a project, or all names directly below one \
                      (*.app.example.com, or kind wildcard). Show the records of the answer to the \
                      user, who enters them at the DNS provider; then call \
                      svc_project_domain_verify. Plans limit how many. Ask the user first.",
        effect: Effect::AddsOnce,
        call: Call::Operation(domains::CREATE),
    },
    Tool {
        name: "svc_project_domain_verify",
        title: "Check the records of a custom domain",
        description: "Looks for the DNS records of a domain at its authoritative name servers. The \
                      answer has the status of the domain, and for each record what was found and \
                      what to enter. Wait some seconds between two calls.",
        effect: Effect::Changes,
        call: Call::Operation(domains::VERIFY),
    },
    Tool {
        name: "svc_project_domain_connect",
        title: "Find out whether a DNS provider supports Domain Connect",
        description: "Whether the DNS provider of a custom domain offers Domain Connect, with which \
                      users enter records on pages of the provider.",
        effect: Effect::Reads,
        call: Call::Operation(domains::DOMAIN_CONNECT),
    },
    Tool {
        name: "svc_project_domain_certificate_set",
        title: "Upload a certificate for a custom domain",
        description: "Uploads a certificate of the user with its private key (PEM) for a verified \
                      domain, in place of the one that the engine ordered. The user has to replace it \
                      before it expires. The key becomes part of this conversation: offer `svc domain \
                      certificate set` instead, which reads it from a file. Ask the user first.",
        effect: Effect::Changes,
        call: Call::Operation(domains::PUT_CERTIFICATE),
    },
    Tool {
        name: "svc_project_domain_certificate_remove",
        title: "Remove the uploaded certificate of a custom domain",
        description: "Removes the uploaded certificate of a domain with its key; the engine orders a \
                      certificate again. Ask the user first: until then, browsers may refuse the \
                      domain.",
        effect: Effect::Destroys,
        call: Call::Operation(domains::DELETE_CERTIFICATE),
    },
    Tool {
        name: "svc_project_domain_delete",
        title: "Remove a custom domain",
        description: "Removes a domain from a project; its tunnels are no longer reachable under \
                      this name. Ask the user first.",
        effect: Effect::Destroys,
        call: Call::Operation(domains::DELETE),
    },
    Tool {
        name: "svc_webtty_servers_list",
        title: "List registered WebTTY servers",
        description: "The hosts whose terminals are registered in a project, with their status and \
                      policies, page by page. The list of tunnels shows whether one is online.",
        effect: Effect::Reads,
        call: Call::Operation(webtty_servers::LIST),
    },
    Tool {
        name: "svc_webtty_server_get",
        title: "Get a registered WebTTY server",
        description: "One registered server: its status, and whether its sessions are recorded, \
                      end-to-end encrypted, and who may access it.",
        effect: Effect::Reads,
        call: Call::Operation(webtty_servers::GET),
    },
    Tool {
        name: "svc_webtty_server_create",
        title: "Register a WebTTY server",
        description: "Registers a server. It becomes usable once its host has enrolled, with `svc \
                      webtty server enroll <name>` run there: terminals of that host can then be \
                      opened through the platform, so ask the user first.",
        effect: Effect::Adds,
        call: Call::Operation(webtty_servers::CREATE),
    },
    Tool {
        name: "svc_webtty_server_update",
        title: "Change a registered WebTTY server",
        description: "Changes the name, policies or labels of a server, suspends or resumes it. \
                      Suspending ends all sessions immediately; a policy of `private` records \
                      nothing. Ask the user first.",
        effect: Effect::Destroys,
        call: Call::Operation(webtty_servers::UPDATE),
    },
    Tool {
        name: "svc_webtty_server_delete",
        title: "Delete a registered WebTTY server",
        description: "Removes a server with its keys and ends all of its sessions. If its host \
                      reconnects, it must be registered as a new server. Ask the user first.",
        effect: Effect::Destroys,
        call: Call::Operation(webtty_servers::DELETE),
    },
    Tool {
        name: "svc_webtty_server_enrollment_get",
        title: "Get the enrollment of a WebTTY server",
        description: "The public keys and the fingerprint of a server, to compare with those that \
                      its host shows, and the capabilities it reported. Absent before its \
                      enrollment.",
        effect: Effect::Reads,
        call: Call::Operation(webtty_servers::GET),
    },
    Tool {
        name: "svc_project_turn_credentials_create",
        title: "Create TURN credentials",
        description: "A username and a credential for the TURN relay, valid for some minutes, by \
                      project id or by project endpoint.",
        effect: Effect::Adds,
        call: Call::ByPathParameters(turn::ISSUE_BY_ID, turn::ISSUE_BY_ENDPOINT),
    },
    Tool {
        name: "svc_token_create",
        title: "Mint a short-lived token",
        description: "A delegated token with at most the permissions of this credential, valid for \
                      at most an hour. The token is a secret: do not show it, use it.",
        effect: Effect::Adds,
        call: Call::Operation(tokens::MINT_TOKEN),
    },
];

impl Tool {
    /// Finds a tool by name.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        TOOLS.iter().find(|tool| tool.name == name)
    }

    /// The operations of the control plane that it may call.
    pub(crate) fn operations(&self) -> Vec<&'static Operation> {
        match self.call {
            Call::Discovery
            | Call::OpenApi
            | Call::Live(_)
            | Call::LiveObject(_)
            | Call::Terminal(_) => Vec::new(),
            Call::Operation(operation) | Call::WithBody(operation, _) => vec![operation],
            Call::ByPathParameters(one, other) => vec![one, other],
            Call::CreateProject => vec![projects::CREATE],
            Call::ChangePlan => vec![plan_change::CHANGE],
        }
    }

    /// Ids of the operations that it may call.
    pub fn operation_ids(&self) -> impl Iterator<Item = &'static str> {
        let preview = match self.call {
            Call::CreateProject => Some(plans::PLAN_CONFIGURATION),
            Call::ChangePlan => Some(plan_change::PREVIEW),
            _ => None,
        };
        let operations = self.operations().into_iter().chain(preview);
        let of_engine = match self.call {
            Call::Live(list) => list.operation(),
            Call::LiveObject(object) => object.operation(),
            _ => None,
        };
        operations
            .map(|operation| operation.id)
            .chain(of_engine.map(|operation| operation.id))
    }

    /// Permissions that a credential needs at least; `None`: no credential is needed (MC-2).
    pub fn scopes(&self) -> Option<Vec<Permission>> {
        let mut scopes = Vec::new();
        match self.call {
            Call::Live(list) => scopes.extend(list.permission()),
            Call::LiveObject(object) => scopes.extend(object.permission()),
            Call::Terminal(tool) => scopes.extend(tool.scopes),
            _ => {}
        }
        for operation in self.operations() {
            if let Access::Permitted(permission, _) = operation.access
                && !scopes.contains(&permission)
            {
                scopes.push(permission);
            }
        }
        let is_anonymous = matches!(self.call, Call::Discovery | Call::OpenApi);
        (!is_anonymous).then_some(scopes)
    }

    /// The security schemes that it declares (MC-3).
    pub fn security_schemes(&self) -> Value {
        schemes(self.scopes().as_deref())
    }

    /// The tool's list entry.
    pub fn document(&self) -> Value {
        json!({
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": schema::input(self),
            "outputSchema": schema::output(self),
            "annotations": annotations(self.title, self.effect),
            "securitySchemes": self.security_schemes(),
            "_meta": {"securitySchemes": self.security_schemes()},
        })
    }
}

/// The list entries of all tools.
pub fn documents() -> Vec<Value> {
    TOOLS.iter().map(Tool::document).collect()
}

/// All tools as JSON, cached because the list is long and the same for all callers.
#[cfg(feature = "hosted")]
pub(crate) fn documents_json() -> &'static str {
    static WRITTEN: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| Value::from(documents()).to_string());
    &WRITTEN
}

/// All tools in the SDK's type, which has no field for the security schemes next to `_meta`.
pub(crate) fn sdk_tools() -> Vec<rmcp::model::Tool> {
    static LISTED: std::sync::LazyLock<Vec<rmcp::model::Tool>> = std::sync::LazyLock::new(|| {
        let documents = documents().into_iter();
        let tools = documents.map(serde_json::from_value);
        // The documents are constant, and a test parses each.
        tools.filter_map(Result::ok).collect()
    });
    LISTED.clone()
}
