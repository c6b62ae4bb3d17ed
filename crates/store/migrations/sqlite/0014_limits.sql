-- What is purged by its age, and from which networks devices ask.

CREATE INDEX credentials_revoked ON credentials (revoked_at) WHERE revoked_at IS NOT NULL;
CREATE INDEX credentials_expired ON credentials (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX webhooks_deleted ON webhooks (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE INDEX usage_age ON usage (hour);
CREATE INDEX turn_usage_age ON turn_usage (hour);

-- The network of the address, as large as one owner has them.
ALTER TABLE oauth_device_grants ADD COLUMN network TEXT NOT NULL DEFAULT '';
CREATE INDEX oauth_device_grants_network ON oauth_device_grants (network, expires_at);
