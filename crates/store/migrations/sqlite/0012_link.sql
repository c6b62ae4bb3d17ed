-- The engine link: what changed for engines, and how far their reports have come.

-- Where the log of changes ends. One row: whoever changes it commits before the next one can.
CREATE TABLE link_head (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL,
    -- Random, with each version: it tells two histories apart that came to the same number.
    mark TEXT NOT NULL
);
INSERT INTO link_head (id, version, mark) VALUES (1, 0, LOWER(HEX(RANDOMBLOB(8))));

-- What a transaction changed; the state itself is read when it is told.
CREATE TABLE link_changes (
    version INTEGER NOT NULL,
    mark TEXT NOT NULL,
    kind TEXT NOT NULL,
    -- Id of what changed; empty where there is only one.
    key TEXT NOT NULL,
    at INTEGER NOT NULL,
    CONSTRAINT link_changes_pkey PRIMARY KEY (version, kind, key)
);
CREATE INDEX link_changes_age ON link_changes (at);

-- Batches of an engine's reports that arrived.
CREATE TABLE link_reporters (
    cluster_domain TEXT NOT NULL,
    reporter TEXT NOT NULL,
    through INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    CONSTRAINT link_reporters_pkey PRIMARY KEY (cluster_domain, reporter)
);
CREATE INDEX link_reporters_age ON link_reporters (last_at);

-- What is online in a project, as its engine said last.
CREATE TABLE link_inventory (
    project_id TEXT NOT NULL PRIMARY KEY,
    cluster_domain TEXT NOT NULL,
    clients INTEGER NOT NULL,
    tunnels INTEGER NOT NULL,
    reported_at INTEGER NOT NULL
);
CREATE INDEX link_inventory_cluster ON link_inventory (cluster_domain);

-- Engines that read the stream of changes, from any process of the platform.
CREATE TABLE link_engines (
    id TEXT NOT NULL PRIMARY KEY,
    cluster_domain TEXT NOT NULL,
    address TEXT NOT NULL,
    linked_at INTEGER NOT NULL,
    -- How far it was told.
    version INTEGER NOT NULL,
    seen_at INTEGER NOT NULL
);
CREATE INDEX link_engines_seen ON link_engines (seen_at);

-- Browser sessions at tunnels that began before are over.
ALTER TABLE users ADD COLUMN sessions_after INTEGER NOT NULL DEFAULT 0;
