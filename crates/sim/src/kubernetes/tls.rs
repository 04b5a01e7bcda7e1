//! A certificate authority of the server's own, made anew for each run.

use std::net::{IpAddr, Ipv4Addr};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use secrecy::SecretString;

/// Why no authority could be made.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A key or certificate could not be made.
    #[error("could not make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The system gave no randomness for the administrator's token.
    #[error("no randomness for a token")]
    Randomness,
}

/// Who signs the server's certificate, and the one token that nobody can guess.
pub struct Authority {
    certificate: String,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    admin_token: SecretString,
}

impl Authority {
    /// A new authority with a server certificate for loopback.
    pub fn generate() -> Result<Self, AuthorityError> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "simulated kubernetes");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let key = KeyPair::generate()?;
        let server = params.signed_by(&key, &authority)?;
        let mut bits = [0_u8; 32];
        rustls::crypto::ring::default_provider()
            .secure_random
            .fill(&mut bits)
            .map_err(|_| AuthorityError::Randomness)?;
        let token = URL_SAFE_NO_PAD.encode(bits);
        Ok(Self {
            certificate: authority.pem(),
            chain: vec![server.der().clone()],
            key: PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            admin_token: SecretString::from(token),
        })
    }

    /// The authority's certificate, in PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The administrator's token.
    #[must_use]
    pub fn admin_token(&self) -> &SecretString {
        &self.admin_token
    }

    /// How the server presents itself.
    pub(crate) fn server_config(&self) -> Result<rustls::ServerConfig, rustls::Error> {
        let provider = rustls::crypto::ring::default_provider();
        let mut config = rustls::ServerConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}
