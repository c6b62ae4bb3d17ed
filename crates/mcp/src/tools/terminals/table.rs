//! The table of terminal tools.

use super::{
    Argument, ArgumentTarget, HttpMethod, ResponseShape, Shape, TerminalAction, TerminalTool,
    ToolImplementation, TunnelsResourcesReadOnly, TunnelsStreamsCreateDelete, WebttyLogsReadOnly,
    WebttySessionsReadOnly, WebttySessionsReadWrite, webtty,
};
use crate::tools::{Call, Effect, Tool};
use serde_json::{Value, json};

pub(crate) const LIST: Tool = Tool {
    name: "svc_webtty_list",
    title: "List terminal servers",
    description: "The hosts of a project on which commands can be run at this moment, with the \
                  name of each (target) and whether its sessions are managed and recorded.",
    effect: Effect::Reads,
    call: Call::Terminal(&TerminalTool {
        implementation: ToolImplementation::Stream(TerminalAction::List),
        scopes: &[TunnelsResourcesReadOnly],
        arguments: &[],
        output: || objects("servers", &["target", "status", "svc_url"]),
    }),
};

pub(crate) const EXEC: Tool = Tool {
    name: "svc_webtty_exec",
    title: "Run a command on a server",
    description: "Runs one command on a terminal server and answers with its exit code and its \
                  output, truncated if too long. No shell is used unless the command is one: \
                  [\"sh\", \"-c\", \"…\"]. Its effects cannot be undone: ask the user first.",
    effect: Effect::Acts,
    call: Call::Terminal(&TerminalTool {
        implementation: ToolImplementation::Stream(TerminalAction::Exec),
        scopes: &[TunnelsResourcesReadOnly, TunnelsStreamsCreateDelete],
        arguments: &[
            required(
                "server",
                Shape::Text,
                "The server's name, as shown by svc_webtty_list.",
            ),
            required("command", Shape::Texts, "The program and its arguments."),
            stream("stdin", Shape::Text, "The standard input of the command."),
            stream("env", Shape::Named, "Environment variables of the command."),
            stream(
                "workdir",
                Shape::Text,
                "The working directory of the command.",
            ),
            stream(
                "user",
                Shape::Text,
                "The account that runs the command, if the server lets clients choose.",
            ),
            stream(
                "purpose",
                Shape::Text,
                "The reason, shown to users who review the session later.",
            ),
            stream(
                "timeout_seconds",
                Shape::Number(1, 120, Some(30)),
                "The command is terminated if it takes longer.",
            ),
        ],
        output: || {
            json!({
                "type": "object",
                "properties": {
                    "exit_code": {"type": ["integer", "null"], "description": "128 or more for a signal; null if the timeout ended the command."},
                    "stdout": {"type": "string"},
                    "stderr": {"type": "string"},
                    "truncated": {"type": "object", "description": "Number of bytes of each stream that were left out."},
                    "timed_out": {"type": "boolean"},
                    "duration_ms": {"type": "integer"},
                    "session_id": {"type": ["string", "null"]},
                },
                "required": ["exit_code", "stdout", "stderr", "timed_out", "duration_ms"],
            })
        },
    }),
};

pub(crate) const SESSIONS_LIST: Tool = Tool {
    name: "svc_webtty_sessions_list",
    title: "List terminal sessions",
    description: "Managed terminal sessions of a project, both active and past.",
    effect: Effect::Reads,
    call: Call::Terminal(&TerminalTool {
        implementation: ToolImplementation::Operation(
            HttpMethod::Get,
            webtty::SESSIONS,
            ResponseShape::List("sessions"),
        ),
        scopes: &[WebttySessionsReadOnly],
        arguments: &[
            filter("server_id", "Only sessions of this registered server."),
            filter("tunnel_id", "Only sessions over this tunnel."),
            filter("user_id", "Only sessions opened by this account."),
            filter("group_id", "Only sessions in this group."),
            filter(
                "origin",
                "Only sessions with this origin: human, agent, api, automation, ci, scheduled-job.",
            ),
            Argument {
                shape: Shape::OneOf(&["opening", "active", "closing", "closed", "errored"]),
                ..filter("status", "Only those with this status.")
            },
            Argument {
                to: ArgumentTarget::Filter("started_from"),
                shape: Shape::Time,
                ..filter("started_after", "Started at this time or later.")
            },
            Argument {
                to: ArgumentTarget::Filter("started_to"),
                shape: Shape::Time,
                ..filter("started_before", "Started at this time or earlier.")
            },
            param(
                "limit",
                Shape::Number(1, 1000, Some(50)),
                "At most this many.",
            ),
        ],
        output: || objects("sessions", &["id", "status", "started_at"]),
    }),
};

