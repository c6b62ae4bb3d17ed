-- People, how they sign in, and the workspaces that they share.

CREATE TABLE users (
    id TEXT NOT NULL PRIMARY KEY,
    email TEXT NOT NULL,
    -- The address in lower case: two spellings are one person.
    email_key TEXT NOT NULL CONSTRAINT users_email_key_unique UNIQUE,
    name TEXT NOT NULL,
    -- Name and address in lower case, for searching.
    search TEXT NOT NULL,
    password_hash TEXT,
    status TEXT NOT NULL,
    role TEXT NOT NULL,
    email_verified BOOLEAN NOT NULL,
    totp_secret BLOB,
    totp_confirmed_at INTEGER,
    -- The last time step that was used, so that a code works once.
    totp_last_step INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

-- Identities of an OpenID provider.
CREATE TABLE identities (
    issuer TEXT NOT NULL,
    subject TEXT NOT NULL,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    CONSTRAINT identities_pkey PRIMARY KEY (issuer, subject)
);
CREATE INDEX identities_user ON identities (user_id);

CREATE TABLE passkeys (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    credential_id BLOB NOT NULL CONSTRAINT passkeys_credential_unique UNIQUE,
    public_key BLOB NOT NULL,
    sign_count INTEGER NOT NULL,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER
);
CREATE INDEX passkeys_user ON passkeys (user_id);

-- Codes for the day when the second factor is lost.
CREATE TABLE recovery_codes (
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    hash BLOB NOT NULL,
    used_at INTEGER,
    CONSTRAINT recovery_codes_pkey PRIMARY KEY (user_id, hash)
);

CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    hash BLOB NOT NULL CONSTRAINT sessions_hash_unique UNIQUE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    csrf_hash BLOB NOT NULL,
    user_agent TEXT,
    ip TEXT,
    second_factor_at INTEGER,
    created_at INTEGER NOT NULL,
    rotated_at INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
);
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_expiry ON sessions (expires_at);

-- Failed attempts by whatever is counted: an account, an address.
CREATE TABLE throttles (
    subject TEXT NOT NULL PRIMARY KEY,
    failures INTEGER NOT NULL,
    window_ends_at INTEGER NOT NULL
);
CREATE INDEX throttles_window ON throttles (window_ends_at);

-- Links that were sent by mail. Each works once.
CREATE TABLE links (
    hash BLOB NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    -- The address that the link was sent to.
    email TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at INTEGER
);
CREATE INDEX links_user ON links (user_id, kind);
CREATE INDEX links_expiry ON links (expires_at);

CREATE TABLE workspaces (
    id TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    search TEXT NOT NULL,
    status TEXT NOT NULL,
    subscription_status TEXT,
    has_payment_method BOOLEAN NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    deleted_at INTEGER
);

CREATE TABLE members (
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role TEXT NOT NULL,
    status TEXT NOT NULL,
    invited_at INTEGER,
    joined_at INTEGER NOT NULL,
    CONSTRAINT members_pkey PRIMARY KEY (workspace_id, user_id)
);
CREATE INDEX members_user ON members (user_id, status);

CREATE TABLE invitations (
    id TEXT NOT NULL PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    email TEXT NOT NULL,
    role TEXT NOT NULL,
    hash BLOB NOT NULL CONSTRAINT invitations_hash_unique UNIQUE,
    invited_by TEXT NOT NULL REFERENCES users (id),
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    accepted_at INTEGER,
    accepted_by TEXT REFERENCES users (id),
    revoked_at INTEGER
);
CREATE INDEX invitations_workspace ON invitations (workspace_id, created_at);
