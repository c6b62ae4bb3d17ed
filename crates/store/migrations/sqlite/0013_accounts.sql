-- Chains of credentials, certificates of several people, and attempts that every process counts.

-- The credential that was shown when this one was issued: itself, or a token that was minted from
-- it. NULL: a person in a browser, or the operator.
ALTER TABLE credentials ADD COLUMN issued_by TEXT;
-- The first credential of that chain. NULL: this one.
ALTER TABLE credentials ADD COLUMN root_id TEXT;
CREATE INDEX credentials_issued_by ON credentials (issued_by) WHERE issued_by IS NOT NULL;

-- SHA-256 of a client certificate. Everybody can register every certificate, because no key is
-- asked for: what others register takes nothing from its owner. It replaces
-- certificate_fingerprint, which is unique over all people and is not written any more.
ALTER TABLE credentials ADD COLUMN certificate_sha256 BLOB;
UPDATE credentials SET certificate_sha256 = certificate_fingerprint
    WHERE certificate_fingerprint IS NOT NULL;
CREATE UNIQUE INDEX credentials_certificate_of_user ON credentials (certificate_sha256, user_id)
    WHERE certificate_sha256 IS NOT NULL;

-- Attempts to sign in, by account and kind of proof, until they are forgotten.
CREATE TABLE attempts (
    kind TEXT NOT NULL,
    -- Id of the account, or the hash of the address that was typed.
    key TEXT NOT NULL,
    count INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    CONSTRAINT attempts_pkey PRIMARY KEY (kind, key)
);
CREATE INDEX attempts_expiry ON attempts (expires_at);
