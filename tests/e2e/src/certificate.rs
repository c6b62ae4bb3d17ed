use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

/// A certificate for one test, with the authority that clients trust.
pub(crate) struct Certificate {
    /// The authority that clients trust.
    pub(crate) authority: PathBuf,
    /// The engine's certificate.
    pub(crate) chain: PathBuf,
    /// Its key.
    pub(crate) key: PathBuf,
}

impl Certificate {
    /// Creates both for `names` and writes them below `directory`. They have every extension that
    /// the strictest client (Python from 3.13 on) requires.
    pub(crate) fn issue(directory: &Path, names: &[&str]) -> Result<Self> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut leaf = CertificateParams::new(names)?;
        leaf.distinguished_name.push(DnType::CommonName, "engine");
        leaf.use_authority_key_identifier_extension = true;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let leaf = leaf.signed_by(&key, &authority)?;

        let write = |name: &str, text: String| {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("writing {name}"))?;
            anyhow::Ok(path)
        };
        Ok(Self {
            authority: write("ca.pem", authority.pem())?,
            chain: write("cert.pem", leaf.pem())?,
            key: write("key.pem", key.serialize_pem())?,
        })
    }
}
