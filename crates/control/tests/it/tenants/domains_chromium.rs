//! The certificate of a domain in a real browser.

use http::Method;
use serde_json::json;

use crate::chromium::Site;
use crate::support::name_server::NameServers;
use crate::support::{PASSWORD, engines};

const HOSTNAME: &str = "app.example.com";

/// A chain or a key that is refused is explained at its field. Then the certificate is uploaded and
/// removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_certificate_of_a_domain_is_uploaded_and_removed_in_chromium() {
    let dns = NameServers::start().await;
    let sections = format!("domains: {}", dns.section());
    let site = Box::pin(Site::start_beside(&engines(), &sections)).await;
    let ada = site.person("Ada").await;
    let project = site.project(&ada).await;
    let path = format!("/api/projects/tunnels/{}/domains", project.id);
    let body = json!({ "hostname": HOSTNAME });
    let domain = site.post(&path, &ada.token, &body).await.expect(201);
    dns.enter(0, &domain);
    let path = format!("{path}/{}/verify", domain["id"].as_str().unwrap());
    let token = Some(ada.token.as_str());
    let verified = site.send(Method::POST, &path, token, None).await;
    let verified = verified.expect(200);
    assert_eq!(verified["status"], "verified", "{verified}");

    let made = rcgen::generate_simple_self_signed([HOSTNAME.to_owned()]).unwrap();
    let given = json!({
        "password": PASSWORD,
        "project": project.id.as_str(),
        "hostname": HOSTNAME,
        "certificate": made.cert.pem(),
        "privateKey": made.signing_key.serialize_pem(),
    });
    site.run("domain_certificate.mjs", given).await;
}
