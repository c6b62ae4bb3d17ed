-- OAuth: codes that wait to be redeemed, devices that wait to be approved, and who holds a token.

-- Limits of a narrowed session. NULL: not narrowed.
ALTER TABLE sessions ADD COLUMN permissions TEXT;
ALTER TABLE sessions ADD COLUMN resources TEXT;

-- The OAuth client that holds the token. NULL: its owner issued it by hand.
ALTER TABLE credentials ADD COLUMN oauth_client TEXT;

CREATE TABLE oauth_codes (
    hash BLOB NOT NULL PRIMARY KEY,
    client_id TEXT NOT NULL,
    redirect_uri TEXT NOT NULL,
    -- SHA-256 of the secret that only the client knows.
    challenge BLOB NOT NULL,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    session_id TEXT NOT NULL,
    permissions TEXT NOT NULL,
    resources TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at INTEGER,
    -- What was issued for it: revoked when the code comes again.
    credential_id TEXT
);
CREATE INDEX oauth_codes_user ON oauth_codes (user_id);
CREATE INDEX oauth_codes_expiry ON oauth_codes (expires_at);

CREATE TABLE oauth_device_grants (
    hash BLOB NOT NULL PRIMARY KEY,
    -- Of the code that a person types; keyed, because it is short.
    user_code_hash BLOB NOT NULL CONSTRAINT oauth_device_grants_user_code_unique UNIQUE,
    client_id TEXT NOT NULL,
    -- What was asked for, and after the approval what was granted.
    permissions TEXT NOT NULL,
    resources TEXT,
    -- What the device says of itself.
    source TEXT,
    ip TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    interval_seconds INTEGER NOT NULL,
    last_polled_at INTEGER,
    status TEXT NOT NULL,
    user_id TEXT REFERENCES users (id) ON DELETE CASCADE,
    session_id TEXT,
    decided_at INTEGER,
    credential_id TEXT
);
CREATE INDEX oauth_device_grants_user ON oauth_device_grants (user_id);
CREATE INDEX oauth_device_grants_expiry ON oauth_device_grants (expires_at);
