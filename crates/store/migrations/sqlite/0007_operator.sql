-- What running a platform needs: suspended projects, what is past its time, renewals.

-- Set while an operator keeps the project from being used; its status says so too.
ALTER TABLE projects ADD COLUMN suspended_at INTEGER;

-- When the period that was invoiced last ends. NULL: not known, from before there were renewals.
ALTER TABLE subscriptions ADD COLUMN renews_at INTEGER;
CREATE INDEX subscriptions_renewal ON subscriptions (renews_at) WHERE ended_at IS NULL;

CREATE INDEX sessions_seen ON sessions (last_seen_at);
CREATE INDEX invitations_expiry ON invitations (expires_at);
CREATE INDEX audit_age ON audit (created_at);

-- Entries of the audit log before this moment may be forgotten, no others. It only moves on.
CREATE TABLE audit_horizon (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    kept_from INTEGER NOT NULL
);
INSERT INTO audit_horizon (id, kept_from) VALUES (1, 0);

DROP TRIGGER audit_keeps_all_rows;
CREATE TRIGGER audit_keeps_all_rows BEFORE DELETE ON audit
WHEN OLD.created_at >= COALESCE((SELECT kept_from FROM audit_horizon WHERE id = 1), OLD.created_at)
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
