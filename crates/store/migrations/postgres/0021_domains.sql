-- Custom domains of projects. A domain that is not pending is held: no other project can have it.
CREATE TABLE domains (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    hostname TEXT COLLATE "C" NOT NULL,
    certificate_validation TEXT COLLATE "C" NOT NULL,
    token TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    verified_at BIGINT,
    last_checked_at BIGINT,
    last_found_at BIGINT,
    failing_since BIGINT,
    suspended_at BIGINT,
    quarantine_until BIGINT,
    next_check_at BIGINT NOT NULL,
    report TEXT COLLATE "C",
    CONSTRAINT domains_project_hostname_unique UNIQUE (project_id, hostname)
);
CREATE UNIQUE INDEX domains_held_unique ON domains (hostname) WHERE state <> 'pending';
CREATE INDEX domains_due ON domains (next_check_at);
