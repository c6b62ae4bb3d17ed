-- Credentials, signing keys, what was revoked, who did what.

CREATE TABLE credentials (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    -- NULL: wherever its user may go.
    workspace_id TEXT REFERENCES workspaces (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    token_hash BLOB CONSTRAINT credentials_token_unique UNIQUE,
    token_endpoint TEXT CONSTRAINT credentials_endpoint_unique UNIQUE,
    public_key TEXT,
    certificate_fingerprint BLOB CONSTRAINT credentials_certificate_unique UNIQUE,
    -- A certificate, or the authority whose certificates are accepted.
    certificate TEXT,
    issuer_fingerprint BLOB,
    -- NULL: not narrowed.
    permissions TEXT,
    resources TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    last_used_at INTEGER,
    -- Its successor, once it was rotated.
    rotated_to TEXT
);
CREATE INDEX credentials_user ON credentials (user_id, id);
CREATE INDEX credentials_workspace ON credentials (workspace_id, id);
CREATE INDEX credentials_issuer ON credentials (issuer_fingerprint);
CREATE INDEX credentials_changes ON credentials (updated_at, id);

-- Tokens that ended before their time.
CREATE TABLE revoked_tokens (
    jti TEXT NOT NULL PRIMARY KEY,
    expires_at INTEGER NOT NULL,
    revoked_at INTEGER NOT NULL
);
CREATE INDEX revoked_tokens_expiry ON revoked_tokens (expires_at);

CREATE TABLE signing_keys (
    kid TEXT NOT NULL PRIMARY KEY,
    algorithm TEXT NOT NULL,
    sealed_private_key BLOB NOT NULL,
    public_jwk TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    activated_at INTEGER,
    retired_at INTEGER
);
CREATE UNIQUE INDEX signing_keys_one_active ON signing_keys (status) WHERE status = 'active';

CREATE TABLE audit (
    id TEXT NOT NULL PRIMARY KEY,
    -- NULL: it concerns a person or the whole installation.
    workspace_id TEXT,
    actor_user_id TEXT,
    actor_credential_id TEXT,
    action TEXT NOT NULL,
    target_kind TEXT NOT NULL,
    target_id TEXT NOT NULL,
    details TEXT NOT NULL,
    ip TEXT,
    created_at INTEGER NOT NULL
);
CREATE INDEX audit_workspace ON audit (workspace_id, id);
CREATE INDEX audit_actor ON audit (actor_user_id, id);

CREATE TRIGGER audit_keeps_rows BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
CREATE TRIGGER audit_keeps_all_rows BEFORE DELETE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
