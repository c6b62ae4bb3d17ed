-- What engines report: logs, events, usage; and webhooks that carry events on.

CREATE TABLE logs (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    stream_id TEXT COLLATE "C" NOT NULL,
    tunnel_id TEXT COLLATE "C",
    user_id TEXT COLLATE "C",
    -- How it ended: connected, failed, denied.
    outcome TEXT COLLATE "C" NOT NULL,
    -- Host, path and addresses in lower case, for searching.
    search TEXT COLLATE "C" NOT NULL,
    summary TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX logs_stream ON logs (project_id, stream_id);
CREATE INDEX logs_time ON logs (project_id, created_at, id);
CREATE INDEX logs_outcome ON logs (project_id, outcome, created_at, id);
CREATE INDEX logs_tunnel ON logs (project_id, tunnel_id, created_at, id);
CREATE INDEX logs_expiry ON logs (expires_at);

CREATE TABLE events (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    kind TEXT COLLATE "C" NOT NULL,
    category TEXT COLLATE "C" NOT NULL,
    workspace_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    cluster_id TEXT COLLATE "C",
    user_id TEXT COLLATE "C",
    payload TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX events_time ON events (project_id, created_at, id);
CREATE INDEX events_type ON events (project_id, kind, created_at, id);
CREATE INDEX events_expiry ON events (expires_at);

-- Counters by project and hour.
CREATE TABLE usage (
    project_id TEXT COLLATE "C" NOT NULL,
    hour BIGINT NOT NULL,
    streams BIGINT NOT NULL,
    failed_streams BIGINT NOT NULL,
    upstream_bytes BIGINT NOT NULL,
    downstream_bytes BIGINT NOT NULL,
    CONSTRAINT usage_pkey PRIMARY KEY (project_id, hour)
);
CREATE TABLE turn_usage (
    project_id TEXT COLLATE "C" NOT NULL,
    hour BIGINT NOT NULL,
    credentials BIGINT NOT NULL,
    allocations BIGINT NOT NULL,
    relayed_bytes BIGINT NOT NULL,
    CONSTRAINT turn_usage_pkey PRIMARY KEY (project_id, hour)
);

CREATE TABLE webhooks (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    name TEXT COLLATE "C" NOT NULL,
    search TEXT COLLATE "C" NOT NULL,
    description TEXT COLLATE "C",
    destination_type TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    events TEXT COLLATE "C" NOT NULL,
    url TEXT COLLATE "C" NOT NULL,
    sealed_secret BYTEA NOT NULL,
    previous_sealed_secret BYTEA,
    previous_secret_expires_at BIGINT,
    secret_rotated_at BIGINT,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT
);
CREATE INDEX webhooks_project ON webhooks (project_id, id);

CREATE TABLE deliveries (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    webhook_id TEXT COLLATE "C" NOT NULL REFERENCES webhooks (id),
    project_id TEXT COLLATE "C" NOT NULL,
    event_id TEXT COLLATE "C" NOT NULL,
    event_type TEXT COLLATE "C" NOT NULL,
    payload TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    attempts BIGINT NOT NULL,
    -- When it is due; while it is being delivered, when that is given up.
    next_attempt_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    completed_at BIGINT,
    CONSTRAINT deliveries_event_unique UNIQUE (webhook_id, event_id)
);
CREATE INDEX deliveries_webhook ON deliveries (webhook_id, id);
CREATE INDEX deliveries_due ON deliveries (next_attempt_at) WHERE completed_at IS NULL;
CREATE INDEX deliveries_done ON deliveries (completed_at) WHERE completed_at IS NOT NULL;

CREATE TABLE delivery_attempts (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    delivery_id TEXT COLLATE "C" NOT NULL REFERENCES deliveries (id) ON DELETE CASCADE,
    status TEXT COLLATE "C" NOT NULL,
    http_status BIGINT,
    error TEXT COLLATE "C",
    duration_ms BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX delivery_attempts_delivery ON delivery_attempts (delivery_id, id);
