-- Bounds on what projects leave behind.

-- How many logs and events there are of a project.
CREATE TABLE stored_records (
    project_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    logs BIGINT NOT NULL,
    events BIGINT NOT NULL
);
INSERT INTO stored_records (project_id, logs, events)
    SELECT project_id, SUM(logs), SUM(events) FROM (
        SELECT project_id, COUNT(*) AS logs, 0 AS events FROM logs GROUP BY project_id
        UNION ALL SELECT project_id, 0 AS logs, COUNT(*) AS events FROM events GROUP BY project_id
    ) AS counted GROUP BY project_id;

-- Endpoints of projects that were purged: none is given out twice.
CREATE TABLE retired_endpoints (
    endpoint TEXT COLLATE "C" NOT NULL PRIMARY KEY
);

CREATE INDEX projects_deleted ON projects (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX workspaces_deleted ON workspaces (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX projects_workspace ON projects (workspace_id);
CREATE INDEX subscriptions_workspace ON subscriptions (workspace_id);
CREATE INDEX pending_sign_ins_age ON pending_sign_ins (created_at);
