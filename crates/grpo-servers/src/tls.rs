//! Certificates to trust.

use std::path::Path;
use std::sync::Arc;

use grpo_data::regular_file;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use crate::error::EndpointError;

/// Returns the settings of TLS with Mozilla's roots, or with the certificates of a PEM file.
pub(crate) fn config(ca_file: Option<&Path>) -> Result<TlsConfig, EndpointError> {
    let roots = ca_file.map_or(Ok(RootCerts::WebPki), from_file)?;
    Ok(TlsConfig::builder().root_certs(roots).build())
}

fn from_file(path: &Path) -> Result<RootCerts, EndpointError> {
    let refused = |what: String| EndpointError::Setting {
        key: "ca_file",
        found: format!("{} ({what})", path.display()),
        expected: "a PEM file with certificates".to_owned(),
    };
    let bytes = regular_file::read(path).map_err(|error| refused(error.to_string()))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&bytes) {
        if let PemItem::Certificate(certificate) =
            item.map_err(|error| refused(error.to_string()))?
        {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(refused("no certificate".to_owned()));
    }
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_certificates() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let check = |text: &str, expect: &str| {
            std::fs::write(&path, text).unwrap();
            let error = config(Some(&path)).unwrap_err().to_string();
            assert!(error.starts_with("`ca_file` is "), "{error}");
            assert!(error.contains(expect), "{error}");
        };
        check("", "(no certificate); expected a PEM file with certificates");
        check("no PEM", "no certificate");
        let pem = |kind, text| format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n");
        check(&pem("PRIVATE KEY", "AAAA"), "no certificate");
        check(&pem("CERTIFICATE", "!"), "ca.pem (");
        std::fs::write(&path, pem("CERTIFICATE", "AAAA").repeat(2)).unwrap();
        match config(Some(&path)).unwrap().root_certs() {
            RootCerts::Specific(certificates) => assert_eq!(certificates.len(), 2),
            other => panic!("{other:?}"),
        }
        assert!(matches!(config(None).unwrap().root_certs(), RootCerts::WebPki));
        std::fs::remove_file(&path).unwrap();
        assert!(config(Some(&path)).is_err());
    }
}
