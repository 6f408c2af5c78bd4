//! A certificate authority for one cluster, and the server's certificate by it.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::Error;

/// What the server and its clients need, each in PEM.
pub(super) struct Certificates {
    /// The authority's certificate; clients trust it.
    pub authority: String,
    /// The server's certificate, for `localhost` and 127.0.0.1.
    pub server: String,
    /// The server's private key.
    pub key: String,
}

/// Makes a new authority and a certificate by it.
pub(super) fn certificates() -> Result<Certificates, Error> {
    make().map_err(|error| Error::Failed {
        program: "making a certificate".into(),
        detail: error.to_string(),
    })
}

fn make() -> Result<Certificates, rcgen::Error> {
    let authority_key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(DnType::CommonName, "testbed authority");
    let authority = params.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(params, authority_key);

    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()])?;
    params
        .distinguished_name
        .push(DnType::CommonName, "localhost");
    let server = params.signed_by(&key, &issuer)?.pem();
    Ok(Certificates {
        authority,
        server,
        key: key.serialize_pem(),
    })
}
