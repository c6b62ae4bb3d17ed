-- Projects and what is paid for them.

CREATE TABLE projects (
    id TEXT NOT NULL PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    -- Eight hex digits, a label of the project's host name. Never given out twice, not even
    -- after deletion.
    endpoint TEXT NOT NULL CONSTRAINT projects_endpoint_unique UNIQUE,
    name TEXT NOT NULL,
    -- Name and endpoint in lower case, for searching.
    search TEXT NOT NULL,
    plan TEXT NOT NULL,
    provider TEXT NOT NULL,
    region TEXT,
    routing TEXT NOT NULL,
    deployment TEXT NOT NULL,
    status TEXT NOT NULL,
    settings TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    deleted_at INTEGER
);
CREATE INDEX projects_by_id ON projects (workspace_id, id) WHERE deleted_at IS NULL;
CREATE INDEX projects_by_name ON projects (workspace_id, name, id) WHERE deleted_at IS NULL;

CREATE TABLE subscriptions (
    id TEXT NOT NULL PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    status TEXT NOT NULL,
    currency TEXT NOT NULL,
    -- What a month costs now, in the currency's smallest unit.
    monthly_amount INTEGER NOT NULL,
    items TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    ended_at INTEGER
);
CREATE UNIQUE INDEX subscriptions_one_open ON subscriptions (workspace_id) WHERE ended_at IS NULL;

CREATE TABLE subscription_changes (
    id TEXT NOT NULL PRIMARY KEY,
    subscription_id TEXT NOT NULL REFERENCES subscriptions (id),
    workspace_id TEXT NOT NULL,
    project_id TEXT,
    kind TEXT NOT NULL,
    amount INTEGER NOT NULL,
    details TEXT NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX subscription_changes_workspace ON subscription_changes (workspace_id, id);

CREATE TABLE invoices (
    id TEXT NOT NULL PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id),
    subscription_id TEXT NOT NULL REFERENCES subscriptions (id),
    status TEXT NOT NULL,
    currency TEXT NOT NULL,
    amount INTEGER NOT NULL,
    lines TEXT NOT NULL,
    period_start INTEGER NOT NULL,
    period_end INTEGER NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX invoices_workspace ON invoices (workspace_id, id);

-- One creation per key, however often it is asked for.
CREATE TABLE idempotency_keys (
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    body_hash BLOB NOT NULL,
    project_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (workspace_id, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

CREATE TABLE capacity (
    provider TEXT NOT NULL,
    -- Empty for a plan that is not bound to a region.
    region TEXT NOT NULL,
    plan TEXT NOT NULL,
    -- NULL: no limit.
    total INTEGER,
    used INTEGER NOT NULL CONSTRAINT capacity_used_range CHECK (used >= 0),
    CONSTRAINT capacity_pkey PRIMARY KEY (provider, region, plan)
);

CREATE TABLE addresses (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id),
    cluster_domain TEXT NOT NULL,
    port INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    CONSTRAINT addresses_port_unique UNIQUE (cluster_domain, port)
);
CREATE INDEX addresses_project ON addresses (project_id);

CREATE TABLE webtty_servers (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id),
    name TEXT NOT NULL,
    search TEXT NOT NULL,
    description TEXT,
    status TEXT NOT NULL,
    recording_policy TEXT NOT NULL,
    encryption_policy TEXT NOT NULL,
    access_policy TEXT NOT NULL,
    labels TEXT NOT NULL,
    -- What enrolment brought: keys, fingerprint, capabilities.
    enrolment TEXT,
    enrolled_at INTEGER,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    CONSTRAINT webtty_servers_name_unique UNIQUE (project_id, name)
);
