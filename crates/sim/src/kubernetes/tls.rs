//! A certificate authority of the server's own, made anew for each run.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, DnType,
    DnValue, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use secrecy::SecretString;

use super::auth::Identity;

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
    issuer: CertifiedIssuer<'static, KeyPair>,
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
            issuer: authority,
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

    /// Signs a request (PEM) for a client, if `fits` is content with whom it is for. The
    /// certificate's own dates are whole days; the server knows the exact time.
    pub(crate) fn sign(
        &self,
        request: &str,
        now: Timestamp,
        ends: Timestamp,
        fits: impl FnOnce(&Identity) -> Result<(), &'static str>,
    ) -> Result<Signed, String> {
        let mut request = CertificateSigningRequestParams::from_pem(request)
            .map_err(|error| format!("the request cannot be read: {error}"))?;
        let params = &mut request.params;
        let mut who = Identity { user: String::new(), groups: vec![] };
        for (kind, value) in params.distinguished_name.iter() {
            match kind {
                DnType::CommonName => who.user = text(value),
                DnType::OrganizationName => who.groups.push(text(value)),
                _ => return Err("the subject has more than a name and organizations".to_owned()),
            }
        }
        fits(&who).map_err(str::to_owned)?;
        who.groups.push("system:authenticated".to_owned());
        params.is_ca = IsCa::NoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let day = SignedDuration::from_hours(24);
        let date = |time: Timestamp| {
            let date = time.to_zoned(TimeZone::UTC).date();
            let number = |part: i8| u8::try_from(part).unwrap_or(1);
            date_time_ymd(i32::from(date.year()), number(date.month()), number(date.day()))
        };
        params.not_before = date(now.checked_sub(day).unwrap_or(now));
        params.not_after = date(ends.checked_add(day).unwrap_or(ends));
        let signed = request.signed_by(&self.issuer).map_err(|error| error.to_string())?;
        Ok(Signed { pem: signed.pem(), der: signed.der().to_vec(), who })
    }

    /// How the server presents itself, and whose certificates it believes.
    pub(crate) fn server_config(&self) -> Result<rustls::ServerConfig, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone())?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(self.chain.clone(), self.key.clone_key())?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// A client's certificate.
pub(crate) struct Signed {
    pub pem: String,
    pub der: Vec<u8>,
    pub who: Identity,
}

fn text(value: &DnValue) -> String {
    match value {
        DnValue::Utf8String(text) => text.clone(),
        DnValue::PrintableString(text) => text.as_str().to_owned(),
        DnValue::Ia5String(text) => text.as_str().to_owned(),
        _ => String::new(),
    }
}
