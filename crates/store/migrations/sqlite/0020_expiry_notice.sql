-- When the owner of a personal access token was told that it expires soon; none: not yet.
ALTER TABLE credentials ADD COLUMN expiry_notice_at INTEGER;

-- Those whose owner may still be told.
CREATE INDEX credentials_expiring ON credentials (expires_at)
    WHERE expiry_notice_at IS NULL AND revoked_at IS NULL AND kind = 'pat';
