-- Approvals that are valid once, and how many invitations a person has sent.

-- Authorization requests as a consent page showed them, until somebody decides.
CREATE TABLE oauth_requests (
    -- Of the secret that the page sends along.
    hash BYTEA NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    session_id TEXT COLLATE "C" NOT NULL,
    -- The request in its one spelling.
    query TEXT COLLATE "C" NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX oauth_requests_user ON oauth_requests (user_id, expires_at);
CREATE INDEX oauth_requests_expiry ON oauth_requests (expires_at);

CREATE INDEX invitations_inviter ON invitations (invited_by, created_at);
