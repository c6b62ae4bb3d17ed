-- The engine link: what changed for engines, and how far their reports have come.

-- Where the log of changes ends. One row: whoever changes it commits before the next one can.
CREATE TABLE link_head (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    version BIGINT NOT NULL,
    -- Random, with each version: it tells two histories apart that came to the same number.
    mark TEXT COLLATE "C" NOT NULL
);
INSERT INTO link_head (id, version, mark) VALUES (1, 0, SUBSTR(MD5(GEN_RANDOM_UUID()::TEXT), 1, 16));

-- What a transaction changed; the state itself is read when it is told.
CREATE TABLE link_changes (
    version BIGINT NOT NULL,
    mark TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    -- Id of what changed; empty where there is only one.
    key TEXT COLLATE "C" NOT NULL,
    at BIGINT NOT NULL,
    CONSTRAINT link_changes_pkey PRIMARY KEY (version, kind, key)
);
CREATE INDEX link_changes_age ON link_changes (at);

-- Batches of an engine's reports that arrived.
CREATE TABLE link_reporters (
    cluster_domain TEXT COLLATE "C" NOT NULL,
    reporter TEXT COLLATE "C" NOT NULL,
    through BIGINT NOT NULL,
    first_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    CONSTRAINT link_reporters_pkey PRIMARY KEY (cluster_domain, reporter)
);
CREATE INDEX link_reporters_age ON link_reporters (last_at);

-- What is online in a project, as its engine said last.
CREATE TABLE link_inventory (
    project_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    cluster_domain TEXT COLLATE "C" NOT NULL,
    clients BIGINT NOT NULL,
    tunnels BIGINT NOT NULL,
    reported_at BIGINT NOT NULL
);
CREATE INDEX link_inventory_cluster ON link_inventory (cluster_domain);

-- Engines that read the stream of changes, from any process of the platform.
CREATE TABLE link_engines (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    cluster_domain TEXT COLLATE "C" NOT NULL,
    address TEXT COLLATE "C" NOT NULL,
    linked_at BIGINT NOT NULL,
    -- How far it was told.
    version BIGINT NOT NULL,
    seen_at BIGINT NOT NULL
);
CREATE INDEX link_engines_seen ON link_engines (seen_at);

-- Browser sessions at tunnels that began before are over.
ALTER TABLE users ADD COLUMN sessions_after BIGINT NOT NULL DEFAULT 0;