pub(crate) const SESSION_GET: Tool = Tool {
    name: "svc_webtty_session_get",
    title: "Get a terminal session",
    description: "One session: its server, command, owner and reason, how it ended, and which \
                  participant has control.",
    effect: Effect::Reads,
    call: Call::Terminal(&TerminalTool {
        implementation: ToolImplementation::Operation(
            HttpMethod::Get,
            webtty::SESSION,
            ResponseShape::Object,
        ),
        scopes: &[WebttySessionsReadOnly],
        arguments: &[SESSION],
        output: || object(&["id", "status", "started_at"]),
    }),
};

pub(crate) const SESSION_PARTICIPANTS: Tool = Tool {
    name: "svc_webtty_session_participants",
    title: "List the participants of a session",
    description: "Current and past participants of a terminal session, and which of them has \
                  control.",
    effect: Effect::Reads,
    call: Call::Terminal(&TerminalTool {
        implementation: ToolImplementation::Operation(
            HttpMethod::Get,
            webtty::PARTICIPANTS,
            ResponseShape::List("participants"),
        ),
        scopes: &[WebttySessionsReadOnly],
        arguments: &[SESSION],
        output: || objects("participants", &["id", "role", "controller"]),
    }),
};

pub(crate) const SESSION_EVENTS: Tool = Tool {
    name: "svc_webtty_session_events",
    title: "Read the recording of a session",
    description: "Records of a terminal session in their order: input and output (base64), sizes, \
                  participants that joined and changes of control. For reading, \
                  svc_webtty_session_export is shorter.",
    effect: Effect::Reads,
    call: Call::Terminal(&TerminalTool {
        implementation: ToolImplementation::Operation(
            HttpMethod::Get,
            webtty::EVENTS,
            ResponseShape::List("events"),
        ),
        scopes: &[WebttyLogsReadOnly],
        arguments: &[
            SESSION,
            param(
                "from_seq",
                Shape::Number(1, MAX_SEQ, None),
                "The number of the first record.",
            ),
            param(
                "limit",
                Shape::Number(1, 200, Some(50)),
                "At most this many.",
            ),
        ],
        output: || objects("events", &["seq", "type", "created_at"]),
    }),
};

pub(crate) const SESSION_EXPORT: Tool = Tool {
    name: "svc_webtty_session_export",
    title: "Export the recording of a session",
    description: "The output of a terminal session as lines of text, or as JSON or an asciicast. \
                  Read a long recording in parts, with from_seq and max_events.",
    effect: Effect::Reads,
    call: Call::Terminal(&TerminalTool {
        implementation: ToolImplementation::Operation(
            HttpMethod::Get,
            webtty::EXPORT,
            ResponseShape::Text("content"),
        ),
        scopes: &[WebttyLogsReadOnly],
        arguments: &[
            SESSION,
            Argument {
                required: true,
                ..query(
                    "format",
                    Shape::OneOf(&["text", "json", "ndjson", "asciicast", "asciicast-v3"]),
                    "The format of the export.",
                )
            },
            query("include_stdin", Shape::Flag, "Include the input."),
            query(
                "include_markers",
                Shape::Flag,
                "For text: include participants that joined and changes of control.",
            ),
            query(
                "from_seq",
                Shape::Number(1, MAX_SEQ, None),
                "The number of the first record.",
            ),
            query(
                "max_events",
                Shape::Number(1, 100_000, None),
                "At most this many records.",
            ),
        ],
        output: || {
            json!({
                "type": "object",
                "properties": {"content": {"type": "string"}},
                "required": ["content"],
            })
        },
    }),
};

