-- Custom domains of projects. A domain that is not pending is held: no other project can have it.
CREATE TABLE domains (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id),
    hostname TEXT NOT NULL,
    certificate_validation TEXT NOT NULL,
    token TEXT NOT NULL,
    state TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    verified_at INTEGER,
    last_checked_at INTEGER,
    last_found_at INTEGER,
    failing_since INTEGER,
    suspended_at INTEGER,
    quarantine_until INTEGER,
    next_check_at INTEGER NOT NULL,
    report TEXT,
    CONSTRAINT domains_project_hostname_unique UNIQUE (project_id, hostname)
);
CREATE UNIQUE INDEX domains_held_unique ON domains (hostname) WHERE state <> 'pending';
CREATE INDEX domains_due ON domains (next_check_at);
