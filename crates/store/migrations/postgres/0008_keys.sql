-- Keys that every process of the platform shares, and what is known of a credential's use.

-- Sealed with the platform's secret, which is in no database.
CREATE TABLE platform_secrets (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    sealed BYTEA NOT NULL,
    created_at BIGINT NOT NULL
);

-- Of those that would begin a rotation at once, one does.
CREATE UNIQUE INDEX signing_keys_one_next ON signing_keys (status) WHERE status = 'next';

-- The key that signed a personal token: it stays public for as long as the token is good.
ALTER TABLE credentials ADD COLUMN signing_key TEXT COLLATE "C";
CREATE INDEX credentials_signing_key ON credentials (signing_key);
-- Where the last use came from.
ALTER TABLE credentials ADD COLUMN last_used_ip TEXT COLLATE "C";
-- The name, folded.
ALTER TABLE credentials ADD COLUMN search TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE credentials SET search = LOWER(name);