pub(crate) const SESSION_SCREEN: Tool = Tool {
    name: "svc_webtty_session_screen",
    title: "Watch a terminal session",
    description: "Joins a terminal session as a spectator, which all participants see, and answers \
                  with the rows of its screen, who has control, and the state of your request for \
                  control. With wait_seconds it answers as soon as something changes. After ten \
                  minutes without a call you leave the session.",
    effect: Effect::Changes,
    call: Call::Terminal(&TerminalTool {
        implementation: ToolImplementation::Stream(TerminalAction::Screen),
        scopes: &[WebttySessionsReadOnly],
        arguments: &[
            SESSION,
            stream(
                "wait_seconds",
                Shape::Number(0, 25, Some(0)),
                "How long to wait for a change.",
            ),
            stream("leave", Shape::Flag, "Leave the session after this."),
        ],
        output: screen,
    }),
};

pub(crate) const SESSION_TYPE: Tool = Tool {
    name: "svc_webtty_session_type",
    title: "Type in a terminal session",
    description: "Types a line in a session where you have control, submits it, and answers with \
                  the screen a moment later. Without control nothing is typed: ask for it with \
                  svc_webtty_control_request_create. Its effects cannot be undone.",
    effect: Effect::Acts,
    call: Call::Terminal(&TerminalTool {
        implementation: ToolImplementation::Stream(TerminalAction::Type),
        scopes: &[WebttySessionsReadWrite],
        arguments: &[
            SESSION,
            required("line", Shape::Text, "The text to type, without a line end."),
            stream(
                "wait_seconds",
                Shape::Number(0, 25, Some(5)),
                "How long to wait for the output.",
            ),
        ],
        output: screen,
    }),
};

pub(crate) const CONTROL_REQUESTS_LIST: Tool = Tool {
    name: "svc_webtty_control_requests_list",
    title: "List requests for control",
    description: "Requests to type into a terminal session: by whom, why, and with what result.",
    effect: Effect::Reads,
    call: Call::Terminal(&TerminalTool {
        implementation: ToolImplementation::Operation(
            HttpMethod::Get,
            webtty::CONTROL_REQUESTS,
            ResponseShape::List("control_requests"),
        ),
        scopes: &[WebttySessionsReadOnly],
        arguments: &[
            SESSION,
            Argument {
                shape: Shape::OneOf(&["pending", "granted", "refused", "revoked", "expired"]),
                ..filter("status", "Only those with this status.")
            },
            param(
                "limit",
                Shape::Number(1, 1000, Some(50)),
                "At most this many.",
            ),
        ],
        output: || objects("control_requests", &["id", "status", "created_at"]),
    }),
};

pub(crate) const CONTROL_REQUEST_CREATE: Tool = Tool {
    name: "svc_webtty_control_request_create",
    title: "Ask for control",
    description: "Asks the participant with control of a terminal session, and its owner, to let \
                  you type: for some lines (1 is one command) or some minutes. A user reads the \
                  reason and answers; svc_webtty_session_screen with wait_seconds returns the \
                  answer.",
    effect: Effect::Adds,
    call: Call::Terminal(&TerminalTool {
        implementation: ToolImplementation::Stream(TerminalAction::RequestControl),
        scopes: &[WebttySessionsReadWrite],
        arguments: &[
            SESSION,
            required(
                "reason",
                Shape::Text,
                "The reason, shown to the user who answers.",
            ),
            stream(
                "lines",
                Shape::Number(1, 1000, None),
                "For this many lines; one if neither lines nor minutes is given.",
            ),
            stream(
                "minutes",
                Shape::Number(1, 60, None),
                "For this many minutes.",
            ),
        ],
        output: || object(&["id", "status", "created_at"]),
    }),
};

