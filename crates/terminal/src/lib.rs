//! Terminals through tunnels: the WebTTY server and client.
