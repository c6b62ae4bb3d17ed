-- People, how they sign in, and the workspaces that they share.

CREATE TABLE users (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    email TEXT COLLATE "C" NOT NULL,
    -- The address in lower case: two spellings are one person.
    email_key TEXT COLLATE "C" NOT NULL CONSTRAINT users_email_key_unique UNIQUE,
    name TEXT COLLATE "C" NOT NULL,
    -- Name and address in lower case, for searching.
    search TEXT COLLATE "C" NOT NULL,
    password_hash TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL,
    role TEXT COLLATE "C" NOT NULL,
    email_verified BOOLEAN NOT NULL,
    totp_secret BYTEA,
    totp_confirmed_at BIGINT,
    -- The last time step that was used, so that a code works once.
    totp_last_step BIGINT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- Identities of an OpenID provider.
CREATE TABLE identities (
    issuer TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL,
    CONSTRAINT identities_pkey PRIMARY KEY (issuer, subject)
);
CREATE INDEX identities_user ON identities (user_id);

CREATE TABLE passkeys (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    credential_id BYTEA NOT NULL CONSTRAINT passkeys_credential_unique UNIQUE,
    public_key BYTEA NOT NULL,
    sign_count BIGINT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT
);
CREATE INDEX passkeys_user ON passkeys (user_id);

-- Codes for the day when the second factor is lost.
CREATE TABLE recovery_codes (
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    hash BYTEA NOT NULL,
    used_at BIGINT,
    CONSTRAINT recovery_codes_pkey PRIMARY KEY (user_id, hash)
);

CREATE TABLE sessions (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    hash BYTEA NOT NULL CONSTRAINT sessions_hash_unique UNIQUE,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    csrf_hash BYTEA NOT NULL,
    user_agent TEXT COLLATE "C",
    ip TEXT COLLATE "C",
    second_factor_at BIGINT,
    created_at BIGINT NOT NULL,
    rotated_at BIGINT NOT NULL,
    last_seen_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_expiry ON sessions (expires_at);

-- Failed attempts by whatever is counted: an account, an address.
CREATE TABLE throttles (
    subject TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    failures BIGINT NOT NULL,
    window_ends_at BIGINT NOT NULL
);
CREATE INDEX throttles_window ON throttles (window_ends_at);

-- Links that were sent by mail. Each works once.
CREATE TABLE links (
    hash BYTEA NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    kind TEXT COLLATE "C" NOT NULL,
    -- The address that the link was sent to.
    email TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at BIGINT
);
CREATE INDEX links_user ON links (user_id, kind);
CREATE INDEX links_expiry ON links (expires_at);

CREATE TABLE workspaces (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    search TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    subscription_status TEXT COLLATE "C",
    has_payment_method BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT
);

CREATE TABLE members (
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    invited_at BIGINT,
    joined_at BIGINT NOT NULL,
    CONSTRAINT members_pkey PRIMARY KEY (workspace_id, user_id)
);
CREATE INDEX members_user ON members (user_id, status);

CREATE TABLE invitations (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    workspace_id TEXT COLLATE "C" NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    email TEXT COLLATE "C" NOT NULL,
    role TEXT COLLATE "C" NOT NULL,
    hash BYTEA NOT NULL CONSTRAINT invitations_hash_unique UNIQUE,
    invited_by TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    accepted_at BIGINT,
    accepted_by TEXT COLLATE "C" REFERENCES users (id),
    revoked_at BIGINT
);
CREATE INDEX invitations_workspace ON invitations (workspace_id, created_at);
