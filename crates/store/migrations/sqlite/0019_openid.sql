-- Sign-ins with an OpenID provider: the provider ends their sessions, and its groups give roles.

-- The identity that started a session, and the provider's own id of its session. NULL: not started
-- by a provider.
ALTER TABLE sessions ADD COLUMN openid_issuer TEXT;
ALTER TABLE sessions ADD COLUMN openid_subject TEXT;
ALTER TABLE sessions ADD COLUMN openid_sid TEXT;
CREATE INDEX sessions_openid_subject ON sessions (openid_issuer, openid_subject);
CREATE INDEX sessions_openid_sid ON sessions (openid_issuer, openid_sid);

-- True if a group of the provider gave the role. A role that a person gave is never changed by one.
ALTER TABLE members ADD COLUMN by_group BOOLEAN NOT NULL DEFAULT FALSE;
