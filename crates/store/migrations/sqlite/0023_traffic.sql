-- Visits of projects and of their tunnels in each minute and each hour. `step` is 60 or 3600 seconds.
-- `tunnel` is a name, `*` for all other visits, or empty for the sum of all. The columns `d0` to
-- `d15` count responses by their duration.
CREATE TABLE traffic (
    project_id TEXT NOT NULL,
    step INTEGER NOT NULL,
    starts_at INTEGER NOT NULL,
    tunnel TEXT NOT NULL,
    requests INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    denied INTEGER NOT NULL,
    upstream_bytes INTEGER NOT NULL,
    downstream_bytes INTEGER NOT NULL,
    d0 INTEGER NOT NULL,
    d1 INTEGER NOT NULL,
    d2 INTEGER NOT NULL,
    d3 INTEGER NOT NULL,
    d4 INTEGER NOT NULL,
    d5 INTEGER NOT NULL,
    d6 INTEGER NOT NULL,
    d7 INTEGER NOT NULL,
    d8 INTEGER NOT NULL,
    d9 INTEGER NOT NULL,
    d10 INTEGER NOT NULL,
    d11 INTEGER NOT NULL,
    d12 INTEGER NOT NULL,
    d13 INTEGER NOT NULL,
    d14 INTEGER NOT NULL,
    d15 INTEGER NOT NULL,
    CONSTRAINT traffic_pkey PRIMARY KEY (project_id, step, starts_at, tunnel)
);
CREATE INDEX traffic_series ON traffic (project_id, step, tunnel, starts_at);
CREATE INDEX traffic_age ON traffic (step, starts_at);
