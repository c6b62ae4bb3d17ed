//! The certificate that a project uploaded for a custom domain.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The uploaded certificate of a custom domain. The output of `Debug` leaves the key out.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainCertificate {
    /// Id of the domain.
    pub id: String,
    /// The project of the domain.
    pub project_id: String,
    /// The name of the domain, as in the project.
    pub hostname: String,
    /// The certificate and its issuers, PEM.
    pub chain: String,
    /// The private key, PEM.
    pub private_key: String,
}

impl fmt::Debug for DomainCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DomainCertificate")
            .field("id", &self.id)
            .field("hostname", &self.hostname)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::link::Item;

    #[test]
    fn debug_output_leaves_the_key_out() {
        let item = Item::DomainCertificate(Box::new(DomainCertificate {
            id: "dom_1".to_owned(),
            project_id: "prj_1".to_owned(),
            hostname: "app.example.com".to_owned(),
            chain: "chain".to_owned(),
            private_key: "c2VjcmV0".to_owned(),
        }));
        let printed = format!("{item:?}");
        assert!(printed.contains("app.example.com"), "{printed}");
        assert!(!printed.contains("c2VjcmV0"), "{printed}");
        let line = serde_json::to_value(&item).unwrap();
        let expected = json!({
            "item": "domain_certificate", "id": "dom_1", "project_id": "prj_1",
            "hostname": "app.example.com", "chain": "chain", "private_key": "c2VjcmV0",
        });
        assert_eq!(line, expected);
        assert_eq!(serde_json::from_value::<Item>(line).unwrap(), item);
    }
}
