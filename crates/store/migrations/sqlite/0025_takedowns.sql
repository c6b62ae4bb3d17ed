-- Host names that an operator has taken down. `wildcard` is the wildcard domain that includes the
-- name, and `project_id` the project that had the name then.
CREATE TABLE takedowns (
    hostname TEXT NOT NULL PRIMARY KEY,
    wildcard TEXT NOT NULL,
    project_id TEXT NOT NULL,
    reason TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX takedowns_project ON takedowns (project_id);
CREATE INDEX takedowns_wildcard ON takedowns (wildcard);
