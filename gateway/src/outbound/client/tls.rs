use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::outbound::error::OutboundError;

/// How TLS is spoken to an upstream; made once, since each holds its own tickets of resumption.
pub(in crate::outbound) type Tls = Arc<ClientConfig>;

/// Trusts the public roots, and the certificates of `bundle` beside them. The machine's own roots are not read: the
/// image has none.
pub(in crate::outbound) fn trusting(bundle: Option<&str>) -> Result<Tls, OutboundError> {
    let mut roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    if let Some(bundle) = bundle {
        let public = roots.len();
        for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            let certificate = certificate.map_err(|_| OutboundError::CaBundle)?;
            roots
                .add(certificate)
                .map_err(|_| OutboundError::CaBundle)?;
        }
        if roots.len() == public {
            return Err(OutboundError::CaBundle);
        }
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
