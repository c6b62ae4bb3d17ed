-- What engines report: logs, events, usage; and webhooks that carry events on.

CREATE TABLE logs (
    id TEXT NOT NULL PRIMARY KEY,
    workspace_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    stream_id TEXT NOT NULL,
    tunnel_id TEXT,
    user_id TEXT,
    -- How it ended: connected, failed, denied.
    outcome TEXT NOT NULL,
    -- Host, path and addresses in lower case, for searching.
    search TEXT NOT NULL,
    summary TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX logs_stream ON logs (project_id, stream_id);
CREATE INDEX logs_time ON logs (project_id, created_at, id);
CREATE INDEX logs_outcome ON logs (project_id, outcome, created_at, id);
CREATE INDEX logs_tunnel ON logs (project_id, tunnel_id, created_at, id);
CREATE INDEX logs_expiry ON logs (expires_at);

CREATE TABLE events (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    category TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    cluster_id TEXT,
    user_id TEXT,
    payload TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
);
CREATE INDEX events_time ON events (project_id, created_at, id);
CREATE INDEX events_type ON events (project_id, kind, created_at, id);
CREATE INDEX events_expiry ON events (expires_at);

-- Counters by project and hour.
CREATE TABLE usage (
    project_id TEXT NOT NULL,
    hour INTEGER NOT NULL,
    streams INTEGER NOT NULL,
    failed_streams INTEGER NOT NULL,
    upstream_bytes INTEGER NOT NULL,
    downstream_bytes INTEGER NOT NULL,
    CONSTRAINT usage_pkey PRIMARY KEY (project_id, hour)
);
CREATE TABLE turn_usage (
    project_id TEXT NOT NULL,
    hour INTEGER NOT NULL,
    credentials INTEGER NOT NULL,
    allocations INTEGER NOT NULL,
    relayed_bytes INTEGER NOT NULL,
    CONSTRAINT turn_usage_pkey PRIMARY KEY (project_id, hour)
);

CREATE TABLE webhooks (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id),
    name TEXT NOT NULL,
    search TEXT NOT NULL,
    description TEXT,
    destination_type TEXT NOT NULL,
    status TEXT NOT NULL,
    events TEXT NOT NULL,
    url TEXT NOT NULL,
    sealed_secret BLOB NOT NULL,
    previous_sealed_secret BLOB,
    previous_secret_expires_at INTEGER,
    secret_rotated_at INTEGER,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    deleted_at INTEGER
);
CREATE INDEX webhooks_project ON webhooks (project_id, id);

CREATE TABLE deliveries (
    id TEXT NOT NULL PRIMARY KEY,
    webhook_id TEXT NOT NULL REFERENCES webhooks (id),
    project_id TEXT NOT NULL,
    event_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    payload TEXT NOT NULL,
    status TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    -- When it is due; while it is being delivered, when that is given up.
    next_attempt_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    completed_at INTEGER,
    CONSTRAINT deliveries_event_unique UNIQUE (webhook_id, event_id)
);
CREATE INDEX deliveries_webhook ON deliveries (webhook_id, id);
CREATE INDEX deliveries_due ON deliveries (next_attempt_at) WHERE completed_at IS NULL;
CREATE INDEX deliveries_done ON deliveries (completed_at) WHERE completed_at IS NOT NULL;

CREATE TABLE delivery_attempts (
    id TEXT NOT NULL PRIMARY KEY,
    delivery_id TEXT NOT NULL REFERENCES deliveries (id) ON DELETE CASCADE,
    status TEXT NOT NULL,
    http_status INTEGER,
    error TEXT,
    duration_ms INTEGER NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX delivery_attempts_delivery ON delivery_attempts (delivery_id, id);
