use types::client::Client;
use types::event::Event;
use types::filter::{ListClientsParams, ListTunnelsParams, WatchParams};
use types::problem::ProblemBody;
use types::tunnel::Tunnel;
use utoipa::OpenApi;

/// EN-6: the schemas of the Engine API, named as in the public document.
#[test]
fn en_6_schemas_of_the_engine_document() {
    #[derive(OpenApi)]
    #[openapi(components(schemas(
        Client,
        Tunnel,
        Event,
        ListClientsParams,
        ListTunnelsParams,
        WatchParams,
        ProblemBody,
    )))]
    struct Document;

    let components = Document::openapi().components;
    insta::assert_json_snapshot!("schemas", components);
}
