//! The vocabulary of the platform: ids, permissions, boundaries, filters, tunnels, clients, events, problems.
