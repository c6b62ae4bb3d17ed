-- What running a platform needs: suspended projects, what is past its time, renewals.

-- Set while an operator keeps the project from being used; its status says so too.
ALTER TABLE projects ADD COLUMN suspended_at BIGINT;

-- When the period that was invoiced last ends. NULL: not known, from before there were renewals.
ALTER TABLE subscriptions ADD COLUMN renews_at BIGINT;
CREATE INDEX subscriptions_renewal ON subscriptions (renews_at) WHERE ended_at IS NULL;

CREATE INDEX sessions_seen ON sessions (last_seen_at);
CREATE INDEX invitations_expiry ON invitations (expires_at);
CREATE INDEX audit_age ON audit (created_at);

-- Entries of the audit log before this moment may be forgotten, no others. It only moves on.
CREATE TABLE audit_horizon (
    id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    kept_from BIGINT NOT NULL
);
INSERT INTO audit_horizon (id, kept_from) VALUES (1, 0);

CREATE OR REPLACE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_LEVEL = 'ROW' AND TG_OP = 'DELETE' THEN
        IF OLD.created_at < (SELECT kept_from FROM audit_horizon WHERE id = 1) THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'the audit log is append-only';
END
$$;
