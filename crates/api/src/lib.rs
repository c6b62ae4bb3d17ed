//! Request and response types of the HTTP surfaces, and the OpenAPI documents made of them.
