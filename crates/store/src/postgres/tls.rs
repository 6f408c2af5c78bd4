//! TLS to the server by rustls on ring: encryption alone, the chain checked, or the chain and the name.

use super::place::{Check, Place};
use crate::error::OpenError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// Makes TLS connections as the store's URL asks.
#[derive(Clone)]
pub(super) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Reads the certificates to trust, if any are needed. Errors: a file that cannot be read.
    pub(super) fn new(place: &Place) -> Result<Self, OpenError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let failed = |detail: String| OpenError::Other {
            path: place.shown.clone(),
            detail,
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(format!("TLS cannot be set up: {error}")))?;
        let verifier = Verifier {
            provider: Arc::clone(&provider),
            check: place.check,
            chain: match place.check {
                Check::Nothing => None,
                Check::Chain | Check::Name => {
                    let roots = roots(place).map_err(failed)?;
                    let chain = WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
                        .build()
                        .map_err(|error| failed(format!("no certificate to trust: {error}")))?;
                    Some(chain)
                }
            },
        };
        let config = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Self(Arc::new(config)))
    }
}

fn roots(place: &Place) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    if let Some(file) = &place.roots {
        let unreadable = |error: String| {
            format!(
                "the certificates of `sslrootcert` ({}) cannot be read: {error}",
                file.display()
            )
        };
        for certificate in
            CertificateDer::pem_file_iter(file).map_err(|error| unreadable(error.to_string()))?
        {
            let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
            store
                .add(certificate)
                .map_err(|error| unreadable(error.to_string()))?;
        }
        return Ok(store);
    }
    for certificate in rustls_native_certs::load_native_certs().certs {
        // One strange certificate among the system's harms nobody else.
        let _ = store.add(certificate);
    }
    if store.is_empty() {
        return Err(
            "this system has no certificates to trust; name a file with `sslrootcert=`".to_owned(),
        );
    }
    Ok(store)
}

/// Checks as much of the server's identity as was asked for; signatures always.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    check: Check,
    chain: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        let verdict = chain.verify_server_cert(end_entity, intermediates, server_name, ocsp, now);
        match verdict {
            // The name is looked at last, so a chain that fails is told as that.
            Err(rustls::Error::InvalidCertificate(
                rustls::CertificateError::NotValidForName
                | rustls::CertificateError::NotValidForNameContext { .. },
            )) if self.check == Check::Chain => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// A handshake to come, with the name to ask for.
pub(super) struct Handshake {
    connector: tokio_rustls::TlsConnector,
    name: ServerName<'static>,
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type TlsConnect = Handshake;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Handshake, Self::Error> {
        Ok(Handshake {
            connector: Arc::clone(&self.0).into(),
            name: ServerName::try_from(domain)?.to_owned(),
        })
    }
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let stream = self.connector.connect(self.name, stream).await?;
            Ok(Stream(Box::new(stream)))
        })
    }
}

/// A TLS stream as the driver wants it. It gives no channel binding: the password exchange does without.
pub(super) struct Stream<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}
