-- Credentials, signing keys, what was revoked, who did what.

CREATE TABLE credentials (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    -- NULL: wherever its user may go.
    workspace_id TEXT COLLATE "C" REFERENCES workspaces (id) ON DELETE CASCADE,
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    token_hash BYTEA CONSTRAINT credentials_token_unique UNIQUE,
    token_endpoint TEXT COLLATE "C" CONSTRAINT credentials_endpoint_unique UNIQUE,
    public_key TEXT COLLATE "C",
    certificate_fingerprint BYTEA CONSTRAINT credentials_certificate_unique UNIQUE,
    -- A certificate, or the authority whose certificates are accepted.
    certificate TEXT COLLATE "C",
    issuer_fingerprint BYTEA,
    -- NULL: not narrowed.
    permissions TEXT COLLATE "C",
    resources TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    last_used_at BIGINT,
    -- Its successor, once it was rotated.
    rotated_to TEXT COLLATE "C"
);
CREATE INDEX credentials_user ON credentials (user_id, id);
CREATE INDEX credentials_workspace ON credentials (workspace_id, id);
CREATE INDEX credentials_issuer ON credentials (issuer_fingerprint);
CREATE INDEX credentials_changes ON credentials (updated_at, id);

-- Tokens that ended before their time.
CREATE TABLE revoked_tokens (
    jti TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    expires_at BIGINT NOT NULL,
    revoked_at BIGINT NOT NULL
);
CREATE INDEX revoked_tokens_expiry ON revoked_tokens (expires_at);

CREATE TABLE signing_keys (
    kid TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    algorithm TEXT COLLATE "C" NOT NULL,
    sealed_private_key BYTEA NOT NULL,
    public_jwk TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    activated_at BIGINT,
    retired_at BIGINT
);
CREATE UNIQUE INDEX signing_keys_one_active ON signing_keys (status) WHERE status = 'active';

CREATE TABLE audit (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- NULL: it concerns a person or the whole installation.
    workspace_id TEXT COLLATE "C",
    actor_user_id TEXT COLLATE "C",
    actor_credential_id TEXT COLLATE "C",
    action TEXT COLLATE "C" NOT NULL,
    target_kind TEXT COLLATE "C" NOT NULL,
    target_id TEXT COLLATE "C" NOT NULL,
    details TEXT COLLATE "C" NOT NULL,
    ip TEXT COLLATE "C",
    created_at BIGINT NOT NULL
);
CREATE INDEX audit_workspace ON audit (workspace_id, id);
CREATE INDEX audit_actor ON audit (actor_user_id, id);

CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
END
$$;
CREATE TRIGGER audit_keeps_rows BEFORE UPDATE OR DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_keeps_all_rows BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();
