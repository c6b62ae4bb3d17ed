-- Visits of projects and of their tunnels in each minute and each hour. `step` is 60 or 3600 seconds.
-- `tunnel` is a name, `*` for all other visits, or empty for the sum of all. The columns `d0` to
-- `d15` count responses by their duration.
CREATE TABLE traffic (
    project_id TEXT COLLATE "C" NOT NULL,
    step BIGINT NOT NULL,
    starts_at BIGINT NOT NULL,
    tunnel TEXT COLLATE "C" NOT NULL,
    requests BIGINT NOT NULL,
    errors BIGINT NOT NULL,
    denied BIGINT NOT NULL,
    upstream_bytes BIGINT NOT NULL,
    downstream_bytes BIGINT NOT NULL,
    d0 BIGINT NOT NULL,
    d1 BIGINT NOT NULL,
    d2 BIGINT NOT NULL,
    d3 BIGINT NOT NULL,
    d4 BIGINT NOT NULL,
    d5 BIGINT NOT NULL,
    d6 BIGINT NOT NULL,
    d7 BIGINT NOT NULL,
    d8 BIGINT NOT NULL,
    d9 BIGINT NOT NULL,
    d10 BIGINT NOT NULL,
    d11 BIGINT NOT NULL,
    d12 BIGINT NOT NULL,
    d13 BIGINT NOT NULL,
    d14 BIGINT NOT NULL,
    d15 BIGINT NOT NULL,
    CONSTRAINT traffic_pkey PRIMARY KEY (project_id, step, starts_at, tunnel)
);
CREATE INDEX traffic_series ON traffic (project_id, step, tunnel, starts_at);
CREATE INDEX traffic_age ON traffic (step, starts_at);
