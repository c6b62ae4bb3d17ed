-- Passkeys that open an account by themselves, proofs that are recent, challenges that work once.

-- Whether the authenticator has shown that it knows whose it is, by a PIN or a finger.
ALTER TABLE passkeys ADD COLUMN user_verified BOOLEAN NOT NULL DEFAULT FALSE;

-- When the person last proved to be who they are: by a password, or a second factor.
ALTER TABLE sessions ADD COLUMN proved_at BIGINT NOT NULL DEFAULT 0;

-- Challenges that were answered, until they are too old to be answered at all.
CREATE TABLE used_challenges (
    hash BYTEA NOT NULL PRIMARY KEY,
    expires_at BIGINT NOT NULL
);
CREATE INDEX used_challenges_expiry ON used_challenges (expires_at);

-- Never used: forms are known by their origin, attempts are counted in memory.
ALTER TABLE sessions DROP COLUMN csrf_hash;
DROP TABLE throttles;