pub(crate) const CONTROL_REQUEST_RESOLVE: Tool = Tool {
    name: "svc_webtty_control_request_resolve",
    title: "Answer a request for control",
    description: "Grants or refuses a request for control, or revokes control. The account that \
                  made the request cannot grant it. Ask the user first: a participant with control \
                  can do everything that the user can.",
    effect: Effect::Destroys,
    call: Call::Terminal(&TerminalTool {
        implementation: ToolImplementation::Operation(
            HttpMethod::Post,
            webtty::CONTROL_REQUEST,
            ResponseShape::Object,
        ),
        scopes: &[WebttySessionsReadWrite],
        arguments: &[
            SESSION,
            Argument {
                to: ArgumentTarget::Path("request_id"),
                ..required("request_id", Shape::Text, "The id of the request.")
            },
            Argument {
                to: ArgumentTarget::Body("action"),
                ..required(
                    "action",
                    Shape::OneOf(&["grant", "refuse", "revoke"]),
                    "The action.",
                )
            },
            Argument {
                to: ArgumentTarget::Body("reason"),
                ..stream("reason", Shape::Text, "Why.")
            },
        ],
        output: || object(&["id", "status", "created_at"]),
    }),
};

const SESSION: Argument = Argument {
    name: "session_id",
    to: ArgumentTarget::Path("id"),
    shape: Shape::Text,
    about: "The session.",
    required: true,
};

/// Largest exact integer of JavaScript.
const MAX_SEQ: u64 = 9_007_199_254_740_991;

const fn filter(name: &'static str, about: &'static str) -> Argument {
    Argument {
        name,
        to: ArgumentTarget::Filter(name),
        shape: Shape::Text,
        about,
        required: false,
    }
}

const fn param(name: &'static str, shape: Shape, about: &'static str) -> Argument {
    Argument {
        name,
        to: ArgumentTarget::Param(name),
        shape,
        about,
        required: false,
    }
}

const fn query(name: &'static str, shape: Shape, about: &'static str) -> Argument {
    Argument {
        to: ArgumentTarget::Query(name),
        ..param(name, shape, about)
    }
}

const fn stream(name: &'static str, shape: Shape, about: &'static str) -> Argument {
    Argument {
        name,
        to: ArgumentTarget::Stream,
        shape,
        about,
        required: false,
    }
}

const fn required(name: &'static str, shape: Shape, about: &'static str) -> Argument {
    Argument {
        name,
        to: ArgumentTarget::Stream,
        shape,
        about,
        required: true,
    }
}

/// An object with at least these text properties.
fn object(texts: &[&str]) -> Value {
    let properties: serde_json::Map<_, _> = texts
        .iter()
        .map(|name| ((*name).to_owned(), json!({})))
        .collect();
    json!({"type": "object", "properties": properties, "required": texts})
}

/// A list of such objects, under its name.
fn objects(name: &str, texts: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": {name: {"type": "array", "items": object(texts)}},
        "required": [name],
    })
}

fn screen() -> Value {
    json!({
        "type": "object",
        "properties": {
            "session_id": {"type": "string"},
            "participant_id": {"type": "string"},
            "rows": {"type": "array", "items": {"type": "string"}},
            "columns": {"type": "integer"},
            "cursor": {
                "type": ["object", "null"],
                "properties": {"row": {"type": "integer"}, "column": {"type": "integer"}},
            },
            "control": {
                "type": "object",
                "properties": {
                    "state": {
                        "type": "string",
                        "enum": ["none", "asked", "held", "refused", "expired", "revoked"],
                        "description": "Your own control: none requested, or the state of the last \
                                        request.",
                    },
                    "request_id": {"type": ["string", "null"]},
                    "controller": {
                        "type": ["string", "null"],
                        "description": "The other participant that has control.",
                    },
                },
                "required": ["state"],
            },
            "ended": {
                "type": ["object", "null"],
                "properties": {"exit_code": {"type": ["integer", "null"]}, "reason": {"type": ["string", "null"]}},
            },
        },
        "required": ["session_id", "participant_id", "rows", "control", "ended"],
    })
}
