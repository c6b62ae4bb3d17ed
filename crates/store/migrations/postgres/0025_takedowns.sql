-- Host names that an operator has taken down. `wildcard` is the wildcard domain that includes the
-- name, and `project_id` the project that had the name then.
CREATE TABLE takedowns (
    hostname TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    wildcard TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    reason TEXT COLLATE "C" NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX takedowns_project ON takedowns (project_id);
CREATE INDEX takedowns_wildcard ON takedowns (wildcard);
