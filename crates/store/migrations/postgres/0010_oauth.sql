-- OAuth: codes that wait to be redeemed, devices that wait to be approved, and who holds a token.

-- Limits of a narrowed session. NULL: not narrowed.
ALTER TABLE sessions ADD COLUMN permissions TEXT COLLATE "C";
ALTER TABLE sessions ADD COLUMN resources TEXT COLLATE "C";

-- The OAuth client that holds the token. NULL: its owner issued it by hand.
ALTER TABLE credentials ADD COLUMN oauth_client TEXT COLLATE "C";

CREATE TABLE oauth_codes (
    hash BYTEA NOT NULL PRIMARY KEY,
    client_id TEXT COLLATE "C" NOT NULL,
    redirect_uri TEXT COLLATE "C" NOT NULL,
    -- SHA-256 of the secret that only the client knows.
    challenge BYTEA NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    session_id TEXT COLLATE "C" NOT NULL,
    permissions TEXT COLLATE "C" NOT NULL,
    resources TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    used_at BIGINT,
    -- What was issued for it: revoked when the code comes again.
    credential_id TEXT COLLATE "C"
);
CREATE INDEX oauth_codes_user ON oauth_codes (user_id);
CREATE INDEX oauth_codes_expiry ON oauth_codes (expires_at);

CREATE TABLE oauth_device_grants (
    hash BYTEA NOT NULL PRIMARY KEY,
    -- Of the code that a person types; keyed, because it is short.
    user_code_hash BYTEA NOT NULL CONSTRAINT oauth_device_grants_user_code_unique UNIQUE,
    client_id TEXT COLLATE "C" NOT NULL,
    -- What was asked for, and after the approval what was granted.
    permissions TEXT COLLATE "C" NOT NULL,
    resources TEXT COLLATE "C",
    -- What the device says of itself.
    source TEXT COLLATE "C",
    ip TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    interval_seconds BIGINT NOT NULL,
    last_polled_at BIGINT,
    status TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" REFERENCES users (id) ON DELETE CASCADE,
    session_id TEXT COLLATE "C",
    decided_at BIGINT,
    credential_id TEXT COLLATE "C"
);
CREATE INDEX oauth_device_grants_user ON oauth_device_grants (user_id);
CREATE INDEX oauth_device_grants_expiry ON oauth_device_grants (expires_at);
