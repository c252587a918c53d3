//! Credentials for a server, and the certificate authority to trust: from flags, the
//! environment or a context.
//!
//! Invariants:
//! - No command line and no output contains a token.
//! - A token for one server is never sent to another server; the settings ensure this.

#![allow(clippy::doc_markdown, reason = "some are help texts")]

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};
use weir::ErrorCode;

use crate::report::{Failure, FailureContext, usage};

/// Names of the files and variables that hold the credentials, never a secret itself.
#[derive(Clone, Debug, Default, Deserialize, Serialize, Args)]
pub(crate) struct Credentials {
    /// File with the token for a server [else WEIR_TOKEN_FILE, WEIR_TOKEN, the context]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    /// Name of the environment variable with the token.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_env: Option<String>,
    /// File with the certificate authority of weirs:// servers, PEM [else WEIR_SERVER_CA, the
    /// system's]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server_ca: Option<PathBuf>,
    /// File with the client certificate for weirs:// servers, PEM [else WEIR_CLIENT_CERT]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_cert: Option<PathBuf>,
    /// File with the key of that certificate, PEM [else WEIR_CLIENT_KEY]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_key: Option<PathBuf>,
}

/// Merges layers of credentials; the first layer wins. Returns key, value and origin of each
/// setting.
pub(crate) fn shown(layers: &[(&str, Credentials)]) -> Vec<(&'static str, Option<String>, String)> {
    type Read = fn(&Credentials) -> Option<String>;
    fn path(path: Option<&PathBuf>) -> Option<String> {
        Some(path?.display().to_string())
    }
    let keys: [(&'static str, Read); 4] = [
        ("token", Credentials::shown_token),
        ("server_ca", |own| path(own.server_ca.as_ref())),
        ("client_cert", |own| path(own.client_cert.as_ref())),
        ("client_key", |own| path(own.client_key.as_ref())),
    ];
    let found = |read: Read| {
        let mut layers = layers.iter();
        layers.find_map(|(origin, own)| Some((read(own)?, (*origin).to_owned())))
    };
    keys.map(|(key, read)| match found(read) {
        Some((value, origin)) => (key, Some(value), origin),
        None => (key, None, "default".to_owned()),
    })
    .into()
}

/// The variable that holds a token.
const TOKEN: &str = "WEIR_TOKEN";
/// Maximum size of a token file, in bytes.
const TOKEN_FILE_BYTES_MAX: u64 = 4096;

impl Credentials {
    /// Reads the credentials of the environment.
    pub(crate) fn of_environment() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|text| !text.is_empty());
        let path = |name: &str| set(name).map(PathBuf::from);
        Self {
            token_env: set(TOKEN).map(|_| TOKEN.to_owned()),
            token_file: path("WEIR_TOKEN_FILE"),
            server_ca: path("WEIR_SERVER_CA"),
            client_cert: path("WEIR_CLIENT_CERT"),
            client_key: path("WEIR_CLIENT_KEY"),
        }
    }

    /// Fills the missing fields from `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        let token = self.token_file.is_some() || self.token_env.is_some();
        let (token_file, token_env) = if token {
            (self.token_file, self.token_env)
        } else {
            (other.token_file, other.token_env)
        };
        let identity = self.client_cert.is_some() || self.client_key.is_some();
        let (client_cert, client_key) = if identity {
            (self.client_cert, self.client_key)
        } else {
            (other.client_cert, other.client_key)
        };
        Self {
            token_file,
            token_env,
            server_ca: self.server_ca.or(other.server_ca),
            client_cert,
            client_key,
        }
    }

    /// Reads the token.
    pub(crate) fn token(&self) -> anyhow::Result<Option<String>> {
        if let Some(path) = &self.token_file {
            let failed = || format!("cannot read the token in {}", path.display());
            let file = std::fs::File::open(path).failed(failed)?;
            let mut text = String::new();
            let read = file.take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut text);
            read.failed(failed)?;
            return Ok(Some(text.trim().to_owned()));
        }
        let Some(name) = &self.token_env else {
            return Ok(None);
        };
        match std::env::var(name) {
            Ok(token) if !token.trim().is_empty() => Ok(Some(token.trim().to_owned())),
            _ => Err(
                Failure::new(ErrorCode::BadOption, "cannot find the token of the context")
                    .because(format!("the variable {name} is not set"))
                    .advise(format!("set {name}, or name a file: `--token-file FILE`"))
                    .into(),
            ),
        }
    }

    /// Returns the files of the client certificate and its key.
    pub(crate) fn identity(&self) -> anyhow::Result<Option<(PathBuf, PathBuf)>> {
        match (&self.client_cert, &self.client_key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some((certificate.clone(), key.clone()))),
            _ => Err(usage("--client-cert and --client-key belong together")),
        }
    }

    /// Describes where the token is stored, without a part of the token.
    pub(crate) fn shown_token(&self) -> Option<String> {
        match (&self.token_file, &self.token_env) {
            (Some(file), _) => Some(format!("(file {})", file.display())),
            (None, Some(name)) => Some(format!("(environment {name})")),
            (None, None) => None,
        }
    }

    /// Makes all paths absolute.
    pub(crate) fn absolute(&self) -> anyhow::Result<Self> {
        let absolute = |path: &Option<PathBuf>| {
            let path = path.as_ref().map(std::path::absolute);
            path.transpose()
                .failed(|| "cannot resolve the path of the file".to_owned())
        };
        Ok(Self {
            token_file: absolute(&self.token_file)?,
            token_env: self.token_env.clone(),
            server_ca: absolute(&self.server_ca)?,
            client_cert: absolute(&self.client_cert)?,
            client_key: absolute(&self.client_key)?,
        })
    }
}
