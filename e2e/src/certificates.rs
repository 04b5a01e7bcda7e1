//! One authority for a control plane: it signs the server, its clients and the webhooks.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};

/// A certificate and its key, in PEM. Prints neither.
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its private key, PKCS#8.
    pub key: String,
}

/// Signs. Made anew for each control plane.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// A new one.
    pub fn generate() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new()).context("no certificate")?;
        params.distinguished_name.push(DnType::CommonName, "applecart-e2e");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        let key = KeyPair::generate().context("could not make a key")?;
        let issuer = CertifiedIssuer::self_signed(params, key);
        Ok(Self(issuer.context("could not make an authority")?))
    }

    /// Its own certificate and key.
    #[must_use]
    pub fn pair(&self) -> Pair {
        Pair { certificate: self.0.pem(), key: self.0.key().serialize_pem() }
    }

    /// For a server on loopback.
    pub fn server(&self, name: &str) -> Result<Pair> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// For a user of Kubernetes, in one group or none: a name has room for one of a kind here.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Pair> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Pair> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().context("could not make a key")?;
        let certificate = params.signed_by(&key, &self.0).context("could not sign")?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}
