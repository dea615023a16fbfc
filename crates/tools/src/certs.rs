//! `sheaf certs`: a test authority, a certificate for a server and one for a client, so that TLS can be tried
//! at once.
//!
//! Invariants
//! - No file is ever replaced: if one of the names is taken at the start, nothing is written.
//! - Keys are readable by their owner alone, from their first byte on.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use env::{Clock, RealClock, crashsafe::create_with_mode};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

const KEY_MODE: u32 = 0o600;
const CERTIFICATE_MODE: u32 = 0o644;
/// How long before now certificates become valid: clocks of other machines may be slow.
const VALID_BEFORE: Duration = Duration::hours(1);

/// The certificates to make, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The directory for the files; it is created if necessary.
    pub dir: PathBuf,
    /// Names and addresses of the server, besides `localhost`, its addresses, and the name of this machine.
    pub hosts: Vec<String>,
    /// The name in the certificate of the client.
    pub user: String,
    /// The number of days for which the certificates are valid.
    pub days: u32,
}

/// Why the certificates could not be made or written.
#[derive(Debug, thiserror::Error)]
pub enum CertsError {
    /// A file with one of the names exists.
    #[error("{} exists, and is not replaced: choose another directory, or remove it", .0.display())]
    Exists(PathBuf),
    /// A file cannot be written, or the directory cannot be created.
    #[error("cannot write {}: {reason}", path.display())]
    Write {
        /// The path of the file or directory.
        path: PathBuf,
        /// The error of the operating system.
        reason: std::io::Error,
    },
    /// The certificates cannot be made, for instance because a name is not fit for a certificate.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// Makes the certificates, and prints their purposes.
///
/// # Errors
/// [`CertsError`].
pub fn run(options: &Options) -> Result<(), CertsError> {
    let made = make(options)?;
    let paths: Vec<PathBuf> = made.iter().map(|file| options.dir.join(file.name)).collect();
    if let Some(taken) = paths.iter().find(|path| path.symlink_metadata().is_ok()) {
        return Err(CertsError::Exists(taken.clone()));
    }
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |reason: std::io::Error| match reason.kind() {
            // The file was made after the check above.
            ErrorKind::AlreadyExists => CertsError::Exists(path),
            _ => CertsError::Write { path, reason },
        }
    };
    fs::create_dir_all(&options.dir).map_err(failed(&options.dir))?;
    for (file, path) in made.iter().zip(&paths) {
        create_with_mode(path, file.content.as_bytes(), file.mode).map_err(failed(path))?;
    }
    let dir = options.dir.display();
    println!("authority    {dir}/ca.crt, which clients and server trust; {dir}/ca.key signs others");
    println!("server       {dir}/server.crt, {dir}/server.key: for {}", hosts(options).join(", "));
    println!("client       {dir}/client.crt, {dir}/client.key: for {}", options.user);
    println!(
        "try          sheaf --tls-port 6380 --tls-cert-file {dir}/server.crt --tls-key-file {dir}/server.key \
         --tls-ca-cert-file {dir}/ca.crt"
    );
    println!(
        "             redis-cli -p 6380 --tls --cacert {dir}/ca.crt --cert {dir}/client.crt --key {dir}/client.key"
    );
    Ok(())
}

struct NewFile {
    name: &'static str,
    content: String,
    mode: u32,
}

fn make(options: &Options) -> Result<[NewFile; 6], CertsError> {
    let now = OffsetDateTime::from_unix_timestamp((RealClock.unix_ms() / 1000) as i64);
    let now = now.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let valid = |mut params: CertificateParams, name: &str| {
        params.not_before = now - VALID_BEFORE;
        params.not_after = now + Duration::days(options.days.into());
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let mut authority = valid(CertificateParams::default(), "Sheaf test authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let hosts = hosts(options);
    let mut server = valid(CertificateParams::new(hosts.clone())?, &hosts[0]);
    // Members of a group are clients of each other.
    server.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let mut client = valid(CertificateParams::default(), &options.user);
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let sign = |mut params: CertificateParams| {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        Ok::<_, rcgen::Error>((params.signed_by(&key, &authority)?.pem(), key.serialize_pem()))
    };
    let ((server, server_key), (client, client_key)) = (sign(server)?, sign(client)?);
    let certificate = |name, content| NewFile { name, content, mode: CERTIFICATE_MODE };
    let key = |name, content| NewFile { name, content, mode: KEY_MODE };
    Ok([
        certificate("ca.crt", authority.pem()),
        key("ca.key", authority.key().serialize_pem()),
        certificate("server.crt", server),
        key("server.key", server_key),
        certificate("client.crt", client),
        key("client.key", client_key),
    ])
}

/// The names and addresses for which the server's certificate is valid.
fn hosts(options: &Options) -> Vec<String> {
    let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(String::from).into();
    let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let own = Some(own.trim().to_owned()).filter(|own| !own.is_empty());
    for host in own.into_iter().chain(options.hosts.iter().cloned()) {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tls::{Acceptor, ClientCertificates, ClientFiles, Connector, Loaded, ServerPolicy, Versions};

    use super::*;

    #[test]
    fn the_files_fit_together_and_are_never_replaced() {
        let dir = std::env::temp_dir().join(format!("sheaf-certs-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let options =
            Options { dir: dir.clone(), hosts: vec!["db1.example".into()], user: "app".into(), days: 30 };
        run(&options).unwrap();
        let policy = ServerPolicy {
            certificate: dir.join("server.crt"),
            key: dir.join("server.key"),
            authority_file: dir.join("ca.crt"),
            authority_dir: PathBuf::new(),
            clients: ClientCertificates::Required,
            versions: Versions::parse("").unwrap(),
        };
        let loaded = Loaded::read(&policy).unwrap();
        let days = (loaded.expires_unix_s.unwrap() - (RealClock.unix_ms() / 1000) as i64) / 86_400;
        assert!((29..=30).contains(&days), "{days}");
        assert!(Acceptor::new(loaded).accept().is_ok());
        let files = ClientFiles {
            authorities: Some(dir.join("ca.crt")),
            certificate: Some(dir.join("client.crt")),
            key: Some(dir.join("client.key")),
            ..ClientFiles::default()
        };
        assert!(Connector::new(&files).is_ok());
        for name in ["ca", "server", "client"] {
            let mode = fs::metadata(dir.join(format!("{name}.key"))).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let before = fs::read(dir.join("client.crt")).unwrap();
        assert!(matches!(run(&options), Err(CertsError::Exists(_))));
        fs::remove_file(dir.join("ca.crt")).unwrap();
        assert!(matches!(run(&options), Err(CertsError::Exists(_))));
        assert!(!dir.join("ca.crt").exists() && fs::read(dir.join("client.crt")).unwrap() == before);
        fs::remove_dir_all(&dir).unwrap();
    }
}
