//! The secrets: as set, or with SQLite made once and kept beside the database file, so that neither a restart nor
//! a second process on the same file invalidates what the first has signed.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jsonwebtoken::DecodingKey;
use secrecy::SecretBox;

use super::read::{bad, missing, text};
use super::settings::{Settings, name};
use super::{ConfigError, Database, JwtKey};

/// The fewest bytes of a secret. HMAC-SHA256 gains nothing from fewer than its output's (RFC 2104, section 3), and a
/// JWT's key must not be shorter (RFC 7518, section 3.2).
pub const SHORTEST_SECRET: usize = 32;
/// Random bytes of a secret that we make; it is kept as twice as many hexadecimal digits.
const MADE_BYTES: usize = 32;

/// Reads or makes what signs the session cookie.
pub(super) fn cookie(settings: &Settings, database: &Database) -> Result<SecretBox<Vec<u8>>, ConfigError> {
    set_or_made(name::COOKIE_SECRET, settings.cookie_secret.as_ref(), database, "cookie-secret")
}

/// Reads or makes what bearer tokens are checked with.
pub(super) fn jwt(settings: &Settings, database: &Database) -> Result<JwtKey, ConfigError> {
    let Some(key) = text(name::JWT_PUBLIC_KEY, settings.jwt_public_key.as_ref())? else {
        let secret = set_or_made(name::JWT_SECRET, settings.jwt_secret.as_ref(), database, "jwt-secret")?;
        return Ok(JwtKey::Secret(secret));
    };
    if text(name::JWT_SECRET, settings.jwt_secret.as_ref())?.is_some() {
        return Err(bad(name::JWT_PUBLIC_KEY, "is set beside ONCEGATE_JWT_SECRET", "one of the two"));
    }
    public_pem(key)
}

fn public_pem(given: &str) -> Result<JwtKey, ConfigError> {
    const ALLOWED: &str =
        "a public key for RS256, ES256 (P-256) or EdDSA (Ed25519) as PEM text, or the path of a file that holds it";
    // What is meant as PEM may be a private key: it is never shown, unlike a path.
    let is_text = given.contains("-----") || given.contains('\n');
    let shown = if is_text { format!("is a text of {} bytes", given.len()) } else { format!("is {given:?}") };
    let pem = if is_text { Ok(given.to_owned()) } else { fs::read_to_string(given) };
    let pem = pem.map_err(|e| bad(name::JWT_PUBLIC_KEY, &format!("{shown}, which cannot be read ({e})"), ALLOWED))?;
    if is_public_key(&pem) {
        Ok(JwtKey::PublicPem(pem))
    } else {
        Err(bad(name::JWT_PUBLIC_KEY, &format!("{shown}, which is no such key"), ALLOWED))
    }
}

fn is_public_key(pem: &str) -> bool {
    let bytes = pem.as_bytes();
    // The library takes RSA's private key too, and then refuses every token.
    if pem.contains("PRIVATE KEY-----") {
        return false;
    }
    DecodingKey::from_rsa_pem(bytes).is_ok()
        || DecodingKey::from_ed_pem(bytes).is_ok()
        || DecodingKey::from_ec_pem(bytes).is_ok_and(|key| is_p256(&key))
}

/// Whether the curve is P-256, the only one of ES256: a key of another curve would be taken, and then every token
/// be refused.
fn is_p256(key: &DecodingKey) -> bool {
    /// Bytes of an uncompressed point of that curve.
    const POINT: usize = 65;
    key.try_get_as_bytes().is_ok_and(|point| point.len() == POINT)
}

fn set_or_made(
    name: &'static str,
    set: Option<&OsString>,
    database: &Database,
    kind: &str,
) -> Result<SecretBox<Vec<u8>>, ConfigError> {
    let allowed = format!("at least {SHORTEST_SECRET} bytes");
    let secret = match (text(name, set)?, database) {
        (Some(secret), _) if secret.len() < SHORTEST_SECRET => {
            return Err(bad(name, &format!("is {} bytes long (not shown)", secret.len()), &allowed));
        }
        (Some(secret), _) => secret.as_bytes().to_vec(),
        (None, Database::Postgres(_)) => return Err(missing(name, &format!("with PostgreSQL, {allowed}"))),
        (None, Database::Sqlite(database)) => kept_beside(database, kind, name)?,
    };
    Ok(SecretBox::new(Box::new(secret)))
}

fn kept_beside(database: &Path, kind: &str, name: &'static str) -> Result<Vec<u8>, ConfigError> {
    let mut file = database.as_os_str().to_owned();
    file.push(format!(".{kind}"));
    let file = PathBuf::from(file);
    let secret = read_or_make(&file)
        .map_err(|e| ConfigError::Io(format!("cannot keep a secret in {}: {e} (or set {name})", file.display())))?;
    if secret.len() < SHORTEST_SECRET {
        let given = format!("in {} is {} bytes long (not shown)", file.display(), secret.len());
        return Err(bad(name, &given, &format!("at least {SHORTEST_SECRET} bytes; delete the file for a new one")));
    }
    Ok(secret)
}

fn read_or_make(file: &Path) -> io::Result<Vec<u8>> {
    match fs::read(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => make(file).and_then(|()| fs::read(file)),
        read => read,
    }
    .map(|text| text.trim_ascii_end().to_vec())
}

/// Makes the file whole or not at all; when another process was first, its file stays.
fn make(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut random = [0; MADE_BYTES];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let mut made = tempfile::NamedTempFile::new_in(folder)?; // mode 600
    writeln!(made, "{}", hex::encode(random))?;
    made.as_file().sync_all()?;
    match made.persist_noclobber(file) {
        Err(e) if e.error.kind() != io::ErrorKind::AlreadyExists => Err(e.error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    use super::*;

    #[test]
    fn many_who_start_at_once_agree_on_one_secret_that_only_the_owner_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("new/shop.db");
        let secrets: Vec<_> = thread::scope(|scope| {
            let start = || scope.spawn(|| kept_beside(&database, "jwt-secret", "X").unwrap());
            let started: Vec<_> = (0..16).map(|_| start()).collect();
            started.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(secrets.iter().all(|s| s == &secrets[0] && s.len() == 2 * MADE_BYTES));
        let files: Vec<_> = fs::read_dir(folder.path().join("new")).unwrap().map(|f| f.unwrap()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(kept_beside(&database, "jwt-secret", "X").unwrap(), secrets[0]);
    }

    #[test]
    fn a_damaged_secret_file_is_named_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shop.db.jwt-secret");
        fs::write(&file, "short").unwrap();
        let error = kept_beside(&folder.path().join("shop.db"), "jwt-secret", "ONCEGATE_JWT_SECRET").unwrap_err();
        assert!(error.to_string().contains("shop.db.jwt-secret"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "short");
    }
}
