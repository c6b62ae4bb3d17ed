-- Projects and what is paid for them.

CREATE TABLE projects (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    -- Eight hex digits, a label of the project's host name. Never given out twice, not even
    -- after deletion.
    endpoint TEXT COLLATE "C" NOT NULL CONSTRAINT projects_endpoint_unique UNIQUE,
    name TEXT COLLATE "C" NOT NULL,
    -- Name and endpoint in lower case, for searching.
    search TEXT COLLATE "C" NOT NULL,
    plan TEXT COLLATE "C" NOT NULL,
    provider TEXT COLLATE "C" NOT NULL,
    region TEXT COLLATE "C",
    routing TEXT COLLATE "C" NOT NULL,
    deployment TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    settings TEXT COLLATE "C" NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT
);
CREATE INDEX projects_by_id ON projects (workspace_id, id) WHERE deleted_at IS NULL;
CREATE INDEX projects_by_name ON projects (workspace_id, name, id) WHERE deleted_at IS NULL;

CREATE TABLE subscriptions (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    status TEXT COLLATE "C" NOT NULL,
    currency TEXT COLLATE "C" NOT NULL,
    -- What a month costs now, in the currency's smallest unit.
    monthly_amount BIGINT NOT NULL,
    items TEXT COLLATE "C" NOT NULL,
    started_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    ended_at BIGINT
);
CREATE UNIQUE INDEX subscriptions_one_open ON subscriptions (workspace_id) WHERE ended_at IS NULL;

CREATE TABLE subscription_changes (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    subscription_id TEXT COLLATE "C" NOT NULL REFERENCES subscriptions (id),
    workspace_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C",
    kind TEXT COLLATE "C" NOT NULL,
    amount BIGINT NOT NULL,
    details TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX subscription_changes_workspace ON subscription_changes (workspace_id, id);

CREATE TABLE invoices (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id),
    subscription_id TEXT COLLATE "C" NOT NULL REFERENCES subscriptions (id),
    status TEXT COLLATE "C" NOT NULL,
    currency TEXT COLLATE "C" NOT NULL,
    amount BIGINT NOT NULL,
    lines TEXT COLLATE "C" NOT NULL,
    period_start BIGINT NOT NULL,
    period_end BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX invoices_workspace ON invoices (workspace_id, id);

-- One creation per key, however often it is asked for.
CREATE TABLE idempotency_keys (
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    key TEXT COLLATE "C" NOT NULL,
    body_hash BYTEA NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (workspace_id, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

CREATE TABLE capacity (
    provider TEXT COLLATE "C" NOT NULL,
    -- Empty for a plan that is not bound to a region.
    region TEXT COLLATE "C" NOT NULL,
    plan TEXT COLLATE "C" NOT NULL,
    -- NULL: no limit.
    total BIGINT,
    used BIGINT NOT NULL CONSTRAINT capacity_used_range CHECK (used >= 0),
    CONSTRAINT capacity_pkey PRIMARY KEY (provider, region, plan)
);

CREATE TABLE addresses (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    cluster_domain TEXT COLLATE "C" NOT NULL,
    port BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    CONSTRAINT addresses_port_unique UNIQUE (cluster_domain, port)
);
CREATE INDEX addresses_project ON addresses (project_id);

CREATE TABLE webtty_servers (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    name TEXT COLLATE "C" NOT NULL,
    search TEXT COLLATE "C" NOT NULL,
    description TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL,
    recording_policy TEXT COLLATE "C" NOT NULL,
    encryption_policy TEXT COLLATE "C" NOT NULL,
    access_policy TEXT COLLATE "C" NOT NULL,
    labels TEXT COLLATE "C" NOT NULL,
    -- What enrolment brought: keys, fingerprint, capabilities.
    enrolment TEXT COLLATE "C",
    enrolled_at BIGINT,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    CONSTRAINT webtty_servers_name_unique UNIQUE (project_id, name)
);
