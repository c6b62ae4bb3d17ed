-- Approvals that are valid once, and how many invitations a person has sent.

-- Authorization requests as a consent page showed them, until somebody decides.
CREATE TABLE oauth_requests (
    -- Of the secret that the page sends along.
    hash BLOB NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    session_id TEXT NOT NULL,
    -- The request in its one spelling.
    query TEXT NOT NULL,
    expires_at INTEGER NOT NULL
);
CREATE INDEX oauth_requests_user ON oauth_requests (user_id, expires_at);
CREATE INDEX oauth_requests_expiry ON oauth_requests (expires_at);

CREATE INDEX invitations_inviter ON invitations (invited_by, created_at);
